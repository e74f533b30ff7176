"""Rest beside marked phases, with a counter on disk."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from agent.marks import Marks
from agent.sampler import Sampler
from contract.tests.refusal import refuses
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.trees import P, Tree

PAD_S = 0.15
PAD_NS = round(PAD_S * 1e9)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Tree({f"{P}:0": "package-0"}, (), ()).lay_out(tmp_path)


def test_the_machine_rests_before_and_after_each_phase_and_right_before_the_tail(
    root: Path,
) -> None:
    with PowercapSource.open(root) as source:
        marks = Marks(source, Sampler(source, 0), PAD_S)
        begun_ns = time.monotonic_ns()
        with marks.phase("first"):
            pass
        with marks.phase("second"):
            pass
        time.sleep(0.05)  # something that is no rest
        with marks.phase("third"):
            pass
        marks.tail(0.1)
        phases = marks.phases()
    assert [phase.name for phase in phases] == ["first", "second", "third", "tail"]
    assert phases[0].t_start_ns - begun_ns >= PAD_NS
    pauses_ns = [b.t_start_ns - a.t_end_ns for a, b in pairwise(phases)]
    assert pauses_ns[0] >= PAD_NS
    assert pauses_ns[1] >= 2 * PAD_NS + 50_000_000
    assert pauses_ns[2] >= PAD_NS
    assert phases[-1].t_end_ns - phases[-1].t_start_ns >= 100_000_000


def test_a_failed_phase_is_recorded_and_a_nested_one_refused_without_rest(root: Path) -> None:
    with PowercapSource.open(root) as source:
        marks = Marks(source, Sampler(source, 0), PAD_S)
        with pytest.raises(ZeroDivisionError), marks.phase("work"):
            raise ZeroDivisionError
        with refuses("phase-twice", name="work"), marks.phase("work"):
            pass
        with (
            refuses("phase-within-phase", open="outer"),
            marks.phase("outer"),
            marks.phase("inner"),
        ):
            pass
        assert [phase.name for phase in marks.phases()] == ["work", "outer"]
