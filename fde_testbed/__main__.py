"""Entry point of the command `fde`, as `python -m fde_testbed` and as installed script."""

import sys


def main() -> int:
    """Run the command; print a sentence if a package is missing or does not fit."""
    try:
        from controller.cli import app
    except (ImportError, AttributeError) as error:
        from contract import installation

        remedy = installation.install(*installation.requirements())
        sys.exit(f"fde: A package is missing or does not fit: {error}. To repair it, {remedy}.")
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
