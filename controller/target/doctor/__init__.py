"""`fde doctor`: what stands in the way of a trustworthy suite, a line each with the way out.

`examine` looks at a target, `diagnose` judges what was seen by `table.TABLE`; nothing is installed,
no disk is written, no PIN is tried. `require_ready` is what a suite starts with.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.system import sleep
from contract.command_results import DiagnosisResult, DoctorResult, HostDiagnoses
from contract.errors import ControllerError
from controller.target import connection
from controller.target import playbook as inventories
from controller.target.doctor import noise as noises
from controller.target.doctor import probe
from controller.target.doctor.diagnosis import (
    FIRST_SUITE,
    Finding,
    Host,
    Purpose,
    Row,
    Scene,
    failed,
    not_made,
    passed,
)
from controller.target.doctor.table import TABLE
from controller.target.survey import Look, look

WIDTH = 110
MARKS = {"pass": "pass", "warn": "warn", "fail": "FAIL", "not_made": "  - "}
# A suite is started whatever these say: the agent looks at disks and assets when it needs them, and
# waits for a load to end.
_LATER = frozenset({"assets", "disks", "opal", "resolution", "load"})
AT_START = tuple(row for row in TABLE if row.code not in _LATER)
# What `fde check` says by itself.
_SAID = frozenset(
    {"secrets", "ssh", "rights", "system", "cryptsetup", "packages", "allow-tpm", *_LATER}
    - {"opal"}
)
BESIDE_CHECK = tuple(row for row in TABLE if row.code not in _SAID)

__all__ = ["TABLE", "Purpose", "Scene", "diagnose", "examine", "require_ready", "run"]


def examine(
    target: Mapping[str, Any],
    out: Path,
    *,
    answer: Look | None = None,
    disks: bool = True,
    noise_s: float = 0.0,
    purpose: Purpose = FIRST_SUITE,
) -> Scene:
    """Look at a resolved target, its meters and this machine.

    `answer` is an earlier look at the target, None for a new one. With `noise_s` rest and load of
    so many seconds each are measured.
    """
    unreached = ""
    if answer is None:
        try:
            answer = look(target, disks=disks, examine=True)
        except ControllerError as error:
            unreached = str(error)
    probes = probe.all_of(target["meters"])
    noise, why = None, ""
    if noise_s and answer is not None:
        try:
            noise = noises.measure(target, noise_s)
        except ControllerError as error:
            why = str(error)
    return Scene(target, answer, unreached, host(out), probes, noise, why, purpose)


def host(out: Path, root: Path = Path("/")) -> Host:
    """What is seen of the controller."""
    standing = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    names = set()
    for comm in (root / "proc").glob("[0-9]*/comm"):
        try:
            names.add(comm.read_text(errors="replace").strip())
        except OSError:
            continue  # it has just ended
    free = shutil.disk_usage(standing).free
    return Host(out, sleep.facts(root), free, frozenset(names), root)


def diagnose(scene: Scene, rows: Iterable[Row] = TABLE) -> list[DiagnosisResult]:
    """One or more lines of every row: what has nothing to look at is not made."""
    return [_coded(row.code, finding) for row in rows for finding in _of(row, scene)]


def _of(row: Row, scene: Scene) -> list[Finding]:
    if row.needs_target and scene.look is None:
        return [not_made("The target was not reached.")]
    return list(row.judge(scene)) or [not_made(f"Nothing to look at: {row.what}.")]


def _coded(code: str, finding: Finding) -> DiagnosisResult:
    return DiagnosisResult(code, finding.state, finding.sentence, finding.way_out, finding.facts)


def blockers(results: Iterable[DiagnosisResult]) -> list[DiagnosisResult]:
    return [one for one in results if one.state == "fail"]


def require_ready(targets: Sequence[Mapping[str, Any]], out: Path) -> None:
    """ControllerError with every reason why a suite should not be started on these targets; called
    before anything is created."""
    reasons = [
        f"{target['host']}: {one.sentence} {one.way_out}".strip()
        for target in targets
        for one in blockers(diagnose(examine(target, out, disks=False), AT_START))
    ]
    if reasons:
        raise ControllerError("Nothing was started. " + " ".join(reasons))


def run(
    path: Path, out: Path, say: Callable[[str], None], *, noise_s: float, purpose: Purpose
) -> DoctorResult:
    """The page of every host of an inventory. Raises ControllerError where the inventory cannot be
    read at all."""
    inventory = inventories.resolve(path)
    hosts = []
    for name, problems in inventory.refused.items():
        findings = [
            _coded("inventory", failed(one.sentence, one.remedy, {"cause": one.code, **one.facts}))
            for one in problems
        ]
        lines(name, findings, say)
        hosts.append(_result(name, findings))
    for target in inventory.targets:
        address = f"{target['host']} = {connection.link(target)}"
        findings = [_coded("inventory", passed("Its types and rules hold."))]
        findings += diagnose(examine(target, out, noise_s=noise_s, purpose=purpose))
        lines(address, findings, say)
        hosts.append(_result(target["host"], findings))
    return DoctorResult(all(one.ok for one in hosts), str(path), tuple(hosts))


def _result(name: str, results: Sequence[DiagnosisResult]) -> HostDiagnoses:
    return HostDiagnoses(name, not blockers(results), tuple(results))


def lines(who: str, results: Sequence[DiagnosisResult], say: Callable[[str], None]) -> None:
    """A line for each diagnosis, and the way out below it."""
    say(f"DOCTOR  {who}\n")
    for one in results:
        _wrapped(f"  {MARKS[one.state]}  {one.code:<17}", one.sentence, say)
        if one.way_out:
            _wrapped(" " * 25, f"→ {one.way_out}", say)
    count = {state: sum(one.state == state for one in results) for state in MARKS}
    say(
        f"\n{count['fail']} failed, {count['warn']} warnings, {count['pass']} passed, "
        f"{count['not_made']} not checked."
    )


def _wrapped(label: str, text: str, say: Callable[[str], None]) -> None:
    for line in textwrap.wrap(
        text, WIDTH - len(label), break_long_words=False, break_on_hyphens=False
    ) or [""]:
        say(label + line)
        label = " " * len(label)
