"""The notebook of a suite: a copy in its folder, opened in JupyterLab."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from contract import files
from contract.errors import ControllerError
from contract.places import CHECKOUT, ROOT, SHARE, build_folder
from controller import publish

NAME = "notebook.ipynb"
EXTRA = "pip install 'fde-energy-testbed[notebook]'"


@dataclass(frozen=True)
class Copy:
    """Where the notebook is and which suite it is of; `new` unless it was there before."""

    notebook: Path
    suite: Path
    new: bool


def example() -> Path:
    """A suite that comes with the testbed, unpacked among what can be made again. Raises
    ControllerError where none does."""
    bundles = sorted((SHARE / "data" / "examples").glob("*.tar.gz"))
    if not bundles:
        raise ControllerError(
            "There is no suite here and no example: `make synthetic` in a checkout draws one from "
            "a paper's figures, `fde run` measures one; or name the folder of a suite."
        )
    return publish.kept(bundles[0], build_folder() / "bundles")


def copy(suite: Path) -> Copy:
    """The notebook beside the suite's files, or among what can be made again where these are not to
    be written to; one that is there already stays, with all that was changed in it.

    Raises SuiteError where the folder is no suite, ControllerError where it is one of a group.
    """
    import analysis
    from analysis.suite import group, suite_folder

    if group.is_group(suite):
        inside = ", ".join(str(one) for one in group.members(suite))
        raise ControllerError(f"{suite} is a group of hosts: name one of its suites: {inside}.")
    name = suite_folder.suite_id(suite)
    folder = suite if os.access(suite, os.W_OK) else build_folder() / "notebooks" / name
    target = folder.resolve() / NAME
    new = not target.exists()
    if new:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.write(target, [(Path(analysis.__path__[0]) / NAME).read_bytes()])
    return Copy(target, suite.resolve(), new)


def open_in_lab(made: Copy, browser: bool = True) -> int:
    """Serve it in JupyterLab on this machine alone, until that is ended; its exit status.

    Raises ControllerError where JupyterLab is not installed.
    """
    if find_spec("jupyterlab") is None:
        raise ControllerError(
            f"JupyterLab is not installed: {EXTRA}, or open {made.notebook} in any program that "
            "runs notebooks."
        )
    paths = [str(ROOT)] * CHECKOUT + [os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "FDE_SUITE_DIR": str(made.suite),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
    # Jupyter refuses root unless told: it listens on the loopback alone, behind a token.
    options = ["--ip=localhost", *["--allow-root"] * (os.geteuid() == 0)]
    options += ["--no-browser"] * (not browser)
    command = [sys.executable, "-m", "jupyterlab", *options, made.notebook.name]
    with subprocess.Popen(command, cwd=made.notebook.parent, env=environment) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:  # nothing is lost: notebooks are saved as they are edited
            lab.terminate()
            lab.wait()
            return 0
