"""Sealing, fetching, and refusals of a session."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import polars as pl
import pytest

from agent import pack
from contract import journal as journals
from contract import packed
from contract import plan as plans
from contract.files import sha256_of
from contract.tests.refusal import refuses
from controller.session import fetch, seal, session
from controller.session.suite_folder import locked
from controller.tests.examples import journal, plan, resolved, suite_folder, target
from instrumentation.trace import StreamWriter

LINES = [(0.0, "suite-started", ""), (1.0, "running", "r"), (2.0, "finished", "r")]
SESSIONS = "".join(
    json.dumps({"begun_ns": begun, "controller_boot_id": "b", "wall_s": wall_s}) + "\n"
    for begun, wall_s in ((1, 6), (2, 4))
)
RUN = plan()["runs"][0]["run_id"]
ENTRIES = journal([*LINES, (3.0, "suite-finished", "")])


def _suite_folder(folder: Path) -> Path:
    """Make a fetched, unsealed suite with one meter of one record."""
    (folder / "meters" / "meter0").mkdir(parents=True)
    (folder / "runs" / RUN).mkdir(parents=True)
    suite_folder(folder, plan(), ENTRIES)
    (folder / "watermark.jsonl").write_text('{"when": "start"}\n', encoding="utf-8")
    (folder / "sessions.jsonl").write_text(SESSIONS, encoding="utf-8")
    phases = [{"name": "write", "t_start_ns": 0, "t_end_ns": 10**9}]
    run = {"status": "finished", "t_start_ns": 0, "t_end_ns": 10**9, "phases": phases}
    (folder / "runs" / RUN / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "precondition").mkdir()
    (folder / "precondition" / "sed.json").write_text("{}", encoding="utf-8")
    meter = {"kind": "smartpower3", "channels": {"0": "system"}, "name": "meter0"}
    (folder / "meters" / "meter0" / "meter.json").write_text(json.dumps(meter), encoding="utf-8")
    stream = StreamWriter(folder / "meters" / "meter0" / "stream.raw")
    stream.append(5, b"")
    line = b"0000815169,15296,0036,00550,0,00000,0000,00000,0,00,00000,0000,00000,0,00,14,12\r\n"
    stream.append(6, line)
    stream.append(7, line.replace(b"0000815169", b"0000815179").replace(b"14,12", b"13,13"))
    stream.close()
    return folder


def test_a_seal_covers_every_file_and_detects_a_change(tmp_path: Path) -> None:
    folder = _suite_folder(tmp_path)
    (folder / "report.html").write_text("derived", encoding="utf-8")
    text = seal.seal(folder).read_text(encoding="utf-8")
    assert seal.seal(folder).read_text(encoding="utf-8") == text, "sealed again"
    sums = json.loads(text)["files"]
    assert set(sums) == {
        "plan.json",
        "journal.jsonl",
        "watermark.jsonl",
        "sessions.jsonl",
        "timing.json",
        "precondition/sed.json",
        f"runs/{RUN}/run.json",
        "meters/meter0/meter.json",
        "meters/meter0/stream.raw",
        "meters/meter0/samples.parquet",
    }
    samples = pl.read_parquet(folder / "meters" / "meter0" / "samples.parquet")
    assert samples.height >= 1
    timing = json.loads((folder / "timing.json").read_text(encoding="utf-8"))
    assert timing["wall_s"] == 10
    assert timing["measuring_share"] == pytest.approx(0.1)
    assert all(sha256_of(folder / name) == digest for name, digest in sums.items())
    (folder / "runs" / RUN / "run.json").write_text("{}", encoding="utf-8")
    assert sha256_of(folder / f"runs/{RUN}/run.json") != sums[f"runs/{RUN}/run.json"]


def test_an_undecodable_suite_is_not_sealed(tmp_path: Path) -> None:
    folder = _suite_folder(tmp_path)
    (folder / "meters" / "meter0" / "meter.json").write_text("{", encoding="utf-8")
    with refuses("invalid-description"):
        seal.seal(folder)
    assert not (folder / seal.MANIFEST).exists()


def _archive(folder: Path, document: dict[str, object], out: Path) -> Path:
    packed_dir = suite_folder(folder / str(document["suite_id"]), document, ENTRIES)
    (packed_dir / "runs" / "r").mkdir(parents=True)
    (packed_dir / "watermark.jsonl").write_text('{"when": "start"}\n', encoding="utf-8")
    (packed_dir / "runs" / "r" / "run.json").write_text("{}", encoding="utf-8")
    (packed_dir / "precondition").mkdir()
    (packed_dir / "precondition" / "sed.json").write_text("{}", encoding="utf-8")
    with out.open("wb") as file:
        pack.pack(packed_dir, file)
    return out


def test_unpacked_results_replace_those_fetched_before(tmp_path: Path) -> None:
    suite_dir = tmp_path / "suite"
    (suite_dir / "runs" / "r").mkdir(parents=True)
    (suite_dir / "runs" / "r" / "run.json").write_text("old", encoding="utf-8")
    (suite_dir / "runs" / "r" / "failure.txt").write_text("of a void try", encoding="utf-8")
    suite_folder(suite_dir, plan())
    fetch.unpack(_archive(tmp_path / "there", plan(), tmp_path / "a.tar"), suite_dir)
    assert (suite_dir / "runs" / "r" / "run.json").read_text(encoding="utf-8") == "{}"
    assert [path.name for path in (suite_dir / "runs" / "r").iterdir()] == ["run.json"]
    assert journals.read(suite_dir / "journal.jsonl") == ENTRIES
    names = {"plan.json", "runs", "journal.jsonl", "watermark.jsonl", "precondition"}
    assert {path.name for path in suite_dir.iterdir()} == names


@pytest.mark.parametrize("damage", ["changed", "cut off", "no sums", "outside"])
def test_damaged_results_are_refused(tmp_path: Path, damage: str) -> None:
    suite_dir = suite_folder(tmp_path / "suite", plan())
    archive = _archive(tmp_path / "there", plan(), tmp_path / "a.tar")
    data = bytearray(archive.read_bytes())
    if damage == "changed":
        at = data.index(b'"when": "start"')
        data[at : at + 6] = b"'when'"
    elif damage == "cut off":
        data = data[: data.index(b'"when": "start"')]
    elif damage == "no sums":
        subprocess.run(["tar", "-C", tmp_path / "there", "-cf", archive, "."], check=True)
        data = bytearray(archive.read_bytes())
    else:
        evil = tmp_path / "evil"
        evil.write_text("x", encoding="utf-8")
        sums = tmp_path / packed.SUMS
        sums.write_text(json.dumps({"../x/y": sha256_of(evil)}), encoding="utf-8")
        with tarfile.open(archive, "w") as tar:
            tar.add(sums, packed.SUMS)
            tar.add(evil, "../x/y")
        data = bytearray(archive.read_bytes())
    archive.write_bytes(data)
    with refuses("results-damaged"):
        fetch.unpack(archive, suite_dir)
    assert {path.name for path in suite_dir.iterdir()} == {"plan.json"}
    assert not (suite_dir / "x").exists()


def test_results_of_another_plan_are_refused(tmp_path: Path) -> None:
    suite_dir = suite_folder(tmp_path / "suite", plan())
    other = plans.freeze({k: v for k, v in plan().items() if k != "sha256"} | {"rapl_hz": 5})
    with refuses("results-of-other-plan"):
        fetch.unpack(_archive(tmp_path / "there", other, tmp_path / "a.tar"), suite_dir)
    assert not (suite_dir / "journal.jsonl").exists()


def test_a_plan_changed_after_freezing_is_refused(tmp_path: Path) -> None:
    suite_folder(tmp_path, plan() | {"settle_s": 0})
    with refuses("plan-changed"):
        session.run(tmp_path, resolved(), Path("inventory"), print)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("host",), "elsewhere", "host target (the inventory: elsewhere)"),
        (("origin",), "measured", "origin modelled (the virtual lab) (the inventory: measured"),
        (("disks", "sed", "serial"), "another", "serial sed, 2147483648 bytes (the inventory:"),
        (("disks", "sed", "by_id"), "/dev/disk/by-id/x", "(the inventory: /dev/disk/by-id/x,"),
        (("disks", "plain", "size_bytes"), 2**32, "4294967296 bytes)"),
        (("disks",), {"sed": target()["disks"]["sed"]}, "(the inventory: none)"),
    ],
)
def test_resuming_on_another_target_is_refused(
    keys: tuple[str, ...], value: object, message: str, tmp_path: Path
) -> None:
    """`fde resume` names the folder that it takes before anything else."""
    suite_dir = suite_folder(tmp_path / "suite", plan())
    other = target()
    inner: dict[str, object] = other
    for key in keys[:-1]:
        inner = inner[key]  # type: ignore[assignment]
    inner[keys[-1]] = value
    (tmp_path / "t.json").write_text(json.dumps(other), encoding="utf-8")
    argv = [sys.executable, "-m", "controller", "resume", str(suite_dir)]
    argv += ["--target", str(tmp_path / "t.json"), "--inventory", str(tmp_path)]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stdout == f"suite {plan()['suite_id']} of target, in {suite_dir}\n"
    assert completed.stderr.startswith(
        f"fde: The suite {plan()['suite_id']} was begun on another target"
    )
    assert message in completed.stderr and "fde resume" in completed.stderr
    assert len(completed.stderr.splitlines()) == 1
    assert [path.name for path in suite_dir.iterdir()] == ["plan.json"]


def test_a_suite_in_use_names_its_holder(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\nfrom controller.session import suite_folder\n"
        "with suite_folder.locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with refuses("suite-in-use") as refusal, locked(tmp_path):
            pass
        assert str(holder.pid) in str(refusal.value.facts["holder"])
        holder.kill()
    with locked(tmp_path):  # a killed holder leaves no lock behind
        pass
