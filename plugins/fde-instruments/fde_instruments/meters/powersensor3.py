"""Driver of the PowerSensor3 on DC rails: pairs of current and voltage sensors at 20 kHz.

nlesc-recruit/PowerSensor3; van der Vlugt et al., arXiv 2504.17883.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from contract.schema import Range
from fde_instruments.meters.powersensor3_frames import (
    FRAME_BYTES,
    DeviceTime,
    Frames,
    Samples,
    Timed,
    find_frames,
    gather_records,
    has_marker,
    levels,
)
from fde_instruments.meters.powersensor3_talk import Sensor, Talk
from instrumentation.accuracy import LINEARITY, Accuracy
from instrumentation.meters.base import Meter, NotNegative
from instrumentation.meters.rows import (
    COMMON_WORDS,
    GAP,
    OVER_RANGE,
    RESTART,
    Flags,
    Floats,
    Ints,
    ParseResult,
    Rows,
    join_results,
)
from instrumentation.trace import Fault, Pieces

SUPPLY_V = 3.3
MAX_LEVEL = 1023
_MARKER = 16
_NOTHING: Ints = np.zeros(0, np.int64)
_RAILS = ("0", "1", "2", "3")


@dataclass(frozen=True)
class Settings:
    """`window_ms` is the length of one record, 0 for one frame; `frames_hz` the board's rate.

    The limits of error are the user's, from a calibration or the paper's table of modules; see
    `PowerSensor3.accuracy`.
    """

    window_ms: Annotated[int, Range(least=0, most=1000)] = 1
    frames_hz: Annotated[int, Range(least=1000, most=20_000)] = 20_000  # its time wraps at 1.024 ms
    relative_limit: NotNegative = 0.03
    absolute_limit_w: NotNegative = 0.33

    @property
    def frames(self) -> int:
        """Frames in one record."""
        return max(1, round(self.window_ms * self.frames_hz / 1000))


def value_of(level: Floats | float, sensor: Sensor) -> Any:
    """Return the A or V of a sensor's level."""
    return (SUPPLY_V * level / MAX_LEVEL - sensor.vref_v) / sensor.sensitivity


