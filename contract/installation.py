"""Instructions for installing packages, for the program by which the testbed was installed."""

from __future__ import annotations

import json
import shlex
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from contract.places import CHECKOUT, DISTRIBUTION, ROOT


def with_extra(name: str) -> str:
    """Return the instruction for installing an extra, as an imperative clause.

    It names the extra's requirements: our package may have come from a folder or a file.
    """
    if CHECKOUT and Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return "run `make venv-dev`"
    return install(*requirements(name))


def requirements(extra: str = "") -> list[str]:
    """Return the requirements of the testbed or of one of its extras, as `apprise>=1.9`."""
    if CHECKOUT:
        document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        project = document["project"]
        names: list[str] = (
            project["optional-dependencies"][extra] if extra else project["dependencies"]
        )
        return names
    pairs = (line.partition(";") for line in metadata.requires(DISTRIBUTION) or ())
    of_extra = f'extra == "{extra}"' if extra else ""
    return [name.strip() for name, _, marker in pairs if marker.strip() == of_extra]


def install(*packages: str) -> str:
    """Return the instruction for installing packages next to ours, as an imperative clause.

    It uses the program that installed us: pipx, uv (which installs no pip) or pip, for which a
    folder of wheels that we came from is named, and a system's Python needs a permission.
    """
    names, python = shlex.join(packages), shlex.quote(sys.executable)
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return f"run `pipx inject {Path(sys.prefix).name} {names}`"
    if Path(sys.prefix, "uv-receipt.toml").is_file() or find_spec("pip") is None:
        return f"run `uv pip install --python {python} {names}`"
    return f"run `{python} -m pip install {''.join(_pip_options())}{names}`"


def _pip_options() -> Iterator[str]:
    """Yield the options that pip needs where it has installed us."""
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if sys.prefix == sys.base_prefix and marker.is_file():
        yield "--break-system-packages "
    if not CHECKOUT:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")  # PEP 610
        origin = json.loads(text or "{}")
        url = urlsplit(origin.get("url", ""))
        folder = Path(unquote(url.path)).parent
        if url.scheme == "file" and "archive_info" in origin and folder.is_dir():
            yield f"--find-links {shlex.quote(str(folder))} "
