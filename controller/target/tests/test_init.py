"""What `fde init` chooses, refuses and writes, from a target's account of its disks."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.errors import ControllerError
from controller.target import init, playbook
from controller.target.init import Address, Options
from instrumentation.meters.http import PROFILES
from instrumentation.simulators.http import HttpSimulator
from instrumentation.tests.test_network import on_the_network


def survey(serial: str, **changes: Any) -> dict[str, Any]:
    """A blank disk without Opal, as `agent.examine --survey` tells of it."""
    return {
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


OPAL = {"owned": False, "locked": False, "shadowed": False, "sid_blocked": False}
PLAIN, SED = survey("P1"), survey("S1", opal=OPAL, blank=False, contents="unrecognised data")
HOST = Address.of("root@bench:2222", None, None)
METER = "smartpower3@/dev/serial/by-path/x=0:system,1:drive"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    return tmp_path / "mine"


def seen(monkeypatch: pytest.MonkeyPatch, *disks: dict[str, Any]) -> None:
    monkeypatch.setattr(
        init, "ask_target", lambda *_: {"name": "bench.example.org", "disks": list(disks)}
    )


def test_what_it_writes_is_an_inventory_that_ansible_and_our_rules_accept(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = survey("P1", model='7" {{ lookup("pipe", "touch /tmp/x") }}\n#', contents="a: b # c\r\nd")
    seen(monkeypatch, odd, SED)
    options = Options(HOST, meters=(METER,), settings=("meter0.interval_ms=100",))
    options = Options(**{**vars(options), "give_up": ("S1",)})
    found = init.run(build, options, None, lambda _: None)
    assert found.roles == {"plain": "P1", "sed": "S1"}
    resolved = playbook.resolve(build)
    assert not resolved.refused
    (target,) = resolved.targets
    assert target["ssh"]["host"] == "bench" and target["ssh"]["port"] == 2222
    assert target["disks"]["plain"]["erase"] is None
    assert target["disks"]["sed"]["erase"] == "S1 0123456789ab"
    assert target["meters"][0]["settings"] == {"interval_ms": 100}
    secrets = build / "secrets.json"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert "sed_psid" in " ".join(found.open)
    assert "secrets.json" in (build / ".gitignore").read_text()


def test_an_inventory_is_not_written_over_and_its_secrets_never(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, PLAIN)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([], {}))
    init.run(build, Options(HOST), None, lambda _: None)
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    with pytest.raises(ControllerError, match="--replace"):
        init.run(build, Options(HOST), None, lambda _: None)
    assert before == {path: path.read_bytes() for path in before}
    again = Options(Address.of("other", None, None), replace=True)
    init.run(build, again, None, lambda _: None)
    assert "other" in (build / "hosts.yml").read_text()
    assert (build / "secrets.json").read_bytes() == before[build / "secrets.json"]


@pytest.mark.parametrize(
    "disks",
    [
        (),
        (PLAIN, survey("P2")),
        (survey("P1", blank=False, contents="ext4"),),
        (survey("P1", uses=["sda1 is mounted"]),),
        (survey("P1", by_id=""),),
        (survey("S1", opal={**OPAL, "owned": True}, blank=False),),
    ],
)
def test_without_anybody_to_ask_no_disk_is_chosen_that_might_be_another(
    disks: tuple[dict[str, Any], ...], build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, *disks)
    with pytest.raises(ControllerError, match="No disk was chosen"):
        init.run(build, Options(HOST), None, lambda _: None)
    assert not build.exists()


def test_disks_with_one_serial_or_none_are_told_apart_or_refused(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bridges report it: the same for every disk, with blanks, or nothing."""
    odd, twin = survey("USB 0001"), survey("USB 0001", by_id="/dev/disk/by-id/usb-x")
    none = survey("", by_id="/dev/disk/by-id/ata-none")
    seen(monkeypatch, odd, twin, none)
    for serial, words in (
        ("USB 0001", r"2 disks .* USB 0001 \(/dev/disk/by-id/usb-x\), one without"),
        ("", "No disk was chosen"),
        (none["by_id"], "no serial number"),
    ):
        named = {"plain": serial} if serial else {}
        with pytest.raises(ControllerError, match=words):
            init.run(build, Options(HOST, named), None, print)
    assert init._chosen([odd, twin, none], {"plain": twin["by_id"]}, None) == {"plain": twin}


