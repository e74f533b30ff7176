"""Storage states with real file systems on a loop device; failures must end bare."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.command import CommandError
from agent.errors import AgentError
from agent.plan import Configuration, Disk, Extent, Filesystem, StorageSpec
from agent.storage import layout
from agent.storage.base import Expectation, Kind, Place
from agent.storage.guard import MARKER_NAME, MARKER_TYPE, GuardError, Partition
from agent.storage.secrets import Secrets
from agent.storage.stack import Stack, StorageError

EXTENT = Extent(2**24, 2**25)
SIZE_BYTES = layout.partition_bytes(EXTENT)


class LoopMapping:
    """The mapping's stand-in where there is no device-mapper: a loop device on the extent."""

    def __init__(self) -> None:
        self.PATH = ""

    def active(self) -> str | None:
        return self.PATH or None

    def close(self) -> None:
        if self.PATH:
            subprocess.run(["losetup", "-d", self.PATH], check=True)
            self.PATH = ""

    def mounts(self) -> list[Path]:
        lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
        return [Path(fields[1]) for fields in lines if fields[0] == self.PATH]


class LoopKind(Kind):
    """Attaches the loop device and remembers in which order it was asked."""

    def __init__(self, mapping: LoopMapping, backing: Path) -> None:
        self.mapping = mapping
        self.backing = backing
        self.calls: list[str] = []

    def expectation(self) -> Expectation:
        return Expectation("loop", None, plaintext_on_medium=True)

    def before_attach(self, place: Place) -> dict[str, object]:
        assert self.mapping.active() is None
        self.calls.append("before")
        return {"seen": place.extent.offset_bytes}

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> None:
        del configuration, secrets
        self.calls.append("attach")
        offset = ["-o", str(place.extent.offset_bytes)]
        done = subprocess.run(
            ["losetup", "-f", "--show", *offset, self.backing],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no loop devices here: {done.stderr.strip()}")
        self.mapping.PATH = done.stdout.strip()


class Scene:
    """A stack on a loop device; `refuse_from` makes the guard refuse from its nth call on."""

    def __init__(self, folder: Path) -> None:
        self.backing = folder / "disk"
        with self.backing.open("wb") as file:
            file.truncate(SIZE_BYTES)
        self.mapping = LoopMapping()
        self.kind = LoopKind(self.mapping, self.backing)
        self.refuse_from = 99
        self.checked = 0
        names = ("one", "two")
        self.spec = StorageSpec(
            disks={"plain": Disk("plain", str(self.backing), "S", SIZE_BYTES)},
            extent=EXTENT,
            filesystem=Filesystem("ext4", ("-m", "0"), "noatime"),
            configurations={n: Configuration(n, "loop", "plain", None, None, None) for n in names},
        )
        self.mount_point = folder / "mount"

    def stack(self, spec: StorageSpec | None = None) -> Stack:
        return Stack(
            spec or self.spec,
            Secrets(b"passphrase", b"pin"),
            check=self._check,
            load_kind=lambda _name: self.kind,
            mapper=self.mapping,
            mount_point=self.mount_point,
        )

    def _check(self, _disk: Disk) -> Partition:
        self.checked += 1
        if self.checked >= self.refuse_from:
            raise GuardError("The disk changed hands: put it back.")
        start = layout.START_BYTES
        return Partition("/dev/x", MARKER_TYPE, MARKER_NAME, start, SIZE_BYTES)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    if os.geteuid() != 0:
        pytest.skip("loop devices and mounts need root")
    scene = Scene(tmp_path)
    yield scene
    for folder in scene.mapping.mounts():
        subprocess.run(["umount", "-l", folder], check=False)
    scene.mapping.close()


def test_entering_ends_mounted_and_freshly_formatted(scene: Scene) -> None:
    stack = scene.stack()
    entered = stack.enter("one")
    assert stack.state == "mounted"
    assert entered.evidence == {"seen": EXTENT.offset_bytes}
    (stack.mount_point / "left behind").write_text("x")
    stack.enter("two")
    assert sorted(p.name for p in stack.mount_point.iterdir()) == ["lost+found"]
    stack.leave()
    assert stack.state == "bare"
    assert stack.entered is None
    assert scene.kind.calls == ["before", "attach"] * 2


def test_the_guard_is_asked_before_attaching_and_before_formatting(scene: Scene) -> None:
    scene.refuse_from = 1
    with pytest.raises(GuardError):
        scene.stack().enter("one")
    assert scene.kind.calls == []
    scene.checked, scene.refuse_from = 0, 2
    stack = scene.stack()
    with pytest.raises(GuardError):
        stack.enter("one")
    assert stack.state == "bare"
    blank = scene.backing.read_bytes()
    assert blank.count(0) == len(blank)  # attached, but never formatted


def test_a_failing_mkfs_ends_bare(scene: Scene) -> None:
    broken = replace(scene.spec, filesystem=Filesystem("ext4", ("-O", "nonsense"), ""))
    stack = scene.stack(broken)
    with pytest.raises(CommandError, match=r"mkfs\.ext4"):
        stack.enter("one")
    assert (stack.state, stack.entered) == ("bare", None)


def test_a_failing_mount_ends_bare(scene: Scene) -> None:
    broken = replace(scene.spec, filesystem=Filesystem("ext4", (), "nonsense=1"))
    stack = scene.stack(broken)
    with pytest.raises(CommandError, match="mount"):
        stack.enter("one")
    assert (stack.state, stack.entered) == ("bare", None)


def test_leftovers_of_a_crashed_run_are_taken_down(scene: Scene) -> None:
    scene.stack().enter("one")  # and forgotten, as after a crash
    stack = scene.stack()
    assert stack.state == "mounted"
    stack.enter("two")
    assert stack.state == "mounted"
    assert stack.entered is not None
    stack.leave()
    assert stack.state == "bare"


def test_who_keeps_the_file_system_busy_is_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.storage.stack._PATIENCE_S", 0)
    stack = scene.stack()
    stack.enter("one")
    with (stack.mount_point / "open").open("w"), pytest.raises(StorageError) as error:
        stack.leave()
    assert f"[{os.getpid()}]" in str(error.value)
    stack.leave()
    assert stack.state == "bare"


def test_an_unknown_configuration_changes_nothing(scene: Scene) -> None:
    stack = scene.stack()
    stack.enter("one")
    with pytest.raises(AgentError, match="one, two"):
        stack.enter("three")
    assert stack.state == "mounted"


def test_another_extent_than_provisioned_is_refused(scene: Scene) -> None:
    other = replace(scene.spec, extent=Extent(2**24, 2**24))
    with pytest.raises(AgentError, match="provision the target again"):
        scene.stack(other).enter("one")
    assert scene.kind.calls == []
