"""Offsets and their bounds against a known truth, and the link to a real responder."""

from __future__ import annotations

import json
import random
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.journal import boot_id
from contract.tests.refusal import refuses
from instrumentation.clock import ClockReading, OffsetModel, bound_ns, offset_ns
from instrumentation.clock_link import ClockLink, keep_measuring

RESPONDER = [sys.executable, "-m", "instrumentation.clock", "respond"]
SECOND = 10**9


@given(
    st.integers(0, 10**18),
    st.integers(-(10**15), 10**15),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_offset_is_within_its_bound(t_ns: int, true_ns: int, there_ns: int, back_ns: int) -> None:
    """The two ways may take any time."""
    reading = ClockReading(t_ns, t_ns + there_ns + true_ns, t_ns + there_ns + back_ns, "b")
    assert abs(offset_ns(reading) - true_ns) <= bound_ns(reading)


def made_up(
    seed: int, skew_ppm: float, offset: int, span_s: int = 1800, every_s: int = 60
) -> list[ClockReading]:
    """Return bursts of round trips of 0.3 ms and more to a clock with a known skew."""
    chance = random.Random(seed)
    readings = []
    for burst_s in range(0, span_s + 1, every_s):
        t_ns = burst_s * SECOND
        for _ in range(8):
            outward, back = (int(chance.expovariate(1 / 500_000)) + 150_000 for _ in range(2))
            t_target = true_target(t_ns + outward, skew_ppm, offset)
            readings.append(ClockReading(t_ns, t_target, t_ns + outward + back, "boot"))
            t_ns += outward + back
    return readings


def model_of(readings: list[ClockReading], boot_id: str = "boot") -> OffsetModel:
    (model,) = OffsetModel.pieces(readings, boot_id)
    return model


def true_target(t_controller_ns: int, skew_ppm: float, offset: int) -> int:
    return t_controller_ns + offset + round(t_controller_ns * skew_ppm * 1e-6)


@pytest.mark.parametrize("skew_ppm", [0.0, 37.0, -480.0])
def test_model_maps_within_its_bound(skew_ppm: float) -> None:
    offset = 3_600_000_000_000_000
    for seed in range(20):
        model = model_of(made_up(seed, skew_ppm, offset))
        for t_s in range(-300, 2400, 37):  # before, between and after the bursts
            t_ns = t_s * SECOND
            target = true_target(t_ns, skew_ppm, offset)
            assert abs(model.to_controller_ns(target) - t_ns) <= model.bound_ns(target)
        per_target_second = skew_ppm / (1 + skew_ppm * 1e-6)
        assert abs(model.skew_ppm - per_target_second) <= model.skew_bound_ppm
        middle = true_target(900 * SECOND, skew_ppm, offset)
        assert model.bound_ns(middle) < 1_000_000
        assert model.bound_ns(true_target(2400 * SECOND, skew_ppm, offset)) > model.bound_ns(middle)


def test_a_change_of_skew_is_followed() -> None:
    """A clock that changes its rate half way is mapped well in both halves."""
    early = made_up(1, 0.0, 0, span_s=600)
    late = [
        ClockReading(
            r.t_send_ns,
            r.t_target_ns + (r.t_send_ns - 600 * SECOND) // 20_000,
            r.t_receive_ns,
            "boot",
        )
        for r in made_up(2, 0.0, 0, span_s=1200)
        if r.t_send_ns > 600 * SECOND
    ]
    model = model_of(early + late)
    for t_s in (30, 300, 590, 610, 900, 1190):
        t_ns = t_s * SECOND
        target = t_ns + max(0, t_ns - 600 * SECOND) // 20_000
        assert abs(model.to_controller_ns(target) - t_ns) <= 1_000_000


@pytest.mark.parametrize("jump_s", [600.0, -600.0, 0.2])
def test_a_jump_cuts_the_model_in_two(jump_s: float) -> None:
    """A suspended machine's clock stops; readings on either side do not affect the other."""
    readings = [
        replace(r, t_target_ns=r.t_target_ns + round((r.t_send_ns > 900 * SECOND) * jump_s * 1e9))
        for r in made_up(3, 80.0, 0)
    ]
    before, after = OffsetModel.pieces(readings, "boot")
    for model, t_s, jumped_s in ((before, 500, 0.0), (after, 1300, jump_s)):
        target = true_target(t_s * SECOND, 80.0, round(jumped_s * 1e9))
        assert abs(model.to_controller_ns(target) - t_s * SECOND) <= model.bound_ns(target) < 10**6
    assert len(OffsetModel.pieces(made_up(3, 1_000.0, 0), "boot")) == 1
    assert OffsetModel.pieces(readings, "other") == ()


def test_boots_are_never_mixed() -> None:
    first = made_up(1, 0.0, 0)
    second = [
        ClockReading(r.t_send_ns, r.t_target_ns - 10**15, r.t_receive_ns, "new") for r in first
    ]
    model = model_of(first + second, "new")
    assert abs(model.knots[0][1] + 10**15) < 10**7
    assert model == model_of(second, "new")
    assert OffsetModel.pieces(first, "other") == ()


def load_readings(path: Path) -> list[ClockReading]:
    return [ClockReading(**json.loads(line)) for line in path.read_text().splitlines()]


def test_a_responder_on_this_machine_has_no_offset(tmp_path: Path) -> None:
    """The responder runs on this machine: its clock is ours."""
    with ClockLink(RESPONDER, tmp_path / "clock.jsonl") as link:
        readings = link.burst(16)
    assert load_readings(tmp_path / "clock.jsonl") == readings
    assert len(readings) == 16
    for reading in readings:
        assert reading.t_send_ns <= reading.t_target_ns <= reading.t_receive_ns
        assert abs(offset_ns(reading)) <= bound_ns(reading)


def dying(answers: int) -> list[str]:
    """Return a responder whose link breaks after some answers."""
    code = (
        "import sys, time\n"
        f"for _ in range({answers}):\n"
        "    sys.stdin.readline()\n"
        "    print(time.monotonic_ns(), 'boot', flush=True)\n"
        "sys.exit('connection reset')"
    )
    return [sys.executable, "-c", code]


def test_a_lost_link_is_restarted(tmp_path: Path) -> None:
    with ClockLink(dying(6), tmp_path / "clock.jsonl") as link:
        assert len(link.burst(8)) == 8
        assert len(link.burst(2)) == 2
    assert len(load_readings(tmp_path / "clock.jsonl")) == 10


def test_a_link_without_answers_raises_with_the_reason(tmp_path: Path) -> None:
    with (
        ClockLink(dying(0), tmp_path / "clock.jsonl") as link,
        refuses("clock-silent", reason="connection reset"),
    ):
        link.burst()
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ClockLink(silent, tmp_path / "clock.jsonl", connect_timeout_s=0.3) as link,
        refuses("clock-silent", reason="no answer in time"),
    ):
        link.burst()
    with (
        ClockLink([str(tmp_path / "none")], tmp_path / "clock.jsonl") as link,
        refuses("clock-silent"),
    ):
        link.burst()


