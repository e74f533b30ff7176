"""The first page's lines, before and after all planned blocks are complete."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.report import answer, first_page, render, summary_text, tables, words
from analysis.report.build import build, terminal
from analysis.report.figures import forest
from analysis.report.sections import Report
from analysis.report.view import Answer, Matrix, Picture
from analysis.stats import comparison
from analysis.stats.comparison import Comparison, judge_comparisons
from analysis.stats.family import Family
from analysis.stats.results import Results, results
from analysis.stats.summary import compare_in_blocks
from analysis.suite.incidents import IncidentLog
from analysis.suite.records import Run, VoidRun
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.known import analysed, known, replanned
from analysis.tests.pages import Shared, change_plan, pieces, text_of
from contract.command_results import AnswerLine
from contract.tests.refusal import refuses
from controller.tests.command import Fde
from validation.synthetic.suite import ASSUMPTIONS, Options, write_suite

ASKED = ("cost", "most", "payback", "trust", "next")
MOST_WORDS = 25  # of a sentence
SOFT = "dmcrypt-aes256-on-sed"
# A drive without a cost, on one disk; software costs a third.
ONE_DISK = Options(
    blocks=6,
    interval_ms=100,
    workloads=("kernel_tree", "sql", "idle"),
    configurations=("sed-unlocked", "opal", SOFT),
    slower={"sed-unlocked": 1.0, "opal": 1.0, SOFT: 1.3},
    origin="measured",
)
ALONE = replace(ONE_DISK, blocks=2, workloads=("kernel_tree",))


def write(options: Options, **plan: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_suite(folder, options)
        if plan:
            change_plan(folder, **plan)

    return make


def without_meter(folder: Path) -> None:
    write_suite(folder, ALONE)
    for path in (folder / "meters" / "meter0").iterdir():
        path.unlink()
    (folder / "meters" / "meter0").rmdir()
    change_plan(folder)


# What each is asked, and the codes of its answers to ASKED; of costs those of all lines.
SUITES: dict[str, tuple[Callable[[Path], None], Sequence[str]]] = {
    "settled": (
        write(ONE_DISK),
        ["equivalent", "more", "found", "does-not-pay", "measured", "nothing-open"],
    ),
    "it pays": (
        write(ONE_DISK, assumptions={**ASSUMPTIONS, "sed_extra_price": 0.01}),
        ["equivalent", "more", "found", "pays", "measured", "nothing-open"],
    ),
    "two disks": (
        write(replace(ALONE, configurations=("plain", "opal"), slower={"plain": 1, "opal": 1.1})),
        ["two-disks", "found", "unknown", "measured", "nothing-open"],
    ),
    "it scatters": (
        write(replace(ONE_DISK, blocks=3, noise=0.5, origin="modelled")),
        ["unsettled", "unsettled", "not-shown", "modelled", "quieter"],
    ),
    "one block": (
        write(replace(ALONE, blocks=1)),
        ["unsettled", "unsettled", "unsettled", "measured", "blocks"],
    ),
    "synthetic": (
        write(replace(ONE_DISK, origin="synthetic")),
        ["equivalent", "more", "found", "does-not-pay", "synthetic", "nothing-open"],
    ),
    "nothing to compare": (
        write(replace(ALONE, configurations=("sed-unlocked",))),
        ["nothing-compared", "joules", "unknown", "measured", "nothing-open"],
    ),
    "without a baseline": (
        write(replace(ALONE, configurations=("opal", SOFT))),
        ["unknown", "unknown", "does-not-pay", "measured", "no-baseline"],
    ),
    "without a meter": (without_meter, ["unknown", "found", "unknown", "measured", "no-meter"]),
}


@pytest.fixture(params=SUITES)
def case(request: pytest.FixtureRequest, shared: Shared) -> tuple[Results, Sequence[str]]:
    make, codes = SUITES[request.param]
    return results(shared(f"reader-{request.param.replace(' ', '-')}", make)[0]), codes


def answered(derived: Results) -> tuple[AnswerLine, ...]:
    return first_page.lines(derived, derived.suite.folder)


def answered_with(derived: Results, incidents: IncidentLog) -> tuple[AnswerLine, ...]:
    """As if this had happened on the way."""
    vars(derived)["incidents"] = incidents
    return answered(derived)


def longest(lines: Sequence[AnswerLine]) -> int:
    """Words of the longest sentence; a figure is one with its unit."""
    texts = (f"{line.verdict}{line.reason}".replace(" %", "%") for line in lines)
    return max(
        len(sentence.split()) for text in texts for sentence in re.split(r"(?<=\.) (?=[A-Z])", text)
    )


def test_every_question_has_its_answer_in_order(case: tuple[Results, Sequence[str]]) -> None:
    derived, codes = case
    lines = answered(derived)
    battery = [line for line in lines if line.question == "battery"]
    assert tuple(dict.fromkeys(line.question for line in lines if line not in battery)) == ASKED
    assert [line.code for line in lines if line not in battery] == codes
    # Minutes of battery are settled only if the joules are.
    by_name = {
        line.facts.get("configuration"): line.code for line in lines if line.question == "cost"
    }
    for line in battery:
        settled = by_name.get(line.facts["configuration"]) in ("more", "less", "two-disks")
        assert line.code in (("lost", "gained", "unsettled") if settled else ("unsettled",))
    assert longest(lines) <= MOST_WORDS
    json.dumps([line.facts for line in lines], allow_nan=False)


def test_an_unsettled_answer_begins_so_and_has_no_figure(
    case: tuple[Results, Sequence[str]],
) -> None:
    for line in answered(case[0]):
        if line.code == "unsettled":
            assert line.verdict.startswith("Not settled: ")
            assert "%" not in line.verdict + line.reason


def test_the_figures_are_those_of_the_contrasts(shared: Shared) -> None:
    derived = results(shared("reader-settled", SUITES["settled"][0])[0])
    lines = {line.code: line for line in answered(derived) if line.question == "cost"}
    for code, name in (("equivalent", "opal"), ("more", SOFT)):
        c = known(known(answer.contrast_of(derived, "sed-unlocked", name)).comparison)
        figures = {"ratio": c.ratio, "low": c.low, "high": c.high, "blocks": c.n}
        expected = {"configuration": name, "verdict": c.verdict, **figures}
        assert expected.items() <= lines[code].facts.items()
        for limit in (c.low, c.high):
            assert words.percent(known(limit), 2) in lines[code].reason
    most = next(line for line in answered(derived) if line.question == "most")
    rows = derived.summary.filter(component="system").drop_nulls("ratio")
    assert most.facts["ratio"] == rows.filter(verdict="differs")["ratio"].max()


def test_page_and_terminal_have_the_same_lines(shared: Shared, tmp_path: Path) -> None:
    folder = shared("reader-settled", SUITES["settled"][0])[0]
    derived = results(folder)
    answers = pieces(Answer, Report(derived).head())
    on_page = [(reply.verdict, reply.reason) for reply in answers]
    copy = tmp_path / folder.name
    SUITES["settled"][0](copy)
    built = build(copy)
    lines = known(built.answer)
    assert on_page == [(line.verdict, line.reason) for line in lines]
    assert summary_text.summary(copy).answer == lines
    printed = " ".join(built.text.split())
    places = [printed.index(f"{line.verdict}{line.reason}") for line in lines]
    assert places == sorted(places)


def test_the_terminals_lines_have_80_columns(complete: Results, night: FaultySuite) -> None:
    for derived in (complete, results(night.folder)):
        lines = first_page.lines(derived, Path("s"))
        text = render.text(terminal(derived, lines)).splitlines()
        cells = {(row[0], row[1]) for row in tables.headline(derived).rows}
        assert {workload for workload, _ in cells} <= set(text)  # each stands above its rows
        assert max(map(len, text)) <= render.WIDTH


def test_programs_have_the_codes(tmp_path: Path, fde: Fde) -> None:
    write(ALONE)(tmp_path / "s")
    reported = json.loads(fde("report", "--json", tmp_path / "s").out)["answer"]
    (summed,) = json.loads(fde("summary", "--json", tmp_path / "s").out)["suites"]
    assert summed["answer"] == reported
    assert tuple(dict.fromkeys(line["question"] for line in reported)) == (
        *ASKED[:3],
        "battery",
        *ASKED[3:],
    )


def test_a_night_of_faults_is_flagged_and_resumed(night: FaultySuite) -> None:
    *_, trust, after = answered(results(night.folder))
    assert trust.facts["void"] == 1
    assert trust.facts["reservations"] >= 3
    assert "5 reservations" in trust.verdict
    assert (after.code, "resume" in after.facts["command"]) == ("resume", True)


def test_many_configurations_are_one_line(wide: Results) -> None:
    lines = answered(wide)
    assert [line.code for line in lines if line.question == "cost"] == ["several"]
    assert sum(lines[0].facts.values()) == len(wide.suite.configurations) - 1


@pytest.mark.filterwarnings("error")  # where names leave the axis no room, nothing is laid out
def test_the_picture_has_room_for_long_names(wide: Results) -> None:
    (picture,) = pieces(Picture, tables.overall_picture(wide))
    assert picture.source


def test_of_many_that_are_not_settled_none_is_named(tmp_path: Path) -> None:
    disks = [f"dmcrypt-aes256-on-d{i}" for i in range(5)]
    names = ("plain", *disks)
    alike = dict.fromkeys(names, 1.0)
    options = replace(ALONE, configurations=names, noise=0.3, slower=alike)
    lines = answered(analysed(tmp_path / "s", options))
    assert [line.code for line in lines][:2] == ["unsettled", "unsettled"]
    assert lines[0].facts["configurations"] == disks
    assert longest(lines) <= MOST_WORDS


def test_what_this_machine_cannot_run_is_no_reason_to_run_again(shared: Shared) -> None:
    derived = results(shared("reader-settled", SUITES["settled"][0])[0])
    run = next(run for run in derived.suite.runs if run.configuration == "opal")
    skipped = VoidRun(run.run_id, run.configuration, run.workload, run.block, "No Opal here.")
    runs = tuple(run for run in derived.suite.runs if run.configuration != "opal")
    for skipped_runs, code in (((skipped,), "nothing-open"), ((), "no-pairs")):
        suite = replace(derived.suite, runs=runs, skipped=skipped_runs)
        energy = derived.all_energy.filter(pl.col("configuration") != "opal")
        lines = answered(Results(suite, derived.clock, energy, ()))
        assert [line.code for line in lines if line.question == "cost"] == ["more", "unknown"]
        incidents = replace(derived.incidents, never=0, void_to_end=())
        lines = answered_with(Results(suite, derived.clock, energy, ()), incidents)
        assert lines[-1].code == code


def test_what_the_papers_suite_asks_fits_as_well(papers: Results) -> None:
    lines = answered(papers)
    assert tuple(dict.fromkeys(line.question for line in lines)) == ASKED
    assert longest(lines) <= MOST_WORDS


def test_a_file_that_changed_comes_before_all_else(tmp_path: Path) -> None:
    write(ALONE)(tmp_path / "s")
    with (tmp_path / "s" / "clock.jsonl").open("a") as lines:
        lines.write("{}\n")
    *_, trust, after = answered(results(tmp_path / "s"))
    assert after.code == "verify"
    assert trust.facts["problems"] > 0
    (tmp_path / "s" / "manifest.json").unlink()
    *_, trust, after = answered(results(tmp_path / "s"))
    assert after.code == "resume"
    assert "not sealed" in trust.reason


@pytest.mark.parametrize("name", ["one-disk; reboot", "$(reboot)", "", None, 3.5, ["x"]])
def test_a_suite_whose_name_is_not_safe_is_refused(tmp_path: Path, name: object) -> None:
    write(replace(ALONE, blocks=1), suite=name)(tmp_path / "s")
    with refuses("plan-invalid"):
        results(tmp_path / "s")


def test_no_command_is_made_of_a_scale_that_is_not_safe(tmp_path: Path) -> None:
    write(replace(ALONE, blocks=1), scale="$(reboot): x")(tmp_path / "a b;c")
    *_, after = answered(results(tmp_path / "a b;c"))
    assert (after.code, after.facts["command"]) == ("blocks", "")
    (tmp_path / "a b;c" / "manifest.json").unlink()
    *_, after = answered(results(tmp_path / "a b;c"))
    assert f"'{tmp_path / 'a b;c'}'" in after.facts["command"]


@pytest.mark.parametrize(("origin", "scale"), [("modelled", " --scale lab"), ("synthetic", "")])
def test_the_command_keeps_the_scale_of_what_ran(tmp_path: Path, origin: str, scale: str) -> None:
    options = replace(ALONE, blocks=1, origin=origin)
    write(options, suite="one-disk", scale="lab: smaller")(tmp_path / "s")
    *_, after = answered(results(tmp_path / "s"))
    assert after.facts == {
        "blocks": comparison.PILOT,
        "least": comparison.PILOT,
        "most": comparison.PILOT,
        "command": f"fde run --suite one-disk{scale} --blocks {comparison.PILOT}",
        "hours": pytest.approx(after.facts["hours"]),
    }
    assert after.facts["hours"] > 0


def test_a_suite_of_fde_here_is_repeated_by_fde_here(tmp_path: Path) -> None:
    write(replace(ALONE, blocks=1), suite="here")(tmp_path / "s")
    *_, after = answered(results(tmp_path / "s"))
    minutes = math.ceil(60 * after.facts["hours"])
    assert after.code == "blocks" and after.facts["command"] == f"fde here --minutes {minutes}"


def compared(change: float, half_width: float, blocks: int = 12) -> Comparison:
    """Return a change, and how far its 95 % interval reaches, both as logarithms."""
    error = half_width / 2.201  # t(0.975, 11) from a printed table
    return judge_comparisons([Comparison(blocks, math.exp(change), 0.02, error, blocks - 1.0)])[0]


@pytest.mark.parametrize(("half_width", "named"), [(0.03, True), (0.3, False)])
def test_only_a_close_interval_is_named_where_nothing_is_settled(
    derived: Results, half_width: float, named: bool
) -> None:
    c = compared(0.01, half_width)
    assert c.verdict == "inconclusive"
    assert answer.is_narrow(c.low, c.high) == named
    cell = tables.cell_of(c)
    assert cell.text.endswith(" ?") and cell.below[0].startswith("[")
    drawn = known(forest.draw_overall(derived.suite, "system", {"opal": c}, "measured"))
    (label,) = [text.get_text() for text in drawn.axes[0].texts]
    assert label == words.change_in(c)


def test_the_matrix_of_a_suite_that_scatters_has_intervals_without_a_verdict(
    shared: Shared,
) -> None:
    derived = results(shared("reader-it-scatters", SUITES["it scatters"][0])[0])
    (matrix,) = (block for block in tables.matrix(derived) if isinstance(block, Matrix))
    shown = [cell for _, cells in matrix.groups[0].rows for cell in cells]
    unsettled = [cell for cell in shown if cell.kind == "inconclusive"]
    assert len(unsettled) >= 4
    assert all(cell.below[0].startswith("[") and cell.text.endswith(" ?") for cell in unsettled)
    page = text_of(Report(derived).head())
    assert "could have been missed" not in page and "more block" not in page


WORDS = ("significant", "equivalent", "inconclusive", "Not settled", "more energy")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Results:
    options = Options(blocks=6, interval_ms=100, workloads=("sql", "video", "idle"))
    return analysed(tmp_path_factory.mktemp("complete") / "s", options)


def with_runs(complete: Results, runs: tuple[Run, ...], skipped: tuple[Run, ...] = ()) -> Results:
    """Return the results as if these runs only had finished, and those had been skipped."""
    run_ids = {run.run_id for run in runs}
    as_skipped = tuple(
        VoidRun(run.run_id, run.configuration, run.workload, run.block, "no player")
        for run in skipped
    )
    suite = replace(complete.suite, runs=runs, skipped=as_skipped)
    energy = complete.all_energy.filter(pl.col("run_id").is_in(run_ids))
    return Results(suite, complete.clock, energy, ())


def after(complete: Results, blocks: int) -> Results:
    """Return the results once so many blocks were complete."""
    return with_runs(complete, tuple(run for run in complete.suite.runs if run.block < blocks))


def every(family: Family) -> list[Comparison]:
    compared = [c.comparison for c in family.contrasts] + [a.comparison for a in family.answers]
    rows = [c for key, c in family.versus.items() if key[3] == family.component]
    return [*filter(None, compared), *rows]


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_before_the_planned_end_there_are_intervals_without_words(
    complete: Results, blocks: int
) -> None:
    early = after(complete, blocks)
    assert {c.verdict for c in every(early.family)} == {"incomplete"}
    assert set(early.summary["verdict"]) <= {"", "incomplete"}
    alone = known(early.contrasts[0].comparison)
    assert (alone.low is None) == (blocks == 1) and alone.n == blocks
    lines = first_page.lines(early, early.suite.folder)
    shown = "\n".join(f"{line.verdict}{line.reason}" for line in lines)
    assert f"Not complete: {blocks} of 6 blocks" in shown
    assert f"Not complete: {blocks} of 6 blocks" in text_of(Report(early).head())
    assert not any(word in shown for word in WORDS)
    assert [line.code for line in lines if line.question == "payback"] == ["unknown"]


def test_at_the_planned_end_there_are_words(complete: Results) -> None:
    assert complete.suite.blocks_done == "6 of 6 blocks" and not complete.suite.unfinished
    assert "incomplete" not in {c.verdict for c in every(complete.family)}
    soft = next(c for c in complete.contrasts if c.other == "dmcrypt-aes256")
    assert known(soft.comparison).verdict == "differs"
    assert "Not complete" not in text_of(Report(complete).head())


def test_without_a_run_no_check_is_said_to_agree(complete: Results) -> None:
    deserted = replace(complete, suite=replace(complete.suite, runs=()))
    for derived, agrees in ((complete, True), (deserted, False)):
        trust = next(a for a in first_page.lines(derived, Path("s")) if a.question == "trust")
        assert ("agree" in trust.reason) == agrees


def test_a_run_that_is_missing_withholds_the_words_of_what_rests_on_it(complete: Results) -> None:
    lost = ("sql", "opal", 5)
    runs = tuple(
        run for run in complete.suite.runs if (run.workload, run.configuration, run.block) != lost
    )
    early = with_runs(complete, runs)
    assert early.suite.blocks_done == "5 of 6 blocks"
    for contrast in early.contrasts:
        open_ = "opal" in (contrast.base, contrast.other)
        c = known(contrast.comparison)
        assert (c.verdict == "incomplete") == open_ and c.n == 6 - open_
    for (workload, name, *_), c in early.family.versus.items():
        assert (c.verdict == "incomplete") == ((workload, name) == ("sql", "opal"))


def test_an_incomplete_comparison_leaves_the_others_no_more_than_at_the_end(
    complete: Results,
) -> None:
    comparisons = every(complete.family)
    for number in range(len(comparisons)):
        family = [replace(c, complete=place != number) for place, c in enumerate(comparisons)]
        for early, late in zip(
            judge_comparisons(family), judge_comparisons(comparisons), strict=True
        ):
            assert early.level <= late.level or not early.complete


def test_a_run_that_was_skipped_is_not_waited_for(complete: Results) -> None:
    skipped = tuple(
        run for run in complete.suite.runs if (run.workload, run.configuration) == ("video", "opal")
    )
    unskipped = tuple(run for run in complete.suite.runs if run not in skipped)
    results = with_runs(complete, unskipped, skipped)
    assert results.suite.blocks_done == "6 of 6 blocks"
    assert "incomplete" not in {c.verdict for c in every(results.family)}
    reasons = [line.reason for line in first_page.lines(results, results.suite.folder)]
    assert sum("1 of 2 workloads" in reason for reason in reasons) == 1


def test_a_repeat_within_a_block_is_waited_for(complete: Results) -> None:
    run = next(run for run in complete.suite.plan.runs if (run.workload, run.block) == ("sql", 5))
    again = replace(run, run_id=f"{run.run_id}-2", index=len(complete.suite.plan.runs))
    suite = replanned(complete.suite, runs=(*complete.suite.plan.runs, again))
    assert suite.unfinished == (again,) and suite.blocks_done == "5 of 6 blocks"


def test_a_block_counts_where_every_workload_has_both_sides(complete: Results) -> None:
    joules = {block: 100.0 + block for block in range(6)}
    dearer = {block: 1.1 * value for block, value in joules.items()}
    holes = {block: value for block, value in dearer.items() if block not in (1, 4)}
    c = known(compare_in_blocks(complete.suite, [(joules, dearer), (joules, holes)]))
    assert c.n == 4 and c.ratio == pytest.approx(1.1)
    assert compare_in_blocks(complete.suite, [(joules, dearer), (joules, {})]) is None
    assert compare_in_blocks(complete.suite, [(joules, {**dearer, 2: 0.0})]) is None


def test_the_words_of_an_incomplete_comparison_name_no_verdict() -> None:
    comparisons = product((1.0, 1.2), (0.001, 0.2))
    for ratio, error in comparisons:
        (c,) = judge_comparisons([Comparison(8, ratio, 0.02, error, 7.0, complete=False)])
        assert words.verdict_of(c) == "not complete"
        assert words.sign(c) == ""
        assert not c.equivalent_but_changed


def test_the_report_states_it_as_a_reservation(complete: Results) -> None:
    assert (
        "A comparison gets its verdict once all of its planned blocks are complete."
        in after(complete, 3).reservations
    )
