"""Keeps the controller from falling asleep for the time of a session, by systemd-inhibit(1)."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

SYSTEMD = Path("/run/systemd/system")
# An ordinary user may not be allowed the lid's key; sleep is what matters.
WHAT = ("sleep:idle:handle-lid-switch", "sleep")
# It says a word once the lock is held, and ends with its input: also where we are killed.
HELD = ("sh", "-c", "echo held; exec cat")


@contextmanager
def awake(
    warn: Callable[[str], None],
    program: str = "systemd-inhibit",
    by: Callable[[Sequence[str]], Sequence[str]] = list,
) -> Iterator[None]:
    """Hold sleep off while within; `warn` is called where this machine does not allow it.

    `by` makes the command another user's. Nothing happens on a machine without systemd.
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
    words = ""
    for what in WHAT:
        who = ("--who=fde-testbed", "--why=a suite is being recorded", "--mode=block")
        try:
            holder = subprocess.Popen(
                by([program, f"--what={what}", *who, *HELD]),
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
        words = holder.communicate()[1].decode(errors="replace").strip()
    reason = words.splitlines()[-1] if words else "systemd-inhibit gave no reason"
    warn(
        f"this machine may fall asleep during the suite, for that cannot be held off ({reason}): "
        "switch its sleep off (systemctl mask sleep.target suspend.target)"
    )
    return None
