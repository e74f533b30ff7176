"""What a suite folder or a target names becomes no path, unit or command of its own choice."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.suite import group as hosts
from contract import names, schema
from contract import plan as plans
from contract.plan import PlanError, SuitePlan
from contract.tests.refusal import refuses
from controller.session import agent_client
from controller.tests.examples import plan

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    *("../out", "..", ".", "/etc/passwd", "a/b", "a b", "a;b", "$(id)", "`id`", "a\nb", "-rf", ""),
    *("a\0b", "ä", "a" * 129, "a'b", 'a"b', "a|b", "%s", "~root", "a\u202eb"),
)
# Where a plan names something: the list, or none, and the key.
PLACES = (
    *(("", "suite_id"), ("", "suite"), ("", "host")),
    *(("runs", "run_id"), ("workloads", "workload"), ("configurations", "name")),
)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_unsafe(name: str) -> None:
    assert not names.safe(name)


@pytest.mark.parametrize(
    "name", ["file_io", "smoke-target-20261123T012747Z", "a.b", "0", "a" * 128]
)
def test_ordinary_names_are_safe(name: str) -> None:
    assert names.safe(name)


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))
def test_a_safe_name_stays_in_its_folder_and_is_one_word(name: object) -> None:
    if names.safe(name):
        assert Path("/top", str(name)).resolve().parent == Path("/top")
        assert shlex.quote(str(name)) == name


@pytest.mark.parametrize("place", PLACES)
def test_a_plan_with_a_hostile_name_is_refused(place: tuple[str, str]) -> None:
    entries, key = place
    for name in HOSTILE:
        document: dict[str, Any] = json.loads(json.dumps(plan()))
        (document[entries][0] if entries else document)[key] = name
        with pytest.raises(PlanError):
            plans.freeze(document)
        with pytest.raises(ValueError):  # the report's reader of a plan
            schema.read(SuitePlan, document)


def test_a_group_with_a_hostile_name_is_refused(tmp_path: Path) -> None:
    for name in HOSTILE:
        document = {"format": "fde-group/1", "group": "g", "suites": [name], "hosts": ["h"]}
        (tmp_path / hosts.FILE).write_text(json.dumps(document), encoding="utf-8")
        with refuses("group-unread"):
            hosts.members(tmp_path)


@pytest.mark.parametrize("script", [agent_client.UNIT_STATE, agent_client.CONTENT])
def test_an_argument_is_never_read_as_shell(script: str, tmp_path: Path) -> None:
    for name in (n for n in HOSTILE if "\0" not in n):
        argument = f"{name};touch {tmp_path}/pwned;$(touch {tmp_path}/pwned)"
        subprocess.run(
            ["sh", "-c", script, "sh", argument], cwd=tmp_path, capture_output=True, check=False
        )
    assert list(tmp_path.iterdir()) == []


def _scripts(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what stands behind `sh -c` in any list or tuple."""
    for node in ast.walk(tree):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        for shell, option, script in zip(words, words[1:], words[2:], strict=False):
            if (
                getattr(shell, "value", "") in ("sh", "bash")
                and getattr(option, "value", "") == "-c"
            ):
                yield script


def test_shell_scripts_are_constants() -> None:
    """Each is a constant: by its value, or by a name in capitals."""
    calls = 0
    for package in ("agent", "analysis", "contract", "controller", "instrumentation", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            assert not re.search(r"\bshell=True", source) or path == Path(__file__), path
            if "tests" in path.parts:
                continue
            for script in _scripts(ast.parse(source)):
                calls += 1
                constant = isinstance(script, ast.Constant)
                named = isinstance(script, ast.Name) and script.id.isupper()
                assert constant or named, f"{path}:{script.lineno}"
    assert calls >= 5
