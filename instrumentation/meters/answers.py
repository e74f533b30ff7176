"""Envelopes around the answers of meters on a network, as stream.raw records them.

A network delivers whole answers, but a stream has no boundaries. So the transport writes a line
before each answer, `@LENGTH CRC32 LABEL`, then the body unchanged and a line feed. LENGTH counts
the bytes of the body, CRC32 (of label, line feed and body; ITU-T V.42, 8 hexadecimal digits)
reveals a damaged recording. The label is what the network adds to the answer, such as an HTTP
status.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from instrumentation.meters.rows import Inbox
from instrumentation.trace import Fault

MOST_BODY_BYTES = 1 << 16
_MOST_LABEL = 200
_HEADER = re.compile(rb"@(\d{1,5}) ([0-9a-f]{8}) ([ -~]{0,%d})\n" % _MOST_LABEL)
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and the arrival time of its first byte."""

    t_ns: int
    label: str
    body: bytes


def envelope(label: str, body: bytes) -> bytes:
    """Wrap an answer for stream.raw; a body that is too long is cut and then fails to parse."""
    text = re.sub(rb"[^ -~]", b"?", label.encode("ascii", "replace"))[:_MOST_LABEL]
    body = body[:MOST_BODY_BYTES]
    crc = zlib.crc32(text + b"\n" + body)
    return b"@%d %08x %s\n%s\n" % (len(body), crc, text, body)


class Answers:
    """A parser of answers in a stream. After damage it finds the next whole answer again."""

    def __init__(self) -> None:
        self._inbox = Inbox(4 * MOST_BODY_BYTES)

    def add(self, data: bytes, t_ns: int) -> Iterator[Answer | Fault]:
        """Yield the answers and faults completed by these bytes, whose first came at `t_ns`."""
        self._inbox.add(data, t_ns)
        while header := _HEADER.search(self._inbox.data):
            if header.start():
                yield self._damaged(header.start())
                continue
            size, end = int(header[1]), header.end() + int(header[1])
            body, after = self._inbox.data[header.end() : end], self._inbox.data[end : end + 1]
            sound = size <= MOST_BODY_BYTES
            if sound and after:
                crc = zlib.crc32(header[3] + b"\n" + body)
                sound = after == b"\n" and crc == int(header[2], 16)
                if sound:
                    yield Answer(self._inbox.arrival_ns(0), header[3].decode("ascii"), body)
                    self._inbox.drop(end + 1)
                    continue
            following = _HEADER.search(self._inbox.data, 1)
            if following is not None:  # this answer was cut off, or is damaged
                yield self._damaged(following.start())
            elif not sound:
                yield self._damaged(len(self._inbox))
            else:
                return

    def drop_incomplete(self) -> list[Fault]:
        """Drop the bytes of an incomplete answer; return the fault, if there were any."""
        return [self._damaged(len(self._inbox))] if self._inbox else []

    def _damaged(self, count: int) -> Fault:
        shown = self._inbox.data[: min(count, _SHOWN_BYTES)]
        damage = Fault(self._inbox.arrival_ns(0), "framing", f"{shown!r} is not a whole answer")
        self._inbox.drop(count)
        return damage
