"""`python -m controller`: the command `fde`, where it is not installed."""

import sys

from controller.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
