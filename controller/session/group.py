"""Run one suite on several hosts at once as a group, with a session for each host."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import combinations, product
from pathlib import Path
from typing import Any

from analysis.suite.group import FILE, is_group, members
from contract import names, schema, strict_json
from contract.documents import GroupDocument
from contract.errors import ControllerError
from contract.extensions import ExtensionError
from contract.files import write_json
from contract.interrupts import deferred_interrupts
from contract.places import command_line, module_command
from contract.plan import MeterEntry, Plan, PlanHead, TargetDocument, read_target
from contract.status import SuiteStatus
from controller.planning.plan_folders import Options, require_valid, write_folders
from controller.session.seal import MANIFEST
from controller.session.status import Hosts
from controller.targets import connection, playbook

# Fields that all plans of a group must share, else their hosts could not be compared.
SAME = {
    "origin": "what their figures are (fde_origin)",
    "filesystem": "the file system (fde_filesystem)",
    "runs": "the order of the runs",
}


def require_apart(targets: Sequence[TargetDocument]) -> None:
    """Raise ControllerError if two hosts are the same machine or would read the same meter."""
    conflicts = []
    for target, other in combinations(targets, 2):
        hosts = {"host": target.host, "other": other.host}
        address, other_address = (
            f"{connection.address(t)}{f', port {t.ssh.port}' if t.ssh else ''}"
            for t in (target, other)
        )
        if address == other_address:
            conflicts.append(ControllerError("same-machine", **hosts, address=address))
        for meter, other_meter in product(target.meters, other.meters):
            if _port_names(meter) & _port_names(other_meter):
                facts = {"meter": meter.name, "other_meter": other_meter.name, "port": meter.port}
                conflicts.append(ControllerError("same-port", **hosts, **facts))
    if conflicts:
        raise ControllerError(*conflicts)


def _port_names(meter: MeterEntry) -> set[str]:
    """Return the names of a meter's port: the inventory's, and that of its device if it exists.

    A network address has one name for each channel, with the meter's settings.
    """
    from instrumentation.meters import registry  # NumPy: not at the start of every command
    from instrumentation.ports import Lookup, PortError, is_network

    if is_network(meter.port):
        settings = json.dumps(meter.settings, sort_keys=True)
        return {f"{meter.port} {channel} {settings}" for channel in meter.channels}
    names = {meter.port}
    try:
        ids = registry.load(meter.kind).usb_ids
        names.add(os.path.realpath(Lookup(meter.port, ids).device()))
    except (PortError, ExtensionError, ValueError):
        pass  # not plugged in or misspelt: the recorder will say so
    return names


def require_alike(plans: Sequence[Plan]) -> None:
    """Raise ControllerError if the hosts would not do the same work on the same stacks."""
    first, *others = plans
    for plan in others:
        hosts = f"{first.host} and {plan.host}"
        _require_same_entries("configurations", first, plan, "--configurations …")
        _require_same_entries("workloads", first, plan, "fde_database, if it is sql")
        if first.extent != plan.extent:
            raise ControllerError("extents-differ", hosts=hosts)
        for key, description in SAME.items():
            if getattr(first, key) != getattr(plan, key):
                raise ControllerError("hosts-differ", hosts=hosts, what=description)


def _require_same_entries(kind: str, plan: Plan, other: Plan, way_out: str) -> None:
    entries, other_entries = (
        {entry["name"]: entry for entry in schema.write(getattr(p, kind))} for p in (plan, other)
    )
    common = [name for name in entries if name in other_entries]
    for having, lacking, names_there in ((plan, other, entries), (other, plan, other_entries)):
        if missing := ", ".join(name for name in names_there if name not in common):
            facts = {"kind": kind, "shared": " ".join(common) or "none", "way_out": way_out}
            hosts = {"host": having.host, "elsewhere": lacking.host}
            raise ControllerError("not-on-all-hosts", **facts, **hosts, missing=missing)
    for name in common:
        entry, other_entry = entries[name], other_entries[name]
        keys = dict.fromkeys([*entry, *other_entry])
        if unlike := ", ".join(k for k in keys if entry.get(k) != other_entry.get(k)):
            facts = {"kind": kind.removesuffix("s").capitalize(), "name": name, "unlike": unlike}
            hosts = {"host": plan.host, "elsewhere": other.host}
            raise ControllerError("not-alike", **facts, **hosts, way_out=way_out)


SESSION = tuple(module_command("controller", "run"))
LOG = ".session.log"
POLL_S = 0.5


@dataclass
class HostSession:
    """The session of one host: its process, and how much of its log has been shown."""

    host: str
    folder: Path
    process: subprocess.Popen[bytes]
    shown_bytes: int
    last: str = ""

    def new_lines(self) -> Iterator[str]:
        """Yield the complete lines that its log gained since the last call."""
        with (self.folder / LOG).open("rb") as file:
            file.seek(self.shown_bytes)
            complete, newline, _ = file.read().rpartition(b"\n")
        self.shown_bytes += len(complete + newline)
        for line in complete.decode(errors="replace").splitlines():
            self.last = line or self.last
            yield line


def several(options: Options) -> bool:
    """Fill in `options.targets` from file or inventory; return whether a group is to be run.

    Resuming a suite of one host takes that host only. Raises ControllerError if the inventory
    cannot be resolved.
    """
    require_valid(options)
    if options.target is not None:
        options.targets = [read_target(options.target)]
        return False
    if options.inventory is None:
        raise ControllerError("no-inventory")
    inventory = playbook.resolve(options.inventory)
    refused = inventory.refused.items()
    if reasons := " ".join(f"{host}: {p}" for host, problems in refused for p in problems):
        raise ControllerError("inventory-refused", path=options.inventory, reasons=reasons)
    options.targets, folder = inventory.targets, options.suite_dir
    if folder is not None and is_group(folder):
        return True
    if folder is not None and len(options.targets) > 1:
        options.targets = _targets_of_suites([folder], options)
    return len(options.targets) > 1


def targets_of(options: Options) -> Sequence[TargetDocument]:
    """Return the resolved targets of a command's options. Raises ControllerError."""
    several(options)
    return options.targets


