"""Execute the notebook on a suite and export it as one HTML file that needs no network."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter
from traitlets.config import Config

from analysis.records import SuiteError

HERE = Path(__file__).parent
PACKAGE = HERE.parent
NOTEBOOK = PACKAGE / "report.ipynb"
PAIRED = PACKAGE / "report.py"
TIMEOUT_S = 600


def build(folder: Path, title: str) -> Path:
    """Write report.ipynb and report.html into the suite; returns the path of the HTML.

    Raises SuiteError where the notebook cannot be executed.
    """
    notebook = execute(folder)
    page = export(notebook, title)
    _replace(folder / "report.ipynb", nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    path = folder / "report.html"
    _replace(path, page)
    return path


def execute(folder: Path) -> Any:
    """The notebook with its outputs for the suite in `folder`. Raises SuiteError."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    root = str(PACKAGE.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "FDE_SUITE_DIR": str(folder.resolve()),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    try:
        # A socket in a private folder with a short name: no port, and nobody else can listen in.
        with tempfile.TemporaryDirectory(prefix="fde-") as private:
            connection = {"transport": "ipc", "connection_file": f"{private}/kernel.json"}
            client = NotebookClient(
                notebook,
                timeout=TIMEOUT_S,
                kernel_name="python3",
                resources={"metadata": {"path": root}},
                config=Config({"KernelManager": connection}),
            )
            client.execute(env=environment)
    except CellTimeoutError:
        raise SuiteError(
            f"The notebook did not finish within {TIMEOUT_S} s: free the machine and repeat."
        ) from None
    except CellExecutionError as error:
        raise SuiteError(f"The notebook failed: {error.ename}: {error.evalue}") from error
    except (DeadKernelError, RuntimeError, OSError) as error:
        raise SuiteError(
            f"The notebook's kernel did not run ({error}): `make venv` makes the environment anew."
        ) from error
    return notebook


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
    notebook = jupytext.read(PAIRED)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"  # jupytext draws ids at random
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return f"{text}\n"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
