"""`fde report` of a folder whose name and contents want more than to be read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.tests.pages import live_markup
from contract.plan import digest
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

ROOT = Path(__file__).parents[2]
SMALL = Options(blocks=2, interval_ms=500, configurations=("plain", "opal"), workloads=("idle",))
# As a name of a folder, which has no slash, and as text.
NAME = "$(touch pwned)`touch pwned`';touch pwned;'\";touch pwned;\" <img src=x onerror=alert(1)> #"
TEXT = (
    "</pre></td></style></title><script>alert(1)</script><img src=x onerror=alert(1)>"
    "\" onmouseover=\"alert(1)\" ' onclick='alert(1)' [a](javascript:alert(1)) $(touch pwned)"
    "\x1b]0;owned\x07\x1b[2J"
)
# Codes that must be as they are, or there is nothing to report on.
KEPT = {
    *("format", "sha256", "plan_sha256", "kind", "origin", "status", "run_id", "state", "zone"),
    *("source", "timing", "boot_id", "suite_id", "started_wall", "created_wall"),
    # Names, which are refused (test_a_name_that_none_has_is_refused).
    *("suite", "host", "name", "configuration", "workload", "disk", "encrypted_by", "looks"),
    *("first_outcome", "after_work", "access"),
}

BY_NAME = {"disks", "before", "after", "other_sources"}  # what has names for keys


def _poisoned(document: Any, key: str = "") -> Any:
    """Each text that is no code with markup behind it, and each unknown key besides."""
    if isinstance(document, dict):
        unknown = {} if key in BY_NAME else {TEXT: TEXT}
        return {k: _poisoned(v, k) for k, v in document.items()} | unknown
    if isinstance(document, list):
        return [_poisoned(entry, key) for entry in document]
    return document + TEXT if isinstance(document, str) and key not in KEPT else document


def _poison(folder: Path) -> None:
    plan = _poisoned(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    plan["sha256"] = digest(plan)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    for path in (*folder.glob("runs/*/run.json"), *folder.glob("provenance/*.json")):
        document = _poisoned(json.loads(path.read_text(encoding="utf-8")))
        if path.name == "run.json":
            document["plan_sha256"] = plan["sha256"]
            document["phases"] = [{**p, "work": {TEXT: 1.0}} for p in document["phases"]]
            document["checks"] = [{"name": TEXT, "state": TEXT, "said": TEXT, "what": TEXT}]
        path.write_text(json.dumps(document), encoding="utf-8")
    for path in folder.glob("meters/*/meter.json"):
        meter = json.loads(path.read_text(encoding="utf-8"))
        meter["accuracy"]["source"] = TEXT
        path.write_text(json.dumps(meter), encoding="utf-8")
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    lines_with_text = [json.loads(line) | {"detail": TEXT} for line in lines]
    lines_with_text[3] |= {"state": "void"}
    (folder / "journal.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines_with_text), encoding="utf-8"
    )
    write_manifest(folder)


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    write_suite(folder, SMALL, seal=False)
    _poison(folder)
    return folder


def test_a_hostile_suite_makes_a_report_that_does_nothing(
    poisoned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    """From a folder of its own, in which what it starts would leave its mark."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    output = "".join(fde("report", poisoned))
    assert "\x1b" not in output and "\x07" not in output
    page = (poisoned / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in page  # it is there to be read
    assert live_markup(page) == ""
    assert live_markup(f"<p>{TEXT}</p>")  # which the search itself would find
    assert not list(tmp_path.rglob("pwned"))
    assert not list(work.iterdir())


@pytest.mark.parametrize("key", ["suite", "host"])
def test_a_name_that_none_has_is_refused(key: str, poisoned: Path, fde: Fde) -> None:
    path = poisoned / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**plan, key: TEXT}), encoding="utf-8")
    refusal = fde("report", poisoned, status=1).err
    assert "is no valid plan" in refusal and "\x1b" not in refusal
    assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_folder_that_leads_elsewhere_is_refused(
    kind: str, small_suite: Path, tmp_path: Path, fde: Fde
) -> None:
    folder, outside = shutil.copytree(small_suite, tmp_path / "suite"), tmp_path / "outside"
    outside.mkdir()
    make: dict[str, Callable[[], None]] = {
        "link": lambda: (folder / ".energy.parquet.part").symlink_to(outside / "x"),
        "folder": lambda: (folder / "meters" / "other").symlink_to(outside),
        "pipe": lambda: os.mkfifo(folder / "budget.csv"),
    }
    make[kind]()
    for what in ("report", "verify", "summary"):
        stderr = fde(what, folder, status=1).err
        assert stderr.startswith(f"fde: In {folder}, ") and len(stderr.splitlines()) == 1
    assert not list(outside.iterdir())
