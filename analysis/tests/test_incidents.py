"""Interruptions of a suite: read from its journal, in the report, only what happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from analysis.report import provenance
from analysis.report.sections import Report
from analysis.stats.results import Results, results, uncovered
from analysis.suite.incidents import IncidentLog, incident_log, pauses_s
from analysis.suite.records import Suite
from analysis.suite.samples import chained, of_table
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.pages import text_of
from analysis.tests.test_remarks import table
from contract.journal import INTERRUPTIONS, Entry
from instrumentation.clock import ClockReading
from validation.synthetic.tables import energy_of, suite_of

S = 1_000_000_000


@pytest.fixture(scope="module")
def report(night: FaultySuite) -> Report:
    return Report(results(night.folder))


def suite(*lines: tuple[str, str, str] | tuple[str, str, str, str]) -> Suite:
    """Return a suite with this journal: state, run, `cause` or `cause|detail`, boot.

    A second a line.
    """
    journal = []
    for seq, (state, run_id, line_detail, *boot) in enumerate(lines):
        cause, _, detail = line_detail.partition("|")
        at = (seq, seq * S, boot[0] if boot else "one")
        facts = {"during": detail} if cause in INTERRUPTIONS else {}
        journal.append(Entry(*at, state, run_id, cause, detail, facts))
    return replace(suite_of({"plain": "plain"}, ["idle"]), journal=tuple(journal))


def test_a_night_of_faults_is_counted(report: Report, night: FaultySuite) -> None:
    incidents = report.results.incidents
    assert (incidents.reboots, incidents.restarts, incidents.resumed) == (1, 1, 0)
    counts = {(v.reason, v.tries) for v in incidents.voids}
    assert counts == {
        ("The throttle counter rose by 12 during the run.", 2),
        ("meter0 saw 41 % of tar", 1),
        ("the drive reported an error: media", 1),
    }
    assert (incidents.interrupted, incidents.repeated) == (2, 5)
    assert [(w.name, w.times) for w in incidents.waits] == [("secrets", 1), ("held", 1)]
    assert incidents.void_to_end == (night.order[-2],)
    assert incidents.ended
    (silence,) = incidents.silences
    assert silence.times == 1
    trust = text_of(report.trust())
    assert all(reason.rstrip(".") in trust for reason, _ in counts)
    assert night.missed in text_of(report.answer())
    begin, end = night.truth.phases_s[night.missed, "tar"]
    assert silence.seconds == pytest.approx(end - begin + 6.2, abs=0.6)  # and a late bunch


def test_only_a_meter_can_miss_a_run() -> None:
    same = {"workload": "sql", "configuration": "plain", "phase": "query", "energy_j": 1.0}
    energy = energy_of(
        [
            {**same, "block": 0, "coverage": 0.979},
            {**same, "block": 1, "coverage": 0.98},
            {**same, "block": 2, "coverage": 0.0, "source": "rapl", "component": "package-0"},
            {**same, "block": 3, "coverage": 0.0, "phase": "tail"},
        ]
    )
    assert uncovered(energy) == ["b00-plain-sql"]


def test_a_quiet_night_is_one_sentence(derived: Results) -> None:
    page = Report(derived)
    assert "No interruptions." in text_of(page.trust())
    assert "Interruptions" not in text_of(page.answer())


STARTED = ("suite-started", "", "")


@pytest.mark.parametrize(
    ("between", "counts"),
    [
        ([("void", "a", "agent-killed|running")], (0, 1, 0)),
        ([("suite-failed", "", "|5 runs in a row were void")], (0, 0, 1)),
        ([("suite-finished", "", ""), ("void", "a", "repeat|not whole")], (0, 0, 1)),
        ([], (0, 1, 0)),
    ],
    ids=["killed", "failed", "asked for more", "killed between runs"],
)
def test_a_start_is_told_by_what_went_before(
    between: list[tuple[str, str, str]], counts: tuple[int, int, int]
) -> None:
    log = incident_log(suite(STARTED, ("running", "a", ""), *between, STARTED))
    assert (log.reboots, log.restarts, log.resumed) == counts


def test_a_power_cut_between_runs_and_one_in_a_run() -> None:
    went_down = "target-down|proving"
    log = incident_log(
        suite(
            STARTED,
            ("finished", "a", ""),
            ("suite-started", "", "", "two"),
            ("waiting", "", "secrets|none yet", "two"),
            ("proving", "b", "", "two"),
            ("void", "b", went_down, "three"),
            ("suite-started", "", "", "three"),
            ("running", "b", "", "three"),
            ("waiting", "b", "room|none", "three"),
        )
    )
    assert (log.reboots, log.restarts) == (2, 0)
    assert (log.interrupted, log.repeated) == (1, 1)
    assert [(w.name, w.seconds) for w in log.waits] == [("secrets", 1.0), ("room", 0.0)]
    assert not log.ended


def test_a_suite_that_was_given_up_says_so() -> None:
    log = incident_log(
        suite(STARTED, ("void", "a", "failed|x"), ("suite-failed", "", "|the disk is gone"))
    )
    assert log.failed == "the disk is gone"
    assert "The suite failed: the disk is gone" in [*provenance.interruption_lines(log)]


def test_a_suite_without_a_journal_has_no_incidents() -> None:
    assert incident_log(replace(suite(STARTED), journal=())) == IncidentLog(never=0)


def test_a_meters_silence_is_longer_than_any_bunch() -> None:
    records = table({}, seconds=100)
    kept = records.filter((records["t_mono_ns"] <= 20 * S) | (records["t_mono_ns"] > 70 * S))
    kept = kept.with_columns(epoch=0)
    assert pauses_s(of_table(kept)) == [51.0]
    short = records.filter((records["t_mono_ns"] <= 20 * S) | (records["t_mono_ns"] > 40 * S))
    assert pauses_s(of_table(short.with_columns(epoch=0))) == []  # within 30 windows
    opened = records.with_columns(epoch=(records["t_mono_ns"] > 50 * S).cast(pl.Int32))
    assert pauses_s(of_table(opened)) == [1.0]
    # From one boot of the controller to the next the distance may be anything.
    two = chained([(of_table(kept.head(20)), 0), (of_table(kept.head(20)), 7200 * S)])
    assert pauses_s(two) == []


def reading(at_s: float, boot: str = "a") -> ClockReading:
    """Return a clock reading; the target's clock is the controller's."""
    sent = round(at_s * S)
    return ClockReading(sent, sent + 5, sent + 10, "one", boot)


def test_a_link_that_was_away_and_further_sessions_are_told(tmp_path: Path) -> None:
    clock = [reading(t) for t in (0, 100, 130, 131, 161, 761, 791)]
    clock += [reading(t, "b") for t in (900, 930, 1005, 3000)]
    begins = [{"begun_ns": n, "controller_boot_id": "a"} for n in (1, 2)]
    lines = [*begins, *({**begin, "wall_s": 1} for begin in begins)]
    (tmp_path / "sessions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    away = suite(STARTED, ("running", "a", ""), ("finished", "a", ""), ("suite-finished", "", ""))
    times = (95, 100, 1006, 1007)  # at work from the first burst's end to the suite's
    journal = tuple(replace(x, t_mono_ns=t * S) for x, t in zip(away.journal, times, strict=True))
    log = incident_log(replace(away, clock=tuple(clock), folder=tmp_path, journal=journal))
    assert [(p.times, round(p.seconds)) for p in log.unlinked] == [(2, 675)]
    assert "no link to the target" in provenance.sentence(log)


def test_a_session_that_did_not_end_was_killed_unless_it_is_still_at_work(tmp_path: Path) -> None:
    begins = [{"begun_ns": n, "controller_boot_id": "a", "pid": n} for n in (1, 2, 3)]
    end = {"begun_ns": 2, "controller_boot_id": "a", "wall_s": 9.0}
    journal = "".join(json.dumps(line) + "\n" for line in [*begins[:2], end, begins[2]])
    (tmp_path / "sessions.jsonl").write_text(journal)
    at_work = replace(suite(STARTED), folder=tmp_path, sealed=False)
    assert incident_log(at_work).killed == 1
    log = incident_log(replace(at_work, sealed=True))
    assert log.killed == 2
    assert "2 sessions of the controller killed" in provenance.sentence(log)


def test_a_power_cycle_is_an_interruption(tmp_path: Path) -> None:
    line = {"t_mono_ns": 1, "controller_boot_id": "a", "cause": "lost", "hung_s": 61.0}
    (tmp_path / "power.jsonl").write_text(json.dumps(line) + "\n")
    log = incident_log(replace(suite(STARTED, ("suite-finished", "", "")), folder=tmp_path))
    assert log.power_cycles == 1
    assert "1 power cycle of the target that hung" in provenance.sentence(log)


def test_nobody_listens_before_the_agent_starts_nor_once_the_target_is_down() -> None:
    cut = suite(STARTED, ("running", "a", ""), ("suite-started", "", "", "two"))
    clock = reading(-500), reading(1), reading(900)
    assert incident_log(replace(cut, clock=clock)).unlinked == ()
