"""Keeps the argv and environment of every process: those there at the start, and all started.

`record.py` listens to the kernel (root); `record.py --poll` looks through /proc again and again.
A line on standard input is answered by one of JSON with all that was seen; the end of standard
input ends it.
"""

from __future__ import annotations

import json
import selectors
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from execs import Execs, words

POLL_S = 0.01


class Record:
    """What was seen; `missed` of the `started` had ended before they were looked at."""

    def __init__(self) -> None:
        self.seen: dict[str, set[bytes]] = {"argv": set(), "environ": set()}
        self.started = 0
        self.missed = 0
        self._last: dict[int, bytes] = {}

    def look(self, pid: int) -> bool:
        """Keep what a process was called with, unless that is known; false if it is gone."""
        argv = words(pid, "cmdline")
        if argv is None or self._last.get(pid) == argv:
            return argv is not None
        environ = words(pid, "environ")
        self._last[pid] = argv
        self.seen["argv"].add(argv)
        self.seen["environ"].add(environ or b"")
        return environ is not None

    def look_at_all(self) -> None:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                self.look(int(entry.name))

    def look_at_started(self, pid: int) -> None:
        self._last.pop(pid, None)
        self.started += 1
        self.missed += not self.look(pid)

    def dump(self) -> str:
        # A byte is a character, so that nothing is lost to an encoding.
        arguments = {
            name: sorted(w.decode("latin-1") for w in commands)
            for name, commands in self.seen.items()
        }
        return json.dumps({**arguments, "started": self.started, "missed": self.missed})


def main(poll: bool) -> None:
    record = Record()
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    execs = None if poll else Execs()
    if execs is not None:
        selector.register(execs.socket, selectors.EVENT_READ)
    record.look_at_all()
    while True:
        ready = [key.fileobj for key, _ in selector.select(0 if poll else None)]
        if execs is not None and execs.socket in ready:
            pid = execs.next()
            if pid is not None:
                record.look_at_started(pid)
        if execs is None:
            record.look_at_all()
            time.sleep(POLL_S)
        if sys.stdin in ready:
            if not sys.stdin.readline():
                return
            print(record.dump(), flush=True)


if __name__ == "__main__":
    main("--poll" in sys.argv[1:])
