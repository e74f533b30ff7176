"""Base class of meter drivers, which turn a stream of bytes into records without any I/O."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

from contract import schema
from contract.problem import ProblemError
from contract.schema import Range
from contract.strict_json import Document
from instrumentation.accuracy import Accuracy, DescribedAccuracy, calibration
from instrumentation.meters.rows import COMMON_WORDS, Opening, ParseResult, RowBuilder, join_results
from instrumentation.trace import Pieces

if TYPE_CHECKING:
    from instrumentation.transports import Transport

_MOST = 1e12  # of any figure of a setting
Positive = Annotated[float, Range(above=0, most=_MOST)]
NotNegative = Annotated[float, Range(least=0, most=_MOST)]


class MeterError(ProblemError):
    """A meter that is described wrongly or cannot be used; the message has the remedy."""


@dataclass(frozen=True)
class NoSettings:
    """Settings of a meter that has none."""


class Description(TypedDict):
    """A driver's part of meter.json."""

    settings: Document
    timing: str
    arrival_delay_limit_s: float
    accuracy: DescribedAccuracy


class Meter(ABC):
    """A driver of one meter. Does no I/O; the same bytes and times give the same records.

    `channels` maps the meter's names of its channels to those of the inventory; channels that are
    not named yield no columns. `settings` are fields of the driver's `Settings`, a frozen
    dataclass with a default for each, and for any meter `calibration`, the user's figures of its
    accuracy. Raises MeterError for unknown channels and settings.

    Attributes, most of them the same for all meters of a class: `usb_ids` are the `vendor:product`
    in hex of its USB interface, in order of likelihood; `timing` is `device` (records contain the
    meter's time), `index` (it sends by its clock without the time) or `poll` (it is asked);
    `arrival_delay_limit_s` is how late a record's first byte may come after the end of its window;
    `has_energy` is true if records contain an energy counter; `addresses` are the forms of address
    that it can be at (see `ports.form_of`); `framed` is true if each answer is in an envelope
    (`meters.answers`); `login` is how a meter on the network expects the content of its
    `secret_file`; `gather_s` is how long bytes may wait in the port before they are read, for
    meters that send so much that many small reads would cost too much: the times of all but the
    last bytes of a read are then late by as much; `detects_damage` is true if no damaged record is
    accepted, because of a checksum or because readings are asked for twice; one fault on the wire
    costs at most `most_lost_records`.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    default_baud: ClassVar[int]
    usb_ids: ClassVar[tuple[str, ...]]
    own_channels: ClassVar[tuple[str, ...]]
    timing: str
    arrival_delay_limit_s: float
    has_energy: bool = False
    addresses: ClassVar[tuple[str, ...]] = ("port",)
    framed: ClassVar[bool] = False
    login: str = ""
    gather_s: ClassVar[float] = 0.0
    detects_damage: ClassVar[bool] = False
    most_lost_records: ClassVar[int] = 3
    flag_words: ClassVar[tuple[str, ...]] = COMMON_WORDS
    Settings: ClassVar[type[Any]] = NoSettings
    _opening = Opening((), 0.0, 0.0)  # sends nothing; a driver may replace it in `_forget`

    def __init__(self, channels: Mapping[str, str], settings: Document | None = None) -> None:
        self._read_settings(settings or {})
        names = self.available_channels()
        for key, channel in channels.items():
            if key not in names:
                raise MeterError(
                    "unknown-channel", kind=self.kind, channel=key, known=", ".join(names)
                )
            if not re.fullmatch(r"[a-z][a-z0-9_]*", channel):
                raise MeterError("invalid-channel-name", channel=channel)
        if not channels:
            raise MeterError("no-channel", kind=self.kind)
        if len(set(channels.values())) != len(channels):
            raise MeterError("channel-twice", kind=self.kind)
        self.channels = dict(channels)
        self.epoch = 0
        self._begin()

    @property
    @abstractmethod
    def accuracy(self) -> Accuracy:
        """The maker's limits of error for these settings."""

    @property
    @abstractmethod
    def period_s(self) -> float:
        """Longest usual time between two records with these settings, in s."""

    @property
    def secret_file(self) -> str:
        """Path of the file with its password or token; empty if it needs none."""
        return str(getattr(self.settings, "secret_file", ""))

    @property
    def ca_file(self) -> str:
        """Path of the certificates to trust with TLS; empty for those of the system."""
        return str(getattr(self.settings, "ca_file", ""))

    @property
    def answer_limit_s(self) -> float:
        """How long to wait for an answer over the network, in s."""
        return float(getattr(self.settings, "answer_limit_s", 2.0))

    def connect(self, address: str, secret: str, limit_s: float) -> Transport:
        """Connect to an address that is neither HTTP nor VISA, as its `addresses` name it.

        `limit_s` is how long an answer may block. Raises OSError.
        """
        raise NotImplementedError

    def available_channels(self) -> tuple[str, ...]:
        """Return the meter's names of its channels with these settings."""
        return self.own_channels

    def opened(self) -> None:
        """Start a new epoch after the port was opened (again). Call before `feed`."""
        self.epoch += 1
        self._begin()

    def _begin(self) -> None:
        self._forget()
        self._out = RowBuilder(len(self.channels), self.has_energy)  # the next result of `feed`

    def request(self, t_ns: int) -> bytes:
        """Return the bytes to send at `t_ns`, empty if none are due; has no side effect."""
        return self._opening.request(t_ns)

    @property
    def due_ns(self) -> int | None:
        """Time to call `request` next; None for a meter that is never asked."""
        return self._opening.due_ns

    def on_request_sent(self, data: bytes, t_ns: int) -> None:  # noqa: ARG002 - for drivers that ask for several things
        """Note that `data`, as returned by `request`, was sent at `t_ns`."""
        self._opening.on_request_sent(t_ns)

    def stop_command(self) -> bytes:
        """Return the bytes that restore the meter's state, to send before the port is closed."""
        return b""

    @abstractmethod
    def feed(self, data: bytes, t_ns: int) -> ParseResult:
        """Return the records and faults completed by these bytes, whose first came at `t_ns`."""

    def feed_all(self, pieces: Pieces) -> ParseResult:
        """Return the result of `feed` for several pieces, at least one.

        For recordings; drivers of fast meters do this faster than piece by piece.
        """
        return join_results([self.feed(piece.data, piece.t_mono_ns) for piece in pieces])

    def _fault(self, t_ns: int, kind: str, detail: str) -> None:
        """Add a fault to the next result of `feed`."""
        self._out.fault(t_ns, kind, detail)

    def _take_result(self) -> ParseResult:
        """Return the records and faults since the last call."""
        result, self._out = self._out.result(), RowBuilder(len(self.channels), self.has_energy)
        return result

    @abstractmethod
    def _forget(self) -> None:
        """Drop the unfinished record and all state that a closed port invalidates.

        Called once `settings` and `channels` are set, and at each opening.
        """

    def _read_settings(self, settings: Document) -> None:
        """Read the settings, with their defaults, and the calibration. Raises MeterError."""
        names = [field.name for field in fields(self.Settings)]
        for name in settings.keys() - {*names, "calibration"}:
            settings_text = f"it has {', '.join(names)}" if names else "it has none"
            raise MeterError("unknown-setting", kind=self.kind, name=name, known=settings_text)
        figures = settings.get("calibration")
        try:
            self.calibrated = () if figures is None else calibration(figures)
            self.settings: Any = schema.read(self.Settings, settings)
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise MeterError("invalid-settings", kind=self.kind, reason=reason) from None

    def description(self) -> Description:
        """Return the settings, timing and accuracy for meter.json."""
        return {
            "settings": asdict(self.settings),
            "timing": self.timing,
            "arrival_delay_limit_s": self.arrival_delay_limit_s,
            "accuracy": replace(self.accuracy, calibrated=self.calibrated).description(),
        }
