"""The journal of a running suite as it grows, over a link that may drop."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence

from agent.journal import TERMINAL, Entry

RETRY_S = 5.0


def follow(
    command: Callable[[int], Sequence[str]],
    *,
    start: int = 0,
    stop: threading.Event,
    tick_s: float = 5.0,
    on_drop: Callable[[str], None],
) -> Iterator[Entry | None]:
    """Entries from number `start` on; None every `tick_s` without one. Ends with the suite.

    `command(n)` is the argv that prints entries from number n on as JSON lines and ends with code 0
    once the suite has. Where it ends otherwise, the reason goes to `on_drop` and it is started
    again.
    """
    seen = start
    while not stop.is_set():
        with subprocess.Popen(
            command(seen),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is handled here, in order
        ) as process:
            lines: queue.Queue[str | None] = queue.Queue()
            reader = threading.Thread(target=_pump, args=(process, lines), daemon=True)
            reader.start()
            try:
                terminal = False
                for line in _ticking(lines, tick_s):
                    entry = _parse(line) if line is not None else None
                    if entry is not None:
                        seen = entry.seq + 1
                        terminal = entry.state in TERMINAL
                    yield entry
                process.wait()
            finally:
                process.kill()
            reason = process.stderr.read().strip() if process.stderr else ""
        if process.returncode == 0 and terminal:
            return
        on_drop(reason.splitlines()[-1] if reason else f"code {process.returncode}")
        stop.wait(RETRY_S)


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _ticking(lines: queue.Queue[str | None], tick_s: float) -> Iterator[str | None]:
    while True:
        try:
            line = lines.get(timeout=tick_s)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def _parse(line: str) -> Entry | None:
    """An entry; None for a line that a dropped link has cut off."""
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None
