"""The answer so far of a suite that runs, computed after each block beside the session.

The target runs no further command for it: the controller has the meters' streams and the clock's
readings already, and the runs' records come with the journal. The computation is a process of the
lowest priority; where the target is this machine, there is none.
"""

from __future__ import annotations

import json
import logging
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
from contract.errors import AgentError
from contract.files import write, write_json, write_lines
from contract.journal import LOOK, TERMINAL, Entry
from contract.names import sentence
from contract.places import module_command
from contract.plan import Plan
from contract.status import RunningAnswer
from controller.session.progress import complete_blocks

log = logging.getLogger(__name__)

FILE = "answer.json"
LAST_LIMIT_S = 15.0
# One thread: the virtual lab, where it runs on this machine, needs the other processors.
ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class _Record:
    """What a line of the link must have to be the record of a run."""

    run_id: str
    phases: tuple[Any, ...]


class RunningAnswers:
    """A context that gathers the records of finished runs and has the answer computed from them.

    It keeps them in `status/results` of the suite's folder, which it removes in the end.
    """

    def __init__(self, plan: Plan, suite_dir: Path, *, at_looks: bool = False) -> None:
        """Prepare; with `at_looks` it computes only while the agent waits for it."""
        self._begins = (LOOK if at_looks else "switching", *TERMINAL)
        self._plan = plan
        self._suite_dir = suite_dir
        self._results = suite_dir / "status" / "results"
        self._run_ids = [run.run_id for run in plan.runs]
        self._entries: list[Entry] = []
        self._wanted = self._begun = 0  # blocks
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunningAnswers:
        """Begin with the records that an earlier session has fetched."""
        shutil.rmtree(self._results, ignore_errors=True)
        for run_id in self._run_ids:
            with suppress(OSError):
                self.record((self._suite_dir / "runs" / run_id / "run.json").read_text("utf-8"))
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._results, ignore_errors=True)

    def record(self, text: str) -> None:
        """Keep a run's record (run.json), if it is one of the plan's."""
        with suppress(OSError, ValueError):  # a full disk ends no suite
            run_id = strict_json.parse(_Record, text).run_id
            if run_id in self._run_ids:
                folder = self._results / "runs" / run_id
                folder.mkdir(parents=True, exist_ok=True)
                write(folder / "run.json", [text.encode()], sync=False)

    def entry(self, entries: Sequence[Entry]) -> None:
        """Take note of a new line of the journal.

        When it switches the configuration or waits for an answer, the records of all finished runs
        have come.
        """
        if not {entries[-1].state, entries[-1].cause}.isdisjoint(self._begins):
            self._entries = list(entries)
            self._wanted = complete_blocks(self._plan, History(entries))

    @property
    def busy(self) -> bool:
        """Whether an answer is computed or due."""
        return self._process is not None or self._wanted > self._begun

    def poll(self) -> RunningAnswer | None:
        """Return a new answer, if there is one; begin to compute the next one where it is due."""
        answer = None
        if self._process is not None and self._process.poll() is not None:
            if self._process.returncode == 0:
                answer = strict_json.load(RunningAnswer, self._results / FILE)
            else:
                log.debug("no answer after block %d: %d", self._begun, self._process.returncode)
            self._process = None
        if self._process is None and self._wanted > self._begun:
            self._begin()
        return answer

    def last(self) -> RunningAnswer | None:
        """Wait for the answer after the last block; None where `poll` had it, or it is late."""
        if self._begun < self._wanted:
            self._end()
            self._begin()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=LAST_LIMIT_S)
        return self.poll()

    def _begin(self) -> None:
        self._begun = self._wanted
        niceness = 19 if self._entries[-1].state == "switching" else 0
        lines = (json.dumps(asdict(entry), ensure_ascii=False) for entry in self._entries)
        argv = ["nice", "-n", str(niceness), *module_command("controller.session.running_answer")]
        with suppress(OSError):  # a full disk ends no suite
            self._results.mkdir(parents=True, exist_ok=True)
            write_lines(self._results / "journal.jsonl", lines, sync=False)
            self._process = subprocess.Popen(
                [*argv, str(self._suite_dir.resolve()), str(self._begun)],
                env={**os.environ, **ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the session
            )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main(suite_dir: Path, blocks: int) -> int:
    """Write the answer after so many blocks beside the records; 1 where that failed."""
    from analysis.stats.running import running_answer  # a second: only when used
    from analysis.suite.suite_folder import read

    results = suite_dir / "status" / "results"
    try:
        answer = running_answer(read(suite_dir, raw=True, results=results), blocks)
        write_json(results / FILE, asdict(answer), sync=False)
    except (AgentError, OSError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
