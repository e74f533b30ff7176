from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import align
from analysis.energy import counted, from_windows, type_b_j
from analysis.records import Counter
from analysis.results import results
from analysis.tests.synthetic import RANGE_UJ, Options, Truth, write_suite
from instrumentation.sources.counter import Reading

S = 1_000_000_000


def windows(*each: tuple[float, float, float]) -> align.Windows:
    start, end, power = zip(*each, strict=True)
    return align.Windows(
        np.array([round(t * S) for t in start]),
        np.array([round(t * S) for t in end]),
        np.array(power, dtype=float),
    )


def test_a_window_counts_with_its_share_inside() -> None:
    found = from_windows(windows((0, 1, 10), (1, 2, 20), (2, 3, 40)), S // 2, round(2.25 * S))
    assert found.energy_j == pytest.approx(0.5 * 10 + 20 + 0.25 * 40)
    assert (found.coverage, found.flags) == (1.0, ())


def test_a_gap_is_filled_with_the_phases_mean_and_told() -> None:
    found = from_windows(windows((0, 1, 10), (3, 4, 30)), 0, 4 * S)
    assert found.coverage == pytest.approx(0.5)
    assert found.flags == ("gap-filled",)
    assert found.energy_j == pytest.approx(20 * 4)


def test_no_samples_is_no_figure() -> None:
    found = from_windows(windows((0, 1, 10)), 5 * S, 6 * S)
    assert (found.energy_j, found.coverage, found.flags) == (None, 0.0, ("no-samples",))


@given(
    st.lists(st.floats(0.1, 50), min_size=4, max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_energy_of_two_stretches_is_that_of_both(
    powers: list[float], a: float, b: float, c: float
) -> None:
    whole = windows(*((k / 10, (k + 1) / 10, p) for k, p in enumerate(powers)))
    marks = sorted(round(x * len(powers) / 10 * S) for x in (a, b, c))
    if marks[0] == marks[1] or marks[1] == marks[2]:
        return
    parts = [from_windows(whole, marks[i], marks[j]).energy_j for i, j in ((0, 1), (1, 2), (0, 2))]
    assert None not in parts
    assert parts[0] + parts[1] == pytest.approx(parts[2], rel=1e-9)  # type: ignore[operator]


def counter(start_uj: int, end_uj: int, seconds: float = 10, top: int = RANGE_UJ) -> Counter:
    end_ns = round(seconds * S)
    return Counter(
        "powercap",
        "package-0",
        Reading(0, 10, start_uj),
        Reading(end_ns, end_ns + 10, end_uj),
        top,
        (),
    )


def test_one_wrap_is_corrected() -> None:
    found = counted(counter(RANGE_UJ - 2_000_000, 3_000_000))
    assert found.energy_j == pytest.approx(5.000001)
    assert "wrap-corrected" in found.flags


def test_samples_tell_how_often_the_counter_went_round() -> None:
    top = 999_999_999  # 1000 J: at 400 W a wrap each 2.5 s
    edges = counter(0, 0, seconds=10, top=top)
    alone = counted(edges)
    assert "possible-double-wrap" in alone.flags
    readings = [Reading(k * S, k * S + 5, k * 400_000_000 % (top + 1)) for k in range(1, 10)]
    found = counted(edges, readings)
    assert found.energy_j == pytest.approx(4000)
    assert "possible-double-wrap" not in found.flags


def test_a_failed_read_is_no_figure() -> None:
    broken = Counter("powercap", "dram", None, Reading(1, 2, 3), RANGE_UJ, ("read-failed",))
    found = counted(broken)
    assert (found.energy_j, found.flags) == (None, ("read-failed",))


def test_type_b_by_hand() -> None:
    found = type_b_j({"relative_limit": 0.03, "absolute_limit_w": 0.1}, 200.0, 10.0)
    assert found == pytest.approx(math.hypot(6.0 / math.sqrt(3), 1.0 / math.sqrt(3)))
    assert type_b_j({}, 200.0, 10.0) is None


def errors(energy: pl.DataFrame, truth: Truth, component: str, phase: str | None) -> list[float]:
    rows = energy.filter(pl.col("component") == component)
    return [
        abs(row["energy_j"] / truth.energy_j[row["run_id"], row["phase"], component] - 1)
        for row in rows.iter_rows(named=True)
        if phase is None or row["phase"] == phase
    ]


def test_known_joules_are_recovered_across_three_clocks(tmp_path: Path) -> None:
    """Late bunches, skewed clocks, a counter near its wrap: 10 ms windows, phases from 0.2 s on."""
    o = Options(
        blocks=1,
        workloads=("kernel_tree", "sql"),
        interval_ms=10,
        counter_start_uj=RANGE_UJ - 20_000_000,
    )
    truth = write_suite(tmp_path / "s", o)
    energy = results(tmp_path / "s").energy
    assert max(errors(energy, truth, "package-0", None)) < 1e-5
    assert "wrap-corrected" in " ".join(energy["flags"])
    for component in ("system", "drive"):
        assert max(errors(energy, truth, component, "all")) < 4e-3
        assert float(np.median(errors(energy, truth, component, None))) < 4e-3


def test_all_is_the_sum_of_the_phases_without_the_tail(whole_suite: tuple[Path, Truth]) -> None:
    energy = results(whole_suite[0]).energy
    keys = ["run_id", "source", "component"]
    parts = (
        energy.filter(~pl.col("phase").is_in(["all", "tail"]))
        .group_by(keys)
        .agg(pl.col("energy_j").sum().alias("sum_j"), pl.col("duration_s").sum().alias("sum_s"))
    )
    both = energy.filter(pl.col("phase") == "all").join(parts, on=keys, validate="1:1")
    assert len(both) == 72 * 4
    assert (both["energy_j"] - both["sum_j"]).abs().max() == pytest.approx(0, abs=1e-9)
    assert (both["duration_s"] - both["sum_s"]).abs().max() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("reopen", [True, False])
def test_a_gap_in_the_stream_shows_in_the_phases_it_hits_and_only_there(
    tmp_path: Path, reopen: bool
) -> None:
    o = Options(
        blocks=1,
        workloads=("kernel_tree",),
        interval_ms=10,
        lost_windows=(5.0, 5.6),
        reopen_after_loss=reopen,
    )
    truth = write_suite(tmp_path / "s", o)
    energy = results(tmp_path / "s").energy.filter(pl.col("component") == "system")
    hit = {
        key for key, (a, b) in truth.phases_s.items() if a < 5.59 and b > 5.01
    }  # a first window after reopening is lost as well, hence the 10 ms
    flagged = energy.filter(pl.col("flags").str.contains("gap-filled|no-samples"))
    named = {(r["run_id"], r["phase"]) for r in flagged.iter_rows(named=True)}
    assert {key for key in named if key[1] != "all"} == hit
    assert (energy.filter(pl.col("flags") == "")["coverage"] == 1).all()
    assert (flagged["coverage"] < 1).all()
    whole = flagged.filter((pl.col("phase") == "all") & (pl.col("coverage") < 1))
    assert len(whole) >= 1


def test_a_phase_on_an_unknown_boot_has_no_meter_figure(tmp_path: Path) -> None:
    write_suite(tmp_path / "s", Options(blocks=1, workloads=("idle",)))
    path = next((tmp_path / "s" / "runs").iterdir()) / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "boot_id": "another"}))
    energy = results(tmp_path / "s").energy.filter(pl.col("run_id") == path.parent.name)
    metered = energy.filter(pl.col("source") == "meter0")
    assert metered["energy_j"].null_count() == len(metered)
    assert set(" ".join(metered["flags"]).split()) == {"no-clock", "incomplete"}
    assert energy.filter(pl.col("source") == "rapl")["energy_j"].null_count() == 0
