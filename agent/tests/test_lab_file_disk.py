"""Disks that are files: created, proven and removed in the lab's guest, and what goes wrong there.

The guest's /var/tmp lies on its own ext4. Nothing of a file disk may stay behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.tests.guest import AES, CODE, FOLDER, PLAIN, Target
from contract.plan import DATA_OFFSET_BYTES, file_by_id, file_serial

pytestmark = pytest.mark.lab

MIB = 2**20
EXTENT_BYTES = 96 * MIB
SIZE_BYTES = EXTENT_BYTES + DATA_OFFSET_BYTES + 2 * MIB
FILE = "/var/tmp/fde.disk"
DMCRYPT = {**PLAIN, "name": "dmcrypt-aes256", "kind": "dmcrypt", **AES}
STATE = (
    "losetup -a; dmsetup ls; ls -A /var/tmp /run/fde-testbed/disks 2>/dev/null; mount | grep fde"
)


class FileTarget(Target):
    """A target whose only disk is a file in its own file system."""

    def on(self, file: str = FILE, size_bytes: int = SIZE_BYTES) -> None:
        """Describe the target with its disk at this path."""
        disk = {"by_id": file_by_id(file), "serial": file_serial(file), "file": file}
        self.disks = {"plain": {**disk, "size_bytes": size_bytes}}
        self.put("target.json", self.description())

    def state(self) -> str:
        """Return what may be left behind: loops, mappings, files, mounts."""
        printed: str = self.lab.ssh(STATE, check=False).stdout
        return printed

    def disks_checked(self) -> list[dict[str, Any]]:
        """Return what `agent check` prints of the disks, which needs no secrets."""
        command = f"cd / && PYTHONPATH={CODE}:{CODE}/lib python3 -m agent check"
        printed = self.lab.ssh(f"{command} --target {FOLDER}/target.json").stdout
        disks: list[dict[str, Any]] = json.loads(printed)["disks"]
        return disks

    def code(self, arguments: str) -> str:
        """Return the code of the first refusal of an agent's command."""
        script = f"""
import sys
from contract.errors import AgentError
from agent import cli
sys.argv = ["agent", *{arguments.split()!r},
            "--target", "{FOLDER}/target.json", "--secrets", "{FOLDER}/secrets.json"]
try:
    options = cli._parser().parse_args()
    options.command(options)
    print("done")
except AgentError as error:
    print(error.problems[0].code)
"""
        return self.python(script).splitlines()[-1]


@pytest.fixture(scope="module")
def module_target(lab: Any) -> FileTarget:
    return FileTarget(lab, [PLAIN, DMCRYPT], EXTENT_BYTES)


@pytest.fixture
def target(module_target: FileTarget) -> Iterator[FileTarget]:
    module_target.on()
    before = module_target.state()
    yield module_target
    module_target.on()
    module_target.agent("teardown")
    assert module_target.state() == before


def test_a_file_is_made_proven_and_removed(target: FileTarget) -> None:
    actions = target.output_lines("prepare")[0]["actions"]
    assert actions[0]["code"] == "create"
    assert target.output_lines("prepare")[0]["changed"] is False
    blocks = target.lab.ssh(f"stat -c '%b %B %a %u' {FILE}").stdout.split()
    assert int(blocks[0]) * int(blocks[1]) >= SIZE_BYTES  # not sparse
    assert blocks[2:] == ["600", "0"]
    proofs = [line["proof"] for line in target.output_lines("storage prove")]
    assert [(p["ok"], p["plaintext_probe"]["on_medium"]) for p in proofs] == [
        (True, True),
        (True, False),
    ]
    # What discards would have freed is still allocated.
    after = target.lab.ssh(f"stat -c '%b %B' {FILE}").stdout.split()
    assert int(after[0]) * int(after[1]) >= SIZE_BYTES
    assert [a["code"] for a in target.output_lines("teardown")[0]["actions"]] == ["remove"]
    assert target.output_lines("teardown")[0]["changed"] is False


def test_a_check_of_a_file_that_does_not_exist_changes_nothing(target: FileTarget) -> None:
    before = target.state()
    (disk,) = target.disks_checked()
    assert (disk["refusals"], disk["would"]) == ([], [f"create and attach {FILE}"])
    assert target.output_lines("prepare --check")[0]["actions"][0]["code"] == "create"
    assert target.state() == before


