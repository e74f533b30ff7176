"""The oracle of the faults, on suites that are sound and on such as must not pass."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

from agent.checks.table import TABLE
from analysis.suite.incidents import IncidentLog, Pause
from contract.journal import Entry
from lab.state import REPOSITORY
from validation.faults import kills, oracle, overnight, results
from validation.faults.__main__ import FAULTS
from validation.faults.observer import Observer
from validation.faults.trial import Outcome, read_outcomes, write_outcome

RUN = {"status": "finished", "proof": {"ok": True}, "boot_id": "b"}


def lines(*states: tuple[str, str, str]) -> list[Entry]:
    """(state, run, cause) a line, all of one boot."""
    return [Entry(n, n * 10, "b", *each) for n, each in enumerate(states)]


def sound(suite: Path, **run: object) -> list[Entry]:
    """Return a suite of one finished run, and its journal."""
    folder = suite / "runs" / "r"
    folder.mkdir(parents=True)
    content = json.dumps({**RUN, **run}).encode()
    (folder / "run.json").write_bytes(content)
    *begun, end = lines(("running", "r", ""), ("proving", "r", ""), ("finished", "r", ""))
    return [*begun, replace(end, facts={"sha256": hashlib.sha256(content).hexdigest()})]


def test_a_line_that_was_seen_and_is_gone_is_a_lost_run() -> None:
    final = lines(("running", "r", ""), ("finished", "r", "s"))
    (sentence,) = oracle.lost([replace(final[1], t_mono_ns=11)], final)
    assert "gone" in sentence


@pytest.mark.parametrize(
    ("states", "is_lost"),
    [
        ([("suite-finished", "", "")], False),
        ([("void", "r", "target-down")], True),
        ([("void", "r", "target-down"), ("finished", "r", "t")], True),
        ([("void", "r", "repeat")], True),  # and not done again
        ([("void", "r", "repeat"), ("finished", "r", "t")], False),
        ([("running", "r", ""), ("finished", "r", "t")], True),  # done again without being asked
    ],
)
def test_only_a_request_takes_a_finished_run_back(
    states: list[tuple[str, str, str]], is_lost: bool
) -> None:
    final = lines(("finished", "r", "s"), *states)
    assert bool(oracle.lost(final[:1], final)) == is_lost


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({"status": "void"}, "is not"),
        ({"proof": {"ok": False}}, "not proven"),
        ({"proof": None}, "not proven"),
        ({"boot_id": "another"}, "several boots"),
    ],
)
def test_an_unsound_finished_run_is_false(
    tmp_path: Path, run: dict[str, object], expected: str
) -> None:
    (sentence,) = oracle.false(tmp_path, sound(tmp_path, **run))
    assert expected in sentence


def test_a_changed_or_missing_file_makes_a_run_false(tmp_path: Path) -> None:
    final = sound(tmp_path)
    assert oracle.false(tmp_path, final) == []
    path = tmp_path / "runs/r/run.json"
    path.write_text(path.read_text() + " ")
    assert "another run.json" in oracle.false(tmp_path, final)[0]
    path.unlink()
    assert "can be read" in oracle.false(tmp_path, final)[0]


def test_a_run_that_ran_in_one_boot_and_finished_in_another_is_false(tmp_path: Path) -> None:
    final = sound(tmp_path)
    final[0] = replace(final[0], boot_id="before")
    assert "several boots" in oracle.false(tmp_path, final)[0]


def test_words_of_a_page_are_those_that_people_read(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    page.write_text("<style>b{}</style><b>It</b> lost\n power &amp; came<script>void</script> back")
    assert oracle.text_of(page) == "It lost power & came back"


class Local:
    """A scene whose guest is this machine."""

    def ssh_argv(self, command: list[str]) -> list[str]:
        return [sys.executable, *command[1:]]


def test_the_observer_keeps_lines_that_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "s" / "journal.jsonl"
    monkeypatch.setattr("validation.faults.observer.SUITES", str(tmp_path))
    observer = Observer(Local(), "s", tmp_path / "lines")  # type: ignore[arg-type]
    observer.start()
    states = lines(("suite-started", "", ""), ("running", "r", ""), ("finished", "r", "s"))
    text = [json.dumps(vars(entry)) + "\n" for entry in states]
    journal.parent.mkdir()

    def write() -> None:
        time.sleep(0.2)
        journal.write_text("".join(text) + text[0][:20])

    threading.Thread(target=write).start()
    line = observer.wait(lambda e: e.entry.state == "finished", start=0, limit_s=60, event="end")
    assert line.entry == states[2]
    journal.write_text(text[0])  # a torn line is cut off, and more than that
    time.sleep(0.3)
    journal.write_text(text[0] + text[1])
    time.sleep(0.3)
    observer.stop()
    assert [line.entry for line in observer.lines()] == states
    assert len((tmp_path / "lines").read_text().splitlines()) == 3


# An agent that does nothing but tell its journal of one run.
AGENT = """
import runpy, sys, types
from pathlib import Path
import agent
from contract import journal

