"""Entry point of the command `fde`, as `python -m fde_testbed` and as installed script."""

import sys


def main() -> int:
    """Run the command; print a sentence if a package is missing or does not fit."""
    try:
        from controller.cli import app
    except (ImportError, AttributeError) as error:
        update = f"{sys.executable} -m pip install --upgrade fde-energy-testbed"
        sys.exit(f"fde: A package is missing or does not fit: {error}. Run `{update}`.")
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
