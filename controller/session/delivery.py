"""Delivery of a message to a receiver, a program that has a time limit.

The program is the user's: curl, mail, the command of Apprise or a script (docs/nights.md). It knows
where its secrets are, so that none is an argument of ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from contract import names, schema, strict_json
from contract.messages import Message, Receiver
from controller.session.progress_text import changes, compact

LIMIT_S = 30.0


def deliver(
    receiver: Receiver, message: Message, limit_s: float = LIMIT_S, *, verbose: bool = False
) -> str:
    """Run a receiver's program with a message; return why that failed, empty if it did not.

    It gets the message as JSON on standard input, and in words as FDE_TITLE and FDE_TEXT. Its
    errors may quote secrets, so they are shown only if `verbose`. timeout(1) enforces the limit, as
    it outlives this process.
    """
    if problem := unusable(receiver):
        return problem
    begin_s = time.monotonic()
    completed = subprocess.run(
        ["timeout", "--signal=KILL", f"{limit_s:g}", *receiver.argv],
        input=strict_json.dumps(schema.write(message)).encode(),
        env={**os.environ, "FDE_TITLE": title(message), "FDE_TEXT": text(message)},
        stdout=subprocess.DEVNULL,
        stderr=None if verbose else subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    if completed.returncode and time.monotonic() - begin_s >= limit_s:
        return f"no end in {limit_s:g} s"
    return f"it ended with {completed.returncode}" if completed.returncode else ""


def unusable(receiver: Receiver) -> str:
    """Return why a receiver's program cannot be started; empty if it can."""
    program = receiver.argv[0]
    if shutil.which(program):
        return ""
    is_present = "/" in program and Path(program).exists()
    return f"its program {program} {'is not executable' if is_present else 'was not found'}"


def title(message: Message) -> str:
    """Return the subject of a message, such as `bench: void runs`."""
    return f"{message.host}: {message.event.replace('-', ' ')}"


def text(message: Message) -> str:
    """Return a message in words: its sentence, the suite's status and the changes so far."""
    status = message.status
    lines = [message.sentence, *([compact(status)] if status else [])]
    lines += [f"so far {changes(status.answer)}"] if status and status.answer else []
    return "\n".join(map(names.sentence, lines))
