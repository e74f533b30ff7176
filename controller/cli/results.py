"""Commands that make figures of a suite's folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract import names
from contract.command_results import (
    CompareResult,
    ContrastResult,
    NotebookResult,
    ReportResult,
    SuiteSummary,
    SuiteVerified,
    SummaryResult,
    TraceResult,
    VerifyResult,
)
from contract.places import build_folder
from controller.cli.output import Json, SuiteDir, SuiteDirs, finished, newest, say, there

if TYPE_CHECKING:
    from analysis.stats.results import Results

commands = typer.Typer()
RESULTS = "Results"

OutDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where the page or figures go.")]


@commands.command(rich_help_panel=RESULTS)
def report(
    suites: SuiteDirs = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Write report.pdf as well, for paper.")
    ] = False,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, help="Groups of machines (YAML): writes fleet.csv as well."
        ),
    ] = None,
    as_json: Json = False,
) -> bool:
    """Joules, verdicts and payback of a suite; of several hosts' suites, or a group's, as one."""

    def work() -> ReportResult:
        from analysis.report import build, hosts_page
        from analysis.report import pdf as paper

        folders = suites or [newest()]
        several = _each(folders) != folders or len(folders) > 1
        built = (
            hosts_page.write(folders, build_folder() / "hosts")
            if several
            else build.build(folders[0])
        )
        say(f"{built.text}\n\nreport: {built.page}")
        printed = paper.write(built.page.parent) if pdf else None
        if printed:
            say(f"report: {printed}")
        table = _fleet(built.found, fleet, built.page.parent) if fleet else None
        return ReportResult(
            True,
            str(built.page),
            str(printed) if printed else None,
            built.found.origin if built.found else None,
            tuple(_contrasts(built.found)) if built.found else None,
            str(table) if table else None,
        )

    return finished(as_json, work)


def _fleet(found: Results | None, fleet: Path, folder: Path) -> Path:
    from analysis.money import fleet as money
    from analysis.suite.records import SuiteError

    if found is None:
        raise SuiteError("A fleet's table is of one suite: name one folder.")
    out = folder / "fleet.csv"
    money.write(found.suite, found.energy, fleet, out)
    say(f"fleet: {out}")
    return out


def _contrasts(found: Results) -> Iterator[ContrastResult]:
    for each in found.contrasts:
        of = each.comparison
        figures = (of.ratio, of.low, of.high, of.verdict) if of else (None,) * 4
        yield ContrastResult(
            each.base, each.other, each.declared, each.workloads, of.n if of else 0, *figures
        )


@commands.command(rich_help_panel=RESULTS)
def verify(suites: SuiteDirs = None, as_json: Json = False) -> bool:
    """Check a suite's SHA-256 sums and make its figures again from the raw bytes."""

    def work() -> VerifyResult:
        from analysis.stats import results

        found = []
        for folder in _each(suites or [newest()]):
            outcome = results.verify(folder)
            say("\n".join([f"{folder.name}:", *outcome.said]))
            for problem in outcome.problems:
                print(f"fde: {names.sentence(problem)}", file=sys.stderr)
            found.append(SuiteVerified(str(folder), outcome.said, outcome.problems))
        return VerifyResult(not any(each.problems for each in found), tuple(found))

    return finished(as_json, work)


@commands.command(rich_help_panel=RESULTS)
def summary(suites: SuiteDirs = None, as_json: Json = False) -> bool:
    """Ten lines: what ran, what was void and why, whether the drift check held."""

    def work() -> SummaryResult:
        from analysis.report import morning

        found = []
        for folder in _each(suites or [newest()]):
            lines = morning.lines(folder)
            say("\n".join(lines))
            found.append(SuiteSummary(str(folder), tuple(lines)))
        return SummaryResult(True, tuple(found))

    return finished(as_json, work)


@commands.command(rich_help_panel=RESULTS)
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a suite.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of another.")],
    out: OutDir = None,
    as_json: Json = False,
) -> bool:
    """Two suites: what differs between them, and B / A of the joules."""

    def work() -> CompareResult:
        from analysis.report import compare_page
        from analysis.stats import compare as comparing

        found = comparing.compare(a, b)
        say(compare_page.text(found))
        page = compare_page.write(found, out or build_folder() / "compare")
        say(f"\npage: {page}")
        return CompareResult(
            True,
            *(found.a.suite_id, found.b.suite_id, found.component, found.origin),
            *(found.differences, found.joules, found.costs),
            str(page),
        )

    return finished(as_json, work)


@commands.command(rich_help_panel=RESULTS)
def trace(
    suite: SuiteDir = None,
    run: Annotated[str, typer.Argument(metavar="RUN_ID", help="Without it: names them.")] = "",
    out: OutDir = None,
    as_json: Json = False,
) -> bool:
    """Draw the power over the time of one run."""

    def work() -> TraceResult:
        from analysis.report import trace as tracing

        traced = tracing.trace(suite or newest(), run, out or build_folder() / "traces")
        say(f"{traced.svg}\n{traced.png}")
        return TraceResult(True, str(traced.svg), str(traced.png))

    return finished(as_json, work)


@commands.command(rich_help_panel=RESULTS)
def notebook(
    suite: SuiteDir = None,
    only_copy: Annotated[
        bool, typer.Option("--copy", help="Put the notebook there and open nothing.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the address.")
    ] = True,
    as_json: Json = False,
) -> bool:
    """Open the notebook of a suite in JupyterLab: from its raw readings to its payback, in cells to
    be changed. Where there is no suite yet, on an example."""

    def work() -> NotebookResult:
        from controller import notebook as notebooks

        made = notebooks.copy(suite or (newest() if there() else notebooks.example()))
        kept = "" if made.new else " (as it was left; remove it for a new one)"
        say(f"notebook: {made.notebook}{kept}")
        opened = not (only_copy or as_json)
        status = notebooks.open_in_lab(made, browser) if opened else 0
        return NotebookResult(status == 0, str(made.notebook), str(made.suite))

    return finished(as_json, work)


def _each(folders: Sequence[Path]) -> list[Path]:
    """The suites that are meant: a group's folder stands for those of its hosts."""
    from analysis.suite import group

    return [one for f in folders for one in (group.members(f) if group.is_group(f) else [f])]
