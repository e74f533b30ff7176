"""Keep the controller awake during a session, by systemd-inhibit(1)."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

SYSTEMD = Path("/run/systemd/system")
# An ordinary user may not be allowed to block the lid's switch; sleep matters more.
LOCKS = ("sleep:idle:handle-lid-switch", "sleep")
# It prints a word once the lock is held, and ends with its input: also if we are killed.
HELD = ("sh", "-c", "echo held; exec cat")


@contextmanager
def awake(
    warn: Callable[[str], None],
    program: str = "systemd-inhibit",
    by: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Iterator[None]:
    """Inhibit sleep within the context; call `warn` if this machine does not allow it.

    `by` turns the command into one of another user. Nothing happens without systemd.
    """
    holder = _hold(warn, program, by) if SYSTEMD.is_dir() else None
    try:
        yield
    finally:
        if holder is not None:
            holder.communicate()


def _hold(
    warn: Callable[[str], None], program: str, by: Callable[[Sequence[str]], Sequence[str]]
) -> subprocess.Popen[bytes] | None:
    output = ""
    for locks in LOCKS:
        who = ("--who=fde-testbed", "--why=a suite is being recorded", "--mode=block")
        try:
            holder = subprocess.Popen(
                by([program, f"--what={locks}", *who, *HELD]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the session, which ends in order
            )
        except FileNotFoundError:
            log.info("there is no systemd-inhibit: whether this machine sleeps is not looked at")
            return None
        assert holder.stdout is not None
        if holder.stdout.readline():
            return holder
        output = holder.communicate()[1].decode(errors="replace").strip()
    reason = output.splitlines()[-1] if output else "systemd-inhibit gave no reason"
    warn(
        f"this machine may fall asleep during the suite, for that cannot be held off ({reason}): "
        "switch its sleep off (systemctl mask sleep.target suspend.target)"
    )
    return None
