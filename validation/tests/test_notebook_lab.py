"""The notebook as people open it: JupyterLab in a browser, all cells run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

import pytest

from contract.places import ROOT
from controller.sharing.notebook import NAME
from controller.sharing.publish import unpack_cached
from validation.bench import FOLDER
from validation.report.browser import Tab, chromium

pytestmark = pytest.mark.slow

T = TypeVar("T")

BUNDLE = ROOT / "data" / "examples" / "paper-synthetic.tar.gz"
START_S, SHOW_S = 60.0, 30.0
PICTURES = {"costs": "What costs how much", "power": "What does one run look like"}
# JupyterLab's own object, the notebook's panel, and its cells in order. Every cell is attached to
# the page, also those out of sight; nothing asks the network for news.
APP = "window.jupyterapp.shell.currentWidget"
CONFIG = "c.LabApp.expose_app_in_browser = True\n"
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}
RUN = f"""
(async () => {{
  await {APP}.context.sessionContext.ready;
  return await window.jupyterapp.commands.execute("notebook:run-all-cells");
}})()
"""
CELLS = f"""
{APP}.content.widgets.filter((one) => one.model.type === "code").map((one) => ({{
  source: one.model.sharedModel.getSource(),
  count: one.model.executionCount,
  errors: one.model.outputs.toJSON().filter((o) => o.output_type === "error").map((o) => o.evalue),
  text: one.model.outputs.toJSON().map((o) => [o.text ?? ""].flat().join("")).join(""),
}}))
"""


@contextmanager
def served(suite: Path, place: Path) -> Iterator[str]:
    """Yield the address of the suite's notebook, while `fde notebook` serves it."""
    for name, values in SETTINGS.items():
        path = place / "config/lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    (place / "config/jupyter_lab_config.py").write_text(CONFIG, encoding="utf-8")
    folders = {f"JUPYTER_{kind.upper()}_DIR": str(place / kind) for kind in ("config", "runtime")}
    with subprocess.Popen(
        [sys.executable, "-m", "controller", "notebook", str(suite)],
        env={**os.environ, **folders, "PYTHONPATH": str(ROOT), "BROWSER": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        try:
            yield until(lambda: _address(command, place / "runtime"), START_S)
        finally:
            command.terminate()


def _address(command: subprocess.Popen[bytes], place: Path) -> str | None:
    assert command.poll() is None, "fde notebook ended"
    for path in place.glob("jpserver-*.json"):
        try:
            server = json.loads(path.read_text(encoding="utf-8"))
            address = f"{server['url']}lab/tree/{NAME}?token={server['token']}"
            with urlopen(address):
                return address
        except (ValueError, OSError):  # half written, or not listening yet
            return None
    return None


def until(look: Callable[[], T | None], seconds: float) -> T:
    """Return what `look` finds, as soon as it is something."""
    end = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < end, f"nothing within {seconds:g} s"
        time.sleep(0.1)
    return value


def picture(tab: Tab, heading: str, path: Path) -> None:
    """Of the section under a heading."""
    tab.evaluate(
        f"""
        [...document.querySelectorAll(".jp-RenderedMarkdown h2")]
          .find((one) => one.textContent.startsWith({json.dumps(heading)}))
          .scrollIntoView({{ block: "start" }})
        """
    )
    time.sleep(0.5)  # until it is painted
    path.parent.mkdir(parents=True, exist_ok=True)
    tab.picture(path)


def test_every_cell_runs_in_jupyterlab(tmp_path: Path) -> None:
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("there is no chromium: apt install chromium")
    if not find_spec("jupyterlab"):
        pytest.skip("JupyterLab is missing: pip install '.[notebook]'")
    suite = unpack_cached(BUNDLE, tmp_path / "bundles")
    with served(suite, tmp_path) as address, chromium() as tab:
        tab.open(address, 1280, 900)
        until(lambda: tab.evaluate(f"window.jupyterapp && {APP}?.context?.isReady"), START_S)
        assert tab.evaluate(RUN)
        cells = [cell for cell in tab.evaluate(CELLS) if cell["source"].strip()]
        assert [cell["errors"] for cell in cells if cell["errors"]] == []
        assert all(cell["count"] for cell in cells) and len(cells) >= 14
        for name, heading in PICTURES.items():
            picture(tab, heading, FOLDER / f"notebook-{name}.png")
