"""Every reason not to write a disk, on facts and on real loop devices."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from agent.storage import (
    devices,
    facts,
    guard,
    inspect,
    layout,
    opal,
    opal_ioctl,
    provision,
    samples,
    uses,
)
from agent.storage.devices import zero
from agent.storage.facts import DiskFacts, Partition, Signature, disk_uuid, partition_uuid
from agent.storage.guard import GuardError
from agent.storage.opal_ioctl import Discovery, Geometry, OpalError, Status
from agent.storage.secrets import Secrets
from agent.storage.uses import Use
from agent.tests import dangers
from agent.tests.danger_rows import ROWS
from contract.files import json_text
from contract.places import MOUNT_POINT
from contract.plan import Configuration, Disk, Extent, Filesystem, StorageSpec

EXTENT = Extent(2**24, 2**30 - 2**24)
DISK = Disk("plain", "/dev/disk/by-id/nvme-x_S1", "S1", 2**31)
ERASABLE = replace(DISK, erase="S1")
OURS = Partition(
    "/dev/nvme0n1p1",
    facts.MARKER_TYPE,
    facts.MARKER_NAME,
    2**20,
    2**30,
    uuid=partition_uuid("S1").upper(),
)
BLANK = DiskFacts("/dev/nvme0n1", True, serial="S1", size_bytes=2**31, diskseq=7, edges=("a", "b"))
READY = replace(
    BLANK, table="gpt", table_uuid=disk_uuid("S1").upper(), partitions=(OURS,), edges=()
)
HEADER = Signature("crypto_LUKS", 0, facts.LUKS_LABEL)
LUKS = replace(OURS, signatures=(HEADER, replace(HEADER, offset_bytes=0x4000)))
LUKS1 = Signature("crypto_LUKS", 0, uuid=partition_uuid("S1"))  # which has no label
EXT4 = Signature("ext4", 0x438)
FRESH = Status(True, True, False, False, False, False)
OWNED = replace(FRESH, locking_enabled=True)


def _inside(partition: Partition) -> DiskFacts:
    return replace(READY, partitions=(partition,))


@pytest.mark.parametrize(
    "facts",
    [
        BLANK,
        READY,
        _inside(LUKS),
        _inside(replace(OURS, signatures=(LUKS1,))),
        replace(_inside(LUKS), uses=(Use("nvme0n1p1", "held by fde-data"),)),
        replace(READY, uses=(Use("dm-0", f"mounted on {MOUNT_POINT}"),)),
        _inside(replace(OURS, type_guid=facts.MARKER_TYPE.upper())),
        replace(_inside(LUKS), uses=(Use("nvme0n1p1", "held by fde-data-container"),)),
        replace(_inside(LUKS), uses=(Use("nvme0n1p1", "held by fde-data_1"),)),
        replace(READY, opal=replace(OWNED, locked=True)),
        replace(READY, opal=replace(OWNED, mbr_enabled=True, mbr_done=True)),
        replace(BLANK, opal=FRESH),
    ],
)
def test_a_blank_disk_and_our_own_may_be_written(facts: DiskFacts) -> None:
    assert guard.refusals(DISK, facts) == []


def _used(how: str, device: str = "nvme0n1p1", among: DiskFacts = READY) -> DiskFacts:
    return replace(among, uses=(Use(device, how),))


def _signed(*signatures: Signature) -> DiskFacts:
    return _inside(replace(OURS, signatures=signatures))


_ROOT = "carries the root file system"
_MBR = replace(READY, table="dos", partitions=(replace(OURS, name="", signatures=(EXT4,)),))
_SHADOW = replace(OWNED, mbr_enabled=True)
_STALE = replace(READY, table="gpt", table_uuid="x", stale=True, partitions=())
# By case: what is there, the code, and what the refusal or its remedy must name besides the disk.
REFUSED: dict[str, tuple[DiskFacts, str, str]] = {
    "absent": (replace(BLANK, path=None), "absent", ""),
    "given away": (DiskFacts(given_away=("0000:01:00.0 (vfio)",)), "given-away", "00:01:00.0 (vf"),
    "partition": (replace(BLANK, whole_disk=False), "not-whole", ""),
    "other serial": (replace(BLANK, serial="S2"), "other-serial", "'S2'"),
    "no serial": (replace(BLANK, serial=""), "other-serial", "'unknown'"),
    "other size": (replace(BLANK, size_bytes=2**31 - 512), "other-size", "2147483136"),
    "two paths": (replace(BLANK, same_identity=("sdb",)), "same-identity", "/dev/sdb"),
    "write-protected": (replace(BLANK, read_only=True), "write-protected", ""),
    "mounted": (_used("mounted on /mnt"), "in-use", "mounted on /mnt"),
    "root": (_used(_ROOT, "nvme0n1p2", BLANK), "in-use", _ROOT),
    "swap": (_used("used as swap"), "in-use", "used as swap"),
    "LVM": (_used("held by vg-home"), "in-use", "held by vg-home"),
    "MD": (_used("held by md0", "nvme0n1", BLANK), "in-use", "held by md0"),
    "nearly our name": (_used("held by fde-database"), "in-use", "held by fde-database"),
    "our names without our mark": (_used("held by fde-data", "nvme0n1", BLANK), "in-use", ""),
    "unreadable": (replace(BLANK, read_error="EIO"), "unreadable", "EIO"),
    "locked": (replace(BLANK, read_error="ENODATA", opal=OWNED), "locked", "--psid-revert S1"),
    "owned by someone": (replace(BLANK, opal=OWNED), "owned", "--psid-revert S1"),
    "no answer": (replace(BLANK, opal_error="EIO"), "unanswered", "EIO"),
    "no answer, though ours": (replace(READY, opal_error="EIO"), "unanswered", "EIO"),
    "shadowed": (replace(BLANK, opal=_SHADOW), "shadowed", "--psid-revert S1"),
    "shadowed, though ours": (replace(READY, opal=_SHADOW), "shadowed", "--psid-revert S1"),
    "unknown data": (replace(BLANK, unknown="unrecognised"), "unknown-data", 'erase: "S1 '),
    "whole-disk file system": (replace(BLANK, signatures=(EXT4,)), "foreign-signature", "ext4"),
    "whole-disk LUKS": (replace(BLANK, signatures=(HEADER,)), "foreign-signature", "crypto_LUKS"),
    "two at once": (
        replace(BLANK, signatures=(EXT4, Signature("gfs2", 65536))),
        "foreign-signature",
        "(ext4, gfs2)",
    ),
    "foreign MBR": (_MBR, "foreign-table", "ext4"),
    "empty foreign GPT": (replace(BLANK, table="gpt"), "foreign-table", ""),
    "our name, other type": (_inside(replace(OURS, type_guid="0" * 36)), "foreign-table", ""),
    "our type, other name": (_inside(replace(OURS, name="data")), "foreign-table", ""),
    "a copied table": (replace(READY, table_uuid=disk_uuid("S2")), "other-mark", ""),
    "a copied partition": (_inside(replace(OURS, uuid=partition_uuid("S2"))), "other-mark", ""),
    "a second partition": (replace(READY, partitions=(OURS, OURS)), "other-mark", ""),
    "partitions without a table": (replace(READY, table=None), "other-mark", ""),
    "a table unknown to the kernel": (_STALE, "stale", "rereadpt"),
    "foreign file system inside": (_signed(Signature("xfs", 0)), "foreign-inside", "(xfs)"),
    "foreign LUKS1 inside": (
        _signed(replace(LUKS1, uuid=partition_uuid("S2"))),
        "foreign-inside",
        "LUKS",
    ),
    "foreign LUKS inside": (_signed(replace(HEADER, label="home")), "foreign-inside", "LUKS"),
    "LUKS without label": (_signed(replace(HEADER, label=None)), "foreign-inside", "LUKS"),
    "our label among the data": (
        _signed(replace(HEADER, offset_bytes=2**24)),
        "foreign-inside",
        "LUKS",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_disk_reason_and_way_out(name: str) -> None:
    disk_facts, code, reason = REFUSED[name]
    (refusal,) = guard.refusals(DISK, disk_facts)
    assert refusal.code == code and refusal.remedy
    assert DISK.by_id in refusal.sentence
    assert reason in str(refusal)
    assert guard.reason(refusal) in refusal.sentence


def test_every_cause_is_met() -> None:
    """Those of the table above; the others have tests of their own below."""
    others = {"other-erase", "shared", "blocked", "silent", "no-opal", "no-opal-on-sata"}
    others |= {"unmarked", "changed", "changed-since-check", "no-such-serial"}
    others |= {"dead", "opal-alignment", "opal-blocks", "opal-no-encryption"}
    others |= {"extent-begin", "extent-size", "extent-large"}
    assert {cause for _, cause, _ in REFUSED.values()} | others == set(guard.WORDINGS)


def test_all_reasons_are_told_at_once() -> None:
    disk_facts = replace(BLANK, serial="S2", size_bytes=1, signatures=(EXT4,))
    assert len(guard.refusals(DISK, disk_facts)) == 3


FOREIGN = (
    *("unknown data", "whole-disk file system", "whole-disk LUKS", "two at once", "foreign MBR"),
    *("empty foreign GPT", "our name, other type", "our type, other name", "a copied table"),
    *("a copied partition", "a second partition", "partitions without a table"),
    *("foreign file system inside", "foreign LUKS1 inside", "foreign LUKS inside"),
    *("LUKS without label", "our label among the data"),
)


@pytest.mark.parametrize("name", REFUSED)
def test_erase_is_a_way_past_contents_and_past_nothing_else(name: str) -> None:
    disk_facts, cause, _ = REFUSED[name]
    assert bool(guard.refusals(ERASABLE, disk_facts)) == (name not in FOREIGN)
    assert guard.refusals(ERASABLE, disk_facts, erase=False)
    others = guard.refusals(replace(DISK, erase="S3"), disk_facts)
    assert cause in ("absent", "given-away") or "other-erase" in {other.code for other in others}


def test_an_erase_that_was_given_for_other_contents_is_said_to_be() -> None:
    (refusal,) = guard.refusals(
        replace(DISK, erase="S1 000000000000"), replace(BLANK, signatures=(EXT4,))
    )
    assert (refusal.code, refusal.facts["expired"]) == ("foreign-signature", 1)


ODD_SERIALS = ("VMware NVME_0000", "\\xff\\xff ABC", "WD  12", "a'b\"c", "{{ x }} y", "Größe 1")


@pytest.mark.parametrize("serial", ODD_SERIALS)
def test_what_check_prints_of_a_serial_can_be_pasted(serial: str) -> None:
    disk = replace(DISK, serial=serial)
    disk_facts = replace(BLANK, serial=serial, signatures=(EXT4,))
    (refusal,) = guard.refusals(disk, disk_facts)
    line = re.search(r"\((erase: .*)\)\.$", refusal.remedy)
    assert line is not None
    pasted = yaml.load(line[1].replace("!unsafe ", ""), yaml.SafeLoader)["erase"]
    assert pasted == f"{serial} {disk_facts.print}"
    assert guard.refusals(replace(disk, erase=pasted), disk_facts) == []
    assert replace(disk, erase=f"{serial} x").erase_digits is None
    assert guard.refusals(replace(DISK, erase=pasted), BLANK)[0].code == "other-erase"
    (owned,) = guard.refusals(disk, replace(disk_facts, opal=OWNED, signatures=()))
    way = re.search(r"\((fde .*)\)", owned.remedy)
    assert way is not None
    assert shlex.split(way[1]) == ["fde", "teardown", "--psid-revert", serial]


def test_a_serial_number_of_any_bytes_is_one_that_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "BLOCK", tmp_path)
    for name, raw in (("nvme0n1", b"S64DNX0T12\n"), ("nvme1n1", b"\xff\xffAB C \0\n")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "size").write_text("4194304\n")
        (tmp_path / name / "device" / "serial").write_bytes(raw)
    assert devices.same_identity("nvme0n1") == []
    assert devices.serial("nvme1n1") == "\\xff\\xffAB C"


def test_a_revert_by_psid_is_the_way_past_locks_and_shadows_but_not_past_what_can_be_seen() -> None:
    for name in ("locked", "shadowed", "owned by someone", "shadowed, though ours"):
        assert guard.refusals_to_revert(DISK, REFUSED[name][0]) == []
    assert guard.refusals_to_revert(DISK, REFUSED["no answer"][0])
    for name in ("mounted", "two paths", "other serial", "absent", "whole-disk file system"):
        assert guard.refusals_to_revert(DISK, replace(REFUSED[name][0], opal=OWNED))
    assert guard.refusals_to_revert(ERASABLE, REFUSED["whole-disk file system"][0]) == []


def _told(error: GuardError) -> list[tuple[str, object]]:
    return [(refusal.code, refusal.facts.get("error")) for refusal in error.problems]


def test_a_drive_that_was_made_to_lock_and_shows_no_opal_is_not_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a restart without libata.allow_tpm=1: else it stays locked and its PIN is gone."""
    for error, code in ((None, "silent"), ("EIO", "unanswered")):
        silent = replace(_inside(LUKS), opal_error=error)
        monkeypatch.setattr(facts, "gather", lambda _disk, answer=silent: answer)
        for dry in (True, False):
            with pytest.raises(GuardError) as refused:
                provision.teardown(_spec(OPAL), Secrets(b"passphrase", b"pin"), dry=dry)
            assert _told(refused.value) == [(code, error)]
        header = opal.LuksHeader({"0": opal.LuksSegment("hw-opal-crypt", "0")})
        monkeypatch.setattr(opal, "luks_header", lambda _path, answer=header: answer)
        with pytest.raises(GuardError) as refused:
            provision.teardown(_spec(), Secrets(b"passphrase", b"pin"))
        assert _told(refused.value) == [(code, error)]
        monkeypatch.undo()


