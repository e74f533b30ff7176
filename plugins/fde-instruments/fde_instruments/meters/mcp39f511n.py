"""Driver of the Microchip MCP39F511N on its board ADM00706: two mains sockets, asked over USB.

The meter averages over windows of 2^N line cycles (factory: N = 4) and does not mark their ends.
So its outputs are read every 10 ms around the time at which they should change: a change belongs to
a new window, which ended after the previous read. Unchanged values are never taken for a new
window; two windows that agree in voltage, currents, power factors and power to the last bit look
like a meter that stands still, and are a gap.

The 8-bit sum misses one in 256 of the answers that were damaged in several bytes. So each value
must be read twice in a row, and answers of 28 and 32 bytes alternate, so that a late one is not
taken for the next. The registers of the window and the ranges are read twice at each opening. Not
detected are the same damage to two answers in a row with right sums, and power that flows back,
whose sign is not read. By the data sheet all outputs change at once at the end of a window; this is
not verified on the board. The energy counters are not read: public drivers disagree by a factor of
two about their scale.

A request is `A5 length command… sum`: the length is that of the whole frame, the sum covers all
bytes before it, modulo 256. `41 hi lo` sets the address, `4E n` reads n bytes, `4D n …` writes
them. A read is answered by `06 length data… sum`, a write by `06` alone; `15` means that a request
is not understood and `51` that its sum was wrong. Data is little-endian (Microchip DS20005473B;
osmhpi/pinpoint, `mcp_com.c`; green-coding-solutions/green-metrics-tool, its mcp provider).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from contract.schema import Range
from instrumentation.accuracy import Accuracy
from instrumentation.meters.base import Meter
from instrumentation.meters.rows import COMMON_WORDS, GAP, Inbox, ParseResult

_HEADER = 0xA5
_SET_ADDRESS = 0x41
_READ = 0x4E
_WRITE = 0x4D
_ACK = 0x06
_FRAME_BYTES = 8  # of the shortest request
REFUSALS = {0x15: "not understood", 0x51: "its checksum was wrong"}

# Registers. Their order between 0002 and 0021 is that of the data sheet's map.
OUTPUTS = 0x0002
WINDOW_EXPONENT = 0x00A8
RANGE_1 = 0x00AE
RANGE_2 = 0x00BE


def checksum(data: bytes) -> int:
    """Return the 8-bit sum that ends every frame."""
    return sum(data) & 0xFF


def _frame(command: bytes) -> bytes:
    frame = bytes([_HEADER, len(command) + 3]) + command
    return frame + bytes([checksum(frame)])


def read_request(address: int, count: int) -> bytes:
    """Return the request for `count` bytes from `address` on."""
    return _frame(bytes([_SET_ADDRESS, *address.to_bytes(2, "big"), _READ, count]))


def write_request(address: int, data: bytes) -> bytes:
    """Return the request that puts `data` into the registers from `address` on."""
    start = bytes([_SET_ADDRESS, *address.to_bytes(2, "big"), _WRITE, len(data)])
    return _frame(start + data)


class Request(NamedTuple):
    """A request for `size` bytes from `address` on; `size` is 0 for a write."""

    address: int
    size: int

    @classmethod
    def from_frame(cls, frame: bytes) -> Request:
        """Return the request in a frame; for no bytes if the frame is too short."""
        if len(frame) < _FRAME_BYTES:
            return cls(0, 0)
        reads = frame[5] == _READ
        return cls(int.from_bytes(frame[3:5], "big"), frame[6] if reads else 0)

    @property
    def answer_bytes(self) -> int:
        return self.size + 3 if self.size else 1


class Answer(NamedTuple):
    """An answer in received bytes; `data` is empty for a write."""

    start: int
    end: int
    data: bytes


def find_answer(received: bytes, request: Request) -> Answer | None:
    """Return the first whole and sound answer to a request; None if there is none (yet)."""
    if not request.size:
        return Answer(0, 1, b"") if received[:1] == bytes([_ACK]) else None
    length = request.answer_bytes
    start = received.find(bytes([_ACK, length]))
    while start >= 0 and start + length <= len(received):
        frame = received[start : start + length]
        if checksum(frame[:-1]) == frame[-1]:
            return Answer(start, start + length, frame[2:-1])
        start = received.find(bytes([_ACK, length]), start + 1)
    return None


def power_w(raw: int, range_register: int) -> float:
    """Return the active power in W.

    Bits 16 to 23 of the range are the shift of the power register: a step is 10 mW at 19 and 1.25
    mW at 16.
    """
    return raw * 0.01 * 2.0 ** ((range_register >> 16 & 0xFF) - 19)


@dataclass(frozen=True)
class Outputs:
    """The output registers from 0002 on.

    `measured` are the values of the accumulation window, which change with it; `line_mhz` the line
    frequency in mHz; `power_raw` the active power of both channels. The sign of the power is in the
    system status, in bits that are not verified: it is not used.
    """

    measured: bytes
    line_mhz: int
    power_raw: tuple[int, int]

    @classmethod
    def from_bytes(cls, data: bytes) -> Outputs:
        """Parse at least 28 bytes of outputs.

        Status, version, voltage, frequency (2 each), power factors (2 of 2), currents and active
        powers (2 of 4 each).
        """
        return cls(
            measured=data[4:6] + data[8:28],
            line_mhz=int.from_bytes(data[6:8], "little"),
            power_raw=(
                int.from_bytes(data[20:24], "little"),
                int.from_bytes(data[24:28], "little"),
            ),
        )


class Look(NamedTuple):
    """One read of the outputs: asked for at `asked_ns`, with the first byte at `t_ns`."""

    outputs: Outputs
    asked_ns: int
    t_ns: int


_LATE = 16
_MOST_BYTES = 1 << 14  # far more than any answer
_STEP_NS = 10_000_000  # between two reads while a change is due
_LEAD_NS = 10_000_000  # how long before the earliest time of a change they begin
_TIMEOUT_NS = 100_000_000  # an answer of 35 bytes takes 3 ms on the wire
_LOST_ANSWERS = 3  # in a row: the meter may have started again, with other registers
_GAP_WINDOWS = 1.5
_STALE_WINDOWS = 3
_READ_BYTES = (32, 28)
_LINE_HZ = (40.0, 70.0)
_MAX_EXPONENT = 8
# Registers to read at the opening, each with a different length; 00BE with the one after it.
_SETUP = ((WINDOW_EXPONENT, 2), (RANGE_1, 4), (RANGE_2, 8))


@dataclass(frozen=True)
class Settings:
    """`window_cycles` is set at the meter if it differs: 2^N line cycles with N up to 8.

    `line_hz` is the nominal line frequency; the length of windows follows from the measured one.
    """

    window_cycles: Literal[1, 2, 4, 8, 16, 32, 64, 128, 256] = 16
    line_hz: Annotated[float, Range(*_LINE_HZ)] = 50.0


class Mcp39f511n(Meter):
    """Driver. Channels: `1` and `2` are the sockets.

    Flags: `gap` (windows before this one are missing), `late` (the previous read was longer ago
    than `arrival_delay_limit_s`: the window may have ended that much earlier).
    """

    kind: ClassVar[str] = "mcp39f511n"
    name: ClassVar[str] = "Microchip MCP39F511N (ADM00706)"
    default_baud: ClassVar[int] = 115200
    usb_ids: ClassVar[tuple[str, ...]] = ("04d8:00dd",)  # an MCP2221 on the board
    own_channels: ClassVar[tuple[str, ...]] = ("1", "2")
    timing: str = "poll"
    detects_damage: ClassVar[bool] = True
    # One read each 10 ms, some ms for the answer, and as much again for a busy controller; a record
    # for which this does not hold is flagged `late`.
    arrival_delay_limit_s: float = 0.03
    flag_words: ClassVar[tuple[str, ...]] = (*COMMON_WORDS, "late")
    Settings: ClassVar[type[Any]] = Settings
    accuracy = Accuracy(
        relative_limit=0.005,
        absolute_limit_w=0.005,
        source="Microchip DS20005473B: 0.5 % across a dynamic range of 4000:1, taken as the "
        "limit at every load; 5 mW: half a step of 10 mW",
        absolute="resolution",
    )

    # Exponents of the window; they survive a reopening, for the stop command.
    _first_exponent: int | None = None
    _exponent_now: int = 0

    @property
    def period_s(self) -> float:
        """One window at the nominal line frequency."""
        return float(self.settings.window_cycles / self.settings.line_hz)

    def _forget(self) -> None:
        self._inbox = Inbox(_MOST_BYTES)
        self._pending: tuple[Request, int] | None = None
        self._due_ns = 0
        self._timeouts = 0
        self._asked_count = 0
        self._stray_bytes = 0
        self._last_ns: int | None = None  # when the newest record came
        self._start_over()

    def _start_over(self) -> None:
        """Read the registers again, and compare the outputs from the start."""
        self._setup: list[int] = []
        self._written = False
        self._last: Outputs | None = None  # the newest window
        self._unchanged_ns = 0  # time of the last request whose answer showed it
        self._candidate: Look | None = None
        self._is_stale = False

    # Asking

    @property
    def due_ns(self) -> int | None:
        return self._pending[1] + _TIMEOUT_NS if self._pending else self._due_ns

    def request(self, t_ns: int) -> bytes:
        due_ns = self.due_ns
        if due_ns is not None and t_ns < due_ns:
            return b""
        if len(self._setup) < 2 * len(_SETUP):
            return read_request(*_SETUP[len(self._setup) % len(_SETUP)])
        if not self._written and self._setup[0] != self._set_exponent:
            return write_request(WINDOW_EXPONENT, self._set_exponent.to_bytes(2, "little"))
        return read_request(OUTPUTS, _READ_BYTES[self._asked_count % len(_READ_BYTES)])

    def on_request_sent(self, data: bytes, t_ns: int) -> None:
        """Give up an answer that has not come by now."""
        if self._pending is not None:
            self._timeouts += 1
            ms = (t_ns - self._pending[1]) / 1e6
            self._fault(t_ns, "timeout", f"no whole answer in {ms:.0f} ms")
            if self._timeouts >= _LOST_ANSWERS:
                self._start_over()
        self._inbox.clear()
        self._pending = (Request.from_frame(data), t_ns)
        self._asked_count += 1

    def stop_command(self) -> bytes:
        """Return the command that restores the window of the opening, if it was changed."""
        if self._first_exponent is None or self._first_exponent == self._exponent_now:
            return b""
        return write_request(WINDOW_EXPONENT, self._first_exponent.to_bytes(2, "little"))

    @property
    def _set_exponent(self) -> int:
        return int(self.settings.window_cycles).bit_length() - 1

    # Listening

    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        self._inbox.add(data, t_ns)
        if self._pending is None:
            self._stray_bytes += len(self._inbox)
            self._inbox.clear()
            return self._take_result()
        request, asked_ns = self._pending
        answer = find_answer(self._inbox.data, request)
        if answer is not None:
            answer_ns = self._inbox.arrival_ns(answer.start)
            stray = self._stray_bytes + answer.start
            if stray:
                self._fault(answer_ns, "framing", f"{stray} bytes before this answer are none")
            self._answered(len(self._inbox) - answer.end, asked_ns)
            self._timeouts = 0
            self._take(request, answer.data, (asked_ns, answer_ns))
        elif len(self._inbox) == 1 and self._inbox.data[0] in REFUSALS:
            self._fault(t_ns, "refused", f"the meter reports: {REFUSALS[self._inbox.data[0]]}")
            self._answered(0, asked_ns)
        elif len(self._inbox) >= request.answer_bytes and self._inbox.data[:2] == bytes(
            [_ACK, request.answer_bytes]
        ):  # as many bytes as the answer has, but damaged
            self._fault(t_ns, "checksum", f"{len(self._inbox)} bytes are not a valid answer")
            self._answered(0, asked_ns)
        return self._take_result()

    def _answered(self, stray_bytes: int, asked_ns: int) -> None:
        self._stray_bytes = stray_bytes
        self._inbox.clear()
        self._pending = None
        self._due_ns = asked_ns + _STEP_NS

    def _take(self, request: Request, data: bytes, interval: tuple[int, int]) -> None:
        if request.address == OUTPUTS and len(self._setup) == 2 * len(_SETUP):
            self._look(Look(Outputs.from_bytes(data), *interval))
        elif not request.size:
            self._written, self._setup, self._due_ns = True, [], 0
            self._exponent_now = self._set_exponent
        elif len(self._setup) < 2 * len(_SETUP):
            expected = _SETUP[len(self._setup) % len(_SETUP)]
            if request == expected:
                self._take_setup(int.from_bytes(data[:4], "little"), interval[1])

    def _take_setup(self, value: int, t_ns: int) -> None:
        self._setup.append(value)
        self._due_ns = 0
        if len(self._setup) < 2 * len(_SETUP):
            return
        exponent = self._setup[0]
        if self._setup[: len(_SETUP)] != self._setup[len(_SETUP) :] or exponent > _MAX_EXPONENT:
            self._fault(t_ns, "setup", "the meter's registers do not read the same twice")
            self._setup = []
            return
        self._exponent_now = exponent
        if self._first_exponent is None:
            self._first_exponent = exponent
        if self._written and exponent != self._set_exponent:
            self._fault(t_ns, "setup", f"the meter stays at windows of {1 << exponent} cycles")

    def _look(self, look: Look) -> None:
        """Compare the outputs with those of the previous reads."""
        before, self._candidate = self._candidate, None
        if before is not None:
            if look.outputs.measured == before.outputs.measured:
                self._confirm(before, look)
                return
            if self._last is not None:  # otherwise a window may have ended between the two
                self._fault(look.t_ns, "unconfirmed", "a reading did not come a second time")
        if self._last is not None and look.outputs.measured == self._last.measured:
            self._unchanged_ns = look.asked_ns
            self._report_stale(look.t_ns)
        else:
            self._candidate = look

    def _confirm(self, first: Look, second: Look) -> None:
        """Record a new window that was read twice, except the first, whose end is unknown."""
        line_hz = first.outputs.line_mhz / 1000
        steady = first.outputs.line_mhz == second.outputs.line_mhz
        if not steady or not _LINE_HZ[0] <= line_hz <= _LINE_HZ[1]:
            line_hz = float(self.settings.line_hz)
        window_s = (1 << self._setup[0]) / line_hz
        if self._last is not None:
            flags = self._flags(first, window_s)
            powers_w = [
                power_w(first.outputs.power_raw[int(key) - 1], self._setup[int(key)])
                for key in self.channels
            ]
            self._out.add(first.t_ns, None, window_s, powers_w, flags=flags)
            self._last_ns = first.t_ns
            # The window ended after the last read that did not show it; so will the next one.
            next_ns = self._unchanged_ns + round(window_s * 1e9) - _LEAD_NS
            self._due_ns = max(self._due_ns, next_ns)
        self._last = first.outputs
        self._unchanged_ns = second.asked_ns
        self._is_stale = False

    def _flags(self, look: Look, window_s: float) -> int:
        flags = 0
        if look.t_ns - self._unchanged_ns > self.arrival_delay_limit_s * 1e9:
            flags |= _LATE
        passed_s = (look.t_ns - self._last_ns) / 1e9 if self._last_ns is not None else 0.0
        if passed_s > _GAP_WINDOWS * window_s:
            flags |= GAP
            missing = round(passed_s / window_s) - 1
            self._fault(look.t_ns, "gap", f"{missing} windows are missing or were alike")
        return flags

    def _report_stale(self, t_ns: int) -> None:
        if self._last_ns is None or self._is_stale:
            return
        passed_s = (t_ns - self._last_ns) / 1e9
        if passed_s > _STALE_WINDOWS * (1 << self._setup[0]) / self.settings.line_hz:
            self._is_stale = True
            self._fault(t_ns, "stale", f"the meter has shown the same values for {passed_s:.1f} s")
