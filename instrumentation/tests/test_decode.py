"""Test decoding raw streams to samples.parquet, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from contract.tests.refusal import refuses
from instrumentation import decode as decoding
from instrumentation import trace
from instrumentation.decode import decode, main, write_samples
from instrumentation.simulators.smartpower3 import encode_line
from instrumentation.trace import StreamWriter

COLUMNS = {
    "seq": pl.Int64,
    "epoch": pl.Int32,
    "t_mono_ns": pl.Int64,
    "t_device_us": pl.Int64,
    "window_s": pl.Float64,
    "flags": pl.String,
    "power_w_system": pl.Float64,
    "power_w_drive": pl.Float64,
}


def recorded(folder: Path, epochs: list[list[bytes]], **changes: object) -> Path:
    folder.mkdir(parents=True)
    described = {"kind": "smartpower3", "channels": {"0": "system", "1": "drive"}} | changes
    (folder / "meter.json").write_text(json.dumps(described))
    writer = StreamWriter(folder / "stream.raw")
    t_ns = 0
    for lines in epochs:
        writer.append(t_ns, b"")
        for line in lines:
            t_ns += 10_000_000
            writer.append(t_ns, line)
    writer.close()
    return folder


def lines(count: int, start_ms: int = 0) -> list[bytes]:
    return [encode_line(start_ms + n * 10, (20_000 + n % 100, 60)) for n in range(count)]


def test_columns_and_values(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "meter0", [lines(5), lines(3, 500)])
    decoder = write_samples(folder)
    samples = pl.read_parquet(folder / "samples.parquet")
    assert {**samples.schema, "flags": pl.String} == COLUMNS
    assert samples["seq"].to_list() == list(range(6))
    assert samples["epoch"].to_list() == [1, 1, 1, 1, 2, 2]
    assert samples["t_mono_ns"].to_list()[:2] == [20_000_000, 30_000_000]
    assert samples["t_device_us"].to_list() == [10_000, 20_000, 30_000, 40_000, 510_000, 520_000]
    assert samples["window_s"].to_list() == [0.01] * 6
    assert samples["power_w_system"].to_list()[:2] == [20.001, 20.002]
    assert set(samples["power_w_drive"]) == {0.06}
    assert (decoder.records, decoder.faults) == (6, [])
    assert decode(folder).samples.equals(samples.cast({"flags": pl.String}))


def test_flags_are_words(tmp_path: Path) -> None:
    off = [encode_line(n * 10, (0, 0), on=(False, True)) for n in (0, 1, 4)]
    samples = decode(recorded(tmp_path / "m", [off])).samples
    assert samples["flags"].to_list() == ["off-0", "gap off-0"]


def test_small_chunks_give_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recorded(tmp_path / "meter0", [lines(100), lines(50, 5000)])
    expected = decode(folder).samples
    monkeypatch.setattr(decoding, "_CHUNK_RECORDS", 7)
    monkeypatch.setattr(trace, "_READ_BYTES", 300)
    write_samples(folder)
    samples = pl.read_parquet(folder / "samples.parquet")
    assert samples.cast({"flags": pl.String}).equals(expected)
    assert len(list(decoding.tables(folder))) > 15


def test_a_recording_without_records_has_all_columns(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "meter0", [[]])
    write_samples(folder)
    samples = pl.read_parquet(folder / "samples.parquet")
    assert {**samples.schema, "flags": pl.String} == COLUMNS
    assert samples.is_empty()


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with refuses("no-recording"):
        decode(tmp_path)


def test_a_damaged_stream_is_refused_and_leaves_the_old_table(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "meter0", [lines(20)])
    write_samples(folder)
    before = (folder / "samples.parquet").read_bytes()
    stream = folder / "stream.raw"
    stream.write_bytes(stream.read_bytes() + b"\xff" * 40)
    for step in (write_samples, decode):
        with refuses("meter-undecoded"):
            step(folder)
    assert (folder / "samples.parquet").read_bytes() == before
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"kind": "nonsense"}, "There is no kind of meter called 'nonsense'"),
        ({"channels": {"9": "system"}}, "has no channel 9"),
        ({"settings": {"interval_ms": 7}}, "interval_ms"),
        ({"channels": None}, "is not a meter's description"),
    ],
)
def test_a_wrong_description_is_one_sentence(
    tmp_path: Path, described: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(tmp_path / "meter0", [lines(3)], **described)
    assert main([str(folder)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("fde: ") and message in err
    assert err.count("\n") == 1
