"""Agreement of the RAPL readers, and the sentence that says why where they differ."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report.trust_section import readers_row
from analysis.suite import readers
from analysis.suite.records import Counter, Phase, Suite
from analysis.suite.suite_folder import rapl_tables
from analysis.tests.known import run_of
from contract import schema
from contract.counts import Edge
from contract.documents import OtherSource
from validation.synthetic.tables import suite_of

RANGE_UJ = 262_143_328_850
RUN_S = 100
OWN_UJ = 2_000_000_000  # 20 W


def zone(other_uj: float | None, apart_ns: int | None = 500_000, **ours: Any) -> Any:
    end = Edge(RUN_S * 10**9, RUN_S * 10**9 + 2000, 5000 + OWN_UJ)
    readings = {"own_start": Edge(0, 2000, 5000), "own_end": end, **ours}
    edges = {
        name: None if reading is None else asdict(reading) for name, reading in readings.items()
    }
    return {"zone": "package-0", "energy_uj": other_uj, "apart_ns": apart_ns, **edges}


def suite(*records: Any, folder: Path = Path()) -> Suite:
    """Return runs with what pyRAPL, perf_event and a source of another package read."""
    counter = Counter("rapl", "package-0", None, None, RANGE_UJ, ())
    runs = [
        run_of(
            run_id=f"{n:04d}",
            workload="idle",
            t_end_ns=RUN_S * 10**9,
            phases=(Phase("work", 0, 10**9, (counter,), {}),),
            other_sources={
                name: schema.read(OtherSource, readings)
                for name, readings in zip(("pyrapl", "perf", "battery"), sources, strict=False)
                if readings
            },
        )
        for n, sources in enumerate(records)
    ]
    return replace(suite_of({}, ()), folder=folder, runs=tuple(runs))


def source(other_uj: float | None, **more: Any) -> Any:
    return {"zones": [zone(other_uj, **more)]}


def rows_of(*records: Any) -> list[tuple[str, str]]:
    return [readers_row(agreement) for agreement in readers.agreements(suite(*records))]


def test_the_time_between_the_reads_explains_a_small_difference() -> None:
    """20 W for 0.5 ms and an update at each edge: 50 mJ."""
    (agreement,) = readers.agreements(suite((source(OWN_UJ - 49_000), None)))
    assert (agreement.compared, agreement.worst_uj, agreement.unexplained) == (1, 49_000, 0)
    assert agreement.worst_share == pytest.approx(24.5e-6)
    assert rows_of((source(OWN_UJ - 49_000), None)) == [
        (
            "at most 0.0490 J (0.00245 %) apart over 1 figures of whole runs; read at most "
            "0.500 ms apart, which explains it",
            "agrees",
        )
    ]


def test_the_highest_power_that_was_sampled_counts(tmp_path: Path) -> None:
    """80 W for a second of the run: four times the mean, so up to 196 mJ between the reads."""
    samples = [(0, 0), (1, 20_000_000), (2, 100_000_000), (3, 50_000_000)]
    lines = [
        {"zone": "package-0", "t_before_ns": s * 10**9, "t_after_ns": s * 10**9, "energy_uj": uj}
        for s, uj in samples
    ]
    folder = tmp_path / "runs" / "0000"
    folder.mkdir(parents=True)
    (folder / "rapl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for apart_uj, unexplained in ((199_000, 0), (201_000, 1)):
        (agreement,) = readers.agreements(suite((source(OWN_UJ - apart_uj), None), folder=tmp_path))
        assert agreement.unexplained == unexplained


@pytest.mark.parametrize("field", ["t_before_ns", "t_after_ns", "energy_uj"])
def test_a_sample_that_no_table_can_hold_is_left_out(field: str, tmp_path: Path) -> None:
    sample = {"zone": "package-0", "t_before_ns": 1, "t_after_ns": 2, "energy_uj": 3}
    folder = tmp_path / "runs" / "0000"
    folder.mkdir(parents=True)
    lines = [sample, *({**sample, field: beyond} for beyond in (2**63, -(2**63) - 1))]
    (folder / "rapl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (table,) = rapl_tables(suite((None,), folder=tmp_path))
    assert table.drop("run_id").rows(named=True) == [sample]


@pytest.mark.parametrize("field", ["t_start_ns", "t_end_ns"])
def test_a_phase_begins_and_ends_within_64_bits(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        schema.read(Phase, {"name": "x", "t_start_ns": 0, "t_end_ns": 1, field: 2**63})


def test_more_than_that_is_said() -> None:
    agreement = rows_of((source(OWN_UJ - 51_000), None), (source(OWN_UJ), None))
    text, verdict = agreement[0]
    assert text.endswith("explains all but 1: look for a second cause")
    assert verdict == "disagrees"


def test_perf_may_be_larger_by_the_kernels_rounding() -> None:
    """2.6 ppm of 2 kJ at 2^-14 J: 5.1 mJ more than the time between explains."""
    of_perf = readers.agreements(suite((None, source(OWN_UJ + 54_000))))[1]
    assert (of_perf.reader, of_perf.compared, of_perf.unexplained) == ("perf_event", 1, 0)
    assert readers.agreements(suite((source(OWN_UJ + 54_000), None)))[0].unexplained == 1


def test_without_perf_there_is_no_sentence_about_it() -> None:
    assert len(rows_of((source(OWN_UJ), None))) == 1
    assert len(rows_of((source(OWN_UJ), source(OWN_UJ)))) == 2


def test_a_wrap_is_followed_for_perf_and_left_out_for_pyrapl() -> None:
    wrapped = {
        "own_start": Edge(0, 2000, RANGE_UJ - 1000),
        "own_end": Edge(RUN_S * 10**9, RUN_S * 10**9 + 2000, OWN_UJ - 1000),
    }
    of_pyrapl, of_perf = readers.agreements(
        suite((source(-RANGE_UJ, **wrapped), source(OWN_UJ, **wrapped)))
    )
    assert (of_pyrapl.compared, of_pyrapl.wrapped) == (0, 1)
    assert (of_perf.compared, of_perf.wrapped, of_perf.worst_uj) == (1, 0, 61)


def test_a_source_of_another_package_is_compared_under_its_own_name() -> None:
    """It may not follow a wrap: such a run is left out."""
    wrapped = {"own_start": Edge(0, 2000, RANGE_UJ - 1000)}
    (_, battery) = readers.agreements(
        suite((None, None, source(OWN_UJ - 49_000)), (None, None, source(OWN_UJ, **wrapped)))
    )
    assert (battery.reader, battery.compared, battery.wrapped) == ("battery", 1, 1)
    assert (battery.worst_uj, battery.unexplained) == (49_000, 0)


def test_failures_and_their_reasons() -> None:
    (agreement,) = readers.agreements(
        suite(
            ({"error": "pyRAPL failed (KeyError): 3."}, None),
            ({"error": "pyRAPL failed (KeyError): 3."}, None),
            (source(None), None),
            (source(OWN_UJ, own_end=None), None),
        )
    )
    assert (agreement.compared, agreement.failed, agreement.wrapped) == (0, 3, 1)
    assert agreement.reasons == ("pyRAPL failed (KeyError): 3.",)
    assert readers_row(agreement) == (
        "nothing to compare; 1 more wrapped or unread; 3 times no figure: "
        "pyRAPL failed (KeyError): 3.",
        "cannot tell",
    )


def test_runs_of_old_tell_no_time_between() -> None:
    text, _ = rows_of((source(OWN_UJ - 51_000, apart_ns=None), None))[0]
    assert text.endswith("over 1 figures of whole runs")


def test_a_source_of_other_things_is_no_other_reader() -> None:
    record = source(7.0, own_start=None, own_end=None)
    agreements = readers.agreements(suite((source(OWN_UJ), None, record)))
    assert [agreement.reader for agreement in agreements] == ["pyRAPL"]
