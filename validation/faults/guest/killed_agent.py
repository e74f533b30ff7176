"""Run the agent in the guest and kill it at chosen lines of its journal.

    python3 killed_agent.py ORDERS RECORD run --suite-dir DIR …

ORDERS is a JSON list of `[state, moment]`, done in this order for each state; moment is `before`
the line is written, `half` (half of it is on the medium) or `after` (it is there as a whole).
RECORD gets a JSON line for each kill, on the medium before the kill. One run, once begun, is not
killed more than twice: more often in one boot could rightly be taken for a crash loop.
"""

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from agent import cli
from contract import journal as journals

KILLS_A_RUN = 2

ORDERS, RECORD = Path(sys.argv[1]), Path(sys.argv[2])


def _next(state: str, run_id: str) -> str:
    """Return the moment at which to die at this line; empty for none."""
    kills = (
        [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
    )
    begun = [kill["run_id"] for kill in kills if kill["state"] != "waiting"]
    if state != "waiting" and run_id and begun.count(run_id) >= KILLS_A_RUN:
        return ""
    before = {(kill["state"], kill["moment"]) for kill in kills}
    for ordered_state, moment in json.loads(ORDERS.read_text()):
        if ordered_state == state and (ordered_state, moment) not in before:
            return str(moment)
    return ""


def _die(entry: journals.Entry, moment: str) -> None:
    kill = {**asdict(entry), "moment": moment, "pid": os.getpid()}
    fd = os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, (json.dumps(kill) + "\n").encode())
    os.fsync(fd)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the agent and die at the ordered moments."""
    command = sys.argv[3:]
    path = Path(command[command.index("--suite-dir") + 1]) / "journal.jsonl"
    real_append = journals.Journal.append

    def append(self, state, run_id="", *arguments, **options):  # type: ignore[no-untyped-def]
        moment = _next(state, run_id)
        at = len(self.entries), time.monotonic_ns(), journals.boot_id()
        entry = journals.Entry(*at, state, run_id)
        if moment == "before":
            _die(entry, moment)
        if moment == "half":
            line = (json.dumps(asdict(entry), ensure_ascii=False) + "\n").encode()
            fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(fd, line[: len(line) // 2])
            os.fsync(fd)
            _die(entry, moment)
        written = real_append(self, state, run_id, *arguments, **options)
        if moment:
            _die(written, moment)
        return written

    journals.Journal.append = append  # type: ignore[method-assign]
    return cli.main(command)


sys.exit(main())
