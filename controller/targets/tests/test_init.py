"""The disks and meters that `fde init` chooses or refuses, and the inventory that it writes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import schema
from contract.disks import SurveyedDisk
from contract.plan import SshLink, TargetDocument
from contract.tests.programs import program
from contract.tests.refusal import refuses
from controller.targets import init, inventory, playbook
from controller.targets.answers import Survey
from controller.targets.init import Options, parse_link
from controller.targets.meter_entries import MeterOptions
from instrumentation.meters.http import PROFILES
from instrumentation.tests.simulators.http import HttpSimulator
from instrumentation.tests.test_network import on_the_network


def surveyed(serial: str, **changes: Any) -> SurveyedDisk:
    """Return a blank disk without Opal, as `agent.examine --survey` reports it."""
    document = {
        "name": "sda",
        "by_id": f"/dev/disk/by-id/ata-{serial}",
        "serial": serial,
        "size_bytes": 10**11,
        "model": "A1",
        "transport": "sata",
        "uses": [],
        "ours": False,
        "blank": True,
        "known": False,
        "contents": "blank",
        "print": "0123456789ab",
        "opal": None,
        "opal_words": "no Opal",
        **changes,
    }
    return schema.read(SurveyedDisk, document)


OPAL = {"owned": False, "locked": False, "shadowed": False, "sid_blocked": False}
PLAIN, SED = surveyed("P1"), surveyed("S1", opal=OPAL, blank=False, contents="unrecognised data")
HOST = parse_link("alice@bench:2222")
METER = "smartpower3@/dev/serial/by-path/x=0:system,1:drive"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    return tmp_path / "mine"


def answer(monkeypatch: pytest.MonkeyPatch, *disks: SurveyedDisk) -> None:
    """Have the target report these disks."""
    monkeypatch.setattr(init, "list_disks", lambda _: Survey("bench.example.org", disks))


def test_the_written_inventory_resolves_without_refusals(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = surveyed(
        "P1", model='7" {{ lookup("pipe", "touch /tmp/x") }}\n#', contents="a: b # c\r\nd"
    )
    answer(monkeypatch, odd, SED)
    meters = MeterOptions((METER,), ("meter0.interval_ms=100",))
    options = Options(HOST, meters=meters, give_up=("S1",))
    lines: list[str] = []
    init.run(build, options, None, lines.append)
    resolved = playbook.resolve(build)
    assert not resolved.refused
    (target,) = resolved.targets
    assert target.ssh == SshLink("bench", "alice", 2222, become=True)
    assert [disk.serial for disk in target.disks.values()] == ["P1", "S1"]
    assert target.disks["plain"].erase is None
    assert target.disks["sed"].erase == "S1 0123456789ab"
    assert target.meters[0].settings == {"interval_ms": 100}
    secrets = build / inventory.SECRETS_FILE
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert "sed_psid" in " ".join(lines)
    git = ["git", "-C", str(build)]
    subprocess.run([*git, "init", "-q"], check=True)
    untracked = subprocess.check_output([*git, "ls-files", "--others", "--exclude-standard"])
    assert secrets.name not in untracked.decode()


def test_an_inventory_is_replaced_only_on_request_and_secrets_never(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, PLAIN)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([]))
    init.run(build, Options(HOST), None, lambda _: None)
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    with refuses("inventory-exists"):
        init.run(build, Options(HOST), None, lambda _: None)
    assert before == {path: path.read_bytes() for path in before}
    again = Options(parse_link("other"), replace=True)
    init.run(build, again, None, lambda _: None)
    assert "other" in (build / "hosts.yml").read_text()
    secrets = build / inventory.SECRETS_FILE
    assert secrets.read_bytes() == before[secrets]
    secrets.rename(build / "secrets.json")  # where Ansible would read it
    init.run(build, again, None, lambda _: None)
    assert secrets.read_bytes() == before[secrets] and not (build / "secrets.json").exists()


@pytest.mark.parametrize(
    "disks",
    [
        (),
        (PLAIN, surveyed("P2")),
        (surveyed("P1", blank=False, contents="ext4"),),
        (surveyed("P1", uses=["sda1 is mounted"]),),
        (surveyed("P1", by_id=""),),
        (surveyed("S1", opal={**OPAL, "owned": True}, blank=False),),
    ],
)
def test_without_a_user_ambiguous_or_used_disks_are_not_chosen(
    disks: tuple[SurveyedDisk, ...], build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, *disks)
    with refuses("no-disk-chosen"):
        init.run(build, Options(HOST), None, lambda _: None)
    assert not build.exists()


def test_disks_with_equal_or_missing_serials_are_chosen_by_path(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bridges report it: the same for every disk, with blanks, or nothing."""
    odd, twin = surveyed("USB 0001"), surveyed("USB 0001", by_id="/dev/disk/by-id/usb-x")
    none = surveyed("", by_id="/dev/disk/by-id/ata-none")
    answer(monkeypatch, odd, twin, none)
    listing = f"USB 0001 ({odd.by_id}), USB 0001 ({twin.by_id}), one without ({none.by_id})"
    for serial, refusal in (
        ("USB 0001", refuses("serial-not-one", disks=2, known=listing)),
        ("", refuses("no-disk-chosen")),
        (none.by_id, refuses("disk-without-serial")),
    ):
        named = {"plain": serial} if serial else {}
        with refusal:
            init.run(build, Options(HOST, named), None, print)
    assert init.choose_disks([odd, twin, none], {"plain": twin.by_id}, None) == {"plain": twin}


