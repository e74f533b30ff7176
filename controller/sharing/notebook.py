"""The notebook of a suite: a copy in a folder of our own, opened in JupyterLab.

Python and Jupyter take modules and settings from the folder that they are started in, and a
suite's folder may have come from elsewhere.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from contract import files
from contract.errors import ControllerError
from contract.places import SHARE, build_folder, module_command, with_extra
from controller.sharing import publish

NAME = "notebook.ipynb"


@dataclass(frozen=True)
class Copy:
    """Where the notebook is and which suite it is of; `new` unless it was there before."""

    notebook: Path
    suite: Path
    new: bool


def example() -> Path:
    """Return the bundle of a suite that comes with the testbed.

    Raises ControllerError where none does.
    """
    bundles = sorted((SHARE / "data" / "examples").glob("*.tar.gz"))
    if not bundles:
        raise ControllerError("no-example")
    return bundles[0]


def copy(suite: Path) -> Copy:
    """Copy the notebook to a folder of our own; a copy that is there keeps all its changes.

    A bundle is unpacked first. Raises SuiteError where the folder is no suite, ControllerError
    where it is one of a group.
    """
    import analysis
    from analysis.suite import group, suite_folder

    suite = publish.kept(suite, build_folder() / "bundles")
    if group.is_group(suite):
        inside = ", ".join(str(member) for member in group.members(suite))
        raise ControllerError("suite-is-group", suite=suite, inside=inside)
    target = build_folder().resolve() / "notebooks" / suite_folder.suite_id(suite) / NAME
    new = not target.exists()
    if new:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write(target, [(Path(analysis.__path__[0]) / NAME).read_bytes()])
    return Copy(target, suite.resolve(), new)


def open_in_lab(made: Copy) -> int:
    """Serve it in JupyterLab on this machine alone, until that is ended; its exit status.

    Raises ControllerError where JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise ControllerError(
            "no-jupyterlab", command=with_extra("notebook"), notebook=made.notebook
        )
    # The kernel is started by the server, with this environment.
    safe = {"PYTHONSAFEPATH": "1", "FDE_SUITE_DIR": str(made.suite)}
    # Jupyter refuses root unless told: it listens on the loopback alone, behind a token.
    options = ["--ip=localhost", *["--allow-root"] * (os.geteuid() == 0)]
    command = module_command("jupyterlab", *options, made.notebook.name)
    folder = made.notebook.parent
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **safe}) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:  # nothing is lost: notebooks are saved as they are edited
            lab.terminate()
            lab.wait()
            return 0