@pytest.mark.parametrize(
    "make",
    [
        f"echo mine > {FILE}",
        f"truncate -s {SIZE_BYTES} {FILE}",
        f"ln -s /etc/hostname {FILE}",
        f"mkdir {FILE}",
    ],
    ids=["text", "blank", "link", "folder"],
)
def test_somebody_elses_file_is_refused_and_stays(target: FileTarget, make: str) -> None:
    target.lab.ssh(make)
    before = target.lab.ssh(f"stat -c '%n %s %Y' {FILE}").stdout
    try:
        for command in ("prepare", "storage attach"):
            assert target.code(command) == "foreign"
        assert target.code("teardown") == "done"
        (disk,) = target.disks_checked()
        assert disk["refusals"][0]["code"] == "foreign"
        assert target.lab.ssh(f"stat -c '%n %s %Y' {FILE}").stdout == before
    finally:
        target.lab.ssh(f"rm -rf {FILE}")


def test_a_copy_for_another_path_is_refused(target: FileTarget) -> None:
    target.agent("prepare")
    target.lab.ssh(f"cp {FILE} /var/tmp/copy.disk")
    try:
        target.on("/var/tmp/copy.disk")
        assert target.code("prepare") == "foreign"
    finally:
        target.lab.ssh("rm /var/tmp/copy.disk")


@pytest.mark.parametrize("replacement", ["", f"; echo mine > {FILE}"], ids=["deleted", "replaced"])
def test_a_file_that_was_deleted_is_refused_and_its_loop_removed(
    target: FileTarget, replacement: str
) -> None:
    target.agent("prepare")
    target.lab.ssh(f"rm {FILE}{replacement}")
    try:
        refused = "foreign" if replacement else "missing"
        assert target.code("storage prove") == refused
        assert target.code("teardown") == "done"
        assert target.lab.ssh(f"cat {FILE}", check=False).stdout == (
            "mine\n" if replacement else ""
        )
        assert target.lab.ssh("losetup -a").stdout == ""
    finally:
        target.lab.ssh(f"rm -f {FILE}")


def test_after_a_restart_the_file_is_attached_again(target: FileTarget) -> None:
    target.agent("prepare")
    target.lab.ssh("losetup -D; rm -r /run/fde-testbed/disks")  # as a restart leaves it
    target.agent("storage attach")
    assert target.output_lines("storage prove")[0]["proof"]["ok"]


def test_a_file_without_a_loop_is_removed(target: FileTarget) -> None:
    target.agent("prepare")
    target.lab.ssh("losetup -D; rm -r /run/fde-testbed/disks")
    assert [a["code"] for a in target.output_lines("teardown")[0]["actions"]] == ["remove"]


def test_a_second_loop_on_the_file_is_refused(target: FileTarget) -> None:
    target.agent("prepare")
    target.lab.ssh(f"losetup /dev/loop6 {FILE}")
    try:
        assert target.code("storage prove") == "attached-twice"
    finally:
        target.lab.ssh("losetup -d /dev/loop6")


def test_a_full_file_system_is_refused_and_nothing_stays(target: FileTarget) -> None:
    target.on(size_bytes=2**40)
    assert target.code("prepare") == "no-room"


@pytest.mark.parametrize(
    ("kind", "code"), [("btrfs", "done"), ("xfs", "done"), ("tmpfs", "unfit"), ("hostfs", "unfit")]
)
def test_file_systems_are_used_or_refused(target: FileTarget, kind: str, code: str) -> None:
    source = {"tmpfs": "none", "hostfs": "none"}.get(kind, "/dev/loop7")
    target.lab.ssh("truncate -s 1G /var/tmp/fs.img; mkdir -p /mnt/fs")
    if source == "/dev/loop7":
        target.lab.ssh(
            f"losetup --direct-io=on /dev/loop7 /var/tmp/fs.img; mkfs.{kind} -q {source}"
        )
    target.lab.ssh(f"mount -t {kind} {source} /mnt/fs")
    try:
        target.on("/mnt/fs/fde.disk")
        assert target.code("prepare") == code
        if code == "done":
            assert all(line["proof"]["ok"] for line in target.output_lines("storage prove"))
            if kind == "btrfs":
                assert "C" in target.lab.ssh("lsattr /mnt/fs/fde.disk").stdout.split()[0]
        target.agent("teardown")
        assert target.lab.ssh("ls -A /mnt/fs").stdout == "" or kind == "hostfs"
    finally:
        target.lab.ssh("umount /mnt/fs; rmdir /mnt/fs; losetup -D; rm -f /var/tmp/fs.img")


def test_no_free_loop_device_is_refused_and_nothing_is_attached(target: FileTarget) -> None:
    target.lab.ssh(
        "for n in 0 1 2 3 4 5 6 7; do truncate -s 1M /var/tmp/l$n; "
        "losetup /dev/loop$n /var/tmp/l$n; done; mv /dev/loop-control /dev/no-loops"
    )
    try:
        assert target.code("prepare") == "not-attached"
    finally:
        target.lab.ssh("mv /dev/no-loops /dev/loop-control; losetup -D; rm /var/tmp/l?")
