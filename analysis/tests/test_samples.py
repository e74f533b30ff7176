"""A recording gives the same pieces from its raw bytes as from its decoded file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.energy.windows import fit
from analysis.suite import samples
from validation.synthetic.suite import Truth

COLUMNS = ("epoch", "t_mono_ns", "t_device_us", "window_s")


@pytest.mark.parametrize("lengths", [[70, 250, 3], [100, 100], [1] * 205, [0, 40], []])
def test_pieces_are_even_and_hold_every_row_in_order(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "CHUNK_RECORDS", 100)
    rows = pl.DataFrame({"row": range(sum(lengths))}, schema={"row": pl.Int64()})
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    pieces = list(samples.even(rows.slice(a, n) for a, n in zip(starts, lengths, strict=True)))
    assert [len(piece) for piece in pieces[:-1]] == [100] * (len(pieces) - 1)
    assert [row for piece in pieces for row in piece["row"]] == rows["row"].to_list()


def test_the_time_of_a_meter_is_the_same_from_raw_bytes_and_from_the_file(
    whole_suite: tuple[Path, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "CHUNK_RECORDS", 333)  # several pieces, as a long suite has
    folder = whole_suite[0] / "meters" / "meter0"
    kept = samples.of_file(folder / "samples.parquet", ("system", "drive"))
    made = samples.of_recording(folder)
    assert kept.records > 1000
    assert all(a.equals(b) for a, b in zip(kept.tables(COLUMNS), made.tables(COLUMNS), strict=True))
    a, b = (fit(recording, "device", 0.02).stretches[0].line for recording in (kept, made))
    assert (a.intercept_ns, a.slope, a.bound_ns) == (b.intercept_ns, b.slope, b.bound_ns)
    assert all((x == y).all() for x, y in zip(a.knots, b.knots, strict=True))
