"""Every change to a disk after `erase` was allowed is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.storage import samples
from agent.tests import changes
from agent.tests.builders import LoopDisks
from agent.tests.guest import CODE, Guest

ROOT = Path(__file__).resolve().parents[2]


def test_new_files_change_the_fingerprint_of_a_disk_without_a_counter(
    loop: LoopDisks, tmp_path: Path
) -> None:
    """On a loop device, as far as this machine has the programs; the rest on the guest's disk."""
    folder = tmp_path / "mount"
    folder.mkdir()
    noticed = changes.notice(str(loop.make(2**28)), "S1", folder, ["whole-ext4"])
    assert len(noticed) == len(changes.SCENARIOS["whole-ext4"][1])
    assert [name for name, pair in noticed.items() if not all(pair)] == []


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("name", changes.SCENARIOS)
def test_changes_to_a_real_disk_are_noticed(lab: Any, name: str) -> None:
    """By contents alone, but for blocks that belong to nothing, which the drive's count tells."""
    device = f"$(readlink -f {Guest(lab).by_id('plain')})"
    output = lab.ssh(f"cd {CODE} && python3 -m agent.tests.changes {device} {name}")
    noticed: dict[str, list[bool]] = json.loads(output.stdout)
    unmarked = [change for change, (_, contents) in noticed.items() if not contents]
    assert [change for change, (any_, _) in noticed.items() if not any_] == []
    assert not unmarked or name == "somewhere"
    assert len(noticed) >= len(changes.SCENARIOS[name][1])


def _luks2() -> bytes:
    area = b'"area":{"offset":"32768","size":"258048"}'
    segment = b'"segments":{"0":{"type":"crypt","offset":"16777216","size":"dynamic"}}'
    head = b"LUKS\xba\xbe\0\2" + (16384).to_bytes(8)
    return head.ljust(4096, b"\0") + b"{" + area + b"," + segment + b"}\0"


_LUKS1 = b"LUKS\xba\xbe\0\1".ljust(104, b"\0") + (4096).to_bytes(4)
_MD = bytes(4096) + b"\xfc\x4e\x2b\xa9\1\0\0\0".ljust(128, b"\0") + b"\0\x08" + bytes(6)
_NTFS = b"\xeb\x52\x90NTFS    \0\2\x08".ljust(48, b"\0") + (4).to_bytes(8, "little")
_EXFAT = b"\xeb\x76\x90EXFAT   ".ljust(88, b"\0") + b"\0\x10\0\0".ljust(20, b"\0") + b"\x09"
_LVM = b'pe_start = 2048\nextent_size = 8192\n"pv0", 3\n'
# By kind: how a volume begins, and where in it others, or what changes with its files, begin.
VOLUMES: dict[str, tuple[bytes, set[int]]] = {
    "luks1": (_LUKS1, {2**21}),
    "luks2": (_luks2(), {2**24}),
    "md": (_MD, {2**20}),
    "ntfs": (_NTFS, {4 * 4096}),
    "exfat": (_EXFAT, {2**21}),
    "lvm": (bytes(512) + b"LABELONE".ljust(3584, b"\0") + _LVM, {2**20 + 3 * 2**22}),
    "blank": (b"\0" * 4096, set()),
}


@pytest.mark.parametrize("kind", VOLUMES)
def test_files_in_a_nested_volume_change_the_fingerprint(tmp_path: Path, kind: str) -> None:
    """Made by hand where this machine has no program for it; the guest has most."""
    (start, inside), backing, base = VOLUMES[kind], tmp_path / "disk", 3 * 2**20
    with backing.open("wb") as file:
        file.truncate(2**26)
        file.seek(base)
        file.write(start)
    before = samples.headers(str(backing), 2**26, [(base, 0)])
    for offset in inside:
        with backing.open("r+b") as file:
            file.seek(base + offset + 1024)
            file.write(b"used")
        after = samples.headers(str(backing), 2**26, [(base, 0)])
        assert after != before
    read = {int(line.split()[0]) for line in before}
    assert read >= {0, 2**26 - 2**20, base, *(base + offset for offset in inside)}
