"""Machines made of files for `fde measure`: commands or threads move their counters."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema

from contract import schema
from contract.measured_command import CommandDocument
from contract.places import SCHEMAS
from controller.measured_command.measure import run
from controller.measured_command.options import (
    Command,
    MeasureOptions,
    command_from_words,
    shell_commands,
)
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.trees import TREES, P, child

OPTIONS = MeasureOptions(runs=3, rest_s=0.0, seed=1)
# Shorter than the stretches in which a counter is judged to stand still.
RESTED = replace(OPTIONS, rest_s=0.15)
SLEEP = [command_from_words(["sleep", "0.15"])]
PSYS, PACKAGE, DRAM = (
    f"intel-rapl/{zone}/energy_uj"
    for zone in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:1/intel-rapl:1:0")
)
Opener = Callable[[], LocalSources]


@dataclass(frozen=True)
class Bench:
    """A machine of one socket whose counter files commands move; documents go to `folder`."""

    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "powercap"

    @property
    def package(self) -> Path:
        return self.tree / f"{P}:0/energy_uj"

    @property
    def dram(self) -> Path:
        return self.tree / child(P, 0, 2) / "energy_uj"

    def opener(self) -> LocalSources:
        return LocalSources.open({"powercap": lambda: PowercapSource.open(self.tree)})

    def run(self, commands: Sequence[Command], **changes: Any) -> int:
        return run(commands, replace(OPTIONS, **changes), self.opener)

    def measure(
        self, commands: Sequence[Command], using: Opener | None = None, **changes: Any
    ) -> CommandDocument:
        return measured(commands, replace(OPTIONS, **changes), using or self.opener, self.folder)


def measured(
    commands: Sequence[Command], options: MeasureOptions, opener: Opener, folder: Path
) -> CommandDocument:
    """Measure; return the document, read back through its schema and its shape."""
    path = folder / "result.json"
    assert run(commands, replace(options, export_json=path), opener) == 0
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads((SCHEMAS / "fde-measure.json").read_text()))
    return schema.read(CommandDocument, document)


def metered(
    folder: Path,
    watts: Mapping[str, float],
    commands: Sequence[Command] = SLEEP,
    tree: str = "psys first",
    **settings: Any,
) -> CommandDocument:
    """Measure while counters of a tree rise by `watts`; `settings` are sources and options."""
    root = folder / "powercap"
    if not root.exists():
        TREES[tree].lay_out(root)
    openers = {"powercap": lambda: PowercapSource.open(root)}
    openers |= {name: opener for name, opener in settings.items() if callable(opener)}
    options = {name: value for name, value in settings.items() if not callable(value)}
    with counting_w(root, watts):
        return measured(
            commands, replace(RESTED, **options), lambda: LocalSources.open(openers), folder
        )


@contextmanager
def counting_w(root: Path, watts: Mapping[str, float]) -> Iterator[None]:
    """Let counters rise by `watts` while the context is open."""
    stop, start_s = threading.Event(), time.monotonic()
    files = {file: os.open(root / file, os.O_RDWR) for file in watts}

    def count() -> None:
        while not stop.wait(0.002):
            passed_s = time.monotonic() - start_s
            for file, power_w in watts.items():
                os.pwrite(files[file], b"%d\n" % (10**9 + int(passed_s * power_w * 1e6)), 0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for descriptor in files.values():
            os.close(descriptor)


def without_joules(outcome: CommandDocument) -> dict[str, set[str]]:
    """Return the components without joules in any run, with their flags."""
    trials = [trial for command in outcome.commands for trial in command.trials]
    silent = [n for n in outcome.components if all(t.energy_j[n] is None for t in trials)]
    assert all(
        command.components[n].energy_j is None for command in outcome.commands for n in silent
    )
    return {name: {flag for trial in trials for flag in trial.flags[name]} for name in silent}


def adding(file: Path, uj: int | str, name: str = "") -> Command:
    """Build a command that takes `uj` µJ, a number or an expression of the shell."""
    line = f"n=$(cat {file}); echo $((n + {uj})) > {file}"
    return replace(shell_commands([line])[0], name=name or f"add {uj}")
