"""The running drive under changed PDUs and ComPackets; `fuzz.py` says what must hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drive.opal import uids
from drive.opal.packets import Control, encode_all
from drive.tests.corpus import recorded
from drive.tests.fuzz import (
    BLOCK,
    CHANGE,
    CRASH,
    KEY,
    MARK,
    STARTS,
    FindingError,
    Owned,
    Target,
    fuzz,
)
from drive.tests.fuzz import draw as drawn
from drive.tests.keys import xts
from drive.tests.mutate import Batch

INPUTS = 2_000
METHODS = (
    uids.ACTIVATE, uids.AUTHENTICATE, uids.GEN_KEY, uids.GET, uids.GET_ACL, uids.NEXT,
    uids.PROPERTIES, uids.RANDOM, uids.REVERT, uids.REVERT_SP, uids.SET, uids.START_SESSION,
)  # fmt: skip


def test_the_corpus_has_every_method_and_command() -> None:
    corpus = recorded()
    methods = {call[10:19] for call in corpus.calls if call.startswith(bytes([Control.CALL]))}
    assert methods >= {encode_all([method]) for method in METHODS}
    assert {head[:2] for head in corpus.packets} >= {(1, 0x0800), (2, 0x0800), (2, 4), (2, 5)}
    assert {pdu[8] for pdu in corpus.admin} >= {0x02, 0x06, 0x09, 0x0A, 0x7F, 0x82}
    assert {pdu[8] for pdu in corpus.io} >= {0x00, 0x01, 0x02, 0x08, 0x09, 0x7F}
    assert {pdu[0] for pdu in corpus.others} == {0x00, 0x06}  # ICReq, data


def test_a_seed_gives_the_same_inputs_again() -> None:
    first, again, other = list[Batch](), list[Batch](), list[Batch]()
    for seed, batches in ((3, first), (3, again), (4, other)):
        drawn(seed, 2_000)(batches.append)
    assert first == again != other
    assert {kind for kind, *_ in first} == {"pdu", "packet", "call", "owner"}
    assert sum(len(inputs) for *_, inputs in first) >= 2_000


def test_no_input_breaks_the_drive(in_memory: Path) -> None:
    figures = fuzz(drawn(1, INPUTS), in_memory, in_memory / "kept")
    assert figures["inputs"] >= INPUTS
    assert figures["kills"] > 5 and figures["erasures"] > 0, figures


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_input_of_a_million_breaks_the_drive(in_memory: Path) -> None:
    assert fuzz(drawn(2, 10**6), in_memory, in_memory / "kept")["inputs"] >= 10**6


@contextmanager
def finds(kind: str) -> Iterator[None]:
    with pytest.raises(FindingError) as caught:
        yield
    assert caught.value.kind == kind


def test_each_oracle_of_the_sealed_drive_fires(in_memory: Path) -> None:
    """The oracles themselves: each is shown what it looks for."""
    target = Target(in_memory / "drive")
    state, log = target.drive.path("state.json"), target.drive.path("log")
    try:
        drawn(1, 32)(target.run)
        target.check()
        target.drive.fault("refuse-opal")
        with pytest.raises(Exception, match="FAIL"):
            target.check()
        target.drive.ask("clear-faults")
        log.write_text("Traceback (most recent call last)")
        with finds(CRASH):
            target.check()
        log.write_text("")
        with target.drive.path("disk.img").open("r+b") as medium:
            for start in STARTS.values():
                medium.seek(start * 512)
                old = medium.read(1)
                medium.seek(-1, 1)
                medium.write(bytes([old[0] ^ 1]))
                medium.flush()
                with finds(CHANGE):
                    target.check()
                medium.seek(-1, 1)
                medium.write(old)
                medium.flush()
                target.check()
        before = state.read_bytes()
        target.reset()  # by its label, which inputs do not know: new keys, new salts
        with finds(CHANGE):
            target.check()
        assert state.read_bytes() != before
        target.drive.kill()
        with finds(CRASH):
            target.check()
    finally:
        target.close()


def test_each_oracle_of_the_killed_drive_fires(in_memory: Path) -> None:
    owned = Owned(in_memory / "owned")
    try:
        owned.run(("owner", "locking", recorded().calls[:8]))
        owned._check_erased()
        lba, _ = owned._marks[1]
        owned._marks[1] = lba, os.urandom(64)
        owned._check_erased()  # an erasure, as far as the marks tell
        assert owned.figures["erasures"] == 1
        with owned.drive.path("disk.img").open("r+b") as medium:
            medium.seek(lba * BLOCK)
            medium.write(xts(owned._marks[1][1], lba, MARK))
        with finds(KEY):
            owned._check_erased()
        owned.drive.fault("media-error", lba=0, blocks=1 << 17)  # refuses, but not as locked
        with finds(CHANGE):
            owned._check_alive()
        (owned.drive.directory / ".state.json.01234567").touch()
        with finds(KEY):
            owned._check_alive()
        owned.drive.kill()
        with finds(CRASH):
            owned._check_dead()
        owned.drive.record.write_text('{"at": "write", "data": "00"}')
        owned._before = b"another"
        with finds(CHANGE):
            owned._check_dead()
    finally:
        owned.close()