def plan(options: Options, freeze: Callable[..., Plan]) -> Path:
    """Freeze comparable plans for all hosts, with group.json; return the group's folder.

    `freeze(options, group, created)` returns the plan of the target in `options.targets`. Nothing
    is written before all plans are complete and agree. Raises ControllerError.
    """
    require_apart(options.targets)
    created = datetime.now(UTC)
    name = f"{options.suite}-{created:%Y%m%dT%H%M%SZ}"
    seed = secrets.randbits(32) if options.seed is None else options.seed

    def freeze_all(**changes: Any) -> list[Plan]:
        plans = []
        for target in options.targets:
            changed = {"seed": seed, "targets": [target], **changes}
            try:
                plans.append(freeze(replace(options, **changed), group=name, created=created))
            except ControllerError as error:
                raise ControllerError("host-failed", host=target.host, error=error) from error
        return plans

    plans = freeze_all()
    slowest = min(plans, key=lambda plan: plan.blocks)
    if any(plan.blocks > slowest.blocks for plan in plans):  # fitted to the time
        host = names.printable(slowest.host)
        print(f"{host} is the slowest: {slowest.blocks} blocks on every host")
        plans = freeze_all(blocks=slowest.blocks)
    require_alike(plans)
    stored = write_folders(plans, options.out, created)
    folder = options.out / str(stored[0].group)
    suite_ids = tuple(plan.suite_id for plan in stored)
    hosts = tuple(plan.host for plan in stored)
    document = GroupDocument("fde-group/1", folder.name, suite_ids, hosts)
    write_json(folder / FILE, asdict(document))
    return folder


