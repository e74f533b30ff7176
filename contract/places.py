"""Where the testbed's files are stored and where it writes, in a checkout and installed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from contract.errors import ControllerError

ROOT = Path(__file__).resolve().parents[1]
"""What our packages are imported from."""
CHECKOUT = (ROOT / "pyproject.toml").is_file()
SHARE = ROOT if CHECKOUT else ROOT / "share"
"""Above the collection and `data/`, which are no packages: setup.py puts them there."""
SCHEMAS = SHARE / "data" / "schema"
DISTRIBUTION = "fde-energy-testbed"
COLLECTION = Path("ansible_collections", "fde", "testbed")
ANSIBLE = ROOT / "ansible" if CHECKOUT else SHARE / COLLECTION
"""The collection; in a checkout a link at `COLLECTION` leads to it."""
MOUNT_POINT = "/run/fde-testbed/disk"
"""On the target, where the file system of the configuration that is entered stands."""


def version() -> str:
    """Return the testbed's own."""
    if CHECKOUT:
        import tomllib

        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return str(project["version"])
    from importlib import metadata

    return metadata.version(DISTRIBUTION)


def commit() -> str:
    """Return the commit of a checkout, or of which a package was built; empty where unknown."""
    if not CHECKOUT:
        return (SHARE / "COMMIT").read_text(encoding="utf-8")
    from contract.git import ask_git

    try:
        return ask_git(ROOT, "rev-parse", "--short=12", "HEAD").stdout.strip()
    except OSError:
        return ""


def python_path() -> str:
    """Return PYTHONPATH for a process of ours: our packages, and what the user has set.

    An empty entry is left out: Python takes it for the current directory.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(ROOT), *filter(None, paths)])


def module_command(module: str, *arguments: str) -> list[str]:
    """Build the command that runs one of our modules, whatever the current directory holds.

    Without `-P` Python would import from there first, a suite's folder from elsewhere perhaps.
    """
    return ["env", f"PYTHONPATH={python_path()}", sys.executable, "-P", "-m", module, *arguments]


def command_line(name: str, folder: object = "", **options: object) -> str:
    """Return a command of `fde` for a shell: `fde run --suite micro`.

    `folder` is a suite's; an option without a value is left out. Values are quoted for a shell,
    except for placeholders: `…`, `<serial>`, `{serial}`.
    """
    words = [
        f"--{key.replace('_', '-')} {_typed(value)}" for key, value in options.items() if value
    ]
    return " ".join(["fde", name, *([_typed(folder)] if folder else []), *words])


def with_extra(name: str) -> str:
    """How what only some need is installed here, for people, as an imperative."""
    return "run `make venv-dev`" if CHECKOUT else f"run `pip install '{DISTRIBUTION}[{name}]'`"


def _typed(value: object) -> str:
    """Quote a value as one word of a shell; a placeholder, `{serial}`, is unchanged."""
    text = str(value)
    if re.fullmatch(r"…|\{\w+\}|<\w+>", text):
        return text
    return f'"{text}"' if "'" in text and not set('"$`\\!') & set(text) else shlex.quote(text)


def build_folder() -> Path:
    """Return what can be made again: checks, proofs, unpacked bundles, figures.

    FDE_BUILD, else `build/` of the checkout, else a folder of the user's. Raises ControllerError
    where there is none.
    """
    if folder := os.environ.get("FDE_BUILD"):
        return Path(folder)
    return ROOT / "build" if CHECKOUT else state_folder()


def state_folder() -> Path:
    """Return the user's folder for what lasts from one command to the next.

    Raises ControllerError where this user has none.
    """
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "fde-testbed"
    try:
        return Path.home() / ".local" / "state" / "fde-testbed"
    except RuntimeError:
        raise ControllerError("no-home", user=os.getuid()) from None


def suites_folder() -> Path:
    """Where suites go: `data/suites` where this is a checkout, else `fde-suites`, both here."""
    return Path("data", "suites") if Path("data", "schema").is_dir() else Path("fde-suites")