GEOMETRIES: dict[str, tuple[Geometry | None, Extent, str | None]] = {
    "not told": (None, EXTENT, None),
    "anywhere": (Geometry(4096, 1, 0), EXTENT, None),
    "8 KiB": (Geometry(4096, 2, 0), EXTENT, None),
    "1 MiB": (Geometry(4096, 256, 0), EXTENT, None),
    "smaller blocks": (Geometry(512, 1, 0), EXTENT, "opal-blocks"),
    "larger blocks": (Geometry(8192, 1, 0), EXTENT, "opal-blocks"),
    "32 MiB": (Geometry(4096, 8192, 0), EXTENT, "opal-alignment"),
    "from block 1": (Geometry(4096, 2, 1), EXTENT, "opal-alignment"),
    "from block 256": (Geometry(4096, 4096, 256), EXTENT, None),
    "its length alone": (Geometry(4096, 4096, 256), Extent(2**24, 2**29 + 2**20), "opal-alignment"),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_geometry_that_does_not_fit_is_found_before_a_drive_is_taken(name: str) -> None:
    geometry, extent, cause = GEOMETRIES[name]
    disk_facts = replace(
        BLANK, opal=FRESH, block_bytes=4096, discovery=Discovery(geometry=geometry)
    )
    spec = replace(_spec(OPAL), extent=extent)
    codes = [refusal.code for refusal in provision.reasons_not_to_prepare(spec, DISK, disk_facts)]
    assert codes == ([cause] if cause else [])
    assert provision.reasons_not_to_prepare(replace(_spec(), extent=extent), DISK, disk_facts) == []


def test_a_drive_that_does_not_encrypt_is_not_taken() -> None:
    for encrypts, causes in ((None, []), (True, []), (False, ["opal-no-encryption"])):
        disk_facts = replace(BLANK, opal=FRESH, discovery=Discovery(encrypts=encrypts))
        reasons = provision.reasons_not_to_prepare(_spec(OPAL), DISK, disk_facts)
        assert [reason.code for reason in reasons] == causes


def test_a_drive_that_is_dead_since_our_revert_is_to_be_power_cycled() -> None:
    dead = replace(BLANK, opal=FRESH, read_error="ENODATA")
    assert [r.code for r in guard.refusals(DISK, dead)] == ["unreadable"]
    (refusal,) = guard.refusals(DISK, replace(dead, reverted=True))
    assert refusal.code == "dead"


def test_other_namespaces_of_a_drive_stand_against_owning_and_reverting_it() -> None:
    several = replace(BLANK, opal=FRESH, beside=("/dev/nvme0n2",))
    (refusal,) = provision.reasons_not_to_prepare(_spec(OPAL), DISK, several)
    assert (refusal.code, refusal.facts["beside"]) == ("shared", "/dev/nvme0n2")
    assert provision.reasons_not_to_prepare(_spec(), DISK, several) == []
    assert guard.refusals_to_revert(ERASABLE, several) == [refusal]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"diskseq": 8}, "connected again"),
        ({"edges": ("a", "c")}, "first or last MiB"),
        ({"table": "gpt", "table_uuid": "x"}, "disk GUID"),
        ({"signatures": (EXT4,)}, "signatures"),
        ({"path": "/dev/nvme9n1"}, "path"),
    ],
)
def test_a_disk_that_changed_since_it_was_approved_is_refused(
    change: dict[str, Any], difference: str
) -> None:
    with pytest.raises(GuardError) as refused:
        guard.refuse_changed(DISK, BLANK, replace(BLANK, **change))
    (refusal,) = refused.value.problems
    assert refusal.code == "changed" and difference in str(refusal.facts["differing"])


