"""A plan runs only what the target's own inventory has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from agent import cli, marks, runner
from agent.checks import smart
from agent.permissions import require_own
from agent.storage import devices
from agent.system import quiet
from agent.system.notify import Watchdog
from contract import journal, plan
from contract.disks import Lifetime
from contract.journal import Journal
from contract.tests.refusal import refuses
from contract.tests.test_plan import DOCUMENT
from workloads import registry

PLAIN = {"name": "plain", "kind": "plain", "disk": "plain"}
DMCRYPT = {**PLAIN, "name": "dmcrypt", "kind": "dmcrypt", "cipher": "aes-xts-plain64"}
COMMANDS = {word: f'["/usr/local/sbin/{word}"]' for word in ("open", "close", "prove", "describe")}
PRODUCT = {**PLAIN, "name": "product", "kind": "external", "product": "Vault", **COMMANDS}
TREE = {"path": "/srv/linux.tar.xz", "sha256": "0" * 64, "sums": None}
COMMON: dict[str, Any] = {
    "assets": {"kernel_tree": TREE},
    "quiet": {"stop": ["timers"], "governor": None, "turbo": None},
}
TARGET: dict[str, Any] = {
    **{"format": "fde-target/1", "extent_bytes": DOCUMENT["extent"]["size_bytes"], **COMMON},
    **{key: DOCUMENT[key] for key in ("disks", "filesystem")},
    "configurations": [PLAIN, DMCRYPT, PRODUCT],
}
PLAN: dict[str, Any] = {
    **{**DOCUMENT, **COMMON},
    "configurations": [{**each, "label": each["name"]} for each in (PLAIN, DMCRYPT, PRODUCT)],
    "workloads": [{"name": "idle", "parameters": {"seconds": 1.0}}],
}


def frozen(**changes: Any) -> plan.Plan:
    return plan.parse(plan.freeze({**PLAN, **changes}))


def target(**changes: Any) -> plan.TargetDocument:
    return plan.parse_target({**TARGET, **changes}, Path("target.json"))


def configuration(**changes: Any) -> dict[str, Any]:
    """Return changes of the plan, in which one more configuration stands."""
    return {"configurations": [*PLAN["configurations"], {**PLAIN, **changes}]}


def filesystem(*options: str, kind: str = "ext4", mount: str = "noatime") -> dict[str, Any]:
    return {"type": kind, "options": list(options), "mount_options": mount}


def changed(entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the plan's configurations, of which this one is another."""
    others = [each for each in PLAN["configurations"] if each["name"] != entry["name"]]
    return {"configurations": [*others, {**entry, "label": entry["name"], **changes}]}


def workload(name: str, **parameters: object) -> dict[str, Any]:
    return {"workloads": [{"name": "idle", "workload": name, "parameters": parameters}]}


def test_the_plan_of_this_inventory_is_permitted() -> None:
    require_own(frozen(), target())
    owned = {"plain": {**DOCUMENT["disks"]["plain"], "erase": "S1"}}
    require_own(frozen(), target(disks=owned))  # what may be erased is not the plan's matter


@pytest.mark.parametrize(
    "changes",
    [
        configuration(**{**PRODUCT, "name": "other"}),
        changed(PRODUCT, open='["/bin/sh","-c","id"]'),
        changed(PRODUCT, device="/dev/sda"),
        changed(PLAIN, kind="dmcrypt"),
        changed(PLAIN, discard=True),
        changed(PLAIN, settings_of_nobody="x"),
        changed(PLAIN, filesystem=filesystem("-f", kind="xfs")),
        changed(DMCRYPT, sector_size=512),
        changed(DMCRYPT, disk="elsewhere")
        | {"disks": {**DOCUMENT["disks"], "elsewhere": {**DOCUMENT["disks"]["plain"]}}},
        {"disks": {"plain": {**DOCUMENT["disks"]["plain"], "serial": "S2"}}},
        {"extent": {"offset_bytes": 2**24, "size_bytes": 2**31}},
        {"filesystem": filesystem("-d", "/etc")},
        {"filesystem": filesystem("-m", "0", mount="noatime,loop")},
        {"assets": {"kernel_tree": {**TREE, "path": "/etc/shadow"}}},
        {"assets": {"clip": {**TREE}}},
        {"quiet": {"stop": ["timers", "desktop"]}},
        workload("kernel_grep", only="*.c", word=7, copies=1, cache="cold"),
        workload("file_io", small_files="1; id"),
        workload("video", picture="x11 -vf /x"),
        workload("idle", seconds=1.0, command="id"),
    ],
)
def test_a_plan_with_anything_foreign_is_refused(changes: dict[str, Any]) -> None:
    with refuses("plan-foreign"):
        require_own(frozen(**changes), target())


