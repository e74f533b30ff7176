"""Pictures: readable, told apart without colour, with units and origin, from any number of rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.report import answer, words
from analysis.report.figures import blocks, forest, style, timeline
from analysis.stats.comparison import Comparison
from analysis.stats.results import Results
from analysis.suite.clocks import TargetClock
from analysis.suite.records import Run, Suite
from analysis.suite.samples import Samples, of_table
from analysis.tests.known import known, replanned
from contract import places
from contract.command_results import Ratio
from contract.plan import Configuration


def draw_run(suite: Suite, run: Run, clock: TargetClock) -> Figure | None:
    return timeline.draw(suite, run, timeline.curves(suite, run, clock))


def overall(derived: Results, *compared: Comparison) -> Figure | None:
    """Return the first screen's picture, of these comparisons or the suite's own."""
    suite = derived.suite
    names = suite.configurations[1:]
    contrasts = [known(answer.contrast_of(derived, suite.baseline, name)) for name in names]
    shown = dict(zip(names, compared or [known(c.comparison) for c in contrasts], strict=False))
    return forest.draw_overall(suite, "system", shown, derived.origin)


def pictures(derived: Results) -> Iterator[Figure]:
    suite, energy = derived.suite, derived.energy
    yield known(overall(derived))
    for workload in suite.workloads:
        run = known(timeline.typical_run(suite, workload))
        for drawn in (
            draw_run(suite, run, derived.clock),
            blocks.draw(suite, energy, workload, "system", {(0, suite.configurations[-1])}),
        ):
            assert drawn is not None
            yield drawn


def named(axis: Axes) -> list[Text]:
    """Labels of the axis of names, from above to below."""
    return [label for label in axis.get_yticklabels() if label.get_text()]


def assert_apart(figure: Figure, labels: list[Text]) -> None:
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in labels]
    boxes.sort(key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in pairwise(boxes))
    assert all(box.x0 >= 0 and box.y0 >= 0 for box in boxes)


def test_seventeen_configurations_look_different_without_colour(wide: Results) -> None:
    looks = style.palette(wide.suite)
    assert len(looks) == 17
    assert len(set(looks.values())) == 17
    assert looks["c00"] == (style.GREY, "o")
    assert looks["c01"].colour == style.SED_COLOUR
    spare = [look for name, look in looks.items() if name > "c01"]
    assert all(a.colour != b.colour and a.marker != b.marker for a, b in pairwise(spare))


def test_the_look_follows_the_kind_and_not_the_name(derived: Results) -> None:
    stacks = (
        Configuration("opal", "any", "any", encrypted_by="none"),
        Configuration("plain2", "any", "any", encrypted_by="drive"),
    )
    looks = style.palette(replanned(derived.suite, configurations=stacks))
    assert looks["opal"].colour == style.GREY
    assert looks["plain2"].colour == style.SED_COLOUR


@pytest.mark.parametrize("which", ["derived", "wide"])
def test_every_axis_has_its_unit_and_every_title_its_origin(
    which: str, request: pytest.FixtureRequest
) -> None:
    suite: Results = request.getfixturevalue(which)
    for figure in pictures(suite):
        assert figure.get_suptitle().endswith("(modelled)")
        for axis in figure.axes:
            scales = [axis.get_xlabel(), axis.get_ylabel()]
            assert any(re.search(r"\((J|W|s|%)\)$", text) for text in scales)


def test_labels_of_sixteen_lines_do_not_touch(wide: Results) -> None:
    figure = known(overall(wide))
    labels = named(figure.axes[0])
    assert [t.get_text() for t in labels] == [
        wide.suite.label(c) for c in wide.suite.configurations[1:]
    ]
    assert_apart(figure, labels)


def test_without_a_comparison_there_is_no_picture(derived: Results) -> None:
    assert forest.draw_overall(derived.suite, "system", {}, "measured") is None


def test_an_interval_beyond_the_edge_ends_in_an_arrow(derived: Results) -> None:
    far, near = (Comparison(10, 1.01, 0.02, error, 9.0) for error in (1.6, 0.01))
    figure = known(overall(derived, far, near, near))
    arrows = [line for line in figure.axes[0].lines if line.get_marker() == ">"]
    assert len(arrows) == 1
    assert figure.axes[0].get_xlim()[1] < 1000
    assert "Arrow" in forest.arrow_note(figure)
    assert forest.arrow_note(known(overall(derived, near, near, near))) == ""


def test_what_is_equivalent_is_drawn_with_the_interval_that_decides(derived: Results) -> None:
    c = Comparison(10, 1.01, 0.02, 0.0027, 9.0, level=0.01)
    assert c.verdict == "equivalent"
    figure = known(overall(derived, c))
    drawn = [np.asarray(line.get_xdata(), float) for line in figure.axes[0].lines]
    (ends,) = [xs for xs in drawn if len(xs) == 2][1:]
    assert max(ends) == pytest.approx(100 * (known(c.high) - 1)) and max(ends) < 2


def test_suites_under_a_letter_each_have_their_heading(derived: Results) -> None:
    name = derived.suite.configurations[1]
    ratio = Ratio("", name, 3, 3, 1.1, 1.0, 1.2)
    groups = [(letter, [("plain", name, ratio)]) for letter in "BC"]
    axis = known(forest.draw_ratios(derived.suite, groups, "measured")).axes[0]
    assert [label.get_text() for label in named(axis)] == ["B", "plain", "C", "plain"]
    low, high = sorted(axis.get_ylim())
    assert all(low < tick < high for tick in axis.get_yticks())


def test_a_picture_over_time_reads_only_its_runs_stretch(derived: Results) -> None:
    (meter,) = derived.suite.meters
    asked: list[tuple[int, int]] = []

    def never(_: object) -> Iterator[pl.DataFrame]:
        raise AssertionError("all records were read")

    def stretch(start_ns: int, end_ns: int) -> pl.DataFrame:
        asked.append((start_ns, end_ns))
        assert meter.samples.stretch is not None
        return meter.samples.stretch(start_ns, end_ns)

    guarded = Samples(meter.samples.columns, meter.samples.records, never, stretch)
    suite = replace(derived.suite, meters=(replace(meter, samples=guarded),))
    for run in suite.runs[::20]:
        figure = known(draw_run(suite, run, derived.clock))
        curves = {line.get_label(): line for line in figure.axes[0].lines}
        assert set(curves) == {"system", "drive", "CPU package"}
        length_s = (run.t_end_ns - run.t_start_ns) / 1e9
        shown = np.asarray(curves["system"].get_xdata(), float)
        assert shown.min() < 0.1
        assert shown.max() > length_s - 0.1
    duration_s = (run.t_end_ns - suite.runs[0].t_start_ns) / 1e9
    assert all((end - start) / 1e9 < 0.5 * duration_s for start, end in asked)


def test_the_curve_holds_the_energy_of_the_run(derived: Results) -> None:
    """Placed by its own stretch alone, the curve's area is the energy from first to last mark."""
    run = next(run for run in derived.suite.runs if run.workload == "kernel_tree")
    figure = known(draw_run(derived.suite, run, derived.clock))
    line = next(c for c in figure.axes[0].lines if c.get_label() == "system")
    seconds, watts = (np.asarray(v, float) for v in (line.get_xdata(), line.get_ydata()))
    area = float(np.trapezoid(watts, seconds))
    rows = derived.energy.filter(run_id=run.run_id, component="system")
    parts = rows.filter(pl.col("phase") != "all")["energy_j"].sum()
    assert area == pytest.approx(parts, rel=0.05)


