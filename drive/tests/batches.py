"""What the fuzzer sends: batches of changed messages from the seed corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random

from drive.opal import schema, uids
from drive.opal.packets import (
    COM_ID,
    Control,
    PacketError,
    Token,
    TokenError,
    decode,
    encode_all,
    unpack,
)
from drive.tests import corpus
from drive.tests.mutate import change_bytes, change_command, change_tokens, change_values

BATCH = 32
CALLS_A_SESSION = 4
_KINDS = ("pdu", "packet", "call", "owner")
_WEIGHTS = (30, 25, 38, 7)
_MANAGER = encode_all([Control.CALL, uids.SESSION_MANAGER])
_CHANGED = {"call": 0.95, "owner": 0.7}  # an owner's call as it is changes the state
_KNOWN_UIDS = [uid for uid in vars(uids).values() if isinstance(uid, bytes) and len(uid) == 8]
_KNOWN_UIDS += [
    uid for table in schema.locking_sp_tables(256) for uid in (table.uid, table.descriptor)
]


@dataclass(frozen=True)
class Batch:
    """Inputs of one kind; `on` is the queue of PDUs, the SP of calls; `heads` those of packets."""

    kind: str
    on: str
    inputs: tuple[bytes, ...]
    heads: tuple[tuple[int, int], ...] = ()

    def dump(self) -> str:
        return json.dumps({**asdict(self), "inputs": [data.hex() for data in self.inputs]})

    @staticmethod
    def load(line: str) -> Batch:
        fields = json.loads(line)
        inputs = tuple(bytes.fromhex(data) for data in fields["inputs"])
        heads = tuple((protocol, com_id) for protocol, com_id in fields["heads"])
        return Batch(fields["kind"], fields["on"], inputs, heads)


class Source:
    """Batches from the seed corpus."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pdus = corpus.pdus()
        self._packets = corpus.packets()
        self._data = [packet.data for packet in self._packets]
        self._calls = [payload for packet in self._packets if (payload := _payload(packet.data))]
        # What an owner has to say within a session; the end of one, and the start, say nothing.
        self._methods = [call for call in self._calls if not call.startswith((b"\xfa", _MANAGER))]
        self._tokens: list[Token] = [*_KNOWN_UIDS]
        for payload in self._calls:
            try:
                self._tokens += decode(payload)
            except TokenError:
                continue

    def batch(self, number: int) -> Batch:
        """Return the batch of that number, always the same."""
        chance = Random(self._seed << 32 | number)
        kind = chance.choices(_KINDS, _WEIGHTS)[0]
        if kind == "pdu":
            return self._pdu_batch(chance)
        if kind == "packet":
            return self._packet_batch(chance)
        on = chance.choice(("admin", "locking") if kind == "call" else ("admin", *["locking"] * 3))
        every = self._calls if kind == "call" else self._methods
        calls = []
        for number_in_batch in range(BATCH):
            loose = number_in_batch % CALLS_A_SESSION == CALLS_A_SESSION - 1
            change = change_tokens if loose else change_values
            call = chance.choice(every)
            if chance.random() < _CHANGED[kind]:
                call = change(call, chance, self._tokens)
            calls.append(call)
        return Batch(kind, on, tuple(calls))

    def _pdu_batch(self, chance: Random) -> Batch:
        on = chance.choice(("admin", "io", "io", "new"))
        every = list(self._pdus.values())
        if on == "new":
            return Batch("pdu", on, (change_bytes(self._pdus["icreq-1"], chance, every),))
        mine = [pdu for name, pdu in self._pdus.items() if name.startswith(on) and pdu[0] == 4]
        changed = [change_command(chance.choice(mine), chance) for _ in range(BATCH - 1)]
        wild = change_bytes(chance.choice(every), chance, every)
        return Batch("pdu", on, (*changed, wild))

    def _packet_batch(self, chance: Random) -> Batch:
        inputs, heads = [], []
        for _ in range(BATCH):
            packet = chance.choice(self._packets)
            protocol, com_id = packet.protocol, packet.com_id
            if chance.random() < 0.05:
                protocol, com_id = chance.choice((0, 1, 2, 6, 0xEF)), chance.choice((0, 1, COM_ID))
            inputs.append(change_bytes(packet.data, chance, self._data) or b"\0")
            heads.append((protocol, com_id))
        return Batch("packet", "", tuple(inputs), tuple(heads))


def _payload(data: bytes) -> bytes:
    try:
        return unpack(data).payload
    except PacketError:
        return b""


def seeded(seed: int, inputs: int) -> Iterator[Batch]:
    """Batches of at least `inputs` inputs together, from the seed alone."""
    source, sent, number = Source(seed), 0, 0
    while sent < inputs:
        batch = source.batch(number)
        yield batch
        sent, number = sent + len(batch.inputs), number + 1
