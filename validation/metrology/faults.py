"""Drivers under faults: whether each fault is noticed, and how soon the driver is in step again.

One fault at a time, over every kind of meter and of fault: it is noticed if a fault or a flag is
reported at its place, or if the records are those of the clean stream. And streams in which every
second piece is corrupted: no driver may crash, and a clean record behind a corrupted one must be
read. Loads and faults are drawn from seeds; the meters are the simulators.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from instrumentation.decode import Decoded
from instrumentation.meters import registry
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import ParseResult
from instrumentation.tests.simulators import registry as simulators
from instrumentation.tests.simulators.registry import Simulator
from instrumentation.trace import Frame
from validation.bench import Figure, at_least, at_most
from validation.metrology.conversation import Wire, conversation, decode_frames, faultless
from validation.metrology.faulty_meters import WIRE_FAULTS, FaultyMeter, FaultyWire, WireFaults

RECORDS = 60  # of a stream with one fault
TRIALS = 200  # of each kind of fault
CORRUPTED = 1_000_000  # pieces for each kind of meter
LIMIT_S = 900.0  # for each kind of meter, however many there were until then
RUN_RECORDS = 4_000
CALM_PIECES = 80  # while driver and meter find each other
CORRUPTIONS = ("drop", "double", "corrupt", "checksum")
CORRUPT_CHANCE = 0.16  # of each of them: half of the pieces are hit
LATE_RECORDS = 8  # how far behind its place a fault may be reported, in records
LATE_S = 5.0  # and, by a meter that must be polled again, in s
WORKERS = 2

Joules = NDArray[np.float64]


def driver_of(kind: str) -> Meter:
    """Return a fresh driver that is set to its simulator."""
    simulator = simulators.load(kind)()
    channels = {channel: f"ch_{n}" for n, channel in enumerate(simulator.channels)}
    return registry.load(kind)(channels, simulator.settings)


def a_load(simulator: Simulator, seed: int, periods: int) -> Joules:
    """Return energies at the ends of periods of a load that jumps and creeps, in J."""
    chance = np.random.default_rng(seed)
    shape = (periods, len(simulator.channels))
    steps = chance.choice([0.001, 0.07, 0.2, 0.7], shape)
    watts = simulator.full_scale_w * (steps + 0.05 * chance.random(shape))
    return np.asarray(np.cumsum(watts * simulator.period_s, axis=0))


def periods_of_a_record(kind: str) -> int:
    """Return how many of the simulator's periods a record averages."""
    return max(1, round(driver_of(kind).period_s / simulators.load(kind)().period_s))


@dataclass
class OneFault:
    """A wire that strikes once, at one of its pieces."""

    wire: FaultyWire
    fault: str
    at: int
    pieces: int = 0

    def carry(self, piece: bytes) -> bytes:
        """Return the bytes that arrive."""
        self.wire.faults = WireFaults(**{self.fault: float(bool(piece) and self.pieces == self.at)})
        self.pieces += bool(piece)
        return self.wire.carry(piece)


class OneMeterFault(FaultyMeter):
    """A meter whose own clock is struck once."""

    def __init__(self, kind: str, seed: int, fault: str, at: int) -> None:
        super().__init__(simulators.load(kind), seed)
        self._fault, self._at, self._calls = fault, at, 0

    def advance(self, energy_j: Joules) -> bytes:
        """Advance the meter, striking its clock once; see `Simulator.advance`."""
        setattr(self, f"_{self._fault}", float(self._calls == self._at))
        self._calls += 1
        return super().advance(energy_j)


def _noticed(decoded: Decoded, clean: Decoded, struck_ns: int, record_s: float) -> bool:
    """Return whether the fault was noticed, as the module's docstring defines it.

    The recorder notices a stream that ends with the fault: it opens the port again.
    """
    late_ns = (LATE_RECORDS * record_s + LATE_S) * 1e9
    early_ns = 2 * record_s * 1e9
    flagged = decoded.samples.filter(pl.col("flags").str.contains("gap|restart"))["t_mono_ns"]
    reported_ns = [fault.t_mono_ns for fault in decoded.faults] + flagged.to_list()
    if any(-early_ns <= t_ns - struck_ns <= late_ns for t_ns in reported_ns):
        return True
    columns = ("t_device_us", "window_s", "flags", "^power_w_.*$")
    if decoded.samples.select(columns).equals(clean.samples.select(columns)):
        return True
    after = decoded.samples.filter(pl.col("t_mono_ns") > struck_ns + early_ns)
    return after.is_empty()