agent.cli = cli = sys.modules["agent.cli"] = types.ModuleType("agent.cli")

def main(arguments):
    writer = journal.Journal(Path(arguments[2]) / "journal.jsonl")
    for state in ("suite-started", "running", "finished"):
        writer.append(state, "" if state == "suite-started" else "r")
    return 0

cli.main = main
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def killed(suite: Path, orders: list[list[str]]) -> list[tuple[int, str]]:
    """Start it until it comes to its end; each time its exit status and the journal so far."""
    (suite / "orders").write_text(json.dumps(orders))
    words = [str(kills.KILLED_AGENT), str(suite / "orders"), str(suite / "record"), "run"]
    argv = [sys.executable, "-c", AGENT, *words, "--suite-dir", str(suite)]
    entries: list[tuple[int, str]] = []
    while not entries or entries[-1][0]:
        status = subprocess.run(argv, cwd=REPOSITORY, check=False).returncode
        entries.append((status, (suite / "journal.jsonl").read_text()))
        assert len(entries) < 9
    return entries


@pytest.mark.parametrize(
    ("moment", "complete", "torn"), [("before", 1, 0), ("half", 1, 1), ("after", 2, 0)]
)
def test_the_agent_dies_before_within_or_after_a_line(
    tmp_path: Path, moment: str, complete: int, torn: int
) -> None:
    (died, text), (ended, _) = killed(tmp_path, [["running", moment]])
    assert (died, ended) == (-signal.SIGKILL, 0)
    lines = text.splitlines(keepends=True)
    assert sum(line.endswith("\n") for line in lines) == complete
    assert len(lines) == complete + torn
    kill = json.loads((tmp_path / "record").read_text())
    assert (kill["state"], kill["moment"], kill["seq"]) == ("running", moment, 1)


def test_every_order_is_done_once_and_no_run_is_killed_too_often(tmp_path: Path) -> None:
    orders = [["running", "before"], ["running", "after"], ["finished", "half"]]
    statuses = [status for status, _ in killed(tmp_path, [*orders, ["suite-started", "after"]])]
    assert statuses == [-signal.SIGKILL] * 3 + [0]
    deaths = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    expected = [["suite-started", "after"], ["running", "before"], ["running", "after"]]
    assert [[death["state"], death["moment"]] for death in deaths] == expected


def judged(**changes: object) -> dict[str, object]:
    sound = {"observed": 3, "runs": 2, "finished": 2, "lost": [], "false": []}
    return {**sound, "verified": True, "named": True, "problems": [], **changes}


def test_a_bad_outcome_misses_its_targets() -> None:
    good = Outcome("ctrl-c", times=3, wanted=3, resumed_s=[10.0, 20.0], judgement=judged())
    rows = results.rows([good], None)
    assert all(row["meets"] is not False for row in rows)
    bad = Outcome(
        "x", times=1, wanted=2, resumed_s=[61.0], judgement=judged(lost=["a"], finished=1)
    )
    missed = {row["figure"] for row in results.rows([bad], None) if row["meets"] is False}
    assert missed == {
        *("x: times", "x: runs finished in the end", "x: finished runs lost"),
        *("x: resumed, longest", "finished runs lost", "resumed, longest"),
    }
    none = Outcome("y", error="the lab is gone")
    assert "NO END" in results.matrix([none])
    assert any(row["meets"] is False for row in results.rows([none], None))


def test_outcomes_are_kept_part_by_part(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_outcome(tmp_path / name, Outcome(name, times=1, extra=[("cost", 0.1, "%", 0.2)]))
    write_outcome(tmp_path / "a", Outcome("a", times=2))
    assert {name: o.times for name, o in read_outcomes(tmp_path).items()} == {"a": 2, "b": 1}
    assert results.rows(list(read_outcomes(tmp_path).values()), None)


def test_every_fault_of_the_night_has_a_name_and_a_way_back() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 15
    assert all(fault.does and fault.undone for fault in FAULTS)


def test_each_faults_reported_codes_exist() -> None:
    codes = {incident.name for incident in fields(IncidentLog)}
    codes |= {f"waited:{check.wait.word}" for check in TABLE if check.wait}
    codes |= {f"check:{check.name}" for check in TABLE}
    assert not {code for fault in FAULTS for code in fault.reported} - codes


def test_incidents_give_their_codes() -> None:
    assert oracle.codes(IncidentLog(), []) == set()
    log = IncidentLog(reboots=1, waits=(Pause("room", 1, 2.0),), controller_boots=2)
    assert oracle.codes(log, ["clock"]) == {
        *("reboots", "waits", "controller_boots", "waited:room", "check:clock")
    }


def test_a_night_has_its_harm_in_every_quarter_by_its_seed() -> None:
    moments = overnight.moments(7, 96)
    assert moments == overnight.moments(7, 96) != overnight.moments(8, 96)
    assert [24 * q < count <= 24 * (q + 1) for q, (count, _) in enumerate(moments)] == [True] * 4
    assert sorted(event for _, event in moments) == [overnight.UNPLUG, *[overnight.CUT] * 3]