def test_the_inventory_and_not_the_plan_limits_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By preconditioning, by the runs alone, by what SMART has: at the start and before a run."""
    gib, sizes = 2**30, registry.complete("file_io", {})
    filled = {"passes": 10, "rounds": 25, "round_s": 60, "access": "random"}
    writes = {"workloads": [{"name": "idle", "workload": "file_io", "parameters": sizes}]}

    def limited(most: int) -> plan.TargetDocument:
        disks = {"plain": {**DOCUMENT["disks"]["plain"], "max_written_bytes": most}}
        return target(disks=disks)

    require_own(frozen(precondition=filled), limited(35 * gib))
    with refuses("writes-beyond-limit", role="plain", limit="37.6 GB"):
        require_own(frozen(precondition=filled), limited(35 * gib - 1))
    with refuses("writes-beyond-limit"):
        require_own(frozen(**writes), limited(2**20))
    writer = Journal(tmp_path / "journal.jsonl")
    execution = runner.Suite(frozen(**writes), tmp_path, writer, Watchdog())
    monkeypatch.setattr(devices, "kernel_name", lambda _by_id: "sdx")
    monkeypatch.setattr(devices, "diskseq", lambda _name: 7)
    monkeypatch.setattr(marks, "written_bytes", lambda _device: gib)
    monkeypatch.setattr(smart, "lifetime", lambda _name: Lifetime(written_bytes=80 * gib))
    execution.require_within_limits()  # without a limit no disk is asked
    execution.allowed = limited(81 * gib).disks
    execution.require_within_limits()
    execution.allowed = limited(80 * gib).disks
    with refuses("writes-beyond-limit", before="85.9 GB"):
        execution.require_within_limits()
    # Later on the kernel counts: smartctl may fail. A disk that comes back is asked again.
    monkeypatch.setattr(smart, "lifetime", lambda _name: None)
    execution.allowed = limited(81 * gib).disks
    execution.require_within_limits()
    monkeypatch.setattr(marks, "written_bytes", lambda _device: 2 * gib)
    with refuses("writes-beyond-limit", before="87.0 GB"):
        execution.require_within_limits()
    monkeypatch.setattr(devices, "diskseq", lambda _name: 8)
    with refuses("writes-unknown"):
        execution.require_within_limits()


def test_a_refused_plan_starts_nothing_and_is_journalled(tmp_path: Path) -> None:
    """By the agent's own command, as the service calls it."""
    ran = tmp_path / "ran"
    shell = json.dumps(["/bin/sh", "-c", f"id >{ran}"])
    evil = {**PRODUCT, "name": "product", **dict.fromkeys(COMMANDS, shell)}
    document = plan.freeze({**PLAN, "configurations": [{**PLAIN}, {**DMCRYPT}, evil]})
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "target.json").write_text(json.dumps(TARGET), encoding="utf-8")
    (tmp_path / "secrets.json").write_text("{}", encoding="utf-8")
    status = runner.run_suite(suite, tmp_path / "secrets.json", tmp_path / "target.json")
    last = journal.read(suite / "journal.jsonl")[-1]
    assert (status, last.state, ran.exists()) == (1, "suite-failed", False)
    assert "configuration product (there it has another open)" in last.detail
    assert not (suite / "runs").exists()


def test_only_the_targets_services_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    off = MagicMock(return_value=[])
    monkeypatch.setattr(quiet, "stop", off)
    (tmp_path / "target.json").write_text(json.dumps(TARGET), encoding="utf-8")
    words = ["quiet", "off", "--suite-dir", str(tmp_path), "--target"]
    for stop, status in ((["timers"], 0), (["timers", "desktop"], 1)):
        document = plan.freeze({**PLAN, "quiet": {"stop": stop}})
        (tmp_path / "plan.json").write_text(json.dumps(document), encoding="utf-8")
        assert cli.main([*words, str(tmp_path / "target.json")]) == status
    off.assert_called_once_with(plan.Quiet(("timers",)))
    assert "allows" in capsys.readouterr().err
