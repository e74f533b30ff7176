"""Locate the testbed's files, in a checkout and installed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from contract.errors import ControllerError

ROOT = Path(__file__).resolve().parents[1]
"""The folder that our packages are imported from."""
CHECKOUT = (ROOT / "pyproject.toml").is_file()
SHARE = ROOT if CHECKOUT else ROOT / "share"
"""The folder of the collection and `data/`; setup.py installs these non-packages there."""
SCHEMAS = SHARE / "data" / "schema"
DISTRIBUTION = "fde-energy-testbed"
COLLECTION = Path("ansible_collections", "fde", "testbed")
ANSIBLE = ROOT / "ansible" if CHECKOUT else SHARE / COLLECTION
"""The collection; in a checkout a link at `COLLECTION` leads to it."""
MOUNT_POINT = "/run/fde-testbed/disk"
"""On the target, the mount point of the current configuration's file system."""


def version() -> str:
    """Return the version of the testbed."""
    if CHECKOUT:
        import tomllib

        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return str(project["version"])
    from importlib import metadata

    return metadata.version(DISTRIBUTION)


def commit() -> str:
    """Return the commit of the checkout or of the installed package; empty if unknown."""
    if not CHECKOUT:
        return (SHARE / "COMMIT").read_text(encoding="utf-8")
    from contract.git import ask_git

    try:
        return ask_git(ROOT, "rev-parse", "--short=12", "HEAD").stdout.strip()
    except OSError:
        return ""


def python_path() -> str:
    """Return PYTHONPATH for a process of ours: our packages, and the user's entries.

    An empty entry is left out: Python would read it as the current directory.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(ROOT), *filter(None, paths)])


def module_command(module: str, *arguments: str) -> list[str]:
    """Build a command that runs one of our modules, independent of the current directory.

    Without `-P` Python would import from there first, perhaps from an untrusted suite folder.
    """
    return ["env", f"PYTHONPATH={python_path()}", sys.executable, "-P", "-m", module, *arguments]


def command_line(name: str, folder: object = "", **options: object) -> str:
    """Return a command of `fde` for a shell: `fde run --suite micro`.

    `folder` is a suite's; options without a value are left out. Values are quoted for a shell,
    except placeholders: `…`, `<serial>`, `{serial}`.
    """
    words = [
        f"--{key.replace('_', '-')} {_typed(value)}" for key, value in options.items() if value
    ]
    return " ".join(["fde", name, *([_typed(folder)] if folder else []), *words])


def _typed(value: object) -> str:
    """Quote a value as one shell word; leave a placeholder such as `{serial}` unchanged."""
    text = str(value)
    if re.fullmatch(r"…|\{\w+\}|<\w+>", text):
        return text
    return f'"{text}"' if "'" in text and not set('"$`\\!') & set(text) else shlex.quote(text)


def build_folder() -> Path:
    """Return the folder for generated files: checks, proofs, unpacked bundles, figures.

    FDE_BUILD, else `build/` of the checkout, else the user's state folder. Raises ControllerError
    if there is none.
    """
    if folder := os.environ.get("FDE_BUILD"):
        return Path(folder)
    return ROOT / "build" if CHECKOUT else state_folder()


def state_folder() -> Path:
    """Return the user's folder for data that outlives a command.

    A relative XDG_STATE_HOME is ignored, as the XDG Base Directory Specification requires. Raises
    ControllerError if the user has no home directory.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():
        return state / "fde-testbed"
    try:
        return Path.home() / ".local" / "state" / "fde-testbed"
    except RuntimeError:
        raise ControllerError("no-home", user=os.getuid()) from None


def suites_folder() -> Path:
    """Return the folder of suites: `data/suites` in a checkout, else `fde-suites`."""
    return Path("data", "suites") if Path("data", "schema").is_dir() else Path("fde-suites")
