"""The notebook of a suite, copied to a folder of the testbed and opened in JupyterLab.

Python and Jupyter load modules and settings from the folder in which they start, and a suite's
folder may come from a stranger.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from contract import files
from contract.errors import ControllerError
from contract.installation import with_extra
from contract.places import SHARE, build_folder, module_command
from controller.sharing import publish

NAME = "notebook.ipynb"


@dataclass(frozen=True)
class Copy:
    """A copy of the notebook and the folder of its suite; `new` unless it existed before."""

    notebook: Path
    suite: Path
    new: bool


def example() -> Path:
    """Return the bundle of the example suite; raises ControllerError without one."""
    bundles = sorted((SHARE / "data" / "examples").glob("*.tar.gz"))
    if not bundles:
        raise ControllerError("no-example")
    return bundles[0]


def copy(suite: Path) -> Copy:
    """Copy the notebook for a suite, unless a copy exists, which may have changes.

    A bundle is unpacked first. Raises SuiteError if the folder is no suite, ControllerError if it
    is a group of suites.
    """
    import analysis
    from analysis.suite import group, suite_folder

    suite = publish.unpack_cached(suite, build_folder() / "bundles")
    if group.is_group(suite):
        inside = ", ".join(str(member) for member in group.members(suite))
        raise ControllerError("suite-is-group", suite=suite, inside=inside)
    target = build_folder().resolve() / "notebooks" / suite_folder.suite_id(suite) / NAME
    new = not target.exists()
    if new:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write(target, [(Path(analysis.__path__[0]) / NAME).read_bytes()])
    return Copy(target, suite.resolve(), new)


def open_in_lab(copy: Copy) -> int:
    """Run JupyterLab on localhost with a copy until it ends; return its exit status.

    Raises ControllerError if JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise ControllerError(
            "no-jupyterlab", command=with_extra("notebook"), notebook=copy.notebook
        )
    # The server starts the kernel with this environment.
    safe = {"PYTHONSAFEPATH": "1", "FDE_SUITE_DIR": str(copy.suite)}
    # Jupyter refuses root by default; here it listens only on the loopback and requires a token.
    options = ["--ip=localhost", *["--allow-root"] * (os.geteuid() == 0)]
    command = module_command("jupyterlab", *options, copy.notebook.name)
    folder = copy.notebook.parent
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **safe}) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:  # JupyterLab saves notebooks while they are edited
            lab.terminate()
            lab.wait()
            return 0
