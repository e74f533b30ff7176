"""Conditions after every fault, checked in the sealed suite and against the observer's lines.

- A run whose `finished` line was ever seen is finished in the end, unless a request took it back
  and it was repeated: else it is *lost*.
- A run that is finished in the end has the run.json of the line's sum, finished, proven, from one
  boot, which is that of its `running` and `finished` lines: else it is *false*.
- `verify` passes.
- The analysis finds what happened, as a code, and the report states it.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from analysis.energy import run_checks
from analysis.report import provenance
from analysis.suite.incidents import IncidentLog, incident_log
from analysis.suite.suite_folder import read
from contract import journal
from contract.journal import Entry
from validation.scene import Scene

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


@dataclass(frozen=True)
class Judgement:
    """Result of the checks; a sentence for each condition that does not hold."""

    observed: int
    runs: int
    finished: int
    lost: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    verified: bool = False
    named: bool = False
    problems: list[str] = field(default_factory=list)


def lost(observed: Sequence[Entry], final: Sequence[Entry]) -> list[str]:
    """Return a sentence for each run that was seen to be finished and is not in the end."""
    final_entries = set(final)
    states = journal.last_states(list(final))
    sentences = []
    for entry in observed:
        if entry.state != "finished":
            continue
        if entry not in final_entries:
            sentences.append(f"the line {entry.seq} `finished` of {entry.run_id} is gone")
        elif states.get(entry.run_id) != "finished":
            sentences.append(f"{entry.run_id} was finished and is {states.get(entry.run_id)}")
        else:
            later = [e for e in final if e.run_id == entry.run_id and e.seq > entry.seq]
            if later and not (later[0].state == "void" and later[0].cause == journal.REPEAT):
                sentences.append(f"{entry.run_id} was finished and done again without a request")
    return sentences


def false(suite_dir: Path, final: Sequence[Entry]) -> list[str]:
    """Return a sentence for each run that is called finished and is not sound."""
    states = journal.last_states(list(final))
    sentences = []
    for run_id, state in states.items():
        if state == "finished" and (wrong := _wrong(suite_dir, run_id, final)):
            sentences.append(f"{run_id} {wrong}")
    return sentences


def _wrong(suite_dir: Path, run_id: str, final: Sequence[Entry]) -> str:
    lines = [entry for entry in final if entry.run_id == run_id]
    path = suite_dir / "runs" / run_id / "run.json"
    try:
        content = path.read_bytes()
        run = json.loads(content)
    except (OSError, ValueError) as error:
        return f"has no run.json that can be read: {error}"
    running = [entry for entry in lines if entry.state == "running"]
    if lines[-1].facts.get("sha256") != hashlib.sha256(content).hexdigest():
        return "has another run.json than its line names"
    if run["status"] != "finished" or not (run["proof"] or {}).get("ok"):
        return "is called finished, its run.json is not, or not proven"
    if not running or {running[-1].boot_id, lines[-1].boot_id} != {run["boot_id"]}:
        return "is of several boots"
    return ""


def text_of(page: Path) -> str:
    """Return the text of an HTML page as a browser shows it."""
    text = _TAG.sub(" ", page.read_text(encoding="utf-8"))
    return " ".join(html.unescape(text).split())


def codes(incidents: IncidentLog, checks: Collection[str]) -> set[str]:
    """Return the codes of a suite's incidents: `reboots` …, `waited:held` …, `check:clock` ….

    They are the names of what its incidents have besides those of an undisturbed suite, of what it
    waited for, and of the checks that finished runs did not pass.
    """
    incident_codes = {
        each.name for each in fields(incidents) if getattr(incidents, each.name) != each.default
    }
    waited = {f"waited:{pause.name}" for pause in incidents.waits}
    return incident_codes | waited | {f"check:{name}" for name in checks}


def _unnamed(suite_dir: Path, reported: Sequence[Collection[str]]) -> Iterator[str]:
    """Yield a sentence for each expected incident that the analysis or the report lacks."""
    suite = read(suite_dir)
    incidents, checks = incident_log(suite), run_checks.warnings(suite)
    befallen = codes(incidents, [name for name, _, _ in checks])
    for expected in reported:
        if befallen.isdisjoint(expected):
            yield f"the analysis has none of {', '.join(expected)}: {', '.join(sorted(befallen))}"
    page = suite_dir / "report.html"
    text = text_of(page) if page.exists() else ""
    messages = [message for _, message, _ in checks]
    for line in (*provenance.interruption_lines(incidents), *messages):
        if " ".join(line.split()) not in text:
            yield f"the report does not state: {line}"


def judge(
    scene: Scene, suite_dir: Path, observed: Sequence[Entry], reported: Sequence[Collection[str]]
) -> Judgement:
    """Check all four conditions; the analysis must find one code of each of `reported`."""
    final = journal.read(suite_dir / "journal.jsonl")
    states = journal.last_states(final)
    plan = json.loads((suite_dir / "plan.json").read_text(encoding="utf-8"))
    problems = []
    for verb in ("report", "verify"):
        command = scene.python("controller", verb, str(suite_dir))
        if command.returncode:
            problems.append(f"{verb}: {(command.stdout + command.stderr).strip()[-600:]}")
    unnamed = [*_unnamed(suite_dir, reported)]
    return Judgement(
        observed=sum(entry.state == "finished" for entry in observed),
        runs=len(plan["runs"]),
        finished=sum(states.get(run["run_id"]) == "finished" for run in plan["runs"]),
        lost=lost(observed, final),
        false=false(suite_dir, final),
        verified=command.returncode == 0,
        named=not unnamed,
        problems=problems + unnamed,
    )
