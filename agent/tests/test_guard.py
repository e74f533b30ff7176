"""Every reason not to write a disk, on facts and on real loop devices."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
from agent.storage.uses import Use
from agent.tests import dangers
from agent.tests.builders import FRESH, OWNED, SECRETS, LoopDisks, storage_spec
from contract.files import json_text
from contract.places import MOUNT_POINT
from contract.plan import Configuration, Disk, Extent
from contract.tests.refusal import refuses

EXTENT = Extent(2**24, 2**30 - 2**24)
DISK = Disk("plain", "/dev/disk/by-id/nvme-x_S1", "S1", 2**31)
ERASABLE = replace(DISK, erase="S1")
OURS = Partition(
    *("/dev/nvme0n1p1", facts.MARKER_TYPE, facts.MARKER_NAME, 2**20, 2**30),
    uuid=partition_uuid("S1").upper(),
)
BLANK = DiskFacts("/dev/nvme0n1", True, serial="S1", size_bytes=2**31, diskseq=7, edges=("a", "b"))
READY = replace(
    BLANK, table="gpt", table_uuid=disk_uuid("S1").upper(), partitions=(OURS,), edges=()
)
HEADER = Signature("crypto_LUKS", 0, facts.LUKS_LABEL)
LUKS1 = Signature("crypto_LUKS", 0, uuid=partition_uuid("S1"))  # which has no label
EXT4, GFS2 = Signature("ext4", 0x438), Signature("gfs2", 65536)
OPAL = Configuration("opal", "opal", "plain")


def _inside(partition: Partition) -> DiskFacts:
    return replace(READY, partitions=(partition,))


def _signed(*signatures: Signature) -> DiskFacts:
    return _inside(replace(OURS, signatures=signatures))


def _in_use(how: str, device: str = "nvme0n1p1", among: DiskFacts = READY) -> DiskFacts:
    return replace(among, uses=(Use(device, how),))


LUKS = _signed(HEADER, replace(HEADER, offset_bytes=0x4000))
_ROOT = "carries the root file system"
_MBR = replace(READY, table="dos", partitions=(replace(OURS, name="", signatures=(EXT4,)),))
_SHADOW = replace(OWNED, mbr_enabled=True)
_STALE = replace(READY, table="gpt", table_uuid="x", stale=True, partitions=())
_AMONG_DATA = replace(HEADER, offset_bytes=2**24)
_OTHERS_LUKS1 = replace(LUKS1, uuid=partition_uuid("S2"))


@pytest.mark.parametrize(
    "facts",
    [
        BLANK,
        READY,
        LUKS,
        _signed(LUKS1),
        _in_use("held by fde-data", among=LUKS),
        _in_use(f"mounted on {MOUNT_POINT}", "dm-0"),
        _inside(replace(OURS, type_guid=facts.MARKER_TYPE.upper())),
        _in_use("held by fde-data-container", among=LUKS),
        _in_use("held by fde-data_1", among=LUKS),
        replace(READY, opal=replace(OWNED, locked=True)),
        replace(READY, opal=replace(OWNED, mbr_enabled=True, mbr_done=True)),
        replace(BLANK, opal=FRESH),
    ],
)
def test_a_blank_disk_and_our_own_may_be_written(facts: DiskFacts) -> None:
    assert guard.refusals(DISK, facts) == []


# By case: what is there, the code, and what the refusal or its remedy must name besides the disk.
REFUSED: dict[str, tuple[DiskFacts, str, str]] = {
    "absent": (replace(BLANK, path=None), "absent", ""),
    "given away": (DiskFacts(given_away=("0000:01:00.0 (vfio)",)), "given-away", "00:01:00.0 (vf"),
    "partition": (replace(BLANK, whole_disk=False), "not-whole", ""),
    "other serial": (replace(BLANK, serial="S2"), "other-serial", "'S2'"),
    "no serial": (replace(BLANK, serial=""), "other-serial", "'unknown'"),
    "other size": (replace(BLANK, size_bytes=2**31 - 512), "other-size", "2147483136"),
    "two paths": (replace(BLANK, same_identity=("sdb",)), "same-identity", "/dev/sdb"),
    "zoned": (replace(BLANK, unsuited="is host-managed"), "unsuited", ") is host-managed."),
    "mounted": (_in_use("mounted on /mnt"), "in-use", "mounted on /mnt"),
    "root": (_in_use(_ROOT, "nvme0n1p2", BLANK), "in-use", _ROOT),
    "swap": (_in_use("used as swap"), "in-use", "used as swap"),
    "LVM": (_in_use("held by vg-home"), "in-use", "held by vg-home"),
    "MD": (_in_use("held by md0", "nvme0n1", BLANK), "in-use", "held by md0"),
    "nearly our name": (_in_use("held by fde-database"), "in-use", "held by fde-database"),
    "our names without our mark": (_in_use("held by fde-data", "nvme0n1", BLANK), "in-use", ""),
    "unreadable": (replace(BLANK, read_error="EIO"), "unreadable", "EIO"),
    "dead, not by us": (replace(BLANK, opal=FRESH, read_error="ENODATA"), "unreadable", ""),
    "dead": (replace(BLANK, opal=FRESH, read_error="ENODATA", reverted=True), "dead", ""),
    "locked": (replace(BLANK, read_error="ENODATA", opal=OWNED), "locked", "--psid-revert S1"),
    "owned by someone": (replace(BLANK, opal=OWNED), "owned", "--psid-revert S1"),
    "no answer": (replace(BLANK, opal_error="EIO"), "unanswered", "EIO"),
    "no answer, though ours": (replace(READY, opal_error="EIO"), "unanswered", "EIO"),
    "shadowed": (replace(BLANK, opal=_SHADOW), "shadowed", "--psid-revert S1"),
    "shadowed, though ours": (replace(READY, opal=_SHADOW), "shadowed", "--psid-revert S1"),
    "unknown data": (replace(BLANK, unknown="unrecognised"), "unknown-data", 'erase: "S1 '),
    "whole-disk file system": (replace(BLANK, signatures=(EXT4,)), "foreign-signature", "ext4"),
    "whole-disk LUKS": (replace(BLANK, signatures=(HEADER,)), "foreign-signature", "crypto_LUKS"),
    "two": (replace(BLANK, signatures=(EXT4, GFS2)), "foreign-signature", "(ext4, gfs2)"),
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
    "foreign LUKS1 inside": (_signed(_OTHERS_LUKS1), "foreign-inside", "LUKS"),
    "foreign LUKS inside": (_signed(replace(HEADER, label="home")), "foreign-inside", "LUKS"),
    "LUKS without label": (_signed(replace(HEADER, label=None)), "foreign-inside", "LUKS"),
    "our label among the data": (_signed(_AMONG_DATA), "foreign-inside", "LUKS"),
}
CONTENTS = {"unknown-data", "foreign-signature", "foreign-table", "other-mark", "foreign-inside"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_disk_and_reason_and_only_contents_may_be_erased(name: str) -> None:
    disk_facts, code, reason = REFUSED[name]
    (refusal,) = guard.refusals(DISK, disk_facts)
    assert refusal.code == code and refusal.remedy
    assert DISK.by_id in refusal.sentence and reason in str(refusal)
    assert guard.reason(refusal) in refusal.sentence
    assert bool(guard.refusals(ERASABLE, disk_facts)) == (code not in CONTENTS)
    assert guard.refusals(ERASABLE, disk_facts, erase=False)
    others = guard.refusals(replace(DISK, erase="S3"), disk_facts)
    assert code in ("absent", "given-away") or "other-erase" in {other.code for other in others}


def test_a_disk_without_a_serial_number_is_refused_if_the_inventory_has_none_either() -> None:
    (refusal,) = guard.refusals(replace(DISK, serial=""), replace(BLANK, serial=""))
    assert refusal.code == "other-serial"


@pytest.mark.parametrize(
    ("name", "part", "is_whole"),
    [
        ("nvme0n1", "device/serial", True),
        ("loop0", "loop/backing_file", True),
        ("nvme0n1p1", "partition", False),
        ("dm-0", "dm/name", False),
        ("md127", "md/level", False),
        ("bcache0", "bcache/state", False),
        ("zram0", "disksize", False),
        ("nbd0", "pid", False),
    ],
)
def test_only_hardware_and_files_are_whole_disks(
    name: str, part: str, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "BLOCK", tmp_path)
    (tmp_path / name / part).parent.mkdir(parents=True)
    (tmp_path / name / part).write_text("x")
    assert devices.is_whole_disk(name) == is_whole


def test_every_refusal_code_is_tested() -> None:
    """Those of the tables; the others have tests of their own below."""
    others = {"other-erase", "silent", "no-opal-on-sata", "unmarked", "changed"}
    others |= {"changed-since-check", "no-such-serial"}
    codes = {code for _, code, _ in REFUSED.values()} | {code for *_, code in NOT_TAKEN.values()}
    assert codes | others | {code for _, code, _ in EXTENTS} == {*guard.WORDINGS, None}


def test_all_refusals_are_returned_at_once() -> None:
    disk_facts = replace(BLANK, serial="S2", size_bytes=1, signatures=(EXT4,))
    assert len(guard.refusals(DISK, disk_facts)) == 3


def test_an_erase_for_other_contents_has_expired() -> None:
    expired = replace(DISK, erase="S1 000000000000")
    (refusal,) = guard.refusals(expired, replace(BLANK, signatures=(EXT4,)))
    assert (refusal.code, refusal.facts["expired"]) == ("foreign-signature", 1)


ODD_SERIALS = ("VMware NVME_0000", "\\xff\\xff ABC", "WD  12", "a'b\"c", "{{ x }} y", "Größe 1")


@pytest.mark.parametrize("serial", ODD_SERIALS)
def test_the_printed_erase_of_a_serial_can_be_pasted(serial: str) -> None:
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


def test_a_serial_number_of_any_bytes_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "BLOCK", tmp_path)
    for name, raw in (("nvme0n1", b"S64DNX0T12\n"), ("nvme1n1", b"\xff\xffAB C \0\n")):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "size").write_text("4194304\n")
        (tmp_path / name / "device" / "serial").write_bytes(raw)
    assert devices.same_identity("nvme0n1") == []
    assert devices.serial("nvme1n1") == "\\xff\\xffAB C"


def test_a_psid_revert_permits_locks_and_shadows_but_no_visible_contents() -> None:
    for name in ("locked", "shadowed", "owned by someone", "shadowed, though ours"):
        assert guard.refusals_to_revert(DISK, REFUSED[name][0]) == []
    assert guard.refusals_to_revert(DISK, REFUSED["no answer"][0])
    for name in ("mounted", "two paths", "other serial", "absent", "whole-disk file system"):
        assert guard.refusals_to_revert(DISK, replace(REFUSED[name][0], opal=OWNED))
    assert guard.refusals_to_revert(ERASABLE, REFUSED["whole-disk file system"][0]) == []
    (refusal,) = guard.refusals_to_revert(ERASABLE, NOT_TAKEN["shared"][0])
    assert (refusal.code, refusal.facts["beside"]) == ("shared", "/dev/nvme0n2")


@pytest.mark.parametrize(("error", "code"), [(None, "silent"), ("EIO", "unanswered")])
def test_a_locking_drive_that_hides_its_opal_is_not_cleared(
    error: str | None, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart without libata.allow_tpm=1: else it stays locked and its PIN is gone."""
    monkeypatch.setattr(facts, "gather", lambda _disk: replace(LUKS, opal_error=error))
    for dry in (True, False):
        with refuses(code, error=error):
            provision.teardown(_spec(OPAL), SECRETS, dry=dry)
    header = opal.LuksHeader({"0": opal.LuksSegment("hw-opal-crypt", "0")})
    monkeypatch.setattr(opal, "luks_header", lambda _path: header)
    with refuses(code, error=error):
        provision.teardown(_spec(), SECRETS)


