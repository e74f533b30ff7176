"""`fde notebook`: a copy beside the suite, and JupyterLab on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import jupytext
import pytest

import analysis
from analysis.suite.manifest import check
from contract.errors import ControllerError
from contract.places import ROOT
from controller import notebook
from controller.cli.app import main
from validation.synthetic.suite import Options, write_group, write_suite

OURS = Path(analysis.__path__[0]) / notebook.NAME


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites") / "s"
    write_suite(folder, Options(blocks=2, workloads=("idle",), configurations=("plain", "opal")))
    return folder


def test_a_copy_is_beside_the_suite_and_stays_as_it_is_edited(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["notebook", str(suite), "--copy"]) == 0
    made = suite / notebook.NAME
    assert made.read_bytes() == OURS.read_bytes()
    assert not check(suite).problems  # the seal is as it was
    document = json.loads(made.read_text(encoding="utf-8"))
    mine = {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": "mine"}
    document["cells"].append(mine)
    made.write_text(json.dumps(document), encoding="utf-8")
    assert main(["notebook", str(suite), "--copy"]) == 0
    assert "as it was left" in capsys.readouterr().out
    assert json.loads(made.read_text(encoding="utf-8")) == document


def test_the_copy_finds_the_suite_in_whose_folder_it_lies(suite: Path, tmp_path: Path) -> None:
    """As in any program that runs notebooks: nothing is set but the package."""
    notebook.copy(suite)
    cells = jupytext.read(suite / notebook.NAME)["cells"]
    first = next(cell["source"] for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "first.py").write_text(first, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "FDE_SUITE_DIR"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "first.py")],
        capture_output=True,
        text=True,
        check=True,
        cwd=suite,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    assert "its figures are modelled" in done.stdout


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((), "There is no suite folder"),
        (("journal.jsonl",), "is not a suite: it has no plan.json"),
    ],
)
def test_what_is_no_suite_is_refused(
    made: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in made:
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / name).touch()
    assert main(["notebook", str(tmp_path / "x")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("fde: ") and told.count("\n") == 1 and said in told
    assert not (tmp_path / "x" / notebook.NAME).exists()


def test_a_group_names_its_suites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(blocks=2, workloads=("idle",))
    folder = write_group(tmp_path, {"alder": 1.0, "birch": 1.0}, options)
    assert main(["notebook", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "name one of its suites" in told and "alder" in told and told.count("\n") == 1


def test_without_a_suite_it_takes_the_example_that_comes_with_the_testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    for _ in range(2):
        assert main(["notebook", "--copy"]) == 0
        (made,) = tmp_path.glob("build/bundles/*/*/notebook.ipynb")
        assert made.read_bytes() == OURS.read_bytes()
    monkeypatch.setattr(notebook, "SHARE", tmp_path)
    with pytest.raises(ControllerError, match="`make synthetic`"):
        notebook.example()


def test_without_jupyterlab_one_sentence_says_how_to_get_it(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook, "find_spec", lambda _name: None)
    assert main(["notebook", str(suite)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "pip install 'fde-energy-testbed[notebook]'" in told
    assert str(suite / notebook.NAME) in told


def test_jupyterlab_serves_it_until_it_is_ended(suite: Path, tmp_path: Path) -> None:
    """The real server, on whatever port is free."""
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("RUNTIME", "CONFIG")}
    with subprocess.Popen(
        [sys.executable, "-m", "controller", "notebook", str(suite), "--no-browser"],
        env={**os.environ, **folders, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as command:
        try:
            server = None
            while server is None and command.poll() is None:
                told = list(tmp_path.glob("RUNTIME/jpserver-*.json"))
                server = json.loads(told[0].read_text(encoding="utf-8")) if told else None
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
            assert len(served["cells"]) > 50
        finally:
            command.send_signal(signal.SIGTERM)
    assert command.returncode == 0
