"""A suite with stand-ins for storage and proof, its agent in this process or in one that dies."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agent import runner
from agent.storage.proof import Proof
from agent.storage.stack import Stack
from agent.system import limits, notify
from contract import journal, plan
from contract.errors import AgentError
from contract.journal import Entry, Journal
from contract.parameters import ParameterValue
from contract.tests.test_plan import DOCUMENT
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.trees import P, Tree
from workloads.base import Context, Needs, Workload

CONFIGURATIONS = ("plain", "opal")
WORKLOADS = ("idle", "file_io")


def planned_runs(order: Iterable[tuple[int, str, str]]) -> list[dict[str, Any]]:
    """Return a plan's runs of these blocks, configurations and workloads."""
    return [
        {"run_id": f"{i:04d}-b{b:02d}-{c}-{w}", "index": i, "block": b}
        | {"configuration": c, "workload": w}
        for i, (b, c, w) in enumerate(order)
    ]


def blocks_document(blocks: int = 1) -> dict[str, Any]:
    # Back and forth, so that a block begins with the configuration that ended the one before.
    order = [
        (b, c, w) for b in range(blocks) for c in CONFIGURATIONS[:: (-1) ** b] for w in WORKLOADS
    ]
    first = DOCUMENT["configurations"][0]
    return plan.freeze(
        {
            **DOCUMENT,
            "configurations": [{**first, "name": name} for name in CONFIGURATIONS],
            "workloads": [{"name": name, "parameters": {}} for name in WORKLOADS],
            "runs": planned_runs(order),
            "settle_s": 0,
            "tail_s": 0,
            "rapl_hz": 100,
        }
    )


@dataclass
class Entered:
    configuration: plan.Configuration
    place: None = None


class StandIn:
    """A stack that only remembers; `refuse` names configurations that cannot be entered."""

    def __init__(self, spec: plan.StorageSpec, mount_point: Path) -> None:
        self.spec = spec
        self.secrets = None
        self.mount_point = mount_point
        self.entered: Entered | None = None
        self.calls: list[str] = []
        self.refuse: set[str] = set()
        self.impatient = False
        self.reads: dict[str, str | None] = {}
        self.lacks: dict[str, str] = {}

    def why_not(self, configuration: plan.Configuration) -> str | None:
        return self.lacks.get(configuration.name)

    def enter(self, name: str) -> None:
        self.leave()
        self.calls.append(name)
        if name in self.refuse:
            raise AgentError("The disk is gone: plug it in.")
        # A file system is always a fresh one.
        for entry in self.mount_point.iterdir():
            shutil.rmtree(entry)
        self.entered = Entered(self.spec.configurations[name])

    def leave(self) -> None:
        if self.impatient:
            os.kill(os.getpid(), signal.SIGTERM)
        self.calls.append("bare")
        self.entered = None

    def locked_reads(self) -> dict[str, str | None]:
        self.calls.append("read")
        return self.reads


Action = Callable[[Context], None]


