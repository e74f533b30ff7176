"""Scripts that replace programs in tests, and waiting for conditions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def program(path: Path, text: str) -> Path:
    """Write an executable script; sh runs it unless it names an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def wait_until(condition: Callable[[], object]) -> None:
    """Check the condition every 50 ms, without a limit."""
    while not condition():
        time.sleep(0.05)


@contextmanager
def meanwhile(
    act: Callable[[], object], stop: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Run `act` in a thread during the block; `stop` must end it."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, or is a zombie adopted by this one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
