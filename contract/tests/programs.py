"""Programs that stand in for others, and what is waited for of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def program(path: Path, text: str) -> Path:
    """Write a script that can be run, of sh where it names no interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def wait_until(wanted: Callable[[], object]) -> None:
    """Look every 50 ms; the test's own limit ends it."""
    while not wanted():
        time.sleep(0.05)


@contextmanager
def meanwhile(
    act: Callable[[], object], stop: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Do something in a thread, which is waited for in the end; `stop` is what ends it."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie where this one adopts orphans."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
