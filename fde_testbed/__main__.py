"""The command `fde`, as `python -m fde_testbed` and as the installed script starts it."""

import sys


def main() -> int:
    """Run the command; an environment with packages that do not fit is a sentence."""
    try:
        from controller.cli import app
    except (ImportError, AttributeError) as error:
        update = f"{sys.executable} -m pip install --upgrade fde-energy-testbed"
        sys.exit(f"fde: A package is missing or does not fit: {error}. Run `{update}`.")
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
