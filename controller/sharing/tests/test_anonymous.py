"""Marks of a person and of machines in every kind of place of a suite: none is in its bundle."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from analysis.stats import results
from analysis.suite.bundle import opened
from analysis.suite.suite_folder import read
from contract.plan import digest
from controller.cli.app import main
from controller.planning.known_names import suite_names
from controller.sharing.anonymous_rules import fields
from controller.tests.command import Fde
from instrumentation import decode
from instrumentation.meters.answers import envelope
from instrumentation.trace import StreamWriter
from validation.synthetic.folder import write_journal, write_manifest
from validation.synthetic.suite import Options, write_suite

LEFT_OUT = "left out"
# Documents that a synthetic suite lacks.
OTHERS: Mapping[str, Any] = {
    "sessions.jsonl": {"begun_ns": 1},
    "requests.jsonl": {"run_id": "", "seq": 1},
    "identity.json": {"format": "fde-identity/1"},
    "provenance/first-readings.json": {"temperature_c": 40.0},
    "provenance/after.json": {"format": "fde-provenance/1"},
}


@dataclass(frozen=True)
class Mark:
    """See anonymous_marks.yml."""

    what: str
    needle: str
    file: str
    keys: list[Any] | None
    text: Any


_MARKS = Path(__file__).with_name("anonymous_marks.yml").read_text(encoding="utf-8")
MARKS = [Mark(*one) for one in yaml.safe_load(_MARKS)["marks"]]


def stream() -> dict[str, tuple[str, dict[str, Any], list[tuple[int, bytes, bool]]]]:
    """Three plugs on the network by name: kind, settings, and frames as their drivers record."""
    home = {
        "entity_id": "sensor.aster_desk",
        "state": "42.5",
        "attributes": {"unit_of_measurement": "W", "friendly_name": "Aster Smith's desk"},
        "context": {"id": "01JDMPX5A7", "user_id": "c9a1f0aa77e34d2f9d0e"},
    }
    zigbee = {"power": 40.1, "energy": 1.5, "device": {"ieeeAddr": "0x00158d0001a2b3c4"}}
    shelly = {
        "wifi_sta": {"ssid": "SmithFamilyWifi", "ip": "192.168.178.44"},
        **{"mac": "A4CF12F3E0B1", "serial": 471100815, "unixtime": 1795700000},
        "meters": [{"power": 7.1, "is_valid": True, "total": 5}],
    }

    def frames(sent: bytes, label: str, answers: list[Any]) -> list[tuple[int, bytes, bool]]:
        outcome = [(10**9, b"", False)]
        for n, answer in enumerate(answers, 2):
            reply = envelope(label, json.dumps(answer).encode())
            outcome += [(10**9 * n, sent, True), (10**9 * n + 1, reply, False)]
        return outcome

    reported = [{**home, "last_reported": f"2026-01-01T14:15:16+03:30 {n}"} for n in range(5)]
    counted = [{**zigbee, "energy": 1.5 + n} for n in range(5)]
    status = [
        {**shelly, "meters": [{"power": 7.0 + n, "is_valid": True, "total": n}]} for n in range(5)
    ]
    slow = {"period_s": 1, "resolution_w": 0.1}
    get = b"GET /api/states/sensor.aster_desk\n"
    return {
        "desk": (
            "http",
            {"profile": "home-assistant", "entity": "sensor.aster_desk", **slow},
            frames(get, "200 OK", reported),
        ),
        "heater": (
            "http",
            {"profile": "generic", "path": "/poppy_heater", "power": "/power", **slow},
            frames(b"GET /poppy_heater\n", "200 OK", counted),
        ),
        "lamp": ("http", {"profile": "shelly-gen1"}, frames(b"GET /status\n", "200 OK", status)),
    }


def _documents(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))[: 1 if "run.json" in pattern else None]


def _complete(path: Path) -> None:
    """Add what a plan must have beside the values that the marks put into it."""
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan["configurations"].append({**plan["configurations"][0], "name": "other"})
    plan["filesystem"] = {"type": "ext4"}
    sides = {side: {"workload": plan["workloads"][0]["name"]} for side in ("first", "second")}
    plan["analysis"]["comparisons"] = [{"name": "disk", **sides}]
    path.write_text(json.dumps(plan), encoding="utf-8")


def _plant(folder: Path, mark: Mark) -> None:
    if mark.keys is None:
        path = folder / mark.file.replace("*", sorted((folder / "runs").iterdir())[0].name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(mark.text, encoding="utf-8")
        return
    paths = _documents(folder, mark.file)
    assert paths, mark
    for path in paths:
        lines = path.suffix == ".jsonl"
        text = path.read_text(encoding="utf-8")
        documents = [json.loads(line) for line in (text.splitlines() if lines else [text])]
        for document in documents[:1]:
            _set(document, mark.keys, mark.text)
        path.write_text("\n".join(map(json.dumps, documents)) + "\n", encoding="utf-8")


def _set(document: Any, keys: Sequence[Any], text: Any) -> None:
    *above, last = keys
    for key, following in zip(above, keys[1:], strict=True):
        if isinstance(document, dict):
            document = document.setdefault(key, [] if isinstance(following, int) else {})
        else:
            if len(document) <= key:
                document.append([] if isinstance(following, int) else {})
            document = document[key]
    if isinstance(document, list) and last >= len(document):
        document.append(text)
    else:
        document[last] = text


def _close(folder: Path, old_plan: str) -> None:
    """Return the sums of plan, runs and journal as they are after the marks were planted."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan["sha256"] = digest(plan)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    for path in folder.glob("runs/*/run.json"):
        text = path.read_text(encoding="utf-8").replace(old_plan, plan["sha256"])
        path.write_text(text, encoding="utf-8")
    lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    write_journal(folder, list(map(json.loads, lines)))
    for path in folder.glob("meters/*/"):
        decode.write_samples(path)
    write_manifest(folder)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a suite with all marks, and its anonymous bundle."""
    root = tmp_path_factory.mktemp("anonymous")
    folder = root / "synthetic-alicebox-20260101T000000Z"
    options = Options(
        blocks=2,
        interval_ms=100,
        workloads=("sql", "idle"),
        host="alicebox",
        settling={"plain": [100.0] * 5},
        machine={"cpu": {"model": "UML"}, "disks": {"plain": {"model": "fde-lab-plain"}}},
    )
    write_suite(folder, options, seal=False)
    old_plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["sha256"]
    described = json.loads((folder / "meters/meter0/meter.json").read_text(encoding="utf-8"))
    for name, (kind, settings, frames) in stream().items():
        place = folder / "meters" / name
        place.mkdir()
        entry = {"name": name, "kind": kind, "channels": {"0": f"ch_{kind}"}, "settings": settings}
        (place / "meter.json").write_text(
            json.dumps({**described, **entry, "timing": "poll"}), encoding="utf-8"
        )
        writer = StreamWriter(place / "stream.raw")
        for t_ns, data, sent in frames:
            writer.append(t_ns, data, sent=sent)
        writer.close()
    for name, document in OTHERS.items():
        (folder / name).write_text(json.dumps(document) + "\n", encoding="utf-8")
    _complete(folder / "plan.json")
    for mark in MARKS:
        if mark.text is not None:
            _plant(folder, mark)
    with (folder / "meters/meter0/stream.raw").open("ab") as raw:
        raw.write((10**10).to_bytes(8, "little") + (24).to_bytes(4, "little"))
        raw.write(b"# SN 60A44C3FACC93311 \r\n")
    _close(folder, old_plan)
    out = root / "anonymous.tar.gz"
    assert main(["publish", str(folder), "--anonymous", "--out", str(out)]) == 0
    return folder, out


def _looked_into(bundle: Path) -> Iterator[tuple[str, bytes]]:
    """Every member's name and bytes; of Parquet files and pictures in pages what they hold."""
    with tarfile.open(bundle) as tar:
        for member in tar:
            yield "names", member.name.encode()
            file = tar.extractfile(member)
            if file is None:
                continue
            content = file.read()
            yield member.name, content
            if member.name.endswith(".parquet"):
                table = pl.read_parquet(io.BytesIO(content))
                yield member.name, table.write_csv().encode()
                yield member.name, repr(pl.read_parquet_metadata(io.BytesIO(content))).encode()
            for outcome in re.finditer(rb"base64,([A-Za-z0-9+/=]+)", content):
                yield member.name, base64.b64decode(outcome[1])