def test_our_own_use_and_the_state_of_a_lock_are_no_change() -> None:
    busy = replace(READY, uses=(Use("nvme0n1p1", "held by fde-data"),), opal=OWNED)
    guard.refuse_changed(DISK, busy, replace(READY, opal=replace(OWNED, locked=True)))


def test_a_fingerprint_follows_contents_and_not_who_uses_the_disk() -> None:
    same = replace(BLANK, diskseq=8, path="/dev/nvme1n1", uses=(Use("nvme1n1", "used as swap"),))
    assert BLANK.fingerprint == same.fingerprint
    fingerprints = {BLANK.fingerprint}
    changes: list[dict[str, Any]] = [
        {"edges": ("a", "c")},
        {"serial": "S2"},
        {"signatures": (EXT4,)},
        {"signatures": (replace(EXT4, uuid="1"),)},
        {"headers": ("1048576 0011223344556677",)},
        {"writes": 12},
        {"partitions": (OURS,)},
        {"partitions": (replace(OURS, signatures=(replace(EXT4, uuid="1"),)),)},
    ]
    fingerprints |= {replace(BLANK, **change).fingerprint for change in changes}
    assert len(fingerprints) == 1 + len(changes)
    assert replace(BLANK, read_error="EIO").fingerprint is None


def _spec(*configurations: Configuration) -> StorageSpec:
    return StorageSpec(
        disks={"plain": DISK},
        extent=EXTENT,
        filesystem=Filesystem("ext4", (), ""),
        configurations={c.name: c for c in configurations},
    )


