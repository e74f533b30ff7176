"""Flags and the sentences that are made of them, for suites and commands alike."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.energy import implausible, windows
from analysis.flags import FLAGS, flag_note, meaning, reserves
from analysis.stats.results import flag_notes
from instrumentation.meters import registry
from instrumentation.sources import counter, pyrapl

OF_COUNTERS = {
    *(counter.DOUBLE_WRAP, counter.READ_FAILED, counter.MIRROR, counter.UNKNOWN_RANGE),
    *(counter.REOPENED, counter.BEYOND_BOUND),
    *(pyrapl.WRAPPED, pyrapl.DIFFERS, pyrapl.UNCHECKED),
}
OF_RECORDS = {
    windows.DELAY_FLAG,
    windows.PERIOD_FLAG,
    windows.DUPLICATE_FLAG,
    implausible.STUCK_FLAG,
    implausible.ZERO_FLAG,
    implausible.NEGATIVE_FLAG,
    counter.LONE_FLAG,
}


def test_every_flag_of_ours_has_a_meaning() -> None:
    assert not (OF_COUNTERS | OF_RECORDS) - FLAGS.keys()
    for kind in registry.kinds():
        for word in set(registry.load(kind).flag_words) - windows.KNOWN:
            base, _, channel = word.rpartition("-")
            of_channel = base and channel in registry.load(kind).own_channels
            assert (base if of_channel else word) in FLAGS, (kind, word)


def test_a_flag_of_a_driver_from_elsewhere_is_kept_and_reserves() -> None:
    assert reserves("lost-phase") and "driver" in meaning("lost-phase")
    assert not reserves("wrap-corrected")


def test_a_note_has_code_facts_and_sentence() -> None:
    note = flag_note("gap-filled", 1, 2, "runs of x", ["system", "drive"], coverage=0.5)
    assert note.code == "gap-filled"
    assert note.facts == {"flagged": 1, "of": 2, "components": ("system", "drive"), "coverage": 0.5}
    assert "1 of 2 runs of x" in note.sentence and "50 %" in note.sentence


@pytest.fixture
def energy() -> pl.DataFrame:
    """Two runs of two phases by a meter with two channels; each run has its sum beside them."""
    flags = {("a", "x"): "over-range late", ("b", "y"): "late", ("a", "all"): "over-range late"}
    return pl.DataFrame(
        [
            {
                "run_id": run,
                "phase": phase,
                "source": "meter0",
                "component": component,
                "flags": flags.get((run, phase), "") if component == "system" else "",
            }
            for run in "ab"
            for phase in ("x", "y", "all", "between")
            for component in ("system", "drive")
        ]
    )


def test_flags_of_a_suite_are_counted_by_phase(energy: pl.DataFrame) -> None:
    facts = {note.code: note.facts for note in flag_notes(energy)}
    common = {"of": 4, "components": ("system",), "source": "meter0"}
    assert facts == {"over-range": {"flagged": 1, **common}, "late": {"flagged": 2, **common}}
