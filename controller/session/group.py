"""One suite on several hosts at once, each with its session, as one group."""

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
from controller.planning.plan_folders import Options, write_folders
from controller.session.seal import MANIFEST
from controller.session.status import Hosts
from controller.targets import connection, playbook

# What every plan of a group has alike: without these, hosts could not be laid beside each other.
SAME = {
    "origin": "what their figures are (fde_origin)",
    "filesystem": "the file system (fde_filesystem)",
    "runs": "the order of the runs",
}

Target = TargetDocument


def require_apart(targets: Sequence[Target]) -> None:
    """ControllerError where two hosts are one machine, or would read one meter."""
    broken = [each for pair in combinations(targets, 2) for each in _shared(*pair)]
    if broken:
        raise ControllerError(*broken)


def _shared(one: Target, other: Target) -> Iterator[ControllerError]:
    """Yield why two hosts may not be measured at once: one machine, or one meter."""
    hosts = {"host": one.host, "other": other.host}
    mine, its = (
        f"{connection.address(target)}{f', port {target.ssh.port}' if target.ssh else ''}"
        for target in (one, other)
    )
    if mine == its:
        yield ControllerError("same-machine", **hosts, address=mine)
    for meter, other_meter in product(one.meters, other.meters):
        if _port(meter) & _port(other_meter):
            meters = {"meter": meter.name, "other_meter": other_meter.name}
            yield ControllerError("same-port", **hosts, **meters, port=meter.port)


def _port(meter: MeterEntry) -> set[str]:
    """Return the names of a meter's port: the inventory's, and that of its device if it exists.

    At one address on a network there are as many as there are settings and channels.
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
    """ControllerError where the hosts would not do the same work on the same stacks."""
    first, *rest = plans
    for plan in rest:
        both = f"{first.host} and {plan.host}"
        _require_same_entries("configurations", first, plan, "--configurations …")
        _require_same_entries("workloads", first, plan, "fde_database, if it is sql")
        if first.extent != plan.extent:
            raise ControllerError("extents-differ", hosts=both)
        for key, what in SAME.items():
            if getattr(first, key) != getattr(plan, key):
                raise ControllerError("hosts-differ", hosts=both, what=what)


def _require_same_entries(kind: str, one: Plan, other: Plan, way_out: str) -> None:
    mine, its = (
        {entry["name"]: entry for entry in schema.write(getattr(plan, kind))}
        for plan in (one, other)
    )
    common = [name for name in mine if name in its]
    for plan, entries, elsewhere in ((one, mine, other), (other, its, one)):
        if missing := ", ".join(name for name in entries if name not in common):
            facts = {"kind": kind, "shared": " ".join(common) or "none", "way_out": way_out}
            hosts = {"host": plan.host, "elsewhere": elsewhere.host}
            raise ControllerError("not-on-all-hosts", **facts, **hosts, missing=missing)
    for name in common:
        keys = dict.fromkeys([*mine[name], *its[name]])
        if unlike := ", ".join(k for k in keys if mine[name].get(k) != its[name].get(k)):
            facts = {"kind": kind.removesuffix("s").capitalize(), "name": name, "unlike": unlike}
            hosts = {"host": one.host, "elsewhere": other.host}
            raise ControllerError("not-alike", **facts, **hosts, way_out=way_out)


def write(folder: Path, plans: Sequence[Plan]) -> None:
    """Write group.json, before the first run."""
    suite_ids = tuple(plan.suite_id for plan in plans)
    document = GroupDocument("fde-group/1", folder.name, suite_ids, tuple(p.host for p in plans))
    write_json(folder / FILE, asdict(document))


SESSION = tuple(module_command("controller", "run"))
LOG = ".session.log"
POLL_S = 0.5

Freeze = Callable[..., Plan]


@dataclass
class Session:
    """A host's own process, and how much of its log has been shown."""

    host: str
    folder: Path
    process: subprocess.Popen[bytes]
    shown_bytes: int
    last: str = ""

    def new_lines(self) -> Iterator[str]:
        """Whole lines of its log since the last call."""
        with (self.folder / LOG).open("rb") as file:
            file.seek(self.shown_bytes)
            complete, newline, _ = file.read().rpartition(b"\n")
        self.shown_bytes += len(complete + newline)
        for line in complete.decode(errors="replace").splitlines():
            self.last = line or self.last
            yield line


def several(options: Options) -> bool:
    """Read into `options.targets` the targets that are meant; whether they are several.

    A resume of one suite is for that suite's host, whatever else is in the inventory. Raises
    ControllerError where the inventory cannot be resolved.
    """
    if options.target is not None:
        options.targets = [read_target(options.target)]
        return False
    if options.inventory is None:
        raise ControllerError("no-inventory-or-target")
    inventory = playbook.resolve(options.inventory)
    refused = inventory.refused.items()
    if reasons := " ".join(f"{host}: {each}" for host, problems in refused for each in problems):
        raise ControllerError("inventory-refused", path=options.inventory, reasons=reasons)
    targets, folder = inventory.targets, options.suite_dir
    if folder is not None and is_group(folder):
        options.targets = targets
        return True
    if folder is not None and len(targets) > 1:
        targets = [_of_host(targets, _planned_host(folder), options.inventory)]
    options.targets = targets
    return len(targets) > 1