OPAL = Configuration("opal", "opal", "plain")


@pytest.mark.parametrize(
    ("disk_facts", "words", "steps"),
    [
        (BLANK, "blank", "write a GPT"),
        (replace(BLANK, signatures=(EXT4,)), "ext4", "erase what is on it"),
        (READY, "the testbed's layout, 1024 MiB", ""),
        (replace(READY, opal=OWNED), "locking enabled, nothing is locked, MBR shadow off", ""),
        (replace(BLANK, opal=FRESH), "not owned", "write a GPT"),
        (replace(BLANK, opal=replace(OWNED, mbr_enabled=True)), "hidden.*MBR shadow on", ""),
        (replace(BLANK, read_error="EIO"), r"cannot be read \(EIO\)", ""),
        (DiskFacts(), "no block device", ""),
    ],
)
def test_what_is_found_and_would_be_done_is_told_in_words(
    disk_facts: DiskFacts, words: str, steps: str
) -> None:
    assert re.search(words, inspect.describe(DISK, disk_facts, _spec()))
    assert steps in "; ".join(inspect.would(_spec(), DISK, disk_facts))
    assert inspect.would(_spec(), DISK, READY) == []


def test_a_disk_that_is_to_carry_opal_is_told_what_happens_to_its_ownership() -> None:
    for disk_facts, step in (
        (replace(BLANK, opal=FRESH), "take ownership"),
        (replace(READY, opal=OWNED), "ask with the PIN"),
    ):
        assert step in inspect.would(_spec(OPAL), DISK, disk_facts)[-1]
        assert provision.reasons_not_to_prepare(_spec(OPAL), DISK, disk_facts) == []
    (refusal,) = provision.reasons_not_to_prepare(_spec(OPAL), DISK, BLANK)
    assert refusal.code == "no-opal"
    assert "no Opal" in inspect.describe(DISK, BLANK, _spec(OPAL))