class Lab:
    """A suite folder with a fake powercap tree; `acts` gives workloads something to do."""

    def __init__(self, folder: Path, blocks: int = 1) -> None:
        powercap = Tree({f"{P}:0": "package-0"}, (), ()).lay_out(folder / "powercap")
        self.energy = powercap / f"{P}:0" / "energy_uj"
        self.folder = folder / "suite"
        self.folder.mkdir()
        (folder / "disk").mkdir()
        self.document = blocks_document(blocks)
        self.plan = plan.parse(self.document)
        self.counters = PowercapSource.open(powercap, watch_s=0)
        self.stack = StandIn(self.plan.storage, folder / "disk")
        self.acts: dict[str, Action] = {}
        self.assets: tuple[str, ...] = ()
        self.reasons: dict[str, list[str]] = {}
        self.needs: dict[str, Needs] = {}
        self.proof = Proof(True, ())

    def change(self, **keys: object) -> None:
        """Give the suite other keys in its plan, which other processes read, too."""
        self.document = plan.freeze(self.document | keys)
        self.plan = plan.parse(self.document)
        (self.folder / "plan.json").write_text(json.dumps(self.document))

    def execute(self) -> int:
        writer = journal.Journal(self.folder / "journal.jsonl")
        equipment = cast(Stack, self.stack), self.counters
        try:
            suite = runner.Suite(self.plan, self.folder, writer, notify.Watchdog())
            return suite.execute(lambda _waits: nullcontext(equipment))
        finally:
            writer.close()

    def states(self) -> list[tuple[str, str]]:
        return [(entry.state, entry.run_id) for entry in entries(self)]

    def states_of(self, index: int) -> list[str]:
        return [state for state, run_id in self.states() if run_id == self.plan.runs[index].run_id]

    def finished(self) -> list[str]:
        return [run_id for state, run_id in self.states() if state == "finished"]

    def voids(self) -> list[Entry]:
        return [entry for entry in entries(self) if entry.state == "void"]

    def last(self) -> dict[str, str]:
        return journal.last_states(entries(self))

    def void_facts(self) -> list[dict[str, Any]]:
        return [dict(entry.facts) for entry in self.voids()]

    def run_folder(self, index: int) -> Path:
        return self.folder / "runs" / self.plan.runs[index].run_id

    def run_json(self, index: int) -> dict[str, Any]:
        return self.read(f"runs/{self.plan.runs[index].run_id}/run.json")

    def read(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return document

    def load(self, name: str) -> Workload:
        lab = self

        class Scripted(Workload):
            assets = lab.assets
            program = f"the act of {name}"

            def requires(
                self, parameters: Mapping[str, ParameterValue], assets: Mapping[str, Path]
            ) -> list[str]:
                return super().requires(parameters, assets) + lab.reasons.get(name, [])

            def needs(self, parameters: object, assets: object) -> Needs:  # noqa: ARG002
                return lab.needs.get(name, Needs())

            def run(self, context: Context) -> None:
                with context.phase("work") as work:
                    if act := lab.acts.get(name):
                        act(context)
                work.add(files=1)

        return Scripted()


def failing(_context: Context) -> None:
    raise ValueError("no such luck")


Deadly = Callable[[int, dict[str, Any]], str | None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(lab: Lab, deadly: Deadly) -> bool:
    """Let an agent in a process of its own work on the suite; whether it was killed.

    `deadly` is told the number and content of each line before it is written, and says when to
    die: `before`, `half` or `after`.
    """
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return True
        assert os.waitstatus_to_exitcode(status) == 0
        return False
    status = 1
    try:
        limits.adopt_orphans()
        write, count = Journal._write, iter(range(1000))

        def dying(self: Journal, data: bytes) -> None:
            when = deadly(next(count), json.loads(data))
            if when == "half":
                os.write(self._fd, data[: len(data) // 2])
            if when in ("before", "half"):
                die()
            write(self, data)
            if when == "after":
                die()

        Journal._write = dying  # type: ignore[method-assign]
        status = lab.execute()
    finally:
        os._exit(status)


def entries(lab: Lab) -> list[Entry]:
    return journal.read(lab.folder / "journal.jsonl")


def is_complete(lab: Lab) -> bool:
    """Return whether every run of the plan is sound."""
    return sound(lab) == {run.run_id for run in lab.plan.runs}


def sound(lab: Lab) -> set[str]:
    """Return runs whose last state is `finished`, each with the run.json that its line means."""
    runs = set()
    last = {entry.run_id: entry for entry in entries(lab) if entry.run_id}
    for run_id, entry in last.items():
        if entry.state != "finished":
            continue
        folder = lab.folder / "runs" / run_id
        data = (folder / "run.json").read_bytes()
        document = json.loads(data)
        assert entry.facts == {"sha256": hashlib.sha256(data).hexdigest()}
        assert (document["status"], document["run_id"]) == ("finished", run_id)
        samples = (folder / "rapl.jsonl").read_bytes()
        assert document["rapl_sha256"] == hashlib.sha256(samples).hexdigest()
        runs.add(run_id)
    return runs
