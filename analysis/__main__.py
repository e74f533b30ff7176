"""`python -m analysis report|verify|summary|compare|trace`: see --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from analysis.suite.records import SuiteError
from contract import names

HOSTS = Path("build") / "hosts"  # reports of suites that are no group


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 is success, 1 a suite that cannot be used, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("report", "a suite's tables and report; several hosts' suites, or a group's, as one"),
        ("verify", "check a suite's SHA-256 sums and make its figures again from the raw bytes"),
        ("summary", "ten lines: what ran, what was void and why, whether the drift check held"),
    ):
        commands.add_parser(name, help=text).add_argument(
            "suites", type=Path, metavar="SUITE_DIR", nargs="+" if name == "report" else 1
        )
    two = commands.add_parser("compare", help="two suites: what differs, and B / A of the joules")
    two.add_argument("a", type=Path, metavar="A")
    two.add_argument("b", type=Path, metavar="B")
    one = commands.add_parser("trace", help="draw the power over the time of one run")
    one.add_argument("suite", type=Path, metavar="SUITE_DIR")
    one.add_argument("run", metavar="RUN_ID", nargs="?", default="")
    for parser_of, place in ((two, "compare"), (one, "traces")):
        parser_of.add_argument("--out", type=Path, default=Path("build") / place, metavar="DIR")
    arguments = parser.parse_args(argv)
    done: dict[str, Callable[[], int]] = {
        "report": lambda: _report(arguments.suites),
        "verify": lambda: max(_verify(folder) for folder in _each(arguments.suites)),
        "summary": lambda: max(_summary(folder) for folder in _each(arguments.suites)),
        "compare": lambda: _compare(arguments.a, arguments.b, arguments.out),
        "trace": lambda: _trace(arguments.suite, arguments.run, arguments.out),
    }
    return in_words(done[arguments.command])


def in_words(command: Callable[[], int]) -> int:
    """The command's status; 1 and a sentence for what it raises."""
    try:
        return command()
    except SuiteError as error:
        said = str(error)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        said = f"Cannot write or read{where}: {error.strerror}."
    print(f"fde: {names.sentence(said)}", file=sys.stderr)
    return 1


def _say(text: str) -> None:
    """Words of a suite are not to be obeyed by the terminal."""
    print(names.printable(text))


def _each(folders: list[Path]) -> list[Path]:
    """The suites that are meant: a group's folder stands for those of its hosts."""
    from analysis.suite import group

    return [one for f in folders for one in (group.members(f) if group.is_group(f) else [f])]


def _report(folders: list[Path]) -> int:
    from analysis.report import build, hosts_page

    several = _each(folders) != folders or len(folders) > 1
    built = hosts_page.write(folders, HOSTS) if several else build.build(folders[0])
    _say(f"{built.text}\n\nreport: {built.page}")
    return 0


def _verify(folder: Path) -> int:
    from analysis.stats import results

    outcome = results.verify(folder)
    _say("\n".join([f"{folder.name}:", *outcome.said]))
    for problem in outcome.problems:
        print(f"fde: {names.sentence(problem)}", file=sys.stderr)
    return 1 if outcome.problems else 0


def _summary(folder: Path) -> int:
    from analysis.report import morning

    _say("\n".join(morning.lines(folder)))
    return 0


def _compare(a: Path, b: Path, out: Path) -> int:
    from analysis.report import compare_page
    from analysis.stats import compare

    found = compare.compare(a, b)
    _say(compare_page.text(found))
    _say(f"\npage: {compare_page.write(found, out)}")
    return 0


def _trace(folder: Path, run_id: str, out: Path) -> int:
    from analysis.report import trace

    traced = trace.trace(folder, run_id, out)
    _say(f"{traced.svg}\n{traced.png}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
