"""The survey of `fde here` on this machine, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.storage import backing
from agent.storage.backing import Backing
from controller.here import measurement, source_tree, survey
from controller.here.survey import HereError, Machine
from instrumentation.sources import registry

MACHINE = Machine(
    name="bench",
    system="Debian GNU/Linux 13 (trixie)",
    kernel="6.12.1",
    origin="measured",
    sources=("powercap",),
    on_battery=False,
    folder=Path("/var/tmp"),
    storage=Backing("ext4", ("disk",)),
    free_bytes=2**36,
    aes_driver="xts-aes-aesni",
    has_aes=True,
    busy_share=0.0,
    missing_packages=(),
    can_install=True,
    left_out={},
    default_cipher=None,
)


@pytest.fixture(autouse=True)
def _outside_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "CONTAINER_FILES", ())


def codes(error: HereError) -> set[str]:
    return {problem.code for problem in error.problems}


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HereError) as refused:
        survey.survey(tmp_path / "none")
    assert codes(refused.value) == {"no-folder"}


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda patch: patch.setattr(registry, "is_present", lambda _name: False), "no-source"),
        (lambda patch: patch.setenv("container", "podman"), "container"),
        (lambda patch: patch.setattr(survey, "_kernel_has", lambda _module: False), "no-module"),
        (lambda patch: patch.setattr(backing, "unfit", lambda _folder: "nfs4"), "unfit"),
    ],
    ids=["no-source", "container", "no-module", "nfs"],
)
def test_a_machine_without_it_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], None],
    code: str,
) -> None:
    spoil(monkeypatch)
    with pytest.raises(HereError) as refused:
        survey.survey(tmp_path)
    assert code in codes(refused.value)


def test_missing_programs_are_named_if_they_cannot_be_installed() -> None:
    missing = replace(MACHINE, missing_packages=("cryptsetup-bin",))
    assert [e.code for e in survey._refusals(missing)] == []
    elsewhere = replace(missing, can_install=False, system="Fedora Linux 45")
    (refusal,) = survey._refusals(elsewhere)
    assert (refusal.code, refusal.facts["packages"]) == ("programs", "cryptsetup-bin")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"on_battery": True}, "battery"),
        ({"storage": Backing("ext4", ("dm-crypt", "disk"))}, "second layer"),
        ({"storage": Backing("btrfs", ("disk",))}, "copies on write"),
        ({"storage": Backing("ext4", ("USB disk",))}, "USB"),
        ({"busy_share": 0.5}, "50%"),
    ],
)
def test_a_circumstance_is_a_line(change: dict[str, object], words: str) -> None:
    def lines(machine: Machine) -> str:
        return "\n".join(survey.limits(machine))

    assert words not in lines(MACHINE) and words in lines(replace(MACHINE, **change))  # type: ignore[arg-type]


def test_the_drivers_of_the_kernel_are_announced_in_80_columns() -> None:
    announced = [*survey.describe(replace(MACHINE, aes_driver="xts-aes-vaes-avx512"), 10, 2**31)]
    assert any("xts-aes-vaes-avx512" in text for text in announced)
    assert max(map(len, announced)) <= 80


def test_a_battery_alone_is_too_coarse() -> None:
    refused = survey._refusals(replace(MACHINE, sources=("battery",)))
    assert [error.code for error in refused] == ["no-source"]


def test_too_little_room_is_refused() -> None:
    options = measurement.Options(10, Path("out"))
    measurement.require_room(MACHINE, options)
    with pytest.raises(HereError) as refused:
        measurement.require_room(replace(MACHINE, free_bytes=options.size_bytes), options)
    assert codes(refused.value) == {"no-room"}


def test_the_inventory_resolves_with_a_file_as_its_only_disk(tmp_path: Path) -> None:
    from controller.targets import playbook

    base = tmp_path / "here"
    with_default = replace(MACHINE, default_cipher=("serpent-xts-plain64", 256))
    inventory = measurement._write_inventory(base, with_default, measurement.Options(3, tmp_path))
    resolved = playbook.resolve(inventory)
    assert resolved.refused == {}
    (target,) = resolved.targets
    assert target.disks["plain"].file == "/var/tmp/fde-here.disk"
    assert [c.name for c in target.configurations] == [
        *("plain", "dmcrypt-aes128", "dmcrypt-aes256", "dmcrypt-default")
    ]
    assert (base / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_a_second_command_is_refused_while_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with measurement.exclusive(), pytest.raises(HereError) as refused, measurement.exclusive():
        pass
    assert refused.value.facts["pid"] == str(os.getpid())
    with measurement.exclusive():
        pass


def test_the_source_tree_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        source_tree.write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_layers_below_this_folder_end_at_a_disk(tmp_path: Path) -> None:
    described = backing.describe(tmp_path)
    assert described.filesystem
    assert not described.layers or described.layers[-1] in ("disk", "USB disk", "network", "loop")
