"""Each refusal with a code has a sentence, and whoever makes it gives the facts of that sentence.

Read from the source: most are made where a disk or its drive fails in a way of its own.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import agent
from agent.causes import Cause, CauseError

AGENT = Path(agent.__file__).parent


def _kinds() -> dict[str, type[Cause | CauseError]]:
    """Those with sentences of their own form, by name; a guard's Refusal has another."""
    for module in pkgutil.walk_packages(agent.__path__, "agent."):
        if ".tests" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return {
        kind.__name__: kind
        for base in (Cause, CauseError)
        for kind in base.__subclasses__()
        if kind.SAYS
    }


KINDS = _kinds()


def _fields(sentence: str) -> set[str]:
    return {name.partition(".")[0] for _, name, _, _ in Formatter().parse(sentence) if name}


def _made() -> Iterator[tuple[str, ast.Call, str, set[str] | None]]:
    """File, call, cause, and the names of its facts (None where a mapping is handed on)."""
    for path in sorted(AGENT.rglob("*.py")):
        if "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id not in KINDS or not node.args:
                continue
            first = node.args[0]
            causes = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            named: set[object] = {word.arg for word in node.keywords}
            if issubclass(KINDS[node.func.id], Cause):
                given = node.args[1] if len(node.args) > 1 else ast.Dict([], [])
                keys = given.keys if isinstance(given, ast.Dict) else [None]
                named = {key.value if isinstance(key, ast.Constant) else None for key in keys}
            facts = None if None in named else {str(name) for name in named}
            for cause in causes:
                if isinstance(cause, ast.Constant):
                    yield path.name, node, str(cause.value), facts


def test_there_are_such_refusals() -> None:
    assert len(KINDS) >= 9
    assert len(list(_made())) >= 40


def test_every_refusal_has_a_sentence_and_its_facts() -> None:
    wrong = []
    for file, call, cause, facts in _made():
        assert isinstance(call.func, ast.Name)
        sentence = KINDS[call.func.id].SAYS.get(cause)
        if sentence is None or (facts is not None and not _fields(sentence) <= facts):
            wrong.append(f"{file}:{call.lineno}: {call.func.id}({cause!r})")
    assert wrong == []