def _spec(*configurations: Configuration) -> Any:
    return storage_spec(DISK, EXTENT, *configurations)


def _reported(discovery: Discovery, **changes: Any) -> DiskFacts:
    return replace(BLANK, opal=FRESH, block_bytes=4096, discovery=discovery, **changes)


def _blocks(*numbers: int) -> DiskFacts:
    return _reported(Discovery(geometry=Geometry(*numbers)))


# By case: what the drive reports, the extent, and why it cannot carry Opal, or None.
NOT_TAKEN: dict[str, tuple[DiskFacts, Extent, str | None]] = {
    "geometry not reported": (_reported(Discovery()), EXTENT, None),
    "ranges anywhere": (_blocks(4096, 1, 0), EXTENT, None),
    "8 KiB": (_blocks(4096, 2, 0), EXTENT, None),
    "1 MiB": (_blocks(4096, 256, 0), EXTENT, None),
    "smaller blocks": (_blocks(512, 1, 0), EXTENT, "opal-blocks"),
    "larger blocks": (_blocks(8192, 1, 0), EXTENT, "opal-blocks"),
    "32 MiB": (_blocks(4096, 8192, 0), EXTENT, "opal-alignment"),
    "from block 1": (_blocks(4096, 2, 1), EXTENT, "opal-alignment"),
    "from block 256": (_blocks(4096, 4096, 256), EXTENT, None),
    "its length": (_blocks(4096, 4096, 256), Extent(2**24, 2**29 + 2**20), "opal-alignment"),
    "encrypts": (_reported(Discovery(encrypts=True)), EXTENT, None),
    "encrypts nothing": (_reported(Discovery(encrypts=False)), EXTENT, "opal-no-encryption"),
    "blocked": (_reported(Discovery(opal_ioctl.Sid(False, True))), EXTENT, "blocked"),
    "shared": (_reported(Discovery(), beside=("/dev/nvme0n2",)), EXTENT, "shared"),
    "no Opal": (BLANK, EXTENT, "no-opal"),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_a_drive_unfit_for_opal_is_refused_before_it_is_taken(name: str) -> None:
    disk_facts, extent, code = NOT_TAKEN[name]
    spec = replace(_spec(OPAL), extent=extent)
    codes = [refusal.code for refusal in provision.reasons_not_to_prepare(spec, DISK, disk_facts)]
    assert codes == ([code] if code else [])
    assert provision.reasons_not_to_prepare(replace(_spec(), extent=extent), DISK, disk_facts) == []


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
    with refuses("changed") as refused:
        guard.refuse_changed(DISK, BLANK, replace(BLANK, **change))
    assert difference in str(refused.value.problems[0].facts["differing"])


def test_our_own_use_and_lock_do_not_count_as_changes() -> None:
    busy = replace(_in_use("held by fde-data"), opal=OWNED)
    guard.refuse_changed(DISK, busy, replace(READY, opal=replace(OWNED, locked=True)))


def test_a_fingerprint_depends_on_contents_and_not_on_users() -> None:
    same = replace(BLANK, diskseq=8, path="/dev/nvme1n1", uses=(Use("nvme1n1", "used as swap"),))
    assert BLANK.fingerprint == same.fingerprint
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
    fingerprints = {replace(BLANK, **change).fingerprint for change in [{}, *changes]}
    assert len(fingerprints) == 1 + len(changes)
    assert replace(BLANK, read_error="EIO").fingerprint is None


@pytest.mark.parametrize(
    ("configurations", "disk_facts", "words", "steps"),
    [
        ((), BLANK, "blank", "write a GPT"),
        ((), replace(BLANK, signatures=(EXT4,)), "ext4", "erase what is on it"),
        ((), READY, "the testbed's layout, 1024 MiB", ""),
        ((), replace(READY, opal=OWNED), "enabled, nothing is locked, MBR shadow off", ""),
        ((), replace(BLANK, opal=FRESH), "not owned", "write a GPT"),
        ((), replace(BLANK, opal=_SHADOW), "hidden.*MBR shadow on", ""),
        ((), replace(BLANK, read_error="EIO"), r"cannot be read \(EIO\)", ""),
        ((), DiskFacts(), "no block device", ""),
        ((OPAL,), replace(BLANK, opal=FRESH), "not owned", "take ownership"),
        ((OPAL,), replace(READY, opal=OWNED), "layout", "ask with the PIN"),
        ((OPAL,), BLANK, "no Opal", ""),
    ],
)
def test_contents_and_planned_steps_are_described(
    configurations: tuple[Configuration, ...], disk_facts: DiskFacts, words: str, steps: str
) -> None:
    spec = _spec(*configurations)
    assert re.search(words, inspect.describe(DISK, disk_facts, spec))
    assert steps in "; ".join(inspect.would(spec, DISK, disk_facts))
    assert inspect.would(_spec(), DISK, READY) == []


MOST_BYTES = DISK.size_bytes - layout.START_BYTES - layout.END_BYTES - 2**24
EXTENTS: list[tuple[Extent, str | None, dict[str, int]]] = [
    (Extent(2**24, 2**31), "extent-large", {"needed": 2**31 + 2**24 + 2 * layout.MIB}),
    (Extent(2**24, MOST_BYTES + 2**20), "extent-large", {}),
    (Extent(2**24, MOST_BYTES), None, {}),  # which leaves room for the backup table
    (Extent(2**24, 2**20 + 1), "extent-size", {"multiple": 2**20}),
    (Extent(2**24, 0), "extent-size", {"found": 0}),
    (Extent(2**20, 2**30), "extent-begin", {"wanted": 2**24}),
]


@pytest.mark.parametrize(("extent", "code", "facts"), EXTENTS)
def test_an_extent_that_cannot_be_laid_out_is_refused(
    extent: Extent, code: str | None, facts: dict[str, int]
) -> None:
    refusal = layout.extent_refusal(DISK, extent)
    assert (refusal and refusal.code) == code
    assert facts.items() <= (refusal.facts.items() if refusal else {}.items())


def test_a_disk_to_be_erased_is_not_ready() -> None:
    assert layout.ready(DISK, LUKS, EXTENT)
    assert not layout.ready(DISK, LUKS, Extent(2**24, 2**29))
    assert not layout.ready(ERASABLE, _signed(EXT4), EXTENT)
    assert not layout.ready(DISK, BLANK, EXTENT)


# Real disks: loop devices of 64 MiB.


@pytest.fixture
def readable(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.fixture
def device(loop: LoopDisks, readable: None) -> Path:
    del readable
    return loop.make()


def _disk(device: Path) -> Disk:
    return Disk("plain", str(device), "LOOP", 64 * 2**20)


def _facts(device: Path) -> DiskFacts:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "serial", lambda _name: "LOOP")
        return facts.gather(_disk(device))


def _hows(device: Path) -> list[str]:
    return [use.how for use in _facts(device).uses]


def _write(device: Path, place: int, contents: bytes) -> None:
    with device.open("r+b") as file:
        file.seek(place)
        file.write(contents)


@contextmanager
def _running(*argv: object, **options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a program and the line that it prints once it is ready; it ends with the block."""
    words = [str(word) for word in argv]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def _held(device: Path) -> Iterator[None]:
    fd = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        yield
    finally:
        os.close(fd)


_GFS2 = struct.pack(">IIQIIII", 0x01161970, 1, 0, 100, 0, 1801, 1900)


@pytest.mark.parametrize(
    ("start", "place", "contents", "codes"),
    [
        ("true", 0, b"", []),
        ("true", 0, b"\xff" * (64 * 2**20), []),
        # Magic and version of a LUKS1 header, and a GFS2 superblock, are what blkid looks at.
        ("true", 0, b"LUKS\xba\xbe\x00\x01", [("foreign-signature", "crypto_LUKS")]),
        ("mkfs.ext4", 65536, _GFS2, [("foreign-signature", "ext4, gfs2")]),
        ("true", 0, bytes(range(1, 256)), [("unknown-data", None)]),
        ("true", 64 * 2**20 - 4096, bytes(range(1, 256)), [("unknown-data", None)]),
    ],
    ids=["zeros", "ones", "LUKS1", "two", "unknown start", "unknown end"],
)
def test_contents_of_a_real_disk_are_found(
    device: Path, start: str, place: int, contents: bytes, codes: list[tuple[str, str | None]]
) -> None:
    subprocess.run([start, "-q", device], check=True)
    _write(device, place, contents)
    disk_facts = _facts(device)
    assert disk_facts.blank == (not codes)
    refusals = guard.refusals(_disk(device), disk_facts)
    assert [(refusal.code, refusal.facts.get("types")) for refusal in refusals] == codes


def test_a_print_follows_the_contents_of_a_volume_on_top_of_our_partition(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an array of the whole disk whose superblock leaves our table in place."""
    uuids = {"name": facts.MARKER_NAME, "uuid": partition_uuid("LOOP")}
    entry = facts._Entry("p1", facts.MARKER_TYPE, 2048, 65536, **uuids)
    table = facts.Table("gpt", disk_uuid("LOOP"), 512, (entry,))
    signed = {device.name: [Signature("gpt", 512), Signature("linux_raid_member", 2**25)], "p1": []}
    sizes = {device.name: 2**26, "p1": 2**25}
    monkeypatch.setattr(facts, "read_table", lambda _path: table)
    monkeypatch.setattr(facts, "_signatures", lambda _paths: signed)
    monkeypatch.setattr(devices, "partitions", lambda _name: ["p1"])
    monkeypatch.setattr(devices, "partition_start_bytes", lambda _name: 2**20)
    monkeypatch.setattr(devices, "size_bytes", lambda name: sizes.get(name, 0))
    monkeypatch.setattr(uses, "find_uses", lambda _name: [])
    before = _facts(device)
    assert before.partition and before.signatures
    _write(device, 40 * 2**20, bytes(range(1, 256)) * 2**15)
    assert _facts(device).print != before.print


def test_a_disk_that_is_removed_while_it_is_examined_is_absent(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(_name: str) -> list[str]:
        monkeypatch.setattr(devices, "BLOCK", tmp_path)
        raise FileNotFoundError

    monkeypatch.setattr(devices, "partitions", remove)
    assert facts.gather(_disk(device)).path is None


@pytest.mark.parametrize(
    ("table", "line", "is_named"),
    [
        ("fstab", r"LABEL=my\040disk#1 /d ext4 defaults 0 0", True),
        ("fstab", r'LABEL="my\040disk#1" /d ext4 defaults 0 0', True),
        ("fstab", "PARTUUID='ab-1' /d ext4 noauto 0 0", True),
        ("fstab", "/dev/sda1 /d ext4 defaults 0 0", True),
        ("fstab", "/dev/disk/by-partuuid/ab-1-part3 /d ext4 noauto 0 0", True),
        ("fstab", "#/dev/sda1 /d ext4 defaults 0 0", False),
        ("fstab", "# PARTUUID=ab-1 /d ext4 defaults 0 0", False),
        ("fstab", "tmpfs /d tmpfs defaults 0 0", False),
        ("crypttab", "data PARTUUID=ab-1 none luks", True),
        ("crypttab", "#data /dev/sda1 none luks", False),
        ("systemd/system/d.mount", "What=/dev/disk/by-partuuid/ab-1", True),
        ("systemd/system/d.swap", "What=/dev/sdb1", False),
    ],
)
def test_a_disk_in_a_table_of_mounts_is_in_use(
    table: str, line: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {"/dev/sda1", "/dev/disk/by-partuuid/ab-1", r"/dev/disk/by-label/my\x20disk#1"}
    monkeypatch.setattr(uses, "ETC", tmp_path)
    monkeypatch.setattr(devices, "kernel_name", lambda path: "sda1" if path in links else None)
    units = tmp_path / "systemd/system"
    units.mkdir(parents=True)
    (units / "a.mount").symlink_to("gone")
    (tmp_path / table).write_text(f"[Mount]\n{line}\n")
    hows = [use.how for use in uses._named_in_tables(["sda", "sda1"])]
    assert hows == [f"named in {tmp_path / table}"] * is_named


def test_any_write_ends_a_check(device: Path) -> None:
    """Also one in a place that nothing else would tell of: the kernel counts it."""
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    before = _facts(device)
    assert _facts(device) == before
    looked_at = {offset for offset, _ in samples.places(64 * 2**20, "LOOP")}
    _write(device, next(o for o in range(20 * 2**20, 2**25, 4096) if o not in looked_at), b"x")
    after = _facts(device)
    assert after.fingerprint == before.fingerprint
    assert after.checked_print != before.checked_print
    assert provision.reasons_of_change(_disk(device), after, {"plain": str(before.checked_print)})


def test_an_exclusive_holder_is_found(device: Path) -> None:
    with _held(device):
        assert _hows(device) == [uses.EXCLUSIVE]
    assert _hows(device) == []


def test_files_that_vanish_while_read_raise_no_error(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cryptsetup's lock and a volume of btrfs; a kernel without swap has no list of it."""
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


def test_explaining_a_busy_disk_runs_no_program_of_another_namespace(
    device: Path, tmp_path: Path
) -> None:
    """Any user may make one, with programs of his own in the places of the system's."""
    ran, evil = tmp_path / "ran", tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\necho ran >{ran}\n")
    evil.chmod(0o755)
    bound = f"mount --bind {evil} $(readlink -f $(command -v cat)) && echo made"
    script = f"{bound}; exec 9</proc/self/ns/mnt sleep 99"
    with _running("unshare", "-m", "sh", "-c", script) as (_, line), _held(device):
        disk_uses = _facts(device).uses
    assert not ran.exists()
    assert disk_uses == (Use(device.name, uses.EXCLUSIVE),)
    if line != "made":
        pytest.skip("mounting is not allowed here")


def test_only_a_free_disk_of_the_same_appearance_is_blanked(loop: LoopDisks, device: Path) -> None:
    _write(device, 0, b"x" * 4096)
    seq = _facts(device).diskseq
    with pytest.raises(OSError) as refused:
        zero(str(device), seq + 1, [(0, 2**20)])
    assert refused.value.errno == errno.ESTALE
    with _held(device), pytest.raises(OSError) as refused:
        zero(str(device), seq, [(0, 2**20)])
    assert refused.value.errno == errno.EBUSY
    assert loop.contents(device)[:4096] == b"x" * 4096
    zero(str(device), seq, [(0, 2**20)])
    assert not any(loop.contents(device))


def test_a_mounted_file_system_is_a_use(device: Path, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    folder = tmp_path / "a folder"
    folder.mkdir()
    if subprocess.run(["mount", device, folder], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    hows = [refusal.facts.get("how") for refusal in guard.refusals(_disk(device), _facts(device))]
    assert f"mounted on {folder}" in hows


def test_a_program_name_cut_within_a_letter_is_escaped(device: Path, tmp_path: Path) -> None:
    program = tmp_path / "process-name-töö"
    shutil.copy("/bin/sleep", program)
    with device.open("rb") as file, subprocess.Popen([program, "99"], stdin=file) as process:
        try:
            hows = _hows(device)
        finally:
            process.kill()
    who = f"process-name-t\\xc3[{process.pid}]"
    assert hows == [f"open in {who}"]
    assert who in json.loads(json_text({"how": hows[0]}))["how"]


def test_an_export_by_the_kernel_is_a_use(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nvmet, LIO and a USB gadget keep it in configfs, which this machine's kernel may lack."""
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
    assert _hows(device) == [
        "exported by nvmet/subsystems/t/namespaces/1",
        "perhaps /dev/absent, exported by nvmet/subsystems/t/namespaces/3",
        "exported by target/core/fileio_0/d",
        "exported by target/core/iblock_0/d",
        "exported by usb_gadget/g/functions/mass_storage.0/lun.0",
    ]


def _thread(first: str = "") -> str:
    """Return a script whose second thread opens the device."""
    work = f"{first}; os.open(sys.argv[1], os.O_RDONLY); print(flush=True); time.sleep(99)"
    return f"threading.Thread(target=lambda: exec({work!r})).start()"


# Programs of Python that keep a device open in ways that few look for.
IMPORTS = "import ctypes, os, socket, sys, threading, time; libc = ctypes.CDLL(None)\n"
KEEPS = {
    # Its descriptor is closed (io_uring_register(2)).
    "io_uring": (
        "ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))\n"
        "file = os.open(sys.argv[1], os.O_RDONLY)\n"
        "done = libc.syscall(427, ring, 2, (ctypes.c_int * 1)(file), 1); os.close(file)\n"
        "print('' if min(ring, done) >= 0 else 'no io_uring', flush=True); time.sleep(99)\n"
    ),
    "a thread's own descriptors": _thread("libc.unshare(0x400)"),
    "common descriptors": _thread("pass"),
}


@pytest.mark.parametrize("name", KEEPS)
def test_a_program_that_keeps_a_disk_open_is_found_once(name: str, device: Path) -> None:
    with _running(sys.executable, "-c", IMPORTS + KEEPS[name], device) as (process, skip):
        if skip:
            pytest.skip(f"{skip} here")
        tasks = [task for task in uses.list_tasks() if task.process == process.pid]
        hows = _hows(device)
        shared = [uses.share_files(tasks[0], other) for other in tasks[1:]]
    assert hows == [f"open in {Path(sys.executable).name[:15]}[{process.pid}]"]
    # Unknown to a kernel without kcmp.
    assert shared == ([] if name == "io_uring" else shared[:1])
    assert not any(shared) or name == "common descriptors"


def test_an_unreadable_process_may_have_any_disk_open(device: Path) -> None:
    script = (
        "import os, sys; from agent.storage import uses\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print([use.how for use in uses.openers(sys.argv[1])])\n"
    )
    argv = [sys.executable, "-c", script, device.name]
    with _running("sh", "-c", "echo; exec sleep 99") as (process, _):
        output = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"perhaps open in process {process.pid}, whose descriptors cannot" in output.stdout


def test_files_of_other_users_fuse_are_no_disks(device: Path, tmp_path: Path) -> None:
    """As sshfs, gvfs or an AppImage mount it: the kernel lets not even root look at them."""
    fuse = os.open("/dev/fuse", os.O_RDWR) if Path("/dev/fuse").exists() else -1
    options = f"nodev,fd={fuse},rootmode=40000,user_id=65534,group_id=65534"
    argv = ["mount", "-i", "-t", "fuse", "-o", options, "danger", str(tmp_path)]
    if fuse < 0 or subprocess.run(argv, pass_fds=[fuse], check=False).returncode:
        pytest.skip("mounting FUSE is not allowed here")
    script = "os.open(sys.argv[1], os.O_PATH); print(flush=True); time.sleep(99)"
    try:
        with _running(sys.executable, "-c", IMPORTS + script, tmp_path):
            assert _hows(device) == []
    finally:
        os.close(fuse)
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_loop_device_over_the_disk_is_a_use(loop: LoopDisks, device: Path) -> None:
    over = loop.attach(device)
    assert _hows(device) == [f"held by {over.name}"]


def test_a_regular_file_is_no_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with refuses("absent"):
        guard.check(_disk(tmp_path / "file"))


def test_a_disk_with_contents_must_match_its_check() -> None:
    for disk_facts in (BLANK, READY):  # with nothing to lose
        assert provision.reasons_of_change(DISK, disk_facts, {"plain": "another"}) == []
    disk_facts = replace(BLANK, signatures=(EXT4,))
    assert disk_facts.checked_print
    assert provision.reasons_of_change(DISK, disk_facts, {"plain": disk_facts.checked_print}) == []
    assert provision.reasons_of_change(DISK, disk_facts, None) == []
    written = replace(disk_facts, kernel_writes="another boot")
    assert (written.print, written.fingerprint) == (disk_facts.print, disk_facts.fingerprint)
    for checked in ({"plain": "another"}, {}, {"plain": str(written.checked_print)}):
        (refusal,) = provision.reasons_of_change(DISK, disk_facts, checked)
        assert refusal.code == "changed-since-check"


@pytest.mark.usefixtures("readable")
def test_prepare_writes_no_disk_if_one_is_refused(loop: LoopDisks) -> None:
    """A loop device has no serial number, so its identity never matches."""
    first, second = loop.make(), loop.make()
    subprocess.run(["mkfs.ext4", "-q", second], check=True)
    before = [loop.contents(each) for each in (first, second)]
    disks = {"plain": _disk(first), "sed": replace(_disk(second), role="sed")}
    spec = replace(storage_spec(DISK, Extent(2**24, 2**24)), disks=disks)
    with pytest.raises(GuardError) as refused:
        provision.prepare(spec, SECRETS)
    codes = [refusal.code for refusal in refused.value.problems]
    assert codes == ["other-serial", "other-serial", "foreign-signature"]
    assert before == [loop.contents(each) for each in (first, second)]


def test_the_hash_of_a_sparse_file_depends_on_places(tmp_path: Path) -> None:
    hashes = []
    for place in (0, 2**20, 2**30):
        path = tmp_path / str(place)
        path.touch()
        os.truncate(path, 2**31)
        _write(path, place, b"x")
        hashes.append(dangers.content_hash(path))
    assert len(set(hashes)) == 3
    _write(path, 2**29, bytes(4096))  # zeros that are written are contents like those that are not
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
def test_a_drive_is_reported_as_given_back_only_if_seen_so(
    before: DiskFacts | None, after: Status, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OpalError("no-answer", device="x", action="y", error="z")

    def refuse(*_: object, **__: object) -> DiskFacts:
        raise error

    monkeypatch.setattr(facts, "gather", (lambda _disk: before) if before else refuse)
    monkeypatch.setattr(provision, "_give_back", refuse)
    monkeypatch.setattr(opal_ioctl, "status", lambda _path: after)
    assert provision._give_back_after(error, DISK, SECRETS).code == code
