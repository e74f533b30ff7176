"""What the disk of the guest moves while a workload runs, held against the workload's account."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from agent.tests.guest import CODE, PLAIN, Target

pytestmark = pytest.mark.lab

CONFIGURATIONS, EXTENT_BYTES = [PLAIN], 512 << 20
MOUNT = "/run/fde-account"
ASSETS = "/usr/share/fde-testbed"
EXT4 = ("mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0", "ext4", "noatime")
JOURNAL = (*EXT4[:2], "noatime,data=journal")
ZSTD = ("mkfs.btrfs -qf", "btrfs", "noatime,nodiscard,compress=zstd")
FILES: Mapping[str, Any] = {"small_files": 2, "small_mib": 4, "large_mib": 16}
PATTERNS: Mapping[str, Any] = {"file_mib": 16, "random_mib": 2}
# Keeps every new file mapped, as an indexer or a virus scanner does.
INDEXER = f"""
import mmap, os, time
from pathlib import Path
kept = {{}}
while True:
    for path in Path("{MOUNT}").rglob("file-*"):
        size = path.stat().st_size
        if size and kept.get(path, (0,))[0] != size:
            fd = os.open(path, os.O_RDONLY)
            pages = mmap.mmap(fd, size, mmap.MAP_SHARED | 0x8000, mmap.PROT_READ)
            kept[path] = (size, pages, pages[::4096])
    time.sleep(0.02)
"""
READ_LESS, WRITTEN_LESS = frozenset({"disk-read-less"}), frozenset({"disk-written-less"})
NO_SYNC = {"sync": "/bin/true"}
SCRIPT = {"dd": '#!/bin/sh\nexec /usr/bin/dd "$@"\n'}


class Case(NamedTuple):
    """A workload on a file system, and the causes that are found, by severity."""

    filesystem: tuple[str, str, str]
    workload: str
    parameters: Mapping[str, Any]
    blockers: frozenset[str] = frozenset()
    warnings: frozenset[str] = frozenset()
    refused: str = ""
    beside: str = ""
    wrappers: Mapping[str, str] = MappingProxyType({})


CASES = {
    "files": Case(EXT4, "file_io", FILES),
    "files-in-memory": Case(EXT4, "file_io", {**FILES, "cache": "warm"}),
    "tree": Case(EXT4, "kernel_tree", {}),
    "grep": Case(EXT4, "kernel_grep", {"copies": 2}),
    "grep-in-memory": Case(EXT4, "kernel_grep", {"cache": "warm"}),
    "direct": Case(EXT4, "access_patterns", PATTERNS),
    "packages": Case(EXT4, "package_upgrade", {"packages": 10, "total_mib": 20}),
    "rest": Case(EXT4, "idle", {"seconds": 1}),
    "mapped-by-another": Case(EXT4, "file_io", FILES, READ_LESS, beside=INDEXER),
    "journalled-data": Case(JOURNAL, "access_patterns", PATTERNS, refused="direct I/O"),
    "compressed-zeros": Case(
        *(ZSTD, "file_io", {**FILES, "source": "zero"}), warnings=READ_LESS | WRITTEN_LESS
    ),
    "compressed-noise": Case(ZSTD, "file_io", FILES),
    "sync-that-does-not": Case(EXT4, "kernel_tree", {}, WRITTEN_LESS, wrappers=NO_SYNC),
    "script-for-dd": Case(EXT4, "file_io", FILES, refused="is a script", wrappers=SCRIPT),
}


@pytest.fixture(scope="module", autouse=True)
def _unmounted(target: Target) -> Iterator[None]:
    yield
    target.lab.ssh(f"umount {MOUNT}", check=False)


@pytest.mark.parametrize("name", CASES)
def test_a_run_whose_traffic_differs_from_its_counts_is_void(name: str, target: Target) -> None:
    case = CASES[name]
    make, kind, options = case.filesystem
    node = "$(readlink -f /dev/disk/by-partlabel/fde-testbed)"
    target.lab.ssh(f"umount {MOUNT}; rm -rf {CODE}/front", check=False)
    target.lab.ssh(f"mkdir -p {MOUNT} {CODE}/front && wipefs -qa {node} && {make} {node}")
    target.lab.ssh(f"mount -t {kind} -o {options} {node} {MOUNT} && chmod 755 {MOUNT}")
    device = target.lab.ssh(f"basename {node}").stdout.strip()
    for program, other in case.wrappers.items():
        path = f"{CODE}/front/{program}"
        source = "-" if other.startswith("#!") else other
        target.lab.ssh(f"cat {source} >{path}; chmod 755 {path}", stdin=other.encode())
    command = ["python3", "-m", "workloads.tests.contract", case.workload, "--time-only"]
    command += ["--root", f"{MOUNT}/root", "--parameters", json.dumps(dict(case.parameters))]
    command += ["--device", device, "--mount-options", options]
    command += [f"--asset={a}={ASSETS}/{a}.tar.gz" for a in ("kernel_tree", "kernel_grep")]
    if case.beside:
        unit = "systemd-run -q --unit fde-beside --collect python3 -c"
        target.lab.ssh(f"{unit} {shlex.quote(case.beside)}")
    try:
        run = f"cd {CODE} && PATH={CODE}/front:$PATH {shlex.join(command)}"
        output = target.lab.ssh(run, check=False)
    finally:
        target.lab.ssh("systemctl stop fde-beside", check=False)
    reply = json.loads(output.stdout)
    assert bool(reply["broken"]) == bool(case.refused), reply
    assert all(case.refused in reason for reason in reply["broken"])
    for severity, causes in (("blocker", case.blockers), ("warning", case.warnings)):
        rows = [row for row in reply["account"] if row[0] == severity]
        assert {cause for _, cause, _ in rows} == causes, rows
    moved = [facts for _, cause, facts in reply["account"] if cause.startswith("disk-read")]
    assert all(float(each["disk_read_bytes"]) < float(each["counted"]) for each in moved)
