"""A small target, plan and journal for the controller's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.preflight import Facts
from contract import schema
from contract.files import write_json
from contract.journal import FAILED, Entry
from contract.plan import Plan, TargetDocument
from contract.status import RunningAnswer
from controller.planning.suites import Suite, parse_suite

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOADS = ("idle", "file_io")


# Of status.json: two configurations after two blocks.
ANSWER = RunningAnswer(2, "modelled", {"Opal": 1.006, "AES-128": 1.41})


def target() -> dict[str, Any]:
    """Return a resolved target with three configurations on two disks."""
    stack = {"cipher": None, "key_bits": None, "sector_size": None}
    return {
        "format": "fde-target/1",
        "host": "target",
        "origin": "modelled",
        "ssh": {"host": "127.0.0.1", "port": 22, "user": "root", "key": None, "known_hosts": None},
        "disks": {
            role: {"by_id": f"/dev/disk/by-id/{role}", "serial": role, "size_bytes": 2**31}
            for role in ("plain", "sed")
        },
        "extent_bytes": 2**30,
        "filesystem": {"type": "ext4", "options": [], "mount_options": "noatime"},
        "configurations": [
            {"name": "plain", "kind": "plain", "disk": "plain", **stack},
            {"name": "opal", "kind": "opal", "disk": "sed", **stack},
            {
                "name": "dmcrypt-aes128",
                "kind": "dmcrypt",
                "disk": "plain",
                "cipher": "aes-xts-plain64",
                "key_bits": 128,
                "sector_size": 4096,
            },
        ],
        "meters": [],
        "assets": {},
        "assumptions": {"currency": "USD"},
    }


def resolved(**changes: Any) -> TargetDocument:
    """Return the target with changed keys, as it is read from its file."""
    return schema.read(TargetDocument, {**target(), **changes})


def facts(**changes: Any) -> Facts:
    """Return the facts of a machine that meets all requirements."""
    supported = {
        "uid": 0,
        "distribution": "debian",
        "version": "13",
        "name": "Debian 13",
        "kernel": "6.12",
        "machine": "x86_64",
        "python": "3.13.5",
        "systemd": True,
        "packages": [],
        "missing": [],
        "servers": [],
        "candidates": {},
        "lists": True,
        "cryptsetup": "2.7.5",
        "hw_opal": True,
        "sed_transport": "nvme",
        "sed_block_bytes": 512,
        "allow_tpm": False,
    }
    return schema.read(Facts, {**supported, **changes})


def suite(**changes: Any) -> Suite:
    """Parse a suite of two workloads and three blocks."""
    document = {
        "summary": "for tests",
        "blocks": 3,
        "workloads": [{"name": name} for name in LOADS],
        "rapl_hz": 10,
        "settle_s": 1,
        "tail_s": 1,
        "drift_check": False,
        **changes,
    }
    return parse_suite("smoke", document)


def compiled(chosen: Suite, described: Mapping[str, Any] | None = None, **options: Any) -> Plan:
    """Compile a suite on a target, by default the one above."""
    from controller.planning.compiler import compile_plan  # stand_in_agent does not wait for it

    document = schema.read(TargetDocument, target() if described is None else described)
    return compile_plan("smoke", chosen, document, **{"seed": 7, "created": NOW, **options})


def document(
    chosen: Suite, described: Mapping[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Return plan.json of a suite on a target, by default the one above."""
    return compiled(chosen, described, **options).document()


def plan(**changes: Any) -> dict[str, Any]:
    """Return plan.json of the example's suite and target."""
    return document(suite(**changes))


def journal(lines: Iterable[tuple[Any, ...]], boot_id: str = "b") -> list[Entry]:
    """Return entries from tuples of seconds, state, run id and, if unusual, a cause."""
    return [
        Entry(
            seq, int(second * 1e9), boot_id, state, run_id, *(cause or [FAILED * (state == "void")])
        )
        for seq, (second, state, run_id, *cause) in enumerate(lines)
    ]


def text_of(entries: Iterable[Entry]) -> str:
    """Return the entries as the text of journal.jsonl."""
    return "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)


def suite_folder(
    folder: Path, plan: Mapping[str, Any], entries: Iterable[Entry] | None = None
) -> Path:
    """Make a suite's folder with its plan, and a journal of `entries`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", dict(plan))
    if entries is not None:
        (folder / "journal.jsonl").write_text(text_of(entries), encoding="utf-8")
    return folder


def run_json(plan: Mapping[str, Any], run: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a minimal run.json that the analysis accepts, with `changes`."""
    return {
        "format": "fde-run/1",
        **{key: run[key] for key in ("run_id", "block", "configuration", "workload")},
        "plan_sha256": plan["sha256"],
        "boot_id": "b",
        "origin": "modelled",
        "status": "finished",
        "proof": {"ok": True},
        **changes,
    }