@pytest.mark.parametrize(
    ("extent", "code", "facts"),
    [
        (Extent(2**24, 2**31), "extent-large", {"needed": 2**31 + 2**24 + 2 * layout.MIB}),
        (Extent(2**24, 2**20 + 1), "extent-size", {"multiple": 2**20}),
        (Extent(2**24, 0), "extent-size", {"found": 0}),
        (Extent(2**20, 2**30), "extent-begin", {"wanted": 2**24}),
    ],
)
def test_extents_that_cannot_be_laid_out(extent: Extent, code: str, facts: dict[str, int]) -> None:
    refusal = layout.fits(DISK, extent)
    assert refusal is not None and refusal.code == code
    assert facts.items() <= refusal.facts.items()


def test_what_is_to_be_erased_is_not_ready() -> None:
    extent = Extent(2**24, 2**30 - 2**24)
    assert layout.ready(DISK, _inside(LUKS), extent)
    assert not layout.ready(DISK, _inside(LUKS), Extent(2**24, 2**29))
    assert not layout.ready(ERASABLE, _inside(replace(OURS, signatures=(EXT4,))), extent)
    assert not layout.ready(DISK, BLANK, extent)


def test_the_largest_extent_leaves_room_for_the_backup_table() -> None:
    most = DISK.size_bytes - layout.START_BYTES - layout.END_BYTES - 2**24
    assert layout.fits(DISK, Extent(2**24, most)) is None
    assert layout.fits(DISK, Extent(2**24, most + 2**20)) is not None


# Real disks: loop devices.