def targets_of(options: Options) -> Sequence[TargetDocument]:
    """Return the resolved target that is meant, or several. Raises ControllerError."""
    several(options)
    return options.targets


def plan(options: Options, freeze: Freeze) -> Path:
    """Freeze a plan for every host, alike in all that matters; the group's folder.

    `freeze(options, group, created)` gives the plan of the one target in `options.targets`. Nothing
    is written before all plans are made and agree. Raises ControllerError.
    """
    require_apart(options.targets)
    now = datetime.now(UTC)
    name = f"{options.suite}-{now:%Y%m%dT%H%M%SZ}"
    seed = secrets.randbits(32) if options.seed is None else options.seed

    def frozen(**changes: Any) -> list[Plan]:
        made = []
        for target in options.targets:
            changed = {"seed": seed, "targets": [target], **changes}
            try:
                made.append(freeze(replace(options, **changed), group=name, created=now))
            except ControllerError as error:
                raise ControllerError("host-failed", host=target.host, error=error) from error
        return made

    plans = frozen()
    slowest = min(plans, key=lambda each: each.blocks)
    if any(each.blocks > slowest.blocks for each in plans):  # fitted to the time
        host = names.printable(slowest.host)
        print(f"{host} is the slowest: {slowest.blocks} blocks on every host")
        plans = frozen(blocks=slowest.blocks)
    require_alike(plans)
    kept = write_folders(plans, options.out, now)
    folder = options.out / str(kept[0].group)
    write(folder, kept)
    return folder


def run(options: Options) -> bool:
    """Run or continue with every suite of the group in `options.suite_dir`; whether all succeeded.

    A host that fails does not stop the others. Ctrl-C is handed on to each session, which ends in
    order; KeyboardInterrupt is raised when all have.
    """
    folder = options.suite_dir
    assert folder is not None and options.inventory is not None
    require_apart(options.targets)
    waiting = [path for path in members(folder) if not (path / MANIFEST).exists()]
    if not waiting:
        raise ControllerError("group-sealed", folder=folder)
    named = {_planned_host(path): path for path in waiting}
    targets = [_of_host(options.targets, host, options.inventory) for host in named]
    with deferred_interrupts() as interrupts:
        sessions = [
            _start(target, path, options)
            for target, path in zip(targets, named.values(), strict=True)
        ]
        print(names.printable(f"group {folder.name}: {', '.join(named)}"), flush=True)
        with closing(Hosts(list(named))) as view:
            _follow(sessions, view, interrupts)
        os.utime(folder)  # the newest, for `fde report`
        for session in sessions:
            outcome = f"sealed, {session.folder}"
            if session.process.returncode or not (session.folder / MANIFEST).exists():
                way = command_line("resume", session.folder, inventory=options.inventory)
                reason = session.last.removeprefix("fde: ") or "no output"
                outcome = "failed" if session.process.returncode else "ended"
                outcome += f": {reason}\n  continue with: {way}"
            print(names.printable(f"{session.host}: {outcome}"))
    failed = any(session.process.returncode for session in sessions)
    if not failed:
        print(names.printable(f"all hosts succeeded: {command_line('report', folder)}"))
    return not failed


def _start(target: Target, folder: Path, options: Options) -> Session:
    """Start a host's session, whose resolved target is in a file without a name.

    The session writes to a file, not to us: it continues if this process ends.
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
        return Session(target.host, folder, process, log.tell())


def _follow(sessions: Sequence[Session], view: Hosts, interrupts: Sequence[int]) -> None:
    """Show the lines of the sessions until all have ended; each interrupt is handed on to them."""
    handed_on = 0
    while True:
        ended = [session.process.poll() is not None for session in sessions]
        for session in sessions:
            for line in session.new_lines():
                view.line(session.host, line)
            if (code := session.process.poll()) is not None:
                view.ended(session.host, "failed" if code else "ended")
            else:
                path = session.folder / "status" / "status.json"
                view.status(session.host, strict_json.load(SuiteStatus, path))
        view.draw()
        if all(ended):
            return
        if len(interrupts) > handed_on:
            handed_on = len(interrupts)
            print("interrupted: every host's session ends in order", flush=True)
            for session in sessions:
                if session.process.poll() is None:
                    # Not SIGINT: what a shell started in the background does not hear it.
                    session.process.terminate()
        time.sleep(POLL_S)


def _planned_host(folder: Path) -> str:
    head = strict_json.load(PlanHead, folder / "plan.json")
    if head is None:
        raise ControllerError("no-planned-suite", folder=folder)
    return head.host


def _of_host(targets: Sequence[Target], host: str, path: Path) -> Target:
    for target in targets:
        if target.host == host:
            return target
    known = ", ".join(target.host for target in targets)
    raise ControllerError("host-not-in-inventory", host=host, path=path, known=known)
