"""The sampler over real files, its samples and what is written of them."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from agent.marks import Marks
from agent.sampler import Sampler, next_due_ns
from agent.tests.check_context import not_none
from instrumentation.sources.counter import ReadFailure, Reading
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.trees import P, Tree, child


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Tree({f"{P}:0": "package-0", child(P, 0, 0): "dram"}, (), ()).lay_out(tmp_path)


def counter(root: Path) -> Path:
    return root / "intel-rapl/intel-rapl:0/energy_uj"


def sampled(source: PowercapSource, rate_hz: float, enough: int) -> Sampler:
    """Return a sampler that ran until it had so many samples."""
    sampler = Sampler(source, rate_hz)
    with sampler:
        while len(sampler._due_ns) < enough:
            threading.Event().wait(0.005)
    return sampler


@pytest.mark.parametrize("rate_hz", [20.0, 1000.0])
def test_samples_of_every_zone_are_written_in_order_of_time(
    root: Path, tmp_path: Path, rate_hz: float
) -> None:
    with PowercapSource.open(root) as source:
        begun_ns = time.monotonic_ns()
        sampler = sampled(source, rate_hz, 5)
    path = tmp_path / "rapl.jsonl"
    sampler.write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(set(line) == {"zone", "t_before_ns", "t_after_ns", "energy_uj"} for line in lines)
    assert [line["zone"] for line in lines[:4]] == ["package-0", "dram"] * 2
    starts = [line["t_before_ns"] for line in lines]
    assert starts == sorted(starts)
    document = sampler.lateness()
    assert len(lines) == 2 * not_none(document["samples"]) >= 10
    assert document["rate_hz"] == rate_hz
    assert 0 <= not_none(document["late_p99_ms"]) <= not_none(document["late_max_ms"])
    # Due at whole periods after the start, and late by what passed from then on.
    due_ns = list(sampler._due_ns)
    assert begun_ns <= due_ns[0]
    assert all(
        later > due and (later - due) % (1e9 / rate_hz) == 0 for due, later in pairwise(due_ns)
    )
    late_ms = [(start - due) / 1e6 for start, due in zip(starts[::2], due_ns, strict=True)]
    assert document["late_max_ms"] == pytest.approx(max(late_ms), abs=0.001)


def test_a_failed_sample_is_a_line_with_the_reason(root: Path, tmp_path: Path) -> None:
    with PowercapSource.open(root) as source:
        counter(root).write_text("")
        sampler = sampled(source, 1000, 1)
    sampler.write(tmp_path / "rapl.jsonl")
    first = json.loads((tmp_path / "rapl.jsonl").read_text().splitlines()[0])
    assert set(first) == {"zone", "t_before_ns", "error"}
    assert first["zone"] == "package-0"


def test_without_a_rate_there_are_no_samples(root: Path, tmp_path: Path) -> None:
    with PowercapSource.open(root) as source, Sampler(source, 0) as sampler:
        pass
    sampler.write(tmp_path / "rapl.jsonl")
    assert (tmp_path / "rapl.jsonl").read_text() == ""
    late = {"late_p99_ms": None, "late_max_ms": None}
    assert sampler.lateness() == {"rate_hz": 0, "samples": 0, **late}


def test_samples_between_two_times(root: Path) -> None:
    with PowercapSource.open(root) as source:
        sampler = sampled(source, 1000, 4)
    samples = sampler.readings()["dram"]
    ends = [r.t_after_ns for r in samples if isinstance(r, Reading)]
    assert sampler.between("dram", samples[0].t_before_ns, ends[3]) == samples[1:3]
    assert sampler.between("dram", 0, ends[3] + 1) == samples[:4]


@pytest.mark.parametrize(
    ("now_ns", "due_ns"), [(100, 110), (105, 110), (109, 110), (110, 120), (119, 120), (195, 200)]
)
def test_the_next_sample_is_due_at_the_next_whole_period(now_ns: int, due_ns: int) -> None:
    assert next_due_ns(100, 10, now_ns) == due_ns


def test_a_zone_that_vanished_during_a_phase_is_flagged(root: Path) -> None:
    """Its edges were read, but what the counter did in between is unknown."""
    with PowercapSource.open(root) as source:
        sampler = Sampler(source, 0)
        marks = Marks(source, sampler)
        with marks.phase("work"):
            counter(root).write_text("")
            assert isinstance(source.read()["package-0"], ReadFailure)
            counter(root).write_text("1300\n")
        with marks.phase("after"):
            pass
        with marks.phase("fallen"):
            counter(root).write_text("")
            source.read()
            counter(root).write_text("7\n")
        packages = [phase.counters[0] for phase in marks.phases()]
    assert [c.flags for c in packages] == [("counter-reopened",), (), ("counter-reopened",)]
    # A fall across the gap would pass for a wrap if its end were told.
    ends = [c.end and c.end.energy_uj for c in packages]
    assert ends == [1300, 1300, None]


def test_a_mirrored_die_is_flagged(tmp_path: Path) -> None:
    zones = {f"{P}:0": "package-0-die-0", child(P, 0, 0): "dram", f"{P}:1": "package-0-die-1"}
    root = Tree(zones, (), (), same={f"{P}:1": f"{P}:0"}).lay_out(tmp_path)
    stop = threading.Event()

    def count() -> None:
        number = 1000
        with counter(root).open("r+b", buffering=0) as file:
            while not stop.wait(0.001):
                number += 1
                file.seek(0)
                file.write(b"%d\n" % number)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with PowercapSource.open(root, mirror_wait_s=5) as source:
            marks = Marks(source, Sampler(source, 0))
            with marks.phase("work"):
                pass
            flags = {c.zone: c.flags for c in marks.phases()[0].counters}
    finally:
        stop.set()
        thread.join()
    names = ("package-0-die-0", "package-0-die-0/dram")
    assert flags == {**dict.fromkeys(names, ()), "package-0-die-1": ("mirror",)}