Loop = Callable[[], tuple[Path, Path]]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """Make (device, backing file) pairs of 64 MiB."""
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    devices: list[str] = []

    def make() -> tuple[Path, Path]:
        backing = tmp_path / f"disk{len(devices)}"
        with backing.open("wb") as file:
            file.truncate(64 * 2**20)
        done = subprocess.run(
            ["losetup", "-f", "--show", "-P", backing], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no loop devices here: {done.stderr.strip()}")
        devices.append(done.stdout.strip())
        return Path(devices[-1]), backing

    yield make
    for device in devices:
        subprocess.run(["umount", "-q", device], check=False)
        subprocess.run(["losetup", "-d", device], check=False)


@pytest.fixture(autouse=True)
def _readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look past processes that a container hides from its root, which would be uses of any disk."""
    every = uses.list_tasks
    hidden = {task.process for task in every() if not _can_read(task.folder)}
    monkeypatch.setattr(uses, "list_tasks", lambda: (t for t in every() if t.process not in hidden))


def _can_read(folder: str) -> bool:
    try:
        for link in Path(folder, "fd").iterdir():
            link.stat()
        return Path(folder, "maps").read_bytes() is not None
    except PermissionError:
        return False
    except OSError:
        return True


def _disk(device: Path) -> Disk:
    return Disk("plain", str(device), "LOOP", 64 * 2**20)


def _facts(device: Path) -> DiskFacts:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "serial", lambda _name: "LOOP")
        return facts.gather(_disk(device))


@pytest.mark.parametrize("fill", [b"", b"\xff"])
def test_a_real_disk_of_zeros_or_ones_is_blank(loop: Loop, fill: bytes) -> None:
    device, _ = loop()
    with device.open("r+b") as file:
        file.write(fill * (64 * 2**20))
    disk_facts = _facts(device)
    assert disk_facts.blank
    assert guard.refusals(_disk(device), disk_facts) == []


@pytest.mark.parametrize(
    ("start", "place", "contents", "types"),
    [
        # Magic and version of a LUKS1 header, and a GFS2 superblock, are what blkid looks at.
        ("true", 0, b"LUKS\xba\xbe\x00\x01", "crypto_LUKS"),
        (
            "mkfs.ext4",
            65536,
            struct.pack(">IIQIIII", 0x01161970, 1, 0, 100, 0, 1801, 1900),
            "ext4, gfs2",
        ),
    ],
)
def test_real_signatures_are_named_also_two_at_once(
    loop: Loop, start: str, place: int, contents: bytes, types: str
) -> None:
    device, _ = loop()
    subprocess.run([*start.split(), "-q", device], check=True)
    with device.open("r+b") as file:
        file.seek(place)
        file.write(contents)
    assert guard.refusals(_disk(device), _facts(device))[0].facts["types"] == types


@pytest.mark.parametrize("place", [0, 64 * 2**20 - 4096])
def test_data_that_nobody_knows_are_seen_at_both_ends(loop: Loop, place: int) -> None:
    device, _ = loop()
    with device.open("r+b") as file:
        file.seek(place)
        file.write(bytes(range(1, 256)))
    disk_facts = _facts(device)
    assert disk_facts.unknown
    assert [refusal.code for refusal in guard.refusals(_disk(device), disk_facts)] == [
        "unknown-data"
    ]


def test_any_write_ends_a_check(loop: Loop) -> None:
    """Also one in a place that nothing else would tell of: the kernel counts it."""
    device, _ = loop()
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    before = _facts(device)
    assert _facts(device) == before
    looked_at = {offset for offset, _ in samples.places(64 * 2**20, "LOOP")}
    with device.open("r+b") as file:
        file.seek(next(o for o in range(20 * 2**20, 2**25, 4096) if o not in looked_at))
        file.write(b"x")
    after = _facts(device)
    assert after.fingerprint == before.fingerprint
    assert after.checked_print != before.checked_print
    assert provision.reasons_of_change(_disk(device), after, {"plain": str(before.checked_print)})


def test_who_holds_a_disk_for_himself_is_found(loop: Loop) -> None:
    device, _ = loop()
    fd = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        disk_uses = _facts(device).uses
    finally:
        os.close(fd)
    assert [use.how for use in disk_uses] == [uses.EXCLUSIVE]
    assert _facts(device).uses == ()


def test_what_goes_away_in_the_moment_it_is_looked_at_is_no_error(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cryptsetup's lock and a volume of btrfs; a kernel without swap has no list of it."""
    device, _ = loop()
    number, opened = device.stat().st_rdev, devices.opened
    lock = tmp_path / f"L_{os.major(number)}:{os.minor(number)}"
    lock.touch()

    def open_late(path: Path, flags: int) -> object:
        lock.unlink()
        return opened(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(devices, "LUKS_LOCKS", tmp_path)
        patch.setattr(devices, "opened", open_late)
        assert devices.wait_for_luks_lock(str(device)) == ""
    gone = tmp_path / "gone"
    monkeypatch.setattr(uses, "SWAPS", gone)
    monkeypatch.setattr(uses, "BTRFS", SimpleNamespace(glob=lambda _form: [gone]))
    assert uses.swaps() == [] and uses.find_uses(device.name) == []


def test_nothing_of_another_mount_namespace_is_run_to_explain_a_busy_disk(
    loop: Loop, tmp_path: Path
) -> None:
    """Any user may make one, with programs of his own in the places of the system's."""
    device, _ = loop()
    ran, evil = tmp_path / "ran", tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho ran >{ran}\n")
    evil.chmod(0o755)
    script = (
        f"mount --bind {evil} $(readlink -f $(command -v cat)) && echo made; "
        "exec 9</proc/self/ns/mnt sleep 99"
    )
    argv = ["unshare", "-m", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = process.stdout.readline() == "made\n"
        fd = os.open(device, os.O_RDONLY | os.O_EXCL)
        try:
            disk_uses = _facts(device).uses
        finally:
            os.close(fd)
            process.kill()
    assert not ran.exists()
    assert disk_uses == (Use(device.name, uses.EXCLUSIVE),)
    if not made:
        pytest.skip("mounting is not allowed here")


def test_only_a_free_disk_of_the_same_appearance_is_blanked(loop: Loop) -> None:
    device, backing = loop()
    with device.open("r+b") as file:
        file.write(b"x" * 4096)
    seq = _facts(device).diskseq
    with pytest.raises(OSError) as refused:
        zero(str(device), seq + 1, [(0, 2**20)])
    assert refused.value.errno == errno.ESTALE
    fd = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(OSError) as refused:
            zero(str(device), seq, [(0, 2**20)])
        assert refused.value.errno == errno.EBUSY
    finally:
        os.close(fd)
    os.sync()
    assert backing.read_bytes()[:4096] == b"x" * 4096
    zero(str(device), seq, [(0, 2**20)])
    assert not any(backing.read_bytes())


def test_a_real_file_system_is_refused_mounted_or_not(loop: Loop, tmp_path: Path) -> None:
    device, _ = loop()
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    (refusal,) = guard.refusals(_disk(device), _facts(device))
    assert (refusal.code, refusal.facts["types"]) == ("foreign-signature", "ext4")
    folder = tmp_path / "a folder"
    folder.mkdir()
    if subprocess.run(["mount", device, folder], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    uses = [refusal.facts.get("how") for refusal in guard.refusals(_disk(device), _facts(device))]
    assert f"mounted on {folder}" in uses


def test_a_program_whose_name_the_kernel_cut_within_a_letter_is_named(
    loop: Loop, tmp_path: Path
) -> None:
    device, _ = loop()
    program = tmp_path / "process-name-töö"
    shutil.copy("/bin/sleep", program)
    with device.open("rb") as file, subprocess.Popen([program, "99"], stdin=file) as process:
        try:
            disk_facts = _facts(device)
        finally:
            process.kill()
    who = f"process-name-t\\xc3[{process.pid}]"
    assert disk_facts.uses == (Use(device.name, f"open in {who}"),)
    assert who in json.loads(json_text({"how": disk_facts.uses[0].how}))["how"]


def test_what_the_kernel_exports_is_a_use(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nvmet, LIO and a USB gadget keep it in configfs, which this machine's kernel may lack."""
    device, _ = loop()
    monkeypatch.setattr(uses, "CONFIGFS", tmp_path)
    for place, text in (
        ("nvmet/subsystems/t/namespaces/1/device_path", f"{device}\n"),
        ("nvmet/subsystems/t/namespaces/2/device_path", "/dev/absent\n"),
        ("nvmet/subsystems/t/namespaces/3/device_path", "/dev/absent\n"),
        ("nvmet/subsystems/t/namespaces/3/enable", "1\n"),
        ("target/core/iblock_0/d/udev_path", f"{device}\n"),
        ("target/core/fileio_0/d/info", f"Status: ACTIVATED\n File: {device}  Size: 1\n"),
        ("usb_gadget/g/functions/mass_storage.0/lun.0/file", f"{device}\n"),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    hows = [use.how for use in _facts(device).uses]
    assert hows == [
        "exported by nvmet/subsystems/t/namespaces/1",
        "perhaps /dev/absent, exported by nvmet/subsystems/t/namespaces/3",
        "exported by target/core/fileio_0/d",
        "exported by target/core/iblock_0/d",
        "exported by usb_gadget/g/functions/mass_storage.0/lun.0",
    ]


def test_a_file_that_io_uring_alone_keeps_is_a_use(loop: Loop) -> None:
    """Its descriptor is closed (Documentation of io_uring_register(2))."""
    device, _ = loop()
    script = (
        "import ctypes, os, sys, time\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        "ring = call(425, 4, ctypes.create_string_buffer(120))\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "done = call(427, ring, 2, (ctypes.c_int * 1)(file), 1)\n"
        "os.close(file)\n"
        "print(min(ring, done), flush=True)\n"
        "time.sleep(99)\n"
    )
    argv = [sys.executable, "-c", script, str(device)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if int(process.stdout.readline()) < 0:
                pytest.skip("no io_uring here")
            disk_uses = _facts(device).uses
        finally:
            process.kill()
    assert [use.how for use in disk_uses] == [f"open in {sys_name()}[{process.pid}]"]


def sys_name() -> str:
    """Return the name of this interpreter's processes, as the kernel cuts it."""
    return Path(sys.executable).name[:15]


def test_who_cannot_be_looked_at_may_have_any_disk_open(loop: Loop) -> None:
    device, _ = loop()
    script = (
        "import os, sys; from agent.storage import uses\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print([use.how for use in uses.openers(sys.argv[1])])\n"
    )
    argv = [sys.executable, "-c", script, device.name]
    with subprocess.Popen(["sleep", "99"]) as process:
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        process.kill()
    assert f"perhaps open in process {process.pid}, whose descriptors cannot" in done.stdout


def test_files_of_other_users_fuse_are_no_disks(loop: Loop, tmp_path: Path) -> None:
    """As sshfs, gvfs or an AppImage mount it: the kernel lets not even root look at them."""
    device, _ = loop()
    fuse = os.open("/dev/fuse", os.O_RDWR) if Path("/dev/fuse").exists() else -1
    options = f"nodev,fd={fuse},rootmode=40000,user_id=65534,group_id=65534"
    argv = ["mount", "-i", "-t", "fuse", "-o", options, "danger", str(tmp_path)]
    if fuse < 0 or subprocess.run(argv, pass_fds=[fuse], check=False).returncode:
        pytest.skip("mounting FUSE is not allowed here")
    script = (
        "import os, sys, time; os.open(sys.argv[1], os.O_PATH); print(flush=True); time.sleep(99)"
    )
    argv = [sys.executable, "-c", script, str(tmp_path)]
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None and process.stdout.readline()
                disk_uses = _facts(device).uses
            finally:
                process.kill()
    finally:
        os.close(fuse)
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert disk_uses == ()


@pytest.mark.parametrize("share", [True, False])
def test_a_threads_own_descriptors_are_seen_and_common_ones_read_once(
    loop: Loop, share: bool
) -> None:
    device, _ = loop()
    script = (
        "import ctypes, os, sys, threading, time\n"
        "def work():\n"
        f"    {share} or ctypes.CDLL(None).unshare(0x400)\n"
        "    os.open(sys.argv[1], os.O_RDONLY)\n"
        "    print(flush=True)\n"
        "    time.sleep(99)\n"
        "threading.Thread(target=work).start()\n"
    )
    argv = [sys.executable, "-c", script, str(device)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            first, second = (t for t in uses.list_tasks() if t.process == process.pid)
            hows = [use.how for use in _facts(device).uses]
            shared = uses.share_files(first, second)
        finally:
            process.kill()
    assert hows == [f"open in {sys_name()}[{process.pid}]"]
    assert shared in (share, False)  # unknown to a kernel without kcmp


def test_a_loop_device_over_the_disk_is_a_use(loop: Loop) -> None:
    device, _ = loop()
    over = subprocess.run(
        ["losetup", "-f", "--show", device], capture_output=True, text=True, check=True
    ).stdout.strip()
    try:
        disk_uses = _facts(device).uses
    finally:
        subprocess.run(["losetup", "-d", over], check=True)
    assert [use.how for use in disk_uses] == [f"held by {Path(over).name}"]


def test_a_regular_file_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(GuardError) as refused:
        guard.check(_disk(tmp_path / "file"))
    assert [refusal.code for refusal in refused.value.problems] == ["absent"]


@pytest.mark.parametrize("disk_facts", [BLANK, READY], ids=["blank", "ours"])
def test_a_disk_with_nothing_to_lose_need_not_be_as_it_was_checked(disk_facts: DiskFacts) -> None:
    assert provision.reasons_of_change(DISK, disk_facts, {"plain": "another"}) == []


def test_a_disk_with_contents_must_be_as_it_was_checked() -> None:
    disk_facts = replace(BLANK, signatures=(EXT4,))
    assert disk_facts.checked_print
    assert provision.reasons_of_change(DISK, disk_facts, {"plain": disk_facts.checked_print}) == []
    assert provision.reasons_of_change(DISK, disk_facts, None) == []
    written = replace(disk_facts, kernel_writes="another boot")
    assert (written.print, written.fingerprint) == (disk_facts.print, disk_facts.fingerprint)
    for checked in ({"plain": "another"}, {}, {"plain": str(written.checked_print)}):
        (refusal,) = provision.reasons_of_change(DISK, disk_facts, checked)
        assert refusal.code == "changed-since-check"


def test_prepare_writes_no_disk_at_all_if_one_is_refused(loop: Loop) -> None:
    """A loop device has no serial number, so its identity never matches."""
    (first, first_file), (second, second_file) = loop(), loop()
    subprocess.run(["mkfs.ext4", "-q", second], check=True)
    os.sync()
    before = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (first_file, second_file)]
    spec = StorageSpec(
        disks={"plain": _disk(first), "sed": replace(_disk(second), role="sed")},
        extent=Extent(2**24, 2**24),
        filesystem=Filesystem("ext4", (), ""),
        configurations={},
    )
    with pytest.raises(GuardError) as refused:
        provision.prepare(spec, Secrets(b"passphrase", b"pin"))
    causes = [refusal.code for refusal in refused.value.problems]
    assert causes == ["other-serial", "other-serial", "foreign-signature"]
    os.sync()
    after = [hashlib.sha256(f.read_bytes()).hexdigest() for f in (first_file, second_file)]
    assert before == after


def test_the_page_of_dangers_has_every_row_and_no_written_medium() -> None:
    """That their words are current is for those to say who see them: the tests in the guest."""
    _, _, rest = dangers.DOCUMENT.read_text(encoding="utf-8").partition(dangers.BEGIN)
    rows = [{**vars(row), "refused": not row.allowed} for row in ROWS]
    lines = rest.partition(dangers.END)[0].strip().splitlines()
    assert lines == [dangers.line(row) for row in rows]


def test_the_places_of_a_sparse_file_count_in_its_hash(tmp_path: Path) -> None:
    hashes = []
    for place in (0, 2**20, 2**30):
        path = tmp_path / str(place)
        with path.open("wb") as file:
            file.truncate(2**31)
            file.seek(place)
            file.write(b"x")
        hashes.append(dangers.content_hash(path))
    assert len(set(hashes)) == 3
    with path.open("r+b") as file:  # zeros that are written are contents like those that are not
        file.seek(2**29)
        file.write(bytes(4096))
    assert dangers.content_hash(path) == hashes[-1]


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (replace(BLANK, opal=OWNED), FRESH, "not-blanked"),
        (replace(BLANK, opal=OWNED), OWNED, "not-given-back"),
        (replace(BLANK, opal=FRESH), FRESH, "not-given-back"),  # its PIN is ours, not yet in force
        (None, FRESH, "not-given-back"),
    ],
)
def test_a_drive_is_given_back_only_where_it_was_seen_to_be(
    before: DiskFacts | None, after: Status, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OpalError("no-answer", device="x", action="y", error="z")

    def refuse(*_: object, **__: object) -> None:
        raise error

    def gather(_disk: Disk) -> DiskFacts:
        if before is None:
            raise error
        return before

    monkeypatch.setattr(facts, "gather", gather)
    monkeypatch.setattr(provision, "_give_back", refuse)
    monkeypatch.setattr(opal_ioctl, "status", lambda _path: after)
    reported = provision._give_back_after(error, DISK, Secrets(b"passphrase", b"pin"))
    assert reported.code == code
