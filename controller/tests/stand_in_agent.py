"""Replace the agent: `python -m controller.tests.stand_in_agent SUITE_DIR SECONDS LEASE`.

It executes the plan as the agent does, with the agent's own journal, lock, attempts and requests,
but each run sleeps for SECONDS. A run named in `broken` (a file in the suite's folder) is void.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from agent import requests
from agent.system import admission, lock
from contract import journal, plan
from contract.attempts import History
from contract.files import write_json
from contract.journal import Journal
from controller.tests.examples import run_json


def main(suite_dir: Path, seconds: float, lease: Path) -> None:
    """Write the journal up to the suite's last line."""
    suite = plan.load(suite_dir / "plan.json")
    with lock.suite(suite_dir):
        writer = Journal(suite_dir / "journal.jsonl")
        history = History(writer.entries)

        def tell(state: str, run_id: str = "", detail: str = "", cause: str = "") -> None:
            history.add(writer.append(state, run_id, detail, cause))

        def stopped(*_: object) -> None:
            tell("suite-failed", detail="stopped by a signal")
            sys.exit(1)

        signal.signal(signal.SIGTERM, stopped)
        for attempt in history.begun():
            tell("void", attempt.run_id, "the agent was killed", journal.AGENT_KILLED)
        for request in requests.pending(suite_dir, writer.entries):
            tell("void", request.run_id, request.reason, journal.REPEAT)
        tell("suite-started")
        entered = None
        while run := history.next_due(suite.runs, suite.attempts, journal.boot_id()):
            while reason := lock.reason(lease):
                tell("waiting", run.run_id, reason, "held")
                time.sleep(0.1)
            bounds = admission.load(suite_dir)
            if bounds.seconds is not None and not bounds.admit(suite, history, run):
                break
            folder = suite_dir / "runs" / run.run_id
            folder.mkdir(parents=True, exist_ok=True)
            if entered != (run.block, run.configuration):
                entered = run.block, run.configuration
                tell("switching", run.run_id, run.configuration)
            tell("running", run.run_id)
            start_ns = time.monotonic_ns()
            time.sleep(seconds)
            times = {"t_start_ns": start_ns, "t_end_ns": time.monotonic_ns()}
            broken = suite_dir / "broken"
            void = broken.exists() and run.run_id in broken.read_text(encoding="utf-8")
            outcome = {"status": "void" if void else "finished", "boot_id": journal.boot_id()}
            phases = [{"name": "rest", **times, "cpu_busy_s": 0.0}]
            document = run_json(vars(suite), vars(run), **outcome, **times, phases=phases)
            write_json(folder / "run.json", document)
            if void:
                tell("void", run.run_id, "broken", journal.FAILED)
            else:
                tell("finished", run.run_id)
        tell("suite-finished")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