@dataclass(frozen=True)
class Noticed:
    """How many faults of each kind were noticed, and of how many."""

    kind: str
    trials: int
    missed: Mapping[str, int]
    worst_limits: float  # largest error of a record that passed, in the limits the maker states


def notice(kind: str, trials: int) -> Noticed:
    """Inject one fault at a time and count those that the driver does not notice."""
    together = periods_of_a_record(kind)
    simulator = simulators.load(kind)()
    record_s = together * simulator.period_s
    missed, worst_limits = {}, 0.0
    for number, fault in enumerate((*WIRE_FAULTS, "step", "restart")):
        missed[fault] = 0
        for trial in range(trials):
            chance = np.random.default_rng([number, trial])
            energy_j = a_load(simulator, trial % 10, RECORDS * together)
            unharmed = clean_frames(kind, trial % 10, together)
            place = float(chance.uniform(0.4, 0.6))
            if fault in WIRE_FAULTS:
                received = [frame for frame in unharmed if frame.data and not frame.sent]
                wire = OneFault(FaultyWire(trial), fault, int(place * len(received)))
                struck_ns = received[wire.at].t_mono_ns
                frames = _frames(kind, simulators.load(kind)(), energy_j, together, wire.carry)
            else:
                at = int(place * RECORDS)
                struck_ns = round(at * record_s * 1e9)
                meter = OneMeterFault(kind, trial, fault, at)
                frames = _frames(kind, meter, energy_j, together)
            decoded = decode_frames(driver_of(kind), frames)
            clean = decode_frames(driver_of(kind), unharmed)
            if not _noticed(decoded, clean, struck_ns, record_s):
                missed[fault] += 1
                worst_limits = max(worst_limits, _error_limits(kind, decoded, clean))
    return Noticed(kind, trials * len(missed), missed, worst_limits)


def _error_limits(kind: str, decoded: Decoded, clean: Decoded) -> float:
    """Return the largest error of a record, in the maker's limits; infinite if one is missing."""
    if decoded.samples.height != clean.samples.height:
        return float("inf")
    accuracy = driver_of(kind).accuracy
    read, true = (side.samples.select("^power_w_.*$").to_numpy() for side in (decoded, clean))
    limit = accuracy.relative_limit * np.abs(true) + accuracy.absolute_limit_w
    return float(np.max(np.abs(read - true) / limit))


@cache
def clean_frames(kind: str, seed: int, together: int) -> list[Frame]:
    """Return a stream without a fault."""
    simulator = simulators.load(kind)()
    return _frames(kind, simulator, a_load(simulator, seed, RECORDS * together), together)


def _frames(
    kind: str, simulator: Simulator, energy_j: Joules, together: int, wire: Wire = faultless
) -> list[Frame]:
    driver = driver_of(kind)
    return list(conversation(driver, simulator, energy_j, wire=wire, together=together))


@dataclass
class Listened:
    """A driver in a conversation, with a note for which pieces it returned records."""

    meter: Meter
    gave: list[bool] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.meter, name)

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """Feed the driver and note whether it returned records; see `Meter.feed`."""
        fed = self.meter.feed(data, t_ns)
        self.gave.append(len(fed.rows) > 0)
        return fed


@dataclass
class HitOrNot:
    """A wire that notes for each piece whether it arrived intact."""

    wire: FaultyWire
    intact: list[bool] = field(default_factory=list)

    def carry(self, piece: bytes) -> bytes:
        """Return the bytes that arrive."""
        if not piece:
            return b""
        calm = len(self.intact) < CALM_PIECES
        arrived = piece if calm else self.wire.carry(piece)
        if arrived:  # a piece of one byte that was dropped is no piece
            self.intact.append(arrived == piece)
        return arrived


@dataclass(frozen=True)
class Survived:
    """Result of streams full of corrupted pieces."""

    kind: str
    corrupted: int
    crashes: int
    lost_in_a_row: int
    lost: int
    seconds: float


def _pieces(frames: list[Frame]) -> Iterator[tuple[bytes, bool]]:
    """Yield for each piece received its request (b"" for none), and whether it is new.

    A meter that is polled faster than it measures repeats itself.
    """
    request = before = b""
    for frame in frames:
        if frame.sent or not frame.data:
            request = frame.data
            continue
        content = frame.data[2:26]
        yield request, content != before
        request, before = b"", content


