"""Each code of a problem has a wording, and whoever raises it gives the facts of that wording.

Read from the source: most are raised where a disk or its drive fails in a way of its own.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import agent
from agent import preflight
from agent.storage import guard, proof
from contract.problem import Problem, ProblemError, Wording, wordings_of
from controller.tests import examples

AGENT = Path(agent.__file__).parent


ROOMS = ("agent", "analysis", "contract", "controller", "instrumentation", "lab", "workloads")


def _sources(*rooms: str) -> list[Path]:
    paths = (path for room in rooms or ROOMS for path in AGENT.with_name(room).rglob("*.py"))
    return sorted(path for path in paths if "tests" not in path.parts)


def _kinds() -> list[type[ProblemError]]:
    """Import all rooms; return every class of errors."""
    for path in _sources():
        if path.stem not in ("__main__", "notebook"):
            importlib.import_module(".".join(path.relative_to(AGENT.parent).with_suffix("").parts))
    kinds = [ProblemError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return list(dict.fromkeys(kinds))


KINDS = _kinds()
CATALOGUES = {"_mismatch": dict(proof.MISMATCHES)}
for _kind in KINDS:
    CATALOGUES.setdefault(_kind.__name__, {}).update(_kind.wordings())


def _calls() -> Iterator[tuple[str, str, str, set[str] | None]]:
    """Place, name, code and names of the facts (None where a mapping is passed) of each call."""
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id not in CATALOGUES or not node.args:
                continue
            first = node.args[0]
            codes = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            facts = {word.arg for word in node.keywords}
            for code in codes:
                if isinstance(code, ast.Constant) and re.fullmatch("[a-z0-9-]+", str(code.value)):
                    names = None if None in facts else {str(name) for name in facts}
                    yield f"{path.name}:{node.lineno}", node.func.id, str(code.value), names


def test_every_problem_has_a_wording_and_its_facts() -> None:
    calls = list(_calls())
    assert len(CATALOGUES) >= 50 and len(calls) >= 350
    wrong = []
    for place, name, code, facts in calls:
        wording = CATALOGUES[name].get(code)
        fields = {
            field.partition(".")[0]
            for text in wording or ()
            for _, field, _, _ in Formatter().parse(text)
            if field
        }
        if wording is None or (facts is not None and not fields <= facts):
            wrong.append(f"{place}: {name}({code!r})")
    assert wrong == []


def test_every_wording_of_a_room_is_used() -> None:
    """By a call that names its code, wherever the code stands in it."""
    for room in ROOMS:
        rooms = (room, "ansible") if room == "controller" else (room,)  # its plugins raise, too
        texts = "".join(path.read_text(encoding="utf-8") for path in _sources(*rooms))
        assert [code for code in wordings_of(room) if f'"{code}"' not in texts] == []


def test_sentences_and_remedies_are_complete_sentences() -> None:
    declared = [kind.WORDINGS for kind in KINDS]
    for catalogue in (*declared, proof.MISMATCHES, guard.WORDINGS, preflight.WORDINGS):
        for code, texts in catalogue.items():
            for text in filter(None, texts):
                assert text.endswith((".", "}")) and not text[0].islower(), code


def test_a_problem_document_has_code_and_facts() -> None:
    wordings = {"full": Wording("Disk {role} is full.", "Free {bytes} bytes.")}
    facts = {"role": "sed", "bytes": 3, "sizes": (1, 2)}
    problem = Problem.from_wording(wordings, "full", {**facts, "path": Path("/x")})
    assert problem.document() == {
        "code": "full",
        "facts": {**facts, "path": "/x"},
        "sentence": "Disk sed is full.",
        "remedy": "Free 3 bytes.",
    }
    assert str(problem) == "Disk sed is full. Free 3 bytes."


def test_a_refused_command_prints_its_problems_as_json(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the lock of the disks needs root")
    (tmp_path / "target.json").write_text(json.dumps(examples.target()), encoding="utf-8")
    secrets = tmp_path / "secrets.json"
    argv = [sys.executable, "-m", "agent", "storage", "leave", "--secrets", str(secrets)]
    argv += ["--target", str(tmp_path / "target.json")]
    output = subprocess.run(argv, cwd=AGENT.parent, capture_output=True, text=True, check=False)
    assert output.returncode == 1
    (problem,) = json.loads(output.stdout)["problems"]
    assert (problem["code"], problem["facts"]["path"]) == ("unreadable", str(secrets))
    assert output.stderr.startswith(f"fde: {problem['sentence']} {problem['remedy']}")