def test_a_gap_in_the_records_stays_a_gap(derived: Results) -> None:
    run = next(run for run in derived.suite.runs if run.workload == "kernel_tree")
    (meter,) = derived.suite.meters
    middle = known(
        derived.clock.to_controller_ns(run.boot_id, (run.t_start_ns + run.t_end_ns) // 2)
    )
    table = pl.concat(meter.samples.tables(meter.samples.columns))
    holed = table.filter((pl.col("t_mono_ns") - middle).abs() > 700_000_000)
    suite = replace(derived.suite, meters=(replace(meter, samples=of_table(holed)),))
    figure = known(draw_run(suite, run, derived.clock))
    line = next(c for c in figure.axes[0].lines if c.get_label() == "system")
    assert np.isnan(np.asarray(line.get_ydata(), float)).sum() == 1


def test_flagged_blocks_are_ringed(derived: Results) -> None:
    flagged = {(1, "opal")}
    figure = known(blocks.draw(derived.suite, derived.energy, "sql", "system", flagged))
    rings = [line for axis in figure.axes for line in axis.lines if line.get_markersize() == 11]
    assert [np.asarray(ring.get_xdata()).tolist() for ring in rings] == [[2]]
    assert not [text for axis in figure.axes for text in axis.texts]
    calm = known(blocks.draw(derived.suite, derived.energy, "sql", "system"))
    assert not [line for axis in calm.axes for line in axis.lines if line.get_markersize() == 11]


def test_the_blocks_changes_are_those_of_the_joules(derived: Results) -> None:
    figure = known(blocks.draw(derived.suite, derived.energy, "sql", "system"))
    ratio = {line.get_label(): line for line in figure.axes[0].lines}["dm-crypt AES-256"]
    rows = derived.energy.filter(workload="sql", component="system", phase="all")
    joules = {(r["configuration"], r["block"]): r["energy_j"] for r in rows.iter_rows(named=True)}
    expected = [(joules["dmcrypt-aes256", b] / joules["plain", b] - 1) * 100 for b in range(3)]
    assert np.asarray(ratio.get_ydata()).tolist() == pytest.approx(expected)


def test_one_block_has_no_course(derived: Results) -> None:
    single_block = derived.energy.filter(block=0)
    assert blocks.draw(derived.suite, single_block, "sql", "system") is None


def test_svg_is_the_same_twice_and_keeps_its_text(derived: Results) -> None:
    texts = []
    for _ in range(2):
        texts.append(style.svg(known(overall(derived))))
    assert texts[0] == texts[1]
    assert ">dm-crypt AES-256</text>" in texts[0]
    assert "nan" not in texts[0].lower()
    assert "<metadata>" not in texts[0]
    assert len(texts[0]) < 25_000


def test_a_picture_follows_the_colour_scheme_and_says_what_it_shows(derived: Results) -> None:
    figures = list(pictures(derived))
    drawn = style.svg(figures[0])
    light, dark = (re.findall(r"--222222:(#\w{6})", part) for part in drawn.split("@media", 1))
    assert light == ["#222222"] and dark and dark != light
    # No ink or paper is left that stays as it is on a dark screen.
    sheet = drawn.partition("</style>")[0].replace(":#222222", "").replace(":#ffffff", "")
    assert not re.search(r"#222222|#ffffff|fill:white", sheet)
    for figure in figures:
        assert str(figure.get_label()).startswith(figure.get_suptitle().partition(" (modelled)")[0])
        assert re.search(r"\d", str(figure.get_label()))
    c = next(contrast.comparison for contrast in derived.contrasts)
    assert words.change_in(c) in str(figures[0].get_label())


def test_notes_on_fonts_are_kept_with_our_state_only(tmp_path: Path) -> None:
    others = {
        name: text for name, text in os.environ.items() if not name.startswith(("XDG", "MPL"))
    }
    load = [sys.executable, "-c", "import analysis.report.figures"]
    subprocess.run(load, check=True, cwd=places.ROOT, env={**others, "HOME": str(tmp_path)})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and {path.relative_to(tmp_path).parts[:3] for path in files} == {
        (".local", "state", "fde-testbed")
    }
