"""`fde notebook`: a copy in a folder of our own, and JupyterLab on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

import analysis
from contract.places import SHARE, module_command
from contract.tests.refusal import refuses
from controller.sharing import notebook
from controller.tests.command import Fde
from validation.synthetic.suite import Options, write_group, write_suite

OURS = Path(analysis.__path__[0]) / notebook.NAME


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites") / "s"
    write_suite(folder, Options(blocks=2, workloads=("idle",), configurations=("plain", "opal")))
    return folder


def test_the_notebook_is_copied_once_and_keeps_edits(suite: Path, build: Path, fde: Fde) -> None:
    """A notebook that came with the suite is a stranger's, and is not opened."""
    (suite / notebook.NAME).write_text("{}", encoding="utf-8")
    before = sorted(suite.rglob("*"))
    printed = fde("notebook", suite, "--json").err
    (copy,) = build.glob(f"notebooks/*/{notebook.NAME}")
    assert f"notebook: {copy}\n" in printed
    assert copy.read_bytes() == OURS.read_bytes() and list(copy.parent.iterdir()) == [copy]
    assert sorted(suite.rglob("*")) == before
    (suite / notebook.NAME).unlink()
    document = json.loads(copy.read_text(encoding="utf-8"))
    mine = {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": "mine"}
    document["cells"].append(mine)
    copy.write_text(json.dumps(document), encoding="utf-8")
    assert "as it was left" in fde("notebook", suite, "--json").err
    assert json.loads(copy.read_text(encoding="utf-8")) == document


@pytest.mark.parametrize(
    ("file_names", "printed"),
    [((), "There is no suite folder"), (("journal.jsonl",), "is not a suite: it has no plan.json")],
)
def test_a_folder_without_a_plan_is_refused(
    file_names: tuple[str, ...], printed: str, tmp_path: Path, fde: Fde
) -> None:
    for name in file_names:
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / name).touch()
    captured = fde("notebook", tmp_path / "x", status=1).err
    assert captured.startswith("fde: ") and captured.count("\n") == 1 and printed in captured
    assert not (tmp_path / "x" / notebook.NAME).exists()


def test_a_group_names_its_suites(tmp_path: Path, fde: Fde) -> None:
    options = Options(blocks=2, workloads=("idle",))
    folder = write_group(tmp_path, {"alder": 1.0, "birch": 1.0}, options)
    captured = fde("notebook", folder, status=1).err
    assert (
        "name one of its suites" in captured and "alder" in captured and captured.count("\n") == 1
    )


def test_without_a_suite_the_notebook_opens_the_example(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        fde("notebook", "--json")
        (copy,) = build.glob("notebooks/*/notebook.ipynb")
        assert copy.read_bytes() == OURS.read_bytes()
    monkeypatch.setattr(notebook, "SHARE", tmp_path)
    with refuses("no-example"):
        notebook.example()


def test_the_notebook_opens_a_bundle(build: Path, fde: Fde) -> None:
    bundle = str(next((SHARE / "data" / "examples").glob("*.tar.gz")))
    fde("notebook", "--json", bundle)
    assert [*build.glob("notebooks/*/notebook.ipynb")]


def test_a_missing_jupyterlab_is_an_error_with_a_remedy(
    suite: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda _name: None)
    captured = fde("notebook", suite, status=1).err
    assert captured.count("\n") == 1 and "make venv-dev" in captured
    assert notebook.NAME in captured


def test_jupyterlab_serves_it_until_it_is_ended(suite: Path, tmp_path: Path) -> None:
    """Start the real server on a free port.

    Nothing that came with the suite runs, although the command is given in its folder.
    """
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'a').write(__name__)\n"
    names = ("jupyterlab", "jupyter_core", "runpy", "polars", "jupyter_server_config")
    hostile = shutil.copytree(suite, tmp_path / "hostile")
    for name in names:
        (hostile / f"{name}.py").write_text(code, encoding="utf-8")
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("RUNTIME", "CONFIG")}
    with subprocess.Popen(
        module_command("controller", "notebook", "."),
        env={**os.environ, **folders, "BROWSER": "true"},
        cwd=hostile,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        try:
            server = None
            while server is None and command.poll() is None:
                captured = list(tmp_path.glob("RUNTIME/jpserver-*.json"))
                server = json.loads(captured[0].read_text(encoding="utf-8")) if captured else None
                time.sleep(0.1)
            assert server is not None
            where = f"{server['url']}api/contents/{notebook.NAME}?token={server['token']}"
            for _ in range(100):
                try:
                    with urlopen(where) as answer:
                        served = json.loads(answer.read())["content"]
                    break
                except OSError:
                    time.sleep(0.1)
            assert len(served["cells"]) > 20
        finally:
            command.send_signal(signal.SIGTERM)
    assert command.returncode == 0 and not mark.exists()
