"""Execute the notebook on a suite and export it as one HTML file that needs no network."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from traitlets.config import Config

from analysis.report.sections import TERMINAL_TEXT, unwritten
from analysis.suite.records import SuiteError
from analysis.suite.suite_folder import suite_id
from contract import files

HERE = Path(__file__).parent
NOTEBOOK = HERE / "report.ipynb"
PAIRED = HERE / "report.py"
TIMEOUT_S = 600


@dataclass(frozen=True)
class Built:
    """Where the page is, and what the terminal is told."""

    page: Path
    text: str


def build(folder: Path) -> Built:
    """Derive a suite's tables, write them and report.ipynb and report.html beside it.

    All of it happens in the notebook's kernel, once. Raises SuiteError where the suite has nothing
    to report from or a file cannot be written; the files from before then stay as they were.
    """
    title = f"Disk encryption in joules: {suite_id(folder)}"
    notebook, text = execute(folder)
    page = export(notebook, title)
    executed = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    try:
        files.write(folder / "report.ipynb", [executed.encode()])
        files.write(folder / "report.html", [page.encode()])
    except OSError as error:
        raise SuiteError(unwritten(error)) from error
    return Built(folder / "report.html", text)


def execute(folder: Path) -> tuple[Any, str]:
    """The notebook with its outputs for the suite in `folder`, and the text for the terminal.

    Raises SuiteError.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    root = str(HERE.parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "FDE_SUITE_DIR": str(folder.resolve())}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        # A socket in a private folder with a short name: no port, and nobody else can listen in.
        with tempfile.TemporaryDirectory(prefix="fde-") as private:
            text = Path(private) / "terminal.txt"
            environment[TERMINAL_TEXT] = str(text)
            connection = {"transport": "ipc", "connection_file": f"{private}/kernel.json"}
            client = NotebookClient(
                notebook,
                timeout=TIMEOUT_S,
                startup_timeout=TIMEOUT_S,  # on a busy machine the imports alone take a minute
                kernel_name="python3",
                resources={"metadata": {"path": root}},
                config=Config({"KernelManager": connection}),
            )
            client.execute(env=environment)
            return notebook, text.read_text(encoding="utf-8")
    except CellTimeoutError:
        raise SuiteError(
            f"The notebook did not finish within {TIMEOUT_S} s: free the machine and repeat."
        ) from None
    except CellExecutionError as error:
        if error.ename == SuiteError.__name__:
            raise SuiteError(error.evalue) from None
        raise SuiteError(
            f"The report failed by a fault of its own ({error.ename}: {error.evalue}); "
            "the suite is not to blame, and a report from before is as it was."
        ) from error
    except (DeadKernelError, RuntimeError, OSError) as error:
        raise SuiteError(
            f"The notebook's kernel did not run ({error}): `make venv` makes the environment anew."
        ) from error


def export(notebook: Any, title: str) -> str:
    """One HTML page from an executed notebook, by the template beside this file."""
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="template",
        extra_template_basedirs=[str(HERE)],
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(page)


def pair() -> str:
    """The notebook as it follows from its paired .py: what report.ipynb must hold."""
    import jupytext

    notebook = jupytext.read(PAIRED)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"  # jupytext draws ids at random
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return f"{text}\n"
