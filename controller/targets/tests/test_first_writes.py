"""A disk that the testbed has not had is written only by its serial number, given again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from contract.disks import DiskAnswer
from contract.places import command_line
from contract.plan import TargetDocument
from contract.problem import Problem
from contract.tests.refusal import refuses
from controller.cli.options import words
from controller.targets import first_writes, playbook
from controller.targets.playbook import Inventory
from controller.targets.survey import TargetAnswer
from controller.tests.examples import facts, resolved

DISK = DiskAnswer("plain", "", (), "/dev/sdx", "S1", 10**12, "Maker 1", found="blank")
TARGET = resolved(disks={"plain": {"by_id": "", "serial": "S1", "size_bytes": 10**12}})


def test_a_new_disk_is_described_with_the_remedy() -> None:
    (reason,) = first_writes.unconfirmed(TARGET, [DISK], [])
    for part in ("/dev/sdx Maker 1", "serial S1", "1,000,000,000,000 bytes", "holds: blank"):
        assert part in reason.sentence
    assert "fde provision --confirm S1" in reason.remedy
    assert (reason.code, reason.facts["serial"]) == ("disk-unconfirmed", "S1")
    assert first_writes.unconfirmed(TARGET, [DISK], ["S2"])


@pytest.mark.parametrize(
    ("target", "disk", "confirmed"),
    [
        (TARGET, DISK, ["S2", "S1"]),
        (TARGET, replace(DISK, ours=True), []),
        (TARGET, replace(DISK, refusals=(Problem("in-use", {}, ""),)), []),
        (replace(TARGET, lab=True), DISK, []),
    ],
    ids=["confirmed", "ours", "refused anyway", "a lab"],
)
def test_these_disks_need_no_confirmation(
    target: TargetDocument, disk: DiskAnswer, confirmed: list[str]
) -> None:
    assert first_writes.unconfirmed(target, [disk], confirmed) == []


@pytest.fixture
def new_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an inventory with one host, whose disk is a new one."""
    monkeypatch.setattr(playbook, "resolve", lambda _path: Inventory([TARGET]))
    monkeypatch.setattr(first_writes, "look", lambda _target: TargetAnswer(facts(), disks=(DISK,)))


@pytest.mark.usefixtures("new_disk")
def test_only_the_typed_serial_confirms() -> None:
    asked: list[str] = []

    def answer(text: str) -> first_writes.Ask:
        return lambda question: asked.append(question) or text  # type: ignore[func-returns-value]

    assert first_writes.run(Path("x"), [], answer("S1\n")) == ["S1"]
    assert "ALL OF THAT WILL BE LOST" in asked[0] and "serial S1" in asked[0]
    for text in ("y\n", "", "S11\n"):
        with refuses("first-serial-not-typed"):
            first_writes.run(Path("x"), [], answer(text))


@pytest.mark.parametrize("serial", ["S1", "VMware NVME_0000", "a'b", "\\xff C"])
def test_a_serial_with_blanks_is_confirmed_as_it_is_printed(serial: str) -> None:
    way = shlex.split(command_line("provision", confirm=shlex.quote(serial)))
    assert way[:3] == ["fde", "provision", "--confirm"]
    assert words([way[3], "S2 'S 3'"]) == [serial, "S2", "S 3"]


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(typer.BadParameter):
        words(["'S1"])
