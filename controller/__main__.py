"""Run the command `fde` as `python -m controller`, if it is not installed."""

import sys

from controller.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
