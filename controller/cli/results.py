"""Commands that compute figures from a suite's folder, check it and publish it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contract.exports import is_stdout
from contract.files import sha256_of
from contract.notes import ContrastResult
from contract.places import build_folder
from controller.cli.options import Json, SuiteDirs, list_suites, newest, output_file
from controller.cli.output import complain, print_result, say, with_json

if TYPE_CHECKING:
    from contract.command_results import (
        CompareResult,
        NotebookResult,
        PaybackResult,
        PublishResult,
        ReportResult,
        SummaryResult,
        VerifyResult,
    )

commands = typer.Typer()
RESULTS = "Results"

AnySuite = Annotated[
    Path | None,
    typer.Argument(metavar="SUITE_DIR", help="Folder or bundle of a suite. Default: the newest."),
]
OutDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the page.")]


@commands.command(rich_help_panel=RESULTS)
@with_json
def report(suite: AnySuite = None) -> ReportResult:
    """Compute joules, verdicts and payback of a suite; of a group, compare its hosts.

    A bundle is unpacked to build/bundles first (installed: below ~/.local/state/fde-testbed).
    """
    from analysis.money import costs
    from analysis.published.tables import claim_table
    from analysis.report import build, hosts_page
    from analysis.suite.group import is_group
    from contract.command_results import ClaimResult, ReportResult

    (folder,) = _unpack([suite or newest()])
    built = hosts_page.write(folder, say) if is_group(folder) else build.build(folder, say)
    say(f"\nreport: {built.page}")
    results, page = built.results, str(built.page)
    if results is None:
        return ReportResult(True, page, None, None, None, built.answer, None, None)
    contrasts = []
    for contrast in results.contrasts:
        pair = contrast.comparison
        figures = (pair.ratio, pair.low, pair.high, pair.verdict) if pair else (None,) * 4
        subject = (contrast.base, contrast.other, contrast.declared, contrast.workloads)
        parts = (part and replace(part.estimate, n=part.n) for part in contrast.parts[1:])
        contrasts.append(ContrastResult(*subject, pair.n if pair else 0, *figures, *parts))
    return ReportResult(
        True,
        page,
        results.origin,
        tuple(contrasts),
        tuple(results.flags),
        built.answer,
        tuple(results.work_notes),
        tuple(results.works),
        tuple(
            ClaimResult(**row | {"differs": tuple(row["differs"])})
            for row in claim_table(results).iter_rows(named=True)
        ),
        tuple(costs.savings(results.suite, results.energy)),
    )


@commands.command(rich_help_panel=RESULTS)
@with_json
def verify(suites: SuiteDirs = None) -> VerifyResult:
    """Check the SHA-256 sums of suites or bundles, and recompute their figures from raw bytes."""
    from contract.command_results import SuiteVerified, VerifyResult
    from controller.sharing import publish as publishing

    verified = []
    for path in _list_members(suites or [newest()]):
        outcome = publishing.verify(path)
        say("\n".join([f"{path.resolve().name}:", *outcome.confirmed]))
        if path.is_file():
            say(f"SHA-256 of the bundle: {sha256_of(path)}")
        for problem in outcome.problems:
            complain(problem)
        verified.append(SuiteVerified(str(path), outcome.confirmed, outcome.problems))
    return VerifyResult(not any(suite.problems for suite in verified), tuple(verified))


@commands.command(rich_help_panel=RESULTS)
@with_json
def publish(
    suite: AnySuite = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=output_file, help="Bundle. Default: ./SUITE.tar.gz."),
    ] = None,
    author: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Whom to cite; repeated for several.")
    ] = None,
) -> PublishResult:
    """Pack a sealed suite as one file that can be cited; print the identifying data in it."""
    from analysis.suite.bundle import open_suites
    from analysis.suite.suite_folder import suite_id
    from controller.sharing import publish as publishing

    aside = redirect_stdout(sys.stderr) if is_stdout(out) else nullcontext()
    with aside, open_suites([suite or newest()]) as (folder,):
        identifying = publishing.find_identifying(folder)
        say("\n".join(publishing.describe_identifying(identifying)))
        path = out or Path(f"{suite_id(folder)}.tar.gz")
        result = publishing.publish(folder, path, identifying, author or ())
        size = f"{result.size_bytes / 1e6:.2f} MB"
        say(f"bundle: {result.bundle} ({size})\nSHA-256: {result.sha256}")
    return result


@commands.command(rich_help_panel=RESULTS)
@with_json
def summary(suites: SuiteDirs = None) -> SummaryResult:
    """Print finished and void runs, the drift check, and the report's answer."""
    from analysis.report import summary_text
    from contract.command_results import SummaryResult

    summaries = []
    for suite in suites or [newest()]:
        for folder in _list_members(_unpack([suite])):
            # A bundle has no report yet, from which the answer could be read.
            summaries.append(summary_text.summary(folder, derive=suite.is_file()))
            say("\n".join(summaries[-1].lines))
    return SummaryResult(True, tuple(summaries))


