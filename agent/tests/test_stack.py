"""Storage states with real file systems on a loop device; failures must end bare."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.storage import layout, mapping, uses
from agent.storage.base import Evidence, Place, VolumeHeader
from agent.storage.facts import MARKER_NAME, MARKER_TYPE, DiskFacts, Partition
from agent.storage.guard import GuardError, refusal
from agent.storage.plain import Plain
from agent.storage.secrets import Secrets
from agent.storage.stack import STATES, Stack, StorageError
from agent.system.command import CommandError
from agent.tests.builders import SECRETS, LoopDisks, storage_spec
from agent.tests.injections import FILES, InjectedError, enter_and_leave, fail_at, lines_of
from contract.parameters import Parameter
from contract.plan import Configuration, Disk, Extent, Filesystem, StorageSpec
from contract.tests.refusal import refuses

EXTENT = Extent(2**24, 2**25)
HEADER = VolumeHeader("aes", "xts-plain64", "512")
SIZE_BYTES = layout.partition_bytes(EXTENT)


class LoopMapping:
    """The mapping's stand-in where there is no device-mapper: a loop device on the extent."""

    def __init__(self) -> None:
        self.PATH = ""
        self.stuck = False

    def devices(self) -> dict[str, str]:
        return {"loop": self.PATH} if self.PATH else {}

    def formatted(self) -> bool:
        probed = subprocess.run(["blkid", "-p", self.PATH], capture_output=True, check=False)
        return bool(probed.stdout)

    def close(self) -> None:
        if self.stuck:
            raise CommandError("The mapping cannot be closed: stop who holds it.")
        if self.mounts():  # losetup would let it go once it is unmounted
            raise CommandError("The mapping cannot be closed: it is mounted.")
        if self.PATH:
            subprocess.run(["losetup", "-d", self.PATH], check=True)
            self.PATH = ""

    def list_foreign(self, disks: Collection[str]) -> list[str]:
        del disks
        return []

    def mounts(self) -> list[Path]:
        return [Path(m.where) for m in uses.mounts() if m.source == self.PATH]

    def release(self) -> None:
        """Do nothing: nobody freezes it, and a loop device is never suspended."""

    def holders(self) -> list[str]:
        return ["somebody"]


class LoopKind(Plain):
    """Attaches the loop device and remembers in which order it was asked."""

    name = "loop"
    fields = (Parameter("cipher", "", "", "any makes it impossible"),)

    def __init__(self, mapping: LoopMapping, backing: Path) -> None:
        self.mapping = mapping
        self.backing = backing
        self.calls: list[str] = []
        self.interrupted: BaseException | None = None
        self.sticks = False  # whether the mapping cannot be closed again

    def why_not(self, configuration: Configuration) -> str | None:
        return "There is no loop: load its module." if configuration.settings["cipher"] else None

    def before_attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> Evidence:
        del place, configuration, secrets
        assert not self.mapping.devices()
        self.calls.append("before")
        return Evidence("locked")

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del configuration, secrets
        self.calls.append("attach")
        disks = LoopDisks(self.backing.parent)
        self.mapping.PATH = str(disks.attach(self.backing, "-o", str(place.extent.offset_bytes)))
        self.mapping.stuck = self.sticks
        if self.interrupted:
            raise self.interrupted
        return Evidence(header=HEADER)


class Scene:
    """A stack on a loop device; `refuse_from` makes the guard refuse from its nth call on."""

    def __init__(self, folder: Path) -> None:
        self.backing = folder / "disk"
        self.backing.touch()
        os.truncate(self.backing, SIZE_BYTES)
        self.mapping = LoopMapping()
        self.kind = LoopKind(self.mapping, self.backing)
        self.refuse_from = 99
        self.checked = 0
        settings: dict[str, dict[str, Any]] = {"one": {}, "two": {}, "cannot": {"cipher": "none"}}
        settings["unknown"] = {"cypher": "none"}
        stacks = (Configuration(n, "loop", "plain", s) for n, s in settings.items())
        disk = Disk("plain", str(self.backing), "S", SIZE_BYTES)
        ext4 = Filesystem("ext4", ("-m", "0"), "noatime")
        self.spec = replace(storage_spec(disk, EXTENT, *stacks), filesystem=ext4)
        self.mount_point = folder / "mount"

    def stack(self, spec: StorageSpec | None = None) -> Stack:
        return Stack(
            spec or self.spec,
            SECRETS,
            hold=lambda _disk: nullcontext(),
            check=self._check,
            load_kind=lambda _name: self.kind,
            mapper=self.mapping,
            mount_point=self.mount_point,
        )

    def _check(self, disk: Disk) -> Partition:
        self.checked += 1
        if self.checked >= self.refuse_from:
            raise GuardError(refusal("absent", disk, DiskFacts()))
        start = layout.START_BYTES
        return Partition(str(self.backing), MARKER_TYPE, MARKER_NAME, start, SIZE_BYTES)


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
    assert entered.evidence == Evidence("locked", HEADER)
    assert entered.first_discard == layout.NOT_OFFERED, "it is no partition"
    assert 0 < entered.mkfs_s < entered.took_s
    (stack.mount_point / "left behind").write_text("x")
    stack.enter("two")
    assert sorted(p.name for p in stack.mount_point.iterdir()) == ["lost+found"]
    stack.leave()
    assert stack.state == "bare"
    assert stack.entered is None
    assert scene.kind.calls == ["before", "attach"] * 2