def test_no_mark_is_found_in_an_anonymous_bundle(planted: tuple[Path, Path]) -> None:
    folder, bundle = planted
    assert len(MARKS) >= 60 and len({mark.needle for mark in MARKS}) == len(MARKS)
    contents = b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    names = " ".join(str(path) for path in folder.rglob("*")).encode()
    lost = [m.needle for m in MARKS if m.needle.encode() not in contents + names]
    assert not lost, "these were not planted"
    outcome = {
        (mark.needle, name)
        for name, content in _looked_into(bundle)
        for low in [content.lower()]
        for mark in MARKS
        if mark.needle.lower().encode() in low
    }
    assert not outcome


def test_it_is_verified_reported_and_compared(
    planted: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    folder, bundle = planted
    monkeypatch.setenv("FDE_BUILD", str(tmp_path))
    verified = fde("verify", bundle).out
    assert "bit for bit" in verified and "Not made again: the records of meter-" in verified
    fde("report", bundle)
    words = ["compare", str(bundle), str(folder), "--fail-on", "0", "--out", str(tmp_path)]
    (pair,) = json.loads(fde(*words, "--json").out)["pairs"]
    assert {one["ratio"] for one in pair["joules"]} == {1.0} and not pair["increases"]
    before = results.results(folder, raw=True).all_energy
    with opened([bundle]) as (suite,):
        after = results.results(suite, raw=True).all_energy
    figures = ["energy_j", "power_w", "energy_statistical_j", "energy_u95_j", "coverage"]
    keys = ["block", "duration_s", "energy_j"]
    assert after.sort(keys).select(figures).equals(before.sort(keys).select(figures))


def test_of_fios_report_the_latencies_stay_and_nothing_else(tmp_path: Path, fde: Fde) -> None:
    folder = tmp_path / "s"
    write_suite(folder, Options(blocks=2, interval_ms=100, workloads=("sql",)), seal=False)
    percentile = {"50.000000": 7000, "99.000000": 9000, "99 marigold": 2}
    ways = {"read": {"clat_ns": {"N": 500, "percentile": percentile}}, "write": {"clat_ns": {}}}
    report = {"jobs": [{"job options": {"filename": "/home/edelweiss/f"}, **ways}]}
    for path in folder.glob("runs/*/run.json"):
        kept = {"query.json": json.dumps(report), "other.json": '["edelweiss"]'}
        (path.parent / "kept").mkdir()
        for name, text in kept.items():
            (path.parent / "kept" / name).write_text(text)
        sums = {name: sha256(text.encode()).hexdigest() for name, text in kept.items()}
        document = {**json.loads(path.read_text()), "program": "fio", "kept": sums}
        path.write_text(json.dumps(document))
    _close(folder, document["plan_sha256"])
    bundle = tmp_path / "b.tar.gz"
    fde("publish", folder, "--anonymous", "--yes", "--out", bundle)
    fde("verify", bundle)
    contents = [content for _, content in _looked_into(bundle)]
    assert not any(re.search(b"edelweiss|marigold", content) for content in contents)
    with opened([bundle]) as (suite,):
        latencies = read(suite).latencies
    assert {str(kept[0].ns) for kept in latencies.values()} == {"{'p50': 7000, 'p99': 9000}"}
    assert len(latencies) == len(read(folder).latencies) > 1


@pytest.mark.parametrize("form", sorted(fields()["forms"]))
def test_no_text_of_a_stranger_holds_a_form_up(form: str) -> None:
    """A pattern that can divide a text in many ways tries them all: this test would not end."""
    pattern = fields()["forms"][form]
    for piece in {*re.findall(r"[A-Za-z]+|\d+", pattern), "1", "a", "A", " "}:
        for joint in ("", "-", ".", " "):
            for begin in ("", "6.1"):
                assert not re.fullmatch(pattern, f"{begin}{(piece + joint) * 64}\n")


def test_every_suite_of_the_repository_keeps_its_name() -> None:
    assert fields()["suites"] == suite_names()
