"""Query git about an untrusted folder.

A repository's configuration names programs that git runs: git-config(1), `core.fsmonitor`, hooks,
and the one that fetches missing objects of a partial clone. None of them runs here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    # Nothing of that user's repository is run, so another owner is no danger. Git before 2.38 takes
    # this from files only, and refuses.
    "safe.directory": "*",
}
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",  # since git 2.44; before it, no protocol is allowed
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}


def ask_git(folder: Path, *question: str) -> subprocess.CompletedProcess[str]:
    """Run a git command that changes nothing in `folder`; raises OSError without git.

    Variables of git are removed: they could name another repository (in a hook) or programs.
    """
    environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
    settings = [word for key, text in _SETTINGS.items() for word in ("-c", f"{key}={text}")]
    return subprocess.run(
        ["git", "--no-pager", *settings, "-C", str(folder), *question],
        env={**environment, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