def run(options: Options) -> bool:
    """Run or resume all suites of the group in `options.suite_dir`; return whether all succeeded.

    A host that fails does not stop the others. Ctrl-C is passed to every session, which ends in
    order; KeyboardInterrupt is raised when all have ended.
    """
    folder = options.suite_dir
    assert folder is not None and options.inventory is not None
    require_apart(options.targets)
    unsealed = [path for path in members(folder) if not (path / MANIFEST).exists()]
    if not unsealed:
        raise ControllerError("group-sealed", folder=folder)
    targets = _targets_of_suites(unsealed, options)
    hosts = [target.host for target in targets]
    with deferred_interrupts() as interrupts:
        sessions = [
            _start(target, path, options) for target, path in zip(targets, unsealed, strict=True)
        ]
        print(names.printable(f"group {folder.name}: {', '.join(hosts)}"), flush=True)
        with closing(Hosts(hosts)) as view:
            _follow(sessions, view, interrupts)
        for session in sessions:
            outcome = f"sealed, {session.folder}"
            if session.process.returncode or not (session.folder / MANIFEST).exists():
                command = command_line("resume", session.folder, inventory=options.inventory)
                reason = session.last.removeprefix("fde: ") or "no output"
                outcome = "failed" if session.process.returncode else "ended"
                outcome += f": {reason}\n  continue with: {command}"
            print(names.printable(f"{session.host}: {outcome}"))
    failed = any(session.process.returncode for session in sessions)
    if not failed:
        print(names.printable(f"all hosts succeeded: {command_line('report', folder)}"))
    return not failed


def _start(target: TargetDocument, folder: Path, options: Options) -> HostSession:
    """Start a host's session; it gets its resolved target in an anonymous file.

    The session writes to a log file, not to a pipe: it continues if this process ends.
    """
    with os.fdopen(os.memfd_create("target"), "wb") as resolved, (folder / LOG).open("ab") as log:
        resolved.write(json.dumps(target.document()).encode())
        resolved.flush()
        argv = [*SESSION, str(folder), "--inventory", str(options.inventory)]
        argv += ["--target", f"/dev/fd/{resolved.fileno()}"]
        argv += [f"--until={options.until:%H:%M}"] if options.until else []
        argv += [] if options.report else ["--no-report"]
        argv += [word for serial in options.confirm for word in ("--confirm", shlex.quote(serial))]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            pass_fds=[resolved.fileno()],
        )
        return HostSession(target.host, folder, process, log.tell())


def _follow(sessions: Sequence[HostSession], view: Hosts, interrupts: Sequence[int]) -> None:
    """Show the lines of the sessions until all have ended; pass each interrupt on to them."""
    passed_on = 0
    while True:
        all_ended = all(session.process.poll() is not None for session in sessions)
        for session in sessions:
            for line in session.new_lines():
                view.line(session.host, line)
            if (code := session.process.poll()) is not None:
                view.ended(session.host, "failed" if code else "ended")
            else:
                path = session.folder / "status" / "status.json"
                view.status(session.host, strict_json.load(SuiteStatus, path))
        view.draw()
        if all_ended:
            return
        if len(interrupts) > passed_on:
            passed_on = len(interrupts)
            print("interrupted: every host's session ends in order", flush=True)
            for session in sessions:
                if session.process.poll() is None:
                    # Not SIGINT: processes that a shell started in the background ignore it.
                    session.process.terminate()
        time.sleep(POLL_S)


def _targets_of_suites(folders: Sequence[Path], options: Options) -> list[TargetDocument]:
    """Return the target of each suite by its plan's host. Raises ControllerError."""
    targets = {target.host: target for target in options.targets}
    hosts = []
    for folder in folders:
        head = strict_json.load(PlanHead, folder / "plan.json")
        if head is None:
            raise ControllerError("no-planned-suite", folder=folder)
        hosts.append(head.host)
    for host in hosts:
        if host not in targets:
            facts = {"path": options.inventory, "known": ", ".join(targets)}
            raise ControllerError("host-not-in-inventory", host=host, **facts)
    return [targets[host] for host in hosts]
