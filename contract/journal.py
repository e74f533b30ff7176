"""The journal: append-only JSON lines, fsynced, one state of a run a line (data/README.md).

`contract.attempts` folds its lines into attempts at runs.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from contract import schema, strict_json, system_text
from contract.errors import AgentError
from contract.files import Reserve, json_text, sync_path
from contract.schema import COUNT, Text

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Start and end of bringing a disk to a steady state; `facts` name its role as `disk`.
PRECONDITIONING, PRECONDITIONED = "preconditioning", "preconditioned"
BEGUN = frozenset({"switching", "running", "proving"})
CLOSED = frozenset({"finished", "void"})
TERMINAL = frozenset({"suite-finished", "suite-failed"})
STATES = TERMINAL | BEGUN | CLOSED | {"suite-started", "waiting", PRECONDITIONING, PRECONDITIONED}

# Causes of `void`: the attempt was cut short (`facts` have the state as `during`); its workload
# cannot run on this target; the controller requested another; the run or a check failed.
AGENT_KILLED, TARGET_DOWN = "agent-killed", "target-down"
SHUT_DOWN, STOPPED = "target-shut-down", "stopped"
INTERRUPTIONS = frozenset({AGENT_KILLED, TARGET_DOWN, SHUT_DOWN, STOPPED})
SKIPPED, REPEAT, FAILED = "skipped", "repeat", "failed"
CAUSES_OF_VOID = INTERRUPTIONS | {SKIPPED, REPEAT, FAILED}

Fact = str | int | float
_CAUSE = re.compile(r"[a-z][a-z-]{0,39}")


class JournalError(AgentError):
    """The journal has an unreadable line that is not the last."""


class AbandonedError(AgentError):
    """The journal has no closing line, and no agent runs that could write one."""


# A suite without an agent for longer than this is not merely between two starts of its agent.
PATIENCE_S = 15.0


@dataclass(frozen=True)
class Entry:
    """One line; `run_id` is empty for states of the whole suite.

    `cause` is the reason for machines: of `void` one of CAUSES_OF_VOID, of `waiting` the awaited
    check, else empty. `facts` are further data for machines, `detail` a sentence for people.
    """

    seq: COUNT
    t_mono_ns: COUNT
    boot_id: str
    state: Annotated[str, Text("|".join(sorted(STATES)), "a state of the journal")]
    run_id: str
    cause: str = ""
    detail: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)


def parse(line: str | bytes) -> Entry:
    """Return an entry from its line. Raises ValueError."""
    document = strict_json.loads(line)
    entry = schema.read(Entry, document)
    if document.keys() - vars(entry).keys() or not _is_valid_cause(entry.state, entry.cause):
        raise ValueError("it is not a journal line")
    return entry


def _is_valid_cause(state: str, cause: str) -> bool:
    if state == "void":
        return cause in CAUSES_OF_VOID
    return bool(_CAUSE.fullmatch(cause)) if state == "waiting" else not cause


def boot_id() -> str:
    """Return the id of the current boot, to which monotonic times belong."""
    return system_text.read(BOOT_ID).strip()


class Journal:
    """Writer of a journal; keeps the file open and continues its numbering.

    It reserves room on the disk, so that a full disk can still be reported.
    """

    def __init__(self, path: Path) -> None:
        self.entries, self._whole_bytes = scan(path)
        self.reserve = Reserve(path.with_name(".reserve"))
        self._boot_id = boot_id()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        # A torn last line (power cut) was never acknowledged: cut it off.
        os.ftruncate(self._fd, self._whole_bytes)
        sync_path(path.parent)

    def append(
        self,
        state: str,
        run_id: str = "",
        detail: str = "",
        cause: str = "",
        facts: Mapping[str, Fact] | None = None,
    ) -> Entry:
        """Write one state and flush it to the medium.

        Raises OSError, with the journal unchanged, if there is no room even without the reserve.
        """
        if state not in STATES or not _is_valid_cause(state, cause):
            raise ValueError(f"{state!r} by {cause!r} is not a state of the journal")
        now_ns, seq = time.monotonic_ns(), len(self.entries)
        entry = Entry(seq, now_ns, self._boot_id, state, run_id, cause, detail, facts or {})
        data = (json_text(asdict(entry)) + "\n").encode()
        try:
            self._write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.reserve.give_up()
            self._write(data)
        self.entries.append(entry)
        return entry

    def _write(self, data: bytes) -> None:
        remaining = data
        try:
            while remaining:
                remaining = remaining[os.write(self._fd, remaining) :]
            os.fsync(self._fd)
        except OSError:
            # The next line must not follow half a line.
            os.ftruncate(self._fd, self._whole_bytes)
            raise
        self._whole_bytes += len(data)

    def close(self) -> None:
        os.close(self._fd)


def scan(path: Path) -> tuple[list[Entry], int]:
    """Return the whole entries of a file and their bytes, as `scan_bytes` does."""
    return scan_bytes(path.read_bytes(), str(path)) if path.exists() else ([], 0)


def scan_bytes(data: bytes, path: str) -> tuple[list[Entry], int]:
    """Return the whole entries and their total bytes; a torn last line is left out.

    Raises JournalError if a line in the middle is unreadable: that is damage, not a power cut.
    """
    complete = data[: data.rfind(b"\n") + 1]
    lines = complete.splitlines(keepends=True)
    entries: list[Entry] = []
    whole_bytes = 0
    for number, line in enumerate(lines):
        try:
            entries.append(parse(line))
        except ValueError as error:
            if number == len(lines) - 1 and len(complete) == len(data):
                break  # blocks of the last line that never reached the medium read as zeros
            raise JournalError("journal-damaged", line=number + 1, path=path) from error
        whole_bytes += len(line)
    return entries, whole_bytes


def read(path: Path) -> list[Entry]:
    """Return all whole entries of a journal."""
    return scan(path)[0]


def readable(path: Path) -> tuple[list[Entry], int]:
    """Return the entries of a possibly damaged journal, and the number of unreadable lines."""
    entries: list[Entry] = []
    bad = 0
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entries.append(parse(line))
        except ValueError:
            bad += 1
    return entries, bad


def last_states(entries: list[Entry]) -> dict[str, str]:
    """Return the last state of every run in the journal."""
    return {entry.run_id: entry.state for entry in entries if entry.run_id}


def follow(
    path: Path,
    start: int,
    *,
    poll_s: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
    held: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Entry]:
    """Yield the entries from number `start` on, once on the medium, until the suite has ended.

    A closing line followed by others (a resumed suite) does not end it. Raises AbandonedError if no
    agent has `held` the suite for 15 s.
    """
    passed_on, size = start, -1
    held_s = looked_s = clock()
    while True:
        # Parsing on every poll would cost the machine under test more than looking at the size.
        current_size = path_size(path)
        if current_size != size:
            size = current_size
            entries = read(path)
            # A line is readable before it is on the medium; only yield lines that will stay.
            if path.exists():
                sync_path(path)
            yield from entries[passed_on:]
            passed_on = max(passed_on, len(entries))
            if len(entries) > start and entries[-1].state in TERMINAL:
                return
        now_s = clock()
        if now_s - looked_s >= PATIENCE_S / 3:
            looked_s = now_s
            held_s = now_s if held() else held_s
            if now_s - held_s >= PATIENCE_S and path_size(path) == size:
                raise AbandonedError("agent-gone", folder=path.parent)
        sleep(poll_s)


def path_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0
