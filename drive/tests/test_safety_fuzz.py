"""The running drive under changed PDUs and ComPackets; `fuzz.py` says what must hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from drive.tests import corpus
from drive.tests.batches import Batch, Source, seeded
from drive.tests.fuzz import SECOND_BYTES, STARTS, Target, fuzz
from drive.tests.fuzz_owned import BLOCK, MARK, Owned
from drive.tests.fuzz_wire import CHANGE, CRASH, KEY, FindingError
from drive.tests.keys import xts

INPUTS = 2_000


def test_the_corpus_has_every_method_and_command() -> None:
    methods = {packet.name.split("-")[1] for packet in corpus.packets()}
    assert methods >= {
        "Activate", "Authenticate", "GenKey", "Get", "GetACL", "Next", "Properties", "Random",
        "Revert", "RevertSP", "Set", "StartSession", "protocol", "tokens",
    }  # fmt: skip
    names = {name.rsplit("-", 1)[0] for name in corpus.pdus()}
    assert names >= {
        "icreq", "admin-02", "admin-06", "admin-09", "admin-0a", "admin-7f-00", "admin-7f-01",
        "admin-7f-04", "admin-82", "io-read", "io-write", "io-write-capsule", "io-data",
        "io-zeroes", "io-dataset", "io-flush",
    }  # fmt: skip


def test_a_seed_gives_the_same_inputs_again() -> None:
    batches = list(islice(seeded(3, 10**6), 200))
    assert batches == list(islice(seeded(3, 10**6), 200))
    assert batches != list(islice(seeded(4, 10**6), 200))
    assert {batch.kind for batch in batches} == {"pdu", "packet", "call", "owner"}
    assert [Batch.load(batch.dump()) for batch in batches] == batches


def test_no_input_breaks_the_drive(in_memory: Path) -> None:
    figures = fuzz(seeded(1, INPUTS), in_memory, in_memory / "kept")
    assert figures["inputs"] >= INPUTS
    assert figures["kills"] > 5 and figures["erasures"] > 0, figures


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_input_of_a_million_breaks_the_drive(in_memory: Path) -> None:
    assert fuzz(seeded(2, 10**6), in_memory, in_memory / "kept")["inputs"] >= 10**6


@contextmanager
def finds(kind: str) -> Iterator[None]:
    with pytest.raises(FindingError) as caught:
        yield
    assert caught.value.kind == kind


def test_what_must_not_happen_is_noticed(in_memory: Path) -> None:
    """The oracles themselves: each is shown what it looks for."""
    target = Target(in_memory / "drive")
    state, log = target.drive.path("state.json"), target.drive.path("log")
    try:
        target.run(Source(1).batch(0))
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
        kept = state.read_bytes()
        target.reset()  # by its label, which inputs do not know: new keys, new salts
        with finds(CHANGE):
            target.check()
        assert state.read_bytes() != kept
        target.drive.kill()
        with finds(CRASH):
            target.check()
    finally:
        target.close()


def test_what_a_kill_must_not_leave_is_noticed(in_memory: Path) -> None:
    owned = Owned(in_memory / "owned", SECOND_BYTES)
    try:
        owned.run(Source(1).batch(0))
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