def test_measuring_continues_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bursts fail, which is reported once, until the responder exists."""
    monkeypatch.setattr("instrumentation.clock_link.RETRY_S", 0.01)
    program = tmp_path / "responder"
    errors: list[str] = []
    stop = threading.Event()

    def heal() -> None:
        program.write_text(f"#!/bin/sh\nexec {shlex.join(RESPONDER)}\n")
        program.chmod(0o755)

    with ClockLink([str(program)], tmp_path / "clock.jsonl") as link:
        thread = threading.Thread(target=keep_measuring, args=(link, 0.05, stop, errors.append))
        thread.start()
        while not errors:
            stop.wait(0.05)
        stop.wait(0.2)
        heal()
        while not (tmp_path / "clock.jsonl").exists():
            assert thread.is_alive()
            stop.wait(0.05)
        stop.set()
        thread.join()
    assert len(errors) == 1
    assert len(load_readings(tmp_path / "clock.jsonl")) >= 8


def test_readings_have_the_boot_of_the_controller(tmp_path: Path) -> None:
    path = tmp_path / "clock.jsonl"
    with ClockLink(RESPONDER, path) as link:
        link.burst(1)
    line = path.read_text()
    path.write_text(line + line.replace(f', "controller_boot_id": "{boot_id()}"', ""))
    assert [reading.controller_boot_id for reading in load_readings(path)] == [boot_id(), ""]
