"""What a suite records besides its joules: incidents, disks' state, provenance, flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.energy import plausibility, windows
from analysis.flags import FLAGS, flag_note, meaning, reserves
from analysis.report import disks_section, provenance, trust_section
from analysis.report.sections import Report
from analysis.stats.results import Results, flag_notes, results, uncovered
from analysis.suite import suite_folder
from analysis.suite.incidents import IncidentLog, incident_log, pauses_s
from analysis.suite.records import Suite
from analysis.suite.samples import chain, of_table
from analysis.suite.suite_folder import read
from analysis.tests.faulty_suite import FaultySuite
from analysis.tests.pages import text_of
from analysis.tests.test_remarks import table
from contract.journal import INTERRUPTIONS, Entry
from instrumentation.clock import ClockReading
from instrumentation.meters import registry
from instrumentation.sources import counter, pyrapl
from validation.synthetic.suite import Options, write_suite
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
    trust = text_of(trust_section.trust_section(report.results))
    assert all(reason.rstrip(".") in trust for reason, _ in counts)
    assert night.missed in text_of(report.head())
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
    assert "No interruptions." in text_of(trust_section.trust_section(page.results))
    assert "Interruptions" not in text_of(page.head())


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
def test_a_start_is_classified_by_the_line_before(
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


def test_a_failed_suite_reports_its_reason() -> None:
    log = incident_log(
        suite(STARTED, ("void", "a", "failed|x"), ("suite-failed", "", "|the disk is gone"))
    )
    assert log.failed == "the disk is gone"
    assert "The suite failed: the disk is gone" in [*provenance.interruption_lines(log)]


def test_a_suite_without_a_journal_has_no_incidents() -> None:
    assert incident_log(replace(suite(STARTED), journal=())) == IncidentLog(never=0)


def test_a_meters_silence_is_longer_than_any_bunch() -> None:
    records = table({}, seconds=100)
    interrupted = records.filter((records["t_mono_ns"] <= 20 * S) | (records["t_mono_ns"] > 70 * S))
    interrupted = interrupted.with_columns(epoch=0)
    assert pauses_s(of_table(interrupted)) == [51.0]
    short = records.filter((records["t_mono_ns"] <= 20 * S) | (records["t_mono_ns"] > 40 * S))
    assert pauses_s(of_table(short.with_columns(epoch=0))) == []  # within 30 windows
    opened = records.with_columns(epoch=(records["t_mono_ns"] > 50 * S).cast(pl.Int32))
    assert pauses_s(of_table(opened)) == [1.0]
    # From one boot of the controller to the next the distance may be anything.
    two = chain([(of_table(interrupted.head(20)), 0), (of_table(interrupted.head(20)), 7200 * S)])
    assert pauses_s(two) == []


def reading(at_s: float, boot: str = "a") -> ClockReading:
    """Return a clock reading; the target's clock is the controller's."""
    sent = round(at_s * S)
    return ClockReading(sent, sent + 5, sent + 10, "one", boot)


def test_an_outage_of_the_link_is_counted(tmp_path: Path) -> None:
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


def test_a_session_without_end_is_killed_unless_still_at_work(tmp_path: Path) -> None:
    begins = [{"begun_ns": n, "controller_boot_id": "a", "pid": n} for n in (1, 2, 3)]
    end = {"begun_ns": 2, "controller_boot_id": "a", "wall_s": 9.0}
    journal = "".join(json.dumps(line) + "\n" for line in [*begins[:2], end, begins[2]])
    (tmp_path / "sessions.jsonl").write_text(journal)
    at_work = replace(suite(STARTED), folder=tmp_path, sealed=False)
    assert incident_log(at_work).killed == 1
    log = incident_log(replace(at_work, sealed=True))
    assert log.killed == 2
    assert "2 sessions of the controller killed" in provenance.sentence(log)


def test_no_outage_of_the_link_counts_while_no_agent_works() -> None:
    cut = suite(STARTED, ("running", "a", ""), ("suite-started", "", "", "two"))
    clock = reading(-500), reading(1), reading(900)
    assert incident_log(replace(cut, clock=clock)).unlinked == ()


STEADY = (400.0, 210.0, 100.0, 98.0, 101.0, 102.0, 99.0)
RESTLESS = (100.0, 150.0) * 4


def folder_of(
    folder: Path,
    settling: Mapping[str, Sequence[float]] | None = None,
    configurations: Sequence[str] = ("plain", "opal"),
    disks: Mapping[str, Any] | None = None,
) -> Path:
    options = Options(
        blocks=1,
        interval_ms=500,
        workloads=("idle",),
        configurations=configurations,
        settling=settling,
        machine={} if disks is None else {"disks": disks},
    )
    write_suite(folder, options, seal=False)
    return folder


def problems_of(folder: Path) -> list[str]:
    return list(disks_section.sentences(read(folder)))


def test_a_steady_disk_is_reported_with_its_window(tmp_path: Path) -> None:
    plain, sed = problems_of(folder_of(tmp_path / "s", {"plain": STEADY, "sed": RESTLESS}))
    assert "17.2 GB written over 2 times, then 7 rounds of 128 KiB in order" in plain
    assert (
        "It was steady: 100 MiB/s in rounds 3 to 7, range 4.00 % of that (at most 20.0 %)" in plain
    )
    assert "Steady state was not reached in 8 rounds: 130 MiB/s in rounds 4 to 8" in sed
    assert "Its runs still count" in sed


def test_a_missing_precondition_record_is_a_problem(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY})
    suite = read(folder)
    assert "Disk sed was to be preconditioned, and there is no record of it." in suite.problems
    assert problems_of(folder)[1].endswith("but has no record of it.")


def test_a_plan_without_precondition_has_no_problem(tmp_path: Path) -> None:
    suite = read(folder_of(tmp_path / "s"))
    assert suite.preconditioned == {}
    assert not [problem for problem in suite.problems if "precondition" in problem]


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(plan_sha256="0" * 64),
        lambda d: d.update(format="fde-precondition/2"),
        lambda d: d.update(written=[{"bytes": 0, "seconds": 1}]),
        lambda d: d.update(written=[{"bytes": 1, "seconds": 0}]),
        lambda d: d.update(written=[{"bytes": True, "seconds": 1}]),
        lambda d: d.update(written=[{"bytes": 1.5, "seconds": 1}]),
        lambda d: d.update(written=d["written"] * 9),
        lambda d: d.update(filled="none"),
        lambda d: d.update(size_bytes=-1),
        lambda d: d.pop("interrupted"),
        lambda d: d.clear(),
    ],
)
def test_an_invalid_precondition_record_is_a_problem(tmp_path: Path, change: Change) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY, "sed": STEADY})
    path = folder / "precondition" / "plain.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    suite = read(folder)
    assert suite.preconditioned["plain"] is None and suite.preconditioned["sed"] is not None
    assert any("plain" in problem for problem in suite.problems)


def test_interrupted_preconditioning_is_reported(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "s", {"plain": STEADY}, configurations=("plain",))
    path = folder / "precondition" / "plain.json"
    document = {**json.loads(path.read_text(encoding="utf-8")), "interrupted": 2}
    path.write_text(json.dumps({**document, "written": document["written"][:4]}), encoding="utf-8")
    (sentence,) = problems_of(folder)
    assert "after 2 interrupted attempts" in sentence
    assert "too few to show whether it was steady" in sentence


def changed(suite_folder: Path, **proof: Any) -> Path:
    for path in suite_folder.glob("runs/*-opal-*/run.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        run["proof"].update(proof)
        path.write_text(json.dumps(run), encoding="utf-8")
    return suite_folder


def test_an_unpreconditioned_disk_was_discarded_or_as_found(tmp_path: Path) -> None:
    disks = {"plain": {"written_bytes": 12_300_000_000_000, "used_percent": 4}}
    folder = changed(folder_of(tmp_path / "s", disks=disks), discard={"first_bytes": 2**30})
    plain, sed = problems_of(folder)
    assert plain == (
        "Disk plain was not preconditioned; it was as found: 12.3 TB written in its life, 4 % of "
        "its life used."
    )
    assert sed == (
        "Disk sed was not preconditioned; its whole extent was discarded before each "
        "configuration was set up."
    )
    for outcome, bytes_, words in (
        ("discarded", 2**30, "was discarded before each"),
        ("asked", 2**30, "does not report whether it was carried out"),
        ("refused", 0, "It refused the discard before each configuration"),
        ("ignored", 0, "It ignored the discard before each configuration"),
    ):
        discard = {"first_bytes": bytes_, "first_outcome": outcome}
        assert words in problems_of(changed(folder, discard=discard))[1]
    odds: list[Any] = [{"first_bytes": 0}, {"first_bytes": "much"}, None, []]
    odds += [{"first_bytes": 0, "first_outcome": ["refused"]}]
    for odd in odds:
        assert problems_of(changed(folder, discard=odd))[1].endswith("how much it has written.")


def test_a_range_made_again_is_reported_on_a_shared_disk(tmp_path: Path) -> None:
    alone = folder_of(tmp_path / "a", {"plain": STEADY, "sed": STEADY})
    assert not any("created again" in sentence for sentence in problems_of(alone))
    shared = folder_of(tmp_path / "b", {"sed": STEADY}, configurations=("sed-unlocked", "opal"))
    (sentence,) = problems_of(shared)
    assert "its range is created again each time" in sentence


BEFORE: dict[str, Any] = {
    "wall": "2026-01-01",
    "boot_id": "a",
    "swaps": ["/dev/sda2 partition 100 0 -2"],
    "cpu": {"governor": "performance"},
    "settings": {"sys/vm/dirty_ratio": "20"},
    "disks": {"plain": {"scheduler": "[none] mq-deadline", "written_bytes": 1, "used_percent": 1}},
    "versions": {"cryptsetup": "2.7.5"},
}


def record_with(path: str, value: object) -> dict[str, Any]:
    """Return the record with another value at a path of keys."""
    document: dict[str, Any] = json.loads(json.dumps(BEFORE))
    *above, last = path.split(":")
    inner = document
    for key in above:
        inner = inner[key]
    inner[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("disks:plain:scheduler", "none [mq-deadline]", "disks.plain.scheduler was [none] mq-dead"),
        ("settings:sys/vm/dirty_ratio", "40", "sys/vm/dirty_ratio was 20, then 40"),
        ("settings:sys/vm/new", "1", "sys/vm/new was absent, then 1"),
        ("cpu:governor", "powersave", "cpu.governor was performance, then powersave"),
        ("cpu:governor", None, "cpu.governor was performance, then absent"),
        ("versions:cryptsetup", "2.8.1", "cryptsetup was 2.7.5, then 2.8.1"),
        ("disks:plain:written_bytes", 2, ""),
        ("boot_id", "b", ""),
        ("wall", "2026-01-02", ""),
        ("swaps", ["/dev/sda2 partition 100 9 -2"], ""),
        ("locked_reads", {"S": {"error": "ENODATA", "link_before": "6.0 Gbps"}}, ""),
    ],
)
@pytest.mark.parametrize("name", ["after.json", "before-resumed-1.json"])
def test_changed_settings_are_named_and_counters_are_not(
    tmp_path: Path, name: str, path: str, value: object, named: str
) -> None:
    (tmp_path / "provenance").mkdir()
    (tmp_path / "provenance/before.json").write_text(json.dumps(BEFORE))
    (tmp_path / "provenance" / name).write_text(json.dumps(record_with(path, value)))
    sentences = list(suite_folder.provenance_changes(tmp_path, []))
    assert len(sentences) == bool(named)
    assert all(named in sentence and name in sentence for sentence in sentences)


OF_COUNTERS = {
    *(counter.DOUBLE_WRAP, counter.READ_FAILED, counter.MIRROR, counter.UNKNOWN_RANGE),
    *(counter.REOPENED, counter.BEYOND_BOUND),
    *(pyrapl.WRAPPED, pyrapl.DIFFERS, pyrapl.UNCHECKED),
}
OF_RECORDS = {
    windows.DELAY_FLAG,
    windows.PERIOD_FLAG,
    windows.DUPLICATE_FLAG,
    plausibility.STUCK_FLAG,
    plausibility.ZERO_FLAG,
    plausibility.NEGATIVE_FLAG,
    counter.LONE_FLAG,
}


def test_every_flag_of_ours_has_a_meaning() -> None:
    assert not (OF_COUNTERS | OF_RECORDS) - FLAGS.keys()
    for kind in registry.kinds():
        for word in set(registry.load(kind).flag_words) - windows.NOT_REMARKS:
            base, _, channel = word.rpartition("-")
            of_channel = base and channel in registry.load(kind).own_channels
            assert (base if of_channel else word) in FLAGS, (kind, word)


def test_an_unknown_flag_reserves() -> None:
    assert reserves("lost-phase") and "driver" in meaning("lost-phase")
    assert not reserves("wrap-corrected")
    assert reserves("off"), "a word that YAML would read as false"


def test_a_note_has_code_facts_and_sentence() -> None:
    note = flag_note("gap-filled", 1, 2, "runs of x", ["system", "drive"], coverage=0.5)
    assert note.code == "gap-filled"
    assert note.facts == {"flagged": 1, "of": 2, "components": ("system", "drive"), "coverage": 0.5}
    assert "1 of 2 runs of x" in note.sentence and "50 %" in note.sentence


@pytest.fixture
def energy() -> pl.DataFrame:
    """Two runs of two phases by a meter with two channels; each run has its sum beside them."""
    flags = {("a", "x"): "over-range late", ("b", "y"): "late", ("a", "all"): "over-range late"}
    return pl.DataFrame(
        [
            {
                "run_id": run,
                "phase": phase,
                "source": "meter0",
                "component": component,
                "flags": flags.get((run, phase), "") if component == "system" else "",
            }
            for run in "ab"
            for phase in ("x", "y", "all", "between")
            for component in ("system", "drive")
        ]
    )


def test_flags_of_a_suite_are_counted_by_phase(energy: pl.DataFrame) -> None:
    facts = {note.code: note.facts for note in flag_notes(energy)}
    common = {"of": 4, "components": ("system",), "source": "meter0"}
    assert facts == {"over-range": {"flagged": 1, **common}, "late": {"flagged": 2, **common}}