@commands.command(rich_help_panel=RESULTS)
@with_json
def compare(
    suites: Annotated[
        list[Path],
        typer.Argument(metavar="SUITE", help="Folders or bundles; the first is the base."),
    ],
    fail_on: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            help="Exit with 1 if joules rose significantly and by more than this, with 3 if "
            "nothing could be tested.",
        ),
    ] = None,
    out: OutDir = None,
) -> CompareResult:
    """Compare suites: their differences, their joules against the first one's, their history."""
    from analysis.report import compare_page
    from analysis.stats import compare as comparing
    from analysis.suite.bundle import open_suites
    from contract.command_results import CompareResult, PairCompared

    with open_suites(suites) as folders:
        comparison = comparing.compare_all(folders)
        say(compare_page.text(comparison))
        page = compare_page.write(comparison, out or build_folder() / "compare")
    say(f"\npage: {page}")
    tested = sum(len(pair.tested) for pair in comparison)
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
    """Open the notebook of a suite in JupyterLab: the answer, then a question a cell.

    Without any suite it opens the example; with --json it is only written, not opened.
    """

    def work() -> NotebookResult:
        from contract.command_results import NotebookResult
        from controller.sharing import notebook as notebooks

        example = suite is None and not list_suites()
        if example:
            say("There is no suite here: this is the example.")
        copy = notebooks.copy(notebooks.example() if example else suite or newest())
        hint = "" if copy.new else " (as it was left; remove it for a new one)"
        say(f"notebook: {copy.notebook}{hint}")
        status = 0 if as_json else notebooks.open_in_lab(copy)
        return NotebookResult(status == 0, str(copy.notebook), str(copy.suite))

    return print_result(as_json, work)


@commands.command(rich_help_panel=RESULTS)
@with_json
def payback(
    suite: AnySuite = None,
    *,
    electricity: Annotated[
        str | None, typer.Option(metavar="PRICE", help="Price of electricity, such as 0.42EUR/kWh.")
    ] = None,
    extra: Annotated[
        str | None, typer.Option(metavar="PRICE", help="What the drive costs more, such as 25EUR.")
    ] = None,
    machines: Annotated[int | None, typer.Option(min=1, help="Size of the fleet.")] = None,
    hours: Annotated[
        float | None,
        typer.Option(min=0.01, max=24, help="Hours of the suite's work a day, as its slowest."),
    ] = None,
    years: Annotated[float | None, typer.Option(min=0.01, help="Life of the drive.")] = None,
) -> PaybackResult:
    """Compute what a self-encrypting drive saves and may cost more, at your prices.

    What is not given is as the suite declared it. If no such drive was measured, it is assumed to
    cost what no encryption costs.
    """
    from analysis.money import costs
    from analysis.money.prices import price_changes
    from analysis.report import first_page, payback_text, render
    from analysis.stats.results import results as derive
    from contract.command_results import PaybackResult

    (folder,) = _unpack([suite or newest()])
    measured = derive(folder)
    prices = price_changes(measured.suite.assumptions, electricity, extra)
    habits = {"machines": machines, "hours_per_day": hours, "life_years": years}
    changes = {**prices, **{name: value for name, value in habits.items() if value is not None}}
    results = replace(measured, suite=costs.assuming(measured.suite, changes))
    line = payback_text.money_line(results)
    say(render.text(first_page.origin_note(results.origin) + first_page.blocks((line,))))
    say("\n".join(payback_text.lines(results)))
    savings = tuple(costs.savings(results.suite, results.energy))
    assumptions = results.suite.assumptions
    declared = asdict(assumptions) if assumptions else {}
    return PaybackResult(
        bool(savings), measured.suite.suite_id, results.origin, declared, line, savings
    )


def _unpack(paths: Sequence[Path]) -> list[Path]:
    """Return suites as folders; bundles are unpacked below the build folder."""
    if not any(path.is_file() for path in paths):
        return list(paths)
    from controller.sharing import publish as publishing

    return [publishing.unpack_cached(path, build_folder() / "bundles") for path in paths]


def _list_members(folders: Sequence[Path]) -> list[Path]:
    """List the suites of folders, where a group's folder counts for those of its hosts."""
    from analysis.suite import group

    return [member for f in folders for member in (group.members(f) if group.is_group(f) else [f])]
