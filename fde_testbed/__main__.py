"""The command `fde`, as `python -m fde_testbed` and as the installed script starts it."""

import sys

from controller.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
