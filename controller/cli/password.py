"""The password of sudo, kept in a file in memory for all programs of a command."""

from __future__ import annotations

import os
import subprocess
from getpass import getpass
from pathlib import Path
from tempfile import NamedTemporaryFile

import typer

from contract.private import PASSWORD_FILE


def ask_password(context: typer.Context, question: str) -> None:
    """Ask for sudo's password and store it in a file in memory for all programs of a command.

    A separate process removes the file at the end of its input, also if this process is killed.
    Ansible does not read an anonymous file.
    """
    runtime, memory = os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm"
    folder = runtime if runtime and Path(runtime).is_dir() else memory
    file = NamedTemporaryFile("w", dir=folder, prefix="fde-become-", delete=False)  # noqa: SIM115
    context.with_resource(
        subprocess.Popen(
            ["sh", "-c", 'read -r _; rm -f -- "$0"', file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    with file:
        file.write(f"{getpass(question)}\n")
    os.environ[PASSWORD_FILE] = file.name