def test_no_defaults_of_the_target_reach_a_file_system(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default as nobarrier in /etc/mke2fs.conf shows in no mount's options."""
    program, record = tmp_path / "mkfs.ext4", tmp_path / "record"
    path = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")
    program.write_text(f'#!/bin/sh\necho "$MKE2FS_CONFIG" >{record}\nexec {path} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    stack = scene.stack()
    stack.enter("one")
    stack.leave()
    config = record.read_text().strip()
    assert config
    assert not Path(config).exists()


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


@pytest.mark.parametrize(
    ("program", "filesystem"),
    [
        ("mkfs.ext4", Filesystem("ext4", ("-O", "nonsense"), "")),
        ("mount", Filesystem("ext4", (), "nonsense=1")),
    ],
)
def test_a_failing_mkfs_or_mount_ends_bare(
    scene: Scene, program: str, filesystem: Filesystem
) -> None:
    stack = scene.stack(replace(scene.spec, filesystem=filesystem))
    with refuses("program-failed", program=program):
        stack.enter("one")
    assert (stack.state, stack.entered) == ("bare", None)


@pytest.mark.parametrize("leaving", [False, True])
def test_an_internal_error_at_any_line_ends_bare(scene: Scene, leaving: bool) -> None:
    """Leaving is tried again, but for the line before its first try, where the commands do it."""
    stack = scene.stack()

    def action() -> None:
        if leaving:
            stack.leave()
        else:
            enter_and_leave(stack, "one")

    if leaving:
        stack.enter("one")
    lines = lines_of(action, FILES)[leaving:]
    assert len(lines) > (15 if leaving else 60)
    open_lines = []
    for line in lines:
        if leaving:
            stack.enter("one")
        fail_at(action, line)
        if stack.state != "bare" or stack.entered or stack.mount_point.is_mount():
            open_lines.append(line)
            stack.leave()
    assert open_lines == []


def test_errors_elsewhere_do_not_prevent_leaving(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount point that is no UTF-8, and an error wherever something else is looked at."""
    stack = scene.stack()
    stack.enter("one")
    odd = os.fsencode(scene.mount_point.parent) + b"/Se\xf1as"
    os.mkdir(odd)  # noqa: PTH102 - no path of pathlib's
    subprocess.run(["mount", "-t", "tmpfs", "none", odd], check=True)
    try:
        assert os.fsdecode(odd) in [mount.where for mount in uses.mounts()]
        monkeypatch.setattr("agent.storage.devices.kernel_name", _fail)
        monkeypatch.setattr(scene.kind, "detach", _fail)
        with pytest.raises(InjectedError):
            stack.leave()
        assert stack.state == "bare" and not stack.mount_point.is_mount()
    finally:
        subprocess.run(["umount", odd], check=True)


def _fail(*_: object) -> None:
    raise InjectedError


def test_leftovers_of_a_crashed_run_are_removed(scene: Scene) -> None:
    scene.stack().enter("one")  # and forgotten, as after a crash
    stack = scene.stack()
    assert stack.state == "mounted"
    stack.enter("two")
    assert stack.state == "mounted"
    assert stack.entered is not None
    stack.leave()
    assert stack.state == "bare"


def test_a_file_system_in_use_is_hidden_and_its_user_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.storage.stack._PATIENCE_S", 0)
    stack = scene.stack()
    stack.enter("one")
    with (stack.mount_point / "open").open("w"):
        with pytest.raises(StorageError) as error:
            stack.leave()
        assert (error.value.code, error.value.facts["users"]) == ("busy", "somebody")
        assert stack.state == "bare" and not stack.mount_point.is_mount()
        stack.leave()
        stack.enter("two")
    stack.leave()
    assert stack.state == "bare"


def test_a_user_that_cannot_be_named_does_not_prevent_leaving(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.storage.stack._PATIENCE_S", 0)
    stack = scene.stack()
    stack.enter("one")
    second = scene.mount_point.with_name("second")
    second.mkdir()
    subprocess.run(["mount", "--bind", stack.mount_point, second], check=True)
    with (stack.mount_point / "open").open("w"), (second / "too").open("w"):
        monkeypatch.setattr(scene.mapping, "holders", _fail)
        monkeypatch.setattr(scene.mapping, "release", _fail)
        with pytest.raises(InjectedError):
            stack.leave()
        assert not stack.mount_point.is_mount() and not second.is_mount()
        assert stack.state == "bare"


@pytest.mark.parametrize("gone", [False, True])
def test_a_held_mapping_loses_its_key_before_its_holders_are_named(
    gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where looking fails; and cryptsetup may have removed it, and failed after that."""
    ran: list[list[str]] = []

    def run(argv: list[str], **_: object) -> None:
        ran.append([argv[0], *argv[1:2]])
        if ran[-1] in (["cryptsetup", "close"], ["dmsetup", "remove"]) or (
            gone and argv[1] == "wipe_table"
        ):
            raise CommandError("program-failed", program=argv[0], exit_code=1, reason="")

    def holders() -> list[str]:
        ran.append(["holders"])
        raise InjectedError

    names = {} if gone else {"fde-data": "dm-0"}
    monkeypatch.setattr(mapping, "run", run)
    monkeypatch.setattr(mapping, "uuid", lambda _: "CRYPT-LUKS2-OPAL-x")
    monkeypatch.setattr(mapping, "holders", holders)
    monkeypatch.setattr(mapping, "_numbers", lambda: names)
    if gone:
        mapping.remove("fde-data", "dm-0")
    else:
        with pytest.raises(InjectedError):
            mapping.remove("fde-data", "dm-0")
    steps = [words[-1] for words in ran]
    assert steps[:2] == ["close", "wipe_table"]
    assert steps[2:] == ([] if gone else ["remove", "holders", "rename", "remove"])


def test_one_mapping_that_stays_does_not_keep_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def remove(name: str, _kernel: str) -> None:
        tried.append(name)
        raise CommandError("program-failed", program="dmsetup", exit_code=1, reason="")

    monkeypatch.setattr(mapping, "devices", lambda: {"fde-data": "dm-a", "fde-data_1": "dm-b"})
    monkeypatch.setattr(mapping, "remove", remove)
    with pytest.raises(CommandError):
        mapping.close()
    assert tried == ["fde-data", "fde-data_1"]


def test_an_unavailable_configuration_changes_nothing(scene: Scene) -> None:
    stack = scene.stack()
    stack.enter("one")
    for name, code, fact in (
        ("three", "unknown", "cannot, one, two, unknown"),
        ("cannot", "unavailable", "load its module"),
        ("unknown", "settings", "cypher means nothing"),
    ):
        with refuses(code) as refused:
            stack.enter(name)
        assert fact in str(refused.value)
    assert stack.state == "mounted"


def test_the_state_is_read_from_the_kernel(scene: Scene) -> None:
    stack = scene.stack()
    states = [stack.state]
    place = Place(scene.spec.disks["plain"], str(scene.backing), 1, EXTENT)
    scene.kind.attach(place, scene.spec.configurations["one"], stack.secrets)
    states.append(stack.state)
    subprocess.run(["mkfs.ext4", "-q", scene.mapping.PATH], check=True)
    states.append(stack.state)
    scene.mount_point.mkdir()
    if subprocess.run(["mount", scene.mapping.PATH, scene.mount_point], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    states.append(stack.state)
    assert tuple(states) == STATES
    stack.leave()
    assert stack.state == "bare"


def test_an_interrupt_while_entering_ends_bare_and_is_raised(scene: Scene) -> None:
    scene.kind.interrupted = KeyboardInterrupt()
    stack = scene.stack()
    with pytest.raises(KeyboardInterrupt):
        stack.enter("one")
    assert (stack.state, stack.entered) == ("bare", None)


def test_a_failure_on_the_way_down_does_not_hide_the_first(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(scene.spec, filesystem=Filesystem("ext4", ("-O", "nonsense"), ""))
    stack = scene.stack(broken)
    scene.kind.sticks = True
    with pytest.raises(StorageError) as failed:
        stack.enter("one")
    assert failed.value.code == "not-closed"
    assert "mkfs.ext4" in str(failed.value.facts["first"])
    assert "cannot be closed" in str(failed.value.facts["second"])
    scene.mapping.stuck = False
    stack.leave()
    scene.kind.interrupted = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        stack.enter("one")
    assert "Closing the storage stack failed too" in capsys.readouterr().err
    scene.mapping.stuck = False
    stack.leave()
    assert stack.state == "bare"


def test_another_extent_than_provisioned_is_refused(scene: Scene) -> None:
    other = replace(scene.spec, extent=Extent(2**24, 2**24))
    with refuses("other-extent"):
        scene.stack(other).enter("one")
    assert scene.kind.calls == []


def test_only_our_own_names_are_taken_down() -> None:
    ours = ["fde-data", "fde-data_1", "fde-data_12", "fde-data-container"]
    others = ["fde-data2", "fde-data_", "fde-data-home", "my-fde-data", "vg-fde-data"]
    assert list(filter(mapping.is_ours, ours + others)) == ours
