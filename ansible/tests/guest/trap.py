"""Waits until a program is called whose words match, and does something to it at once.

`trap.py PATTERN hold` stops it where it stands, `cut` also ends the SSH session that it came by,
`kill` ends it and the agent that called it, `orphan` ends the agent only and holds the program.
Says `ready` first, then one line of JSON with the processes. Needs root.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from execs import Execs, words


def called(pid: int) -> str:
    """Return the argv of a process, with blanks between the words; empty if it is gone."""
    return (words(pid) or b"").replace(b"\0", b" ").decode(errors="replace").strip()


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        if pid > 1:
            yield pid


def wait_for(pattern: str) -> int:
    """Return the process that was called so, stopped."""
    execs = Execs()
    print("ready", flush=True)
    while True:
        pid = execs.next()
        if pid is not None and pid != os.getpid() and re.search(pattern, called(pid)):
            os.kill(pid, signal.SIGSTOP)
            return pid


def main(pattern: str, action: str) -> None:
    pid = wait_for(pattern)
    above = list(ancestors(pid))
    agents = [p for p in above if re.match(r"(/usr/bin/)?python3 -m agent", called(p))]
    sessions = [p for p in above if called(p).startswith("sshd-session")]
    to_kill = {"hold": [], "cut": sessions, "kill": [*agents, pid], "orphan": agents}[action]
    for process in to_kill:
        os.kill(process, signal.SIGKILL)
    print(json.dumps({"pid": pid, "agents": agents, "called": called(pid)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
