"""Commands that make figures of a suite's folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.command_results import (
    CompareResult,
    NotebookResult,
    PairCompared,
    PublishResult,
    ReportResult,
    SuiteVerified,
    SummaryResult,
    VerifyResult,
)
from contract.exports import is_stdout
from contract.files import sha256_of
from contract.notes import ContrastResult
from contract.places import build_folder
from controller.cli.options import Json, SuiteDirs, list_suites, newest
from controller.cli.output import complain, finished, say, with_json

if TYPE_CHECKING:
    from analysis.stats.results import Results

commands = typer.Typer()
RESULTS = "Results"

AnySuite = Annotated[
    Path | None,
    typer.Argument(metavar="SUITE_DIR", help="Folder or bundle of a suite. Default: the newest."),
]
OutDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where the page or figures go.")]


@commands.command(rich_help_panel=RESULTS)
@with_json
def report(suite: AnySuite = None) -> ReportResult:
    """Joules, verdicts and payback of a suite; of a group, its hosts side by side.

    A bundle is unpacked to build/bundles first (installed: below ~/.local/state/fde-testbed).
    """
    from analysis.report import build, hosts_page
    from analysis.suite.group import is_group

    (folder,) = _kept([suite or newest()])
    built = hosts_page.write(folder, say) if is_group(folder) else build.build(folder, say)
    say(f"\nreport: {built.page}")
    return ReportResult(
        True,
        str(built.page),
        built.results.origin if built.results else None,
        tuple(_contrasts(built.results)) if built.results else None,
        tuple(built.results.flags) if built.results else None,
        built.answer,
        tuple(built.results.work_notes) if built.results else None,
        tuple(built.results.works) if built.results else None,
    )


def _contrasts(results: Results) -> Iterator[ContrastResult]:
    for each in results.contrasts:
        pair = each.comparison
        figures = (pair.ratio, pair.low, pair.high, pair.verdict) if pair else (None,) * 4
        names = (each.base, each.other, each.declared, each.workloads)
        yield ContrastResult(*names, pair.n if pair else 0, *figures)


@commands.command(rich_help_panel=RESULTS)
@with_json
def verify(suites: SuiteDirs = None) -> VerifyResult:
    """Check the SHA-256 sums of suites or bundles, and make their figures again from raw bytes."""
    from controller.sharing import publish as publishing

    verified = []
    folders = _each(suites or [newest()])
    for path in folders:
        outcome = publishing.verify(path)
        say("\n".join([f"{path.resolve().name}:", *outcome.confirmed]))
        if path.is_file():
            say(f"SHA-256 of the bundle: {sha256_of(path)}")
        for problem in outcome.problems:
            complain(problem)
        verified.append(SuiteVerified(str(path), outcome.confirmed, outcome.problems))
    return VerifyResult(not any(each.problems for each in verified), tuple(verified))


@commands.command(rich_help_panel=RESULTS)
@with_json
def publish(
    suite: AnySuite = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The bundle. Default: SUITE.tar.gz here."),
    ] = None,
    author: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Whom to cite; repeated for several.")
    ] = None,
) -> PublishResult:
    """Pack a sealed suite as one file that can be cited; print what in it identifies."""
    from analysis.suite.bundle import open_suites
    from analysis.suite.suite_folder import suite_id
    from controller.sharing import publish as publishing

    aside = redirect_stdout(sys.stderr) if is_stdout(out) else nullcontext()
    with aside, open_suites([suite or newest()]) as (folder,):
        identifying = publishing.identified(folder)
        say("\n".join(publishing.listing(identifying)))
        place = out or Path(f"{suite_id(folder)}.tar.gz")
        made = publishing.publish(folder, place, identifying, author or ())
        size = f"{made.size_bytes / 1e6:.2f} MB"
        say(f"bundle: {made.bundle} ({size})\nSHA-256: {made.sha256}")
    return made


@commands.command(rich_help_panel=RESULTS)
@with_json
def summary(suites: SuiteDirs = None) -> SummaryResult:
    """Print what ran, what was void and why, the drift check; then the report's answer."""
    from analysis.report import summary_text

    summaries = []
    for suite in suites or [newest()]:
        for folder in _each(_kept([suite])):  # nobody makes a report in a bundle
            summaries.append(summary_text.summary(folder, derive=suite.is_file()))
            say("\n".join(summaries[-1].lines))
    return SummaryResult(True, tuple(summaries))


@commands.command(rich_help_panel=RESULTS)
@with_json
def compare(
    suites: Annotated[
        list[Path],
        typer.Argument(metavar="A B …", help="Folders or bundles of suites; all beside the first."),
    ],
    fail_on: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            help="Exit with 1 where joules rose significantly and by more than this, with 3 where "
            "nothing could be tested.",
        ),
    ] = None,
    out: OutDir = None,
) -> CompareResult:
    """Suites side by side: what differs between them, joules beside the first's, their history."""
    from analysis.report import compare_page
    from analysis.stats import compare as comparing
    from analysis.suite.bundle import open_suites

    with open_suites(suites) as folders:
        comparison = comparing.compare_all(folders)
        say(compare_page.text(comparison))
        page = compare_page.write(comparison, out or build_folder() / "compare")
    say(f"\npage: {page}")
    tested = compare_page.tested(comparison)
    failed = compare_page.failures(comparison, fail_on) if fail_on is not None else ""
    if fail_on is not None:
        say(f"tested: {tested} ratios of joules in {len(comparison)} pairs of suites")
    if failed:
        complain(failed)
    elif fail_on is not None and not tested:
        complain(
            "Nothing was tested: no workload with the same parameters has two blocks in both "
            "suites. Compare suites of the same work."
        )
    pairs = [
        PairCompared(
            pair.b.suite_id,
            pair.b.plan.created_wall,
            pair.component,
            pair.origin,
            pair.differences,
            pair.joules,
            pair.overall,
            pair.costs,
            tuple(pair.increases),
        )
        for pair in comparison
    ]
    ok = fail_on is None or (tested > 0 and not failed)
    return CompareResult(ok, comparison[0].a.suite_id, tuple(pairs), fail_on, str(page), tested)


@commands.command(rich_help_panel=RESULTS)
def notebook(suite: AnySuite = None, as_json: Json = False) -> bool | int:
    """Open the notebook of a suite in JupyterLab: from raw readings to payback, in cells.

    Without a suite it opens on an example; with --json it is only made, and opened by nothing.
    """

    def work() -> NotebookResult:
        from controller.sharing import notebook as notebooks

        made = notebooks.copy(suite or (newest() if list_suites() else notebooks.example()))
        kept = "" if made.new else " (as it was left; remove it for a new one)"
        say(f"notebook: {made.notebook}{kept}")
        status = 0 if as_json else notebooks.open_in_lab(made)
        return NotebookResult(status == 0, str(made.notebook), str(made.suite))

    return finished(as_json, work)


def _kept(paths: Sequence[Path]) -> list[Path]:
    """Return suites as folders; bundles are unpacked below the build folder."""
    if not any(path.is_file() for path in paths):
        return list(paths)
    from controller.sharing import publish as publishing

    return [publishing.kept(path, build_folder() / "bundles") for path in paths]


def _each(folders: Sequence[Path]) -> list[Path]:
    """List the suites of folders; a group's folder names those of its hosts."""
    from analysis.suite import group

    return [member for f in folders for member in (group.members(f) if group.is_group(f) else [f])]
