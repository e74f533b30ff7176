"""The command `fde`, as `python -m fde_testbed` and as the installed script starts it."""

import sys


def main() -> int:
    """Run the command; an environment with packages that do not fit is a sentence."""
    try:
        from controller.cli import app
    except ImportError as error:
        print(
            f"fde: {sys.executable} lacks what fde needs: {error}. Run `{sys.executable} -m pip "
            "install --upgrade fde-energy-testbed`, or make a new environment.",
            file=sys.stderr,
        )
        return 1
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
