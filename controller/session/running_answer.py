"""Compute the changes so far of a running suite after each block.

The target runs no further command for it: the controller already has the meters' streams and the
clock's readings, and the runs' records arrive with the journal. The computation is a process of the
lowest priority; if the target is this machine, nothing is computed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contract import strict_json
from contract.attempts import History
from contract.files import write, write_json, write_lines
from contract.journal import Entry
from contract.places import module_command
from contract.plan import Plan
from contract.status import RunningAnswer
from controller.session.progress import complete_blocks

FILE = "answer.json"
# One thread: a virtual lab on this machine needs the other processors.
ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class _Record:
    """The fields that make a line of the link the record of a run."""

    run_id: str
    phases: tuple[Any, ...]


class RunningAnswers:
    """A context that gathers the records of finished runs and has the changes computed from them.

    They are in `status/results` of the suite's folder, which is removed at the end.
    """

    def __init__(self, plan: Plan, suite_dir: Path) -> None:
        self._plan = plan
        self._suite_dir = suite_dir
        self._results = suite_dir / "status" / "results"
        self._run_ids = {run.run_id for run in plan.runs}
        self._entries: list[Entry] = []
        self._complete_blocks = self._computed_blocks = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunningAnswers:
        """Begin with the records that an earlier session has fetched."""
        shutil.rmtree(self._results, ignore_errors=True)
        for run_id in self._run_ids:
            with suppress(OSError):
                self.record((self._suite_dir / "runs" / run_id / "run.json").read_text("utf-8"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._results, ignore_errors=True)

    def record(self, text: str) -> None:
        """Store a run's record (run.json) if the plan contains the run."""
        with suppress(OSError, ValueError):  # a full disk ends no suite
            run_id = strict_json.parse(_Record, text).run_id
            if run_id in self._run_ids:
                folder = self._results / "runs" / run_id
                folder.mkdir(parents=True, exist_ok=True)
                write(folder / "run.json", [text.encode()], sync=False)

    def entry(self, entries: Sequence[Entry]) -> None:
        """Count the complete blocks at a switch, when the records of all finished runs are here."""
        if entries[-1].state == "switching":
            self._entries = list(entries)
            self._complete_blocks = complete_blocks(self._plan, History(entries))

    def poll(self) -> RunningAnswer | None:
        """Return a new answer, if any; begin to compute the next one if it is due."""
        answer = None
        if self._process is not None and self._process.poll() is not None:
            if self._process.returncode == 0:
                answer = strict_json.load(RunningAnswer, self._results / FILE)
            self._process = None
        if self._process is None and self._complete_blocks > self._computed_blocks:
            self._begin()
        return answer

    def _begin(self) -> None:
        self._computed_blocks = self._complete_blocks
        lines = (json.dumps(asdict(entry), ensure_ascii=False) for entry in self._entries)
        argv = ["nice", "-n", "19", *module_command("controller.session.running_answer")]
        with suppress(OSError):  # a full disk ends no suite
            self._results.mkdir(parents=True, exist_ok=True)
            write_lines(self._results / "journal.jsonl", lines, sync=False)
            self._process = subprocess.Popen(
                [*argv, str(self._suite_dir.resolve()), str(self._computed_blocks)],
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the session
            )


def compute(suite_dir: Path, blocks: int) -> RunningAnswer:
    """Compute the changes over the blocks whose records are stored. Raises AgentError, OSError."""
    from analysis.stats.results import results_of  # a second: only when used
    from analysis.suite.suite_folder import read

    results = results_of(read(suite_dir, raw=True, results=suite_dir / "status" / "results"))
    suite = results.suite
    ratios = {
        suite.label(contrast.other): contrast.comparison.ratio
        for contrast in results.contrasts
        if contrast.comparison and contrast.base == suite.base_of(contrast.other)
    }
    return RunningAnswer(blocks, results.origin, ratios)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    answer = compute(folder, int(sys.argv[2]))
    write_json(folder / "status" / "results" / FILE, asdict(answer), sync=False)