class PowerSensor3(Meter):
    """Driver. Channels: the rails `0` to `3`, each a pair of sensors that must be switched on.

    A record's arrival is that of the first byte of its last frame. If frames are missing a record
    ends before the gap, with the time of its frames as its window. Flags: `gap`, `restart` (its
    time was corrected backwards), `over-range` (a sensor was at the end of its range), `marker`
    (the marker is in this window).
    """

    kind: ClassVar[str] = "powersensor3"
    name: ClassVar[str] = "PowerSensor3"
    default_baud: ClassVar[int] = 115200  # means nothing on USB
    usb_ids: ClassVar[tuple[str, ...]] = ("0483:5740",)
    own_channels: ClassVar[tuple[str, ...]] = _RAILS
    timing: str = "device"
    # USB asks each millisecond; `gather_s` and the host's delays come on top.
    arrival_delay_limit_s: float = 0.02
    gather_s: ClassVar[float] = 0.005
    flag_words: ClassVar[tuple[str, ...]] = (*COMMON_WORDS, "marker")
    Settings: ClassVar[type[Any]] = Settings

    @property
    def accuracy(self) -> Accuracy:
        settings = self.settings
        if (settings.relative_limit, settings.absolute_limit_w) == (0.03, 0.33):
            source = (
                "0.33 W: one step of 3.3 V / 1023 through a 12 V module of 120 mV/A; 3 % assumed "
                "for a module that was not calibrated; both to be replaced by the settings "
                "relative_limit and absolute_limit_w from arXiv 2504.17883 or a calibration"
            )
        else:
            source = "the settings relative_limit and absolute_limit_w of this meter"
        return Accuracy(
            settings.relative_limit,
            settings.absolute_limit_w,
            source,
            absolute="resolution",
            further_terms=(LINEARITY,),  # direct current has no power factor
        )

    @property
    def period_s(self) -> float:
        return float(self.settings.frames / self.settings.frames_hz)

    def _forget(self) -> None:
        self._rails = tuple(_RAILS.index(key) for key in self.channels)
        self._talk = Talk(self._rails)
        self._start_stream()

    def _start_stream(self) -> None:
        self._pending = b""  # bytes that are not parsed yet
        self._pending_ns = _NOTHING, _NOTHING  # offsets and times of the reads they came in
        self._junk = 0
        self._in_step = False
        self._held = np.zeros((0, 9), np.uint16), np.zeros(0, np.int64)
        self._time = DeviceTime(round(1e6 / self.settings.frames_hz))
        self._open = Samples.none(len(self.channels))

    def request(self, t_ns: int) -> bytes:
        return self._talk.request(t_ns)

    @property
    def due_ns(self) -> int:
        return self._talk.due_ns

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        self._talk.on_request_sent(data, t_ns)
        if self._talk.streaming:
            self._start_stream()
            every, sensors = np.arange(MAX_LEVEL + 1, dtype=np.float64), self._talk.sensors
            # A and V of each rail for each level.
            self._values = [
                (value_of(every, sensors[2 * rail]), value_of(every, sensors[2 * rail + 1]))
                for rail in self._rails
            ]

    def stop_command(self) -> bytes:
        return b"X"

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """See `Meter.feed`. After damage the next whole frame is read again."""
        if self._talk.streaming:
            return self._feed_stream(Pieces([t_ns], [len(data)], data))
        if wrong := self._talk.hear(data, t_ns):
            self._fault(t_ns, "configuration", wrong)
        return self._take_result()

    def feed_all(self, pieces: Pieces) -> ParseResult:
        """See `Meter.feed_all`. Pieces without a gap are parsed at once."""
        return self._feed_stream(pieces) if self._talk.streaming else super().feed_all(pieces)

    def _feed_stream(self, pieces: Pieces) -> ParseResult:
        is_single = len(pieces) == 1
        if is_single:
            self._time.begin(pieces.t_mono_ns[0])
        sizes = np.array(pieces.sizes, np.int64)
        begins = len(self._pending) + np.cumsum(sizes) - sizes
        pieces_ns = np.array(pieces.t_mono_ns, np.int64)
        offsets = np.concatenate([self._pending_ns[0], begins])
        times = np.concatenate([self._pending_ns[1], pieces_ns])
        data = self._pending + pieces.data
        frames = find_frames(data)
        arrived = times[np.searchsorted(offsets, frames.at, "right") - 1]
        words = np.concatenate([self._held[0], frames.words])
        t_ns = np.concatenate([self._held[1], arrived])
        level = levels(words)
        stamps = level[:, 0].astype(np.int64)
        timed = None
        if len(stamps) > 1:
            off_us = self._time.steps(stamps[:-1])
            if is_single:
                timed = self._time.take(stamps[:-1], off_us, int(stamps[-1]), t_ns)
            else:
                complete = np.searchsorted(frames.at, begins - FRAME_BYTES, "right")
                first = np.maximum(complete + len(self._held[0]) - 1, 0)
                timed = self._time.take_even(stamps[:-1], off_us, t_ns, pieces_ns, first)
        if timed is None and not is_single:
            return join_results([self.feed(piece.data, piece.t_mono_ns) for piece in pieces])
        faults = self._junk_faults(frames, arrived)
        self._save_pending(data, frames.end, offsets, times)
        self._held = words[-1:], t_ns[-1:]
        if len(frames.words):
            self._talk.alive(pieces.t_mono_ns[-1])
        if timed is None:
            return ParseResult(self._rows(Samples.none(len(self.channels))), tuple(faults))
        faults += _time_faults(timed, t_ns)
        samples = Samples(
            t_ns[:-1],
            timed.t_us,
            timed.step_us,
            self._power_w(level[:-1]),
            self._flags(level[:-1], timed) | _MARKER * has_marker(words[:-1]).astype(np.uint16),
        )
        if not timed.sound.all():
            samples = samples.at(timed.sound)
        return ParseResult(self._rows(samples), tuple(faults))

    def _rows(self, samples: Samples) -> Rows:
        rows, self._open = gather_records(self._open.then(samples), self.settings.frames)
        return rows

    def _save_pending(self, data: bytes, start: int, offsets: Ints, times: Ints) -> None:
        self._pending = data[start:]
        first = max(0, int(np.searchsorted(offsets, start, "right")) - 1)
        if self._pending:
            self._pending_ns = np.maximum(offsets[first:] - start, 0), times[first:]
        else:
            self._pending_ns = _NOTHING, _NOTHING

    def _junk_faults(self, frames: Frames, arrived: Ints) -> list[Fault]:
        faults = []
        if len(frames.junk):
            junk = frames.junk.copy()
            junk[0] += self._junk
            self._junk = 0
            for at in np.flatnonzero(junk).tolist():
                if self._in_step or at or junk[at] >= FRAME_BYTES:
                    detail = f"{junk[at]} bytes before this are no PowerSensor3 frame"
                    faults.append(Fault(int(arrived[at]), "framing", detail))
            self._in_step = True
        self._junk += frames.junk_after
        return faults

    def _power_w(self, level: Any) -> Floats:
        power_w = np.empty((len(level), len(self._rails)))
        for column, (rail, (ampere, volt)) in enumerate(
            zip(self._rails, self._values, strict=True)
        ):
            np.multiply(
                ampere[level[:, 2 * rail + 1]], volt[level[:, 2 * rail + 2]], out=power_w[:, column]
            )
        return power_w

    def _flags(self, level: Any, timed: Timed) -> Flags:
        flags = GAP * (timed.missing_us > 0) | RESTART * (timed.missing_us < 0)
        for rail in self._rails:
            current, voltage = level[:, 2 * rail + 1], level[:, 2 * rail + 2]
            over = (current == 0) | (current == MAX_LEVEL) | (voltage == MAX_LEVEL)
            flags |= OVER_RANGE * over
        return flags.astype(np.uint16)


def _time_faults(timed: Timed, t_ns: Ints) -> list[Fault]:
    faults = []
    for at in np.flatnonzero(~timed.sound | (timed.missing_us != 0)).tolist():
        missing_us = int(timed.missing_us[at])
        if not timed.sound[at]:
            kind, detail = "corrupt", "a frame's own time is impossible"
        elif missing_us > 0:
            kind, detail = "gap", f"frames of {missing_us} µs are missing"
        else:
            kind, detail = "restart", f"the meter's time was put back by {-missing_us} µs"
        faults.append(Fault(int(t_ns[at]), kind, detail))
    return faults
