"""Our processes import no module from the folder in which they are started."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contract.places import ROOT, module_command, python_path

PACKAGES = "agent analysis contract controller drive instrumentation lab validation workloads"
ROOTS = ("ROOT", "REPOSITORY")
PYTHON = "sys.executable"
# What any of our programs imports first, and our own packages.
NAMES = ("runpy", "json", "argparse", "contract", "instrumentation", "sitecustomize")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, in which every module of those names leaves a mark."""
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in NAMES:
        mark = tmp_path / f"{name}.ran"
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return tmp_path


def ran(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("*.ran"))


@pytest.mark.parametrize("path", ["", f":{ROOT}::"])
def test_module_command_runs_no_module_of_the_current_folder(
    path: str, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    result = subprocess.run(
        module_command("instrumentation.recorder", "--help"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: python -m instrumentation.recorder" in result.stdout and not ran(hostile)


def test_an_empty_pythonpath_entry_would_run_foreign_modules(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above can fail at all."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:")
    argv = [sys.executable, "-P", "-m", "instrumentation.recorder", "--help"]
    subprocess.run(argv, capture_output=True, check=False)
    assert ran(hostile)


def test_an_empty_entry_of_the_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":/a::/b:")
    assert python_path().split(":") == [str(ROOT), "/a", "/b"]


def starts_anywhere(function: ast.AST) -> bool:
    """Return whether a function starts Python so that it imports from the current folder.

    `-P` and `-I` prevent that, and so does our root as the current directory.
    """
    rooted = any(
        isinstance(node, ast.keyword) and node.arg == "cwd" and ast.unparse(node.value) in ROOTS
        for node in ast.walk(function)
    )
    for node in ast.walk(function):
        if isinstance(node, ast.List | ast.Tuple):
            words = [ast.unparse(word) for word in node.elts]
            for at, word in enumerate(words[:-1]):
                safe = re.fullmatch(r"'-[A-Za-z]*[IP][A-Za-z]*'", words[at + 1])
                if word == PYTHON and words[at + 1].startswith("'-") and not safe:
                    return not rooted
    return False


def test_every_start_of_python_ignores_the_current_folder() -> None:
    unsafe = []
    for path in (file for name in PACKAGES.split() for file in (ROOT / name).rglob("*.py")):
        if "tests" in path.parts:
            continue
        tree = ast.parse(path.read_bytes())
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        unsafe += [f"{path.relative_to(ROOT)}: {f.name}" for f in functions if starts_anywhere(f)]
    assert not unsafe


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('run([sys.executable, "-m", "lab"])', True),
        ('run((sys.executable, "-m", "lab"), cwd=folder)', True),
        ('run(["env", sys.executable, "-B", "-m", module])', True),
        ('run([sys.executable, "-m", "lab"], cwd=ROOT)', False),
        ('run([sys.executable, "-P", "-m", "lab"])', False),
        ('run([sys.executable, "-IS", "-c", text])', False),
    ],
)
def test_an_unsafe_start_of_python_is_recognised(call: str, expected: bool) -> None:
    assert starts_anywhere(ast.parse(call)) is expected