def test_what_is_in_use_is_not_taken_even_by_its_serial(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, survey("P1", uses=["sda1 is mounted"]))
    with pytest.raises(ControllerError, match="in use"):
        init.run(build, Options(HOST, roles={"plain": "P1"}), None, lambda _: None)
    with pytest.raises(ControllerError, match="0 disks"):
        init.run(build, Options(HOST, roles={"plain": "P9"}), None, lambda _: None)


def test_who_is_asked_chooses_and_gives_the_psid_unseen(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, PLAIN, SED)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([], {}))
    answers = {"plain": "", "sed": "S1", "PSID": "abcdefgh-" * 3 + "abcdefgh"}
    hidden = []

    def ask(question: str, secret: bool) -> str:
        hidden.extend([question] * secret)
        key = "PSID" if "PSID" in question else "sed" if "(Opal)" in question else "plain"
        return answers[key]

    said: list[str] = []
    found = init.run(build, Options(HOST), ask, said.append)
    assert found.roles == {"sed": "S1"} and len(hidden) == 1
    secrets = json.loads((build / "secrets.json").read_text())
    assert secrets["sed_psid"] == "ABCDEFGH" * 4
    assert not any(value in line for value in secrets.values() for line in said)


@pytest.mark.parametrize("text", ["", "a b", "-oProxyCommand=x", "root@", "h:port", "@h"])
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(ControllerError, match="names no host"):
        Address.of(text, None, None)


@pytest.mark.parametrize(
    "options", [{"meters": ("wt310",)}, {"meters": (METER,), "settings": ("x",)}]
)
def test_a_meter_that_cannot_be_meant_is_refused_first(
    options: dict[str, Any], build: Path
) -> None:
    with pytest.raises(ControllerError, match=r"names no meter|is no setting"):
        init.run(build, Options(HOST, **options), None, lambda _: None)


def test_this_machine_is_a_target_of_its_own(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def survey_of(*of: Any) -> dict[str, Any]:
        asked.append(of)
        return {"name": "bench", "disks": [PLAIN, SED]}

    monkeypatch.setattr(init, "ask_target", survey_of)
    init.run(build, Options(None, meters=(METER,), give_up=("S1",)), None, lambda _: None)
    assert asked == [({"ssh": None}, "survey")]
    resolved = playbook.resolve(build)
    (target,) = resolved.targets
    assert target["ssh"] is None and not resolved.refused


@pytest.mark.parametrize(
    ("machine", "address", "wanted"),
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
def test_a_host_is_named_after_its_machine(machine: str, address: str | None, wanted: str) -> None:
    name = init.host_name(machine, Address(address) if address else None)
    assert name == wanted
    hosts = yaml.safe_load("".join(init._hosts(name, None)))["targets"]["hosts"]
    assert list(hosts) == [wanted]


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "home-assistant"])
def test_a_plug_is_recognised_by_what_it_answers(
    profile: str, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, PLAIN)
    monkeypatch.setattr(playbook, "resolve", lambda _: playbook.Inventory([], {}))
    with on_the_network(HttpSimulator(profile)) as plug:
        channels = "=b:system" if profile == "shelly-em" else ""
        plugs = (plug.address + channels,)
        options = Options(HOST, meters=plugs, settings=("meter0.id=0",))
        said: list[str] = []
        init.run(build, options, None, said.append)
    variables = (build / "group_vars" / "targets.yml").read_text(encoding="utf-8")
    (meter,) = yaml.safe_load(variables)["fde_meters"]
    assert (meter["kind"], meter["port"]) == ("http", plug.address)
    assert meter["settings"] == {"profile": profile, "id": 0}
    assert list(meter["channels"].values()) == ["system"]
    assert any(line.startswith("meter meter0: system ") for line in said), said


def test_what_is_no_known_plug_is_told_with_the_way_out(build: Path) -> None:
    with (
        on_the_network(HttpSimulator("generic")) as other,
        pytest.raises(ControllerError, match=r"none of the known.*http@http://"),
    ):
        init.run(build, Options(HOST, meters=(other.address,)), None, lambda _: None)
    with pytest.raises(ControllerError, match="was not recognised"):  # nobody is there any more
        init.run(build, Options(HOST, meters=(other.address,)), None, lambda _: None)
    with (
        on_the_network(HttpSimulator("shelly-switch"), secret="admin:x") as locked,
        pytest.raises(ControllerError, match="wants a login"),
    ):
        init.run(build, Options(HOST, meters=(locked.address,)), None, lambda _: None)