def test_a_disk_in_use_is_refused_even_by_its_serial(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, surveyed("P1", uses=["sda1 is mounted"]))
    with refuses("disk-in-use"):
        init.run(build, Options(HOST, roles={"plain": "P1"}), None, lambda _: None)
    with refuses("serial-not-one", disks=0):
        init.run(build, Options(HOST, roles={"plain": "P9"}), None, lambda _: None)


def test_a_user_chooses_disks_and_types_the_psid_hidden(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, PLAIN, SED)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([]))
    answers = {"plain": "", "sed": "S1", "PSID": "abcdefgh-" * 3 + "abcdefgh"}
    hidden = []

    def ask(question: str, secret: bool) -> str:
        hidden.extend([question] * secret)
        key = "PSID" if "PSID" in question else "sed" if "(Opal)" in question else "plain"
        return answers[key]

    lines: list[str] = []
    init.run(build, Options(HOST), ask, lines.append)
    variables = yaml.safe_load((build / "group_vars" / "targets.yml").read_text())
    assert list(variables["fde_disks"]) == ["sed"] and len(hidden) == 1
    secrets = json.loads((build / inventory.SECRETS_FILE).read_text())
    assert secrets["sed_psid"] == "ABCDEFGH" * 4
    assert not any(value in line for value in secrets.values() for line in lines)


@pytest.mark.parametrize(
    ("settings", "text", "link"),
    [
        ("user bob\nport 2222", "bench", SshLink("bench", "bob", 2222, become=True)),
        ("user bob\nport 2222", "al@bench:22", SshLink("bench", "al", 22, become=True)),
        ("user root\nport 22", "[fe80::1%eth0]", SshLink("fe80::1%eth0", "root", 22)),
        ("", "bench", SshLink("bench", "root")),  # a user without a name
    ],
)
def test_ssh_configuration_decides_a_missing_user_and_port(
    settings: str, text: str, link: SshLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "ssh", f'#!/bin/sh\necho "{settings}"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert parse_link(text) == link


@pytest.mark.parametrize("text", ["", "a b", "-oProxyCommand=x", "root@", "h:port", "@h"])
def test_an_invalid_host_is_refused(text: str) -> None:
    with refuses("invalid-host"):
        parse_link(text)


@pytest.mark.parametrize(
    ("code", "meters"),
    [
        ("invalid-meter", MeterOptions(("wt310",))),
        ("invalid-setting", MeterOptions((METER,), settings=("x",))),
    ],
)
def test_an_invalid_meter_is_refused_first(code: str, meters: MeterOptions, build: Path) -> None:
    with refuses(code):
        init.run(build, Options(HOST, meters=meters), None, lambda _: None)


def test_this_machine_can_be_the_target(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TargetDocument] = []

    def list_disks(target: TargetDocument) -> Survey:
        asked.append(target)
        return Survey("bench", (PLAIN, SED))

    monkeypatch.setattr(init, "list_disks", list_disks)
    options = Options(None, meters=MeterOptions((METER,)), give_up=("S1",))
    init.run(build, options, None, lambda _: None)
    assert [target.ssh for target in asked] == [None]
    resolved = playbook.resolve(build)
    (target,) = resolved.targets
    assert target.ssh is None and not resolved.refused


@pytest.mark.parametrize(
    ("machine", "address", "expected"),
    [
        ("bench.example.org", "10.0.0.7", "bench"),
        ("localhost.localdomain", "10.0.0.7", "10.0.0.7"),
        ("", "fe80::1", "fe80-1"),
        ("Anna's PC", "bench", "Anna-s-PC"),
        ("localhost", None, "host-localhost"),
        ("targets", None, "host-targets"),
        ("0012", None, "0012"),
        ("", None, "host"),
    ],
)
def test_a_host_is_named_after_its_machine(
    machine: str, address: str | None, expected: str, tmp_path: Path
) -> None:
    name = init.host_name(machine, SshLink(address) if address else None)
    assert name == expected
    init.write_inventory(tmp_path, Options(None), {"plain": PLAIN}, [], name)
    document = yaml.safe_load((tmp_path / "hosts.yml").read_text(encoding="utf-8"))
    assert list(document["targets"]["hosts"]) == [expected]


@pytest.mark.parametrize(
    "profile", [name for name, profile in PROFILES.items() if "{entity}" not in profile.path]
)
def test_a_plug_is_recognised_by_its_answer(
    profile: str, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, PLAIN)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([]))
    with on_the_network(HttpSimulator(profile)) as plug:
        channels = "=b:system" if profile == "shelly-em" else ""
        meters = MeterOptions((plug.address + channels,), ("meter0.id=0",))
        lines: list[str] = []
        init.run(build, Options(HOST, meters=meters), None, lines.append)
    variables = (build / "group_vars" / "targets.yml").read_text(encoding="utf-8")
    (meter,) = yaml.safe_load(variables)["fde_meters"]
    assert (meter["kind"], meter["port"]) == ("http", plug.address)
    assert meter["settings"] == {"profile": profile, "id": 0}
    assert list(meter["channels"].values()) == ["system"]
    assert any(line.startswith("meter meter0: system ") for line in lines), lines


def test_an_unknown_plug_is_refused_with_the_remedy() -> None:
    def parse(address: str) -> None:
        MeterOptions((address,)).parse()

    with on_the_network(HttpSimulator("generic")) as other, refuses("meter-not-recognised"):
        parse(other.address)
    with refuses("meter-not-recognised"):  # it has left the network
        parse(other.address)
    with (
        on_the_network(HttpSimulator("shelly-switch"), secret="admin:x") as locked,
        refuses("meter-not-recognised", reason="it wants a login"),
    ):
        parse(locked.address)
