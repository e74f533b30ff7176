"""`python -m analysis report|verify|pair`: see --help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from analysis.records import SuiteError


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 is success, 1 a suite that cannot be used, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("report", "derive the tables of a suite and write its report"),
        ("verify", "check a suite's SHA-256 sums and make its figures again from the raw bytes"),
    ):
        commands.add_parser(name, help=text).add_argument("suite", type=Path, metavar="SUITE_DIR")
    commands.add_parser("pair", help="write report.ipynb anew from report.py")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "report":
            return _report(arguments.suite)
        if arguments.command == "verify":
            return _verify(arguments.suite)
        return _pair()
    except SuiteError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"fde: Cannot write or read{where}: {error.strerror}.", file=sys.stderr)
        return 1


def _report(folder: Path) -> int:
    from analysis.page import build

    built = build.build(folder)
    print(built.text)
    print(f"\nreport: {built.page}")
    return 0


def _verify(folder: Path) -> int:
    from analysis import verify

    outcome = verify.verify(folder)
    print("\n".join(outcome.said))
    for problem in outcome.problems:
        print(f"fde: {problem}", file=sys.stderr)
    return 1 if outcome.problems else 0


def _pair() -> int:
    from analysis.page import build

    build.NOTEBOOK.write_text(build.pair(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