def _readings(frames: list[Frame], gave: list[bool]) -> set[bytes]:
    """Return the requests whose answers are records; b"" is a meter that streams."""
    answered: dict[bytes, list[bool]] = {}
    for (request, is_new), has_given in zip(_pieces(frames), gave, strict=True):
        if is_new:
            answered.setdefault(request, []).append(has_given)
    return {request for request, records in answered.items() if 2 * sum(records) > len(records)}


def _lost_runs(
    frames: list[Frame], whole_ones: list[bool], gave: list[bool], readings: set[bytes]
) -> Iterator[int]:
    """Yield how many intact readings in a row gave no record, after each corrupted piece."""
    run, struck = 0, False
    pieces = zip(_pieces(frames), whole_ones, gave, strict=True)
    for (request, is_new), is_whole, has_given in pieces:
        if not is_whole or has_given:
            if run:
                yield run
            run, struck = 0, struck or not is_whole
        elif is_new and struck and request in readings:
            run += 1
    if run:
        yield run


def survive(kind: str, corrupted: int, run_records: int = RUN_RECORDS) -> Survived:
    """Decode streams with half of the pieces corrupted, until there were that many of these."""
    start_s = time.monotonic()
    together = periods_of_a_record(kind)
    simulator = simulators.load(kind)()
    clean = Listened(driver_of(kind))
    energy_j = a_load(simulator, 0, min(run_records, 500) * together)
    talk = conversation(cast(Meter, clean), simulator, energy_j, together=together)
    readings = _readings(list(talk), clean.gave)
    hits = crashes = lost = worst = seed = 0
    while hits < corrupted and crashes < 100 and time.monotonic() - start_s < LIMIT_S:
        seed += 1
        chances = WireFaults(**dict.fromkeys(CORRUPTIONS, CORRUPT_CHANCE))
        wire = HitOrNot(FaultyWire(seed, chances))
        simulator = simulators.load(kind)()
        listened = Listened(driver_of(kind))
        energy_j = a_load(simulator, seed, run_records * together)
        frames: list[Frame] = []
        try:
            for frame in conversation(
                cast(Meter, listened), simulator, energy_j, wire=wire.carry, together=together
            ):
                frames.append(frame)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            crashes += 1
            print(f"{kind}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        hits += len(wire.intact) - sum(wire.intact)
        for run in _lost_runs(frames, wire.intact, listened.gave, readings):
            lost += run
            worst = max(worst, run)
    return Survived(kind, hits, crashes, worst, lost, time.monotonic() - start_s)


def measure(quick: bool = False) -> list[Figure]:
    """Return the figures of every registered meter."""
    trials, corrupted = (1, 100) if quick else (TRIALS, CORRUPTED)
    records = 300 if quick else RUN_RECORDS
    kinds = registry.kinds()
    # Spawned, not forked: the threads of Polars do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(1) if quick else ProcessPoolExecutor(WORKERS, spawn) as pool:
        noticing = [pool.submit(notice, kind, trials) for kind in kinds]
        surviving = [pool.submit(survive, kind, corrupted, records) for kind in kinds]
        noticed = [future.result() for future in noticing]
        survived = []
        for running in surviving:
            result = running.result()
            survived.append(result)
            print(f"  {result.kind}: {result.corrupted} in {result.seconds:.0f} s", file=sys.stderr)
    return [*_noticed_figures(noticed), *_survived_figures(survived, corrupted)]


def _noticed_figures(noticed: list[Noticed]) -> Iterator[Figure]:
    trials = sum(result.trials for result in noticed)
    missed = sum(sum(result.missed.values()) for result in noticed)
    yield Figure("injected faults", trials, "")
    yield at_least("injected faults noticed", 100 * (1 - missed / trials), "%", 100.0)
    for result in noticed:
        share = 100 * (1 - sum(result.missed.values()) / result.trials)
        worst = max(result.missed, key=lambda fault: result.missed[fault])
        which = f", worst {worst}" if result.missed[worst] else ""
        yield at_least(f"injected faults noticed, {result.kind}{which}", share, "%", 100.0)
        if result.worst_limits:
            name = f"largest error that passed, in stated limits, {result.kind}"
            yield at_most(name, result.worst_limits, "", 1.0)


def _survived_figures(survived: list[Survived], corrupted: int) -> Iterator[Figure]:
    for result in survived:
        yield at_least(f"corrupted records, {result.kind}", result.corrupted, "", corrupted)
        yield at_most(f"crashes by them, {result.kind}", result.crashes, "", 0)
        name = f"whole records lost in a row behind one, {result.kind}"
        yield at_most(name, result.lost_in_a_row, "", 1)
