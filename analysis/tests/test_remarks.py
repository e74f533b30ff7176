"""A meter's remarks reach the phases and channels that they are about, and no others."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.energy.windows import Remarks
from analysis.suite import samples
from analysis.suite.samples import of_table

S = 1_000_000_000
OWN = ("0", "1")


def table(flags: dict[int, str], seconds: int = 20) -> pl.DataFrame:
    """Return a record a second; `flags` by the second at whose end it came."""
    return pl.DataFrame(
        {
            "t_mono_ns": [n * S for n in range(1, seconds + 1)],
            "window_s": [1.0] * seconds,
            "flags": [flags.get(n, "") for n in range(1, seconds + 1)],
        },
        schema_overrides={"window_s": pl.Float64},
    )


@pytest.fixture(params=[2, 500_000], ids=["in pieces", "at once"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "CHUNK_RECORDS", request.param)


def during(remarks: Remarks, start_s: float, end_s: float, log: str = "0") -> list[str]:
    return remarks.during(round(start_s * S), round(end_s * S), log, OWN)


def test_a_remark_lasts_as_long_as_its_windows() -> None:
    remarks = Remarks.from_samples(
        of_table(table({5: "over-range", 6: "over-range", 12: "over-range"}))
    )
    assert during(remarks, 0, 4) == []
    assert during(remarks, 0, 4.1) == ["over-range"]
    assert during(remarks, 5.2, 5.4) == ["over-range"]
    assert during(remarks, 6, 11) == []
    assert during(remarks, 11.9, 30) == ["over-range"]
    assert during(remarks, 12, 30) == []


def test_gap_restart_and_marker_are_not_remarks() -> None:
    remarks = Remarks.from_samples(of_table(table({3: "gap restart marker", 9: "gap doubtful"})))
    assert during(remarks, 0, 20) == ["doubtful"]


def test_a_remark_applies_only_to_its_channel() -> None:
    remarks = Remarks.from_samples(of_table(table({3: "off-1", 4: "tripped-0 auto-range"})))
    assert during(remarks, 0, 20, "0") == ["auto-range", "tripped"]
    assert during(remarks, 0, 20, "1") == ["auto-range", "off"]
    assert during(remarks, 0, 2.5, "1") == ["off"]


def test_records_without_flags_have_no_remarks() -> None:
    assert during(Remarks.from_samples(of_table(table({}))), 0, 20) == []
    assert during(Remarks.from_samples(samples.NOTHING), 0, 20) == []
