"""Stop a PowerSensor3, read its configuration, and start its stream; without I/O.

    s…sX   stop from any state; it answers FF 3F FF 3F
    R      it sends 41 bytes for each of 8 sensors, waiting for any byte after each, then `D`
    S      start of the stream

(nlesc-recruit/PowerSensor3, `device/PowerSensor/PowerSensor.ino`, `host/src/PowerSensor.cc`.) After
its answer to `X` the firmware may still send one more frame, and the configuration has no checksum:
so that frame is skipped, and the configuration is read until two readings agree.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

SENSORS = 8
STOPPED = b"\xff\x3f\xff\x3f"
# Eight bytes that are no commands end a half-read configuration; then X is understood.
STOP = b"s" * SENSORS + b"X"
_READ, _MORE, _DONE, START = b"R", b"s", b"D", b"S"
_SENSOR = struct.Struct("<16s16sff?")
SENSOR_BYTES = _SENSOR.size

_STOP_LIMIT_NS = 500_000_000  # the firmware waits 0.1 s before it answers
_ANSWER_LIMIT_NS = 200_000_000
_PAUSE_NS = 20_000_000  # before starting again after an impossible answer
_OFF_PAUSE_NS = 2_000_000_000
_SILENCE_LIMIT_NS = 1_000_000_000
_END_OF_STREAM = re.compile(rb"\A(?:[\x80-\xff][\x00-\xff])+")


@dataclass(frozen=True)
class Sensor:
    """One sensor as the meter's EEPROM describes it: its value is (U − vref) / sensitivity."""

    type: bytes
    pair: bytes
    vref_v: float
    sensitivity: float
    is_used: bool

    @classmethod
    def from_bytes(cls, data: bytes) -> Sensor:
        """Parse a sensor's record; raises ValueError if it is none."""
        if data[-1] > 1:
            raise ValueError("neither used nor unused")
        sensor = cls(*_SENSOR.unpack(data))
        if not (math.isfinite(sensor.vref_v) and math.isfinite(sensor.sensitivity)):
            raise ValueError("no finite calibration")
        return sensor

    def to_bytes(self) -> bytes:
        return _SENSOR.pack(*vars(self).values())


class Talk:
    """The dialogue with the meter from the opening of the port until the stream runs.

    `sensors` is the configuration once two readings agreed, `streaming` whether the received bytes
    are frames. `rails` are the pairs that must be switched on.
    """

    def __init__(self, rails: tuple[int, ...]) -> None:
        self._rails = rails
        self.sensors: tuple[Sensor, ...] = ()
        self.streaming = False
        self.due_ns = 0
        self._next = STOP
        self._waits_for = b""  # the last request that an answer is due to
        self._buffer = b""
        self._reading: list[Sensor] = []
        self._before: tuple[Sensor, ...] = ()

    def request(self, t_ns: int) -> bytes:
        return self._next if t_ns >= self.due_ns else b""

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        """Start again after a while, unless something else follows."""
        self._waits_for = data
        self.streaming = data == START and bool(self.sensors)
        if data in (STOP, _READ):
            self._buffer, self._reading = b"", []
        if data == STOP:
            self._before = ()
        limits_ns = {STOP: _STOP_LIMIT_NS, START: _SILENCE_LIMIT_NS}
        self._then(STOP, t_ns + limits_ns.get(data, _ANSWER_LIMIT_NS))

    def alive(self, t_ns: int) -> None:
        """Note that a frame of the stream came."""
        self.due_ns = t_ns + _SILENCE_LIMIT_NS

    def hear(self, data: bytes, t_ns: int) -> str:
        """Parse bytes before the stream; return the fault in words, or an empty string."""
        if self._waits_for == STOP:
            self._buffer += data
            stopped = STOPPED in self._buffer
            self._buffer = self._buffer[-len(STOPPED) + 1 :]
            if stopped:
                self._then(_READ, t_ns)
            return ""
        if self._waits_for not in (_READ, _MORE) or self._next != STOP:
            return ""  # between an answer and the next request no bytes are expected
        self._buffer += data
        return self._read(t_ns)

    def _then(self, request: bytes, t_ns: int) -> None:
        self._next, self.due_ns = request, t_ns

    def _read(self, t_ns: int) -> str:
        """Parse the answer to R, one sensor or the final `D`."""
        if not self._reading:
            # The end of the stream comes in pairs of bytes, the first of which is no text.
            self._buffer = _END_OF_STREAM.sub(b"", self._buffer, count=1)
        size = SENSOR_BYTES if len(self._reading) < SENSORS else len(_DONE)
        if len(self._buffer) < size:
            return ""
        answer, self._buffer = self._buffer[:size], self._buffer[size:]
        if len(self._reading) == SENSORS:
            return self._complete(answer, t_ns)
        try:
            self._reading.append(Sensor.from_bytes(answer))
        except ValueError as error:
            self._then(STOP, t_ns + _PAUSE_NS)
            return f"the configuration of sensor {len(self._reading)} has {error}; asking again"
        self._then(_MORE, t_ns)
        return ""

    def _complete(self, answer: bytes, t_ns: int) -> str:
        read, self._reading = tuple(self._reading), []
        if answer != _DONE:
            self._then(STOP, t_ns + _PAUSE_NS)
            return f"the configuration ended with {answer!r} and not with b'D'; asking again"
        if read != self._before:
            before, self._before = self._before, read
            self._then(_READ, t_ns)
            return "two readings of the configuration differ; asking again" if before else ""
        off = [
            rail
            for rail in self._rails
            if not all(sensor.is_used and sensor.sensitivity for sensor in read[2 * rail :][:2])
        ]
        if off:
            self._then(STOP, t_ns + _OFF_PAUSE_NS)
            return (
                f"rail {off[0]} is named in the inventory but its sensors are switched off or not "
                f"calibrated at the meter: psconfig -s {2 * off[0]} -o 1 -s {2 * off[0] + 1} -o 1"
            )
        self.sensors = read
        self._then(START, t_ns)
        return ""
