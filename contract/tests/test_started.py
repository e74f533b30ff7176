"""Processes of ours take no module from the folder in which they are started."""

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
def test_a_module_of_ours_is_started_anywhere(
    path: str, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    done = subprocess.run(
        module_command("instrumentation.recorder", "--help"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: python -m instrumentation.recorder" in done.stdout and not ran(hostile)


def test_without_that_the_folder_would_be_searched_first(
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
    """Whether a function starts this Python, or a module, where a stranger's modules may lie.

    It does not with `-P` or `-I`, nor where it names our own root as the current directory.
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


def test_every_start_of_python_is_safe_or_in_our_own_root() -> None:
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
def test_a_start_in_any_folder_is_recognised(call: str, expected: bool) -> None:
    assert starts_anywhere(ast.parse(call)) is expected
