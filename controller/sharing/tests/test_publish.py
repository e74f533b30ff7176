"""Bundles: packed, with what identifies listed, checked elsewhere, refused if changed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from analysis.suite import manifest
from analysis.suite.bundle import open_suites, read_about
from contract import packed as unpacking
from contract.places import ROOT
from contract.plan import digest
from controller.cli.app import main
from controller.sharing import publish, sandbox
from controller.sharing.tests.bundles import contents, packed
from controller.tests.command import Fde
from validation import commands_page
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

HOST, SERIAL, MACHINE = "alice-laptop", "S64DNX0R123456", "ab" * 32
PATH, ADDRESS, MAC = "/home/alice/keys/disk.img", "192.168.7.23", "3c:22:fb:01:02:03"
NODE = "workbench7"
EXAMPLES = sorted((ROOT / "data" / "examples").glob("*.tar.gz"))
PERSONAL = (HOST, NODE, SERIAL, MACHINE, PATH, ADDRESS, MAC, "alice")


def _change(path: Path, change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return document


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a sealed suite with names, paths and addresses of Alice."""
    folder = tmp_path_factory.mktemp("suites") / f"synthetic-{HOST}-20260101T000000Z"
    machine = {
        "uname": ["Linux", NODE, "6.12.0"],
        "kernel_command_line": f"root=/dev/sda1 image={PATH} ip={ADDRESS} mac={MAC}",
        "versions": {"pyRAPL": "0.2.3.1", "fio": "1.2.3.4"},
    }
    write_suite(
        folder,
        Options(blocks=2, interval_ms=100, workloads=("sql", "idle"), host=HOST, machine=machine),
    )
    by_id = f"/dev/disk/by-id/nvme-Fast_{SERIAL}"
    disks = {"plain": {"by_id": by_id, "serial": SERIAL, "size_bytes": 10**9, "erase": None}}
    old = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["sha256"]
    plan = _change(folder / "plan.json", lambda p: p.update(disks=disks))
    plan = _change(folder / "plan.json", lambda p: p.update(sha256=digest(plan)))
    sums = {old: plan["sha256"]}
    identity = {"format": "fde-identity/1", "machine_id": MACHINE}
    (folder / "identity.json").write_text(json.dumps(identity), encoding="utf-8")
    for path in (*sorted(folder.glob("runs/*/run.json")), folder / "journal.jsonl"):
        before = path.read_bytes()
        text = before.decode().replace("SYNTHETIC-PLAIN", SERIAL)
        for was, new_sum in sums.items():
            text = text.replace(was, new_sum)
        path.write_text(text, encoding="utf-8")
        sums[hashlib.sha256(before).hexdigest()] = hashlib.sha256(text.encode()).hexdigest()
    write_manifest(folder)
    return folder


@pytest.fixture(scope="module")
def bundle(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the suite."""
    out = tmp_path_factory.mktemp("bundles") / "suite.tar.gz"
    assert main(["publish", str(suite), "--out", str(out)]) == 0
    return out


def test_identifying_texts_are_listed_before_writing(suite: Path, tmp_path: Path, fde: Fde) -> None:
    (tmp_path / "there.tar.gz").touch()
    printed, captured = fde("publish", suite, "--out", tmp_path / "there.tar.gz", status=1)
    for text in PERSONAL:
        assert text in printed
    assert "1.2.3.4" not in printed and "exists already" in captured
    assert (tmp_path / "there.tar.gz").read_bytes() == b""


def test_a_bundle_verifies(bundle: Path, fde: Fde) -> None:
    verified = fde("verify", bundle).out
    assert "were made again, bit for bit" in verified
    assert "finished runs have the sums" in verified
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() in verified


def test_the_same_suite_gives_the_same_bytes(
    suite: Path, bundle: Path, tmp_path: Path, fde: Fde
) -> None:
    copy, again = tmp_path / suite.name, tmp_path / "again.tar.gz"
    shutil.copytree(suite, copy)
    fde("publish", copy, "--out", again)
    assert again.read_bytes() == bundle.read_bytes()
    fde("publish", bundle, "--out", tmp_path / "bundle.tar.gz")
    assert contents(tmp_path / "bundle.tar.gz") == contents(bundle)


def test_a_bundle_that_tar_unpacked_verifies(bundle: Path, tmp_path: Path, fde: Fde) -> None:
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path], check=True)
    (folder,) = tmp_path.iterdir()
    fde("verify", folder)
    (folder / "runs" / "sums.json").write_text("{}")
    fde("verify", folder, status=1)


def test_a_bundle_is_reported_and_summed_up_as_its_suite_is(
    suite: Path, bundle: Path, tmp_path: Path, build: Path, fde: Fde
) -> None:
    """The report of a stranger's bundle is built again and cached."""
    folder = tmp_path / suite.name
    shutil.copytree(suite, folder)
    page_of = {f"{suite.name}/report.html": b"<script>alert(1)</script>"}
    stranger = packed(tmp_path / "strange.tar.gz", contents(bundle) | page_of)
    printed = {}
    for command in ("report", "summary"):
        for path in (folder, stranger):
            printed[command, path] = json.loads(fde(command, path, "--json").out)
    sha256 = hashlib.sha256(stranger.read_bytes()).hexdigest()
    page = build / "bundles" / sha256 / suite.name / "report.html"
    assert printed["report", stranger]["page"] == str(page)
    assert publish.unpack_cached(bundle, page.parents[2]) != page.parent  # of the same suite
    assert publish.unpack_cached(stranger, page.parents[2]) == page.parent and page.is_file()
    assert page.read_bytes() == (folder / "report.html").read_bytes()
    lines, unpacked = (
        "\n".join(printed["summary", path]["suites"][0]["lines"]) for path in (folder, stranger)
    )
    assert unpacked == lines.replace(str(folder), str(page.parent))
    assert "the same suite" in fde("compare", stranger, folder, status=1).err


def test_the_ci_job_uses_existing_commands_and_options() -> None:
    job = yaml.safe_load((ROOT / "examples" / "ci" / "energy.yml").read_text(encoding="utf-8"))
    scripts = "\n".join(step.get("run", "") for step in job["jobs"]["compare"]["steps"])
    commands = re.findall(r"^fde (\w+)(.*)$", scripts, re.MULTILINE)
    assert [name for name, _ in commands] == ["provision", "run", "compare"]
    for name, arguments in commands:
        options_of_command = {
            option for p in commands_page.commands()[name].params for option in p.opts
        }
        assert set(re.findall(r"--[\w-]+", arguments)) <= options_of_command


def test_a_bundle_describes_itself(bundle: Path) -> None:
    with open_suites([bundle]) as (folder,):
        citation = yaml.safe_load((folder / "CITATION.cff").read_text(encoding="utf-8"))
        assert citation["date-released"] == "2026-01-01"
        for name in ("LICENSE", "CITATION.cff", "schema/plan.json", "energy.parquet"):
            assert (folder / name).is_file()
        description = read_about(folder)
        assert description.suite_id == folder.name


OUTSIDE = {"upwards": "../evil", "absolute": "/tmp/fde-evil", "within": "s/../../evil"}
HOSTILE: dict[str, tuple[Any, ...] | bytes] = {
    **{name: ({path: b"x"},) for name, path in OUTSIDE.items()},
    "link": ({"sums.json": b"{}"}, {"s/plan.json": "/etc/passwd"}),
    "no sums": ({"s/plan.json": b"{}"}, {}, "s/a.json"),
    "no suite": ({"s/a": b"x"},),
    "sums are no object": ({"sums.json": b"[1]"},),
    "not an archive": b"MZ" + bytes(2000),
    "empty": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_in_one_sentence(name: str, tmp_path: Path, fde: Fde) -> None:
    path = tmp_path / "inside" / "b.tar.gz"
    path.parent.mkdir()
    hostile = HOSTILE[name]
    path.write_bytes(hostile) if isinstance(hostile, bytes) else packed(path, *hostile)
    captured = fde("verify", path, status=1).err
    assert captured.startswith("fde: ") and captured.count("\n") == 1
    assert "Traceback" not in captured and ("outside" in captured) == (name in OUTSIDE)
    assert not (tmp_path / "evil").exists() and not Path("/tmp/fde-evil").exists()


def test_a_bundle_that_was_changed_cut_short_or_is_of_another_version_is_refused(
    bundle: Path, tmp_path: Path, fde: Fde
) -> None:
    path, members = tmp_path / "b.tar.gz", contents(bundle)
    folder = next(iter(members)).split("/")[0]
    journal = f"{folder}/clock.jsonl"
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    stated = {"sums.json": json.dumps(sums).encode(), **members}
    newer = {f"{folder}/bundle.json": b'{"format": "fde-bundle/9", "testbed": "7.0"}'}
    for content, words in (
        (bundle.read_bytes()[: bundle.stat().st_size // 2], "not all of one"),
        ({**stated, journal: members[journal] + b"\n"}, "clock.jsonl differs"),
        (members | newer, "'fde-bundle/9', this version reads 'fde-bundle/1'"),
    ):
        path.write_bytes(content) if isinstance(content, bytes) else packed(path, content)
        captured = fde("verify", path, status=1).err
        assert words in captured and captured.count("\n") == 1


def with_low(bundle: Path, path: Path, figure: Callable[[float], float | None]) -> Path:
    """Pack the bundle again with other figures in one of its tables."""
    members = contents(bundle)
    name = next(n for n in members if n.endswith("/budget.csv"))
    table = pl.read_csv(members[name])
    low = pl.Series([figure(value) for value in table["low"]])
    return packed(path, members | {name: table.with_columns(low=low).write_csv().encode()})


def test_figures_that_contradict_the_raw_data_fail_verification(
    bundle: Path, tmp_path: Path, fde: Fde
) -> None:
    path = tmp_path / "b.tar.gz"
    for figure in (lambda v: v * (1 + 1e-6), lambda _: math.inf, lambda _: None):
        captured = fde("verify", with_low(bundle, path, figure), status=1).err
        assert "budget.csv is not what the raw data give" in captured
    captured = fde("verify", with_low(bundle, path, lambda v: v * (1 + 1e-11))).out
    assert "but for rounding in budget.csv, by 1e-11 of a figure" in captured


@pytest.mark.parametrize("key", manifest.MAKERS)
def test_differences_to_the_bundles_software_are_listed(
    key: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    """Change a table within and beyond the tolerance, as another version of SciPy may."""
    monkeypatch.setenv(sandbox.IS_BOUNDED, "1")  # in this process, whose maker is replaced
    this_maker = manifest.maker()
    for by, status in ((2e-13, 0), (2e-7, 1)):
        path = with_low(bundle, tmp_path / "b.tar.gz", partial(mul, 1 + by))
        monkeypatch.setattr(manifest, "maker", lambda: this_maker | {key: "another"})
        captured = fde("verify", path, status=status)
        printed = captured.err if status else captured.out
        assert f"with {manifest.MAKERS[key]} ({this_maker[key]}, here another)" in printed
        assert not any(f"{words} (" in printed for k, words in manifest.MAKERS.items() if k != key)
        monkeypatch.setattr(manifest, "maker", lambda: this_maker)
        captured = fde("verify", path, status=status)
        assert not any(words in captured.out + captured.err for words in manifest.MAKERS.values())


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_examples_match_the_present_analysis(path: Path) -> None:
    """If this fails, run `make examples`."""
    with open_suites([path]) as (folder,):
        assert not publish.verify(folder).problems


def test_the_examples_are_the_same_with_and_without_avx_512() -> None:
    """Functions that round differently with AVX-512 must not be used."""
    argv = [sys.executable, "-m", "controller", "verify", str(EXAMPLES[-1])]
    without = {"NPY_DISABLE_CPU_FEATURES": "X86_V4,AVX512_ICL,AVX512_SPR"}
    results = [
        subprocess.run(
            argv, env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        for variables in ({}, without)
    ]
    assert "figures in" in results[0].stdout
    assert results[0].stdout == results[1].stdout


def test_numpy_is_imported_without_avx_512_and_children_do_not_inherit_that() -> None:
    code = (
        "import os, analysis.suite\n"
        "from numpy._core._multiarray_umath import __cpu_features__ as has\n"
        "assert not has.get('X86_V4') and 'NPY_DISABLE_CPU_FEATURES' not in os.environ"
    )
    environ = {k: v for k, v in os.environ.items() if k != "NPY_DISABLE_CPU_FEATURES"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


def test_a_full_disk_is_not_reported_as_a_damaged_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    monkeypatch.setenv(sandbox.IS_BOUNDED, "1")
    monkeypatch.setattr(unpacking, "LEAST_FREE_BYTES", 1 << 62)
    captured = fde("verify", bundle, status=1).err
    assert "cannot be unpacked in" in captured and "changed" not in captured


def test_a_bundle_goes_through_a_pipe_and_no_device_is_replaced(
    suite: Path, tmp_path: Path, bundle: Path, fde: Fde
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    fde("publish", suite, "--out", pipe)
    reader.join()
    assert received == [bundle.read_bytes()] and pipe.is_fifo()


def test_a_suite_is_published_from_a_folder_without_locks_and_stays_unchanged(
    suite: Path, tmp_path: Path, fde: Fde, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    copy = tmp_path / suite.name
    shutil.copytree(suite, copy, ignore=shutil.ignore_patterns(".lock"))
    fde("publish", copy, "--out", tmp_path / "b.tar.gz")
    assert not (copy / ".lock").exists()


def test_unsealed_used_or_secret_suites_are_not_published(
    suite: Path, tmp_path: Path, fde: Fde
) -> None:
    copy, out = tmp_path / suite.name, tmp_path / "b.tar.gz"
    shutil.copytree(suite, copy)

    def refusal() -> str:
        printed = fde("publish", copy, "--out", out, status=1).err
        assert not out.exists()
        assert printed.count("\n") == 1
        return printed

    with (copy / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "in use" in refusal()
    meter = copy / "meters" / "meter0" / "meter.json"
    _change(meter, lambda m: m.update(port="http://bob:hunter2@plug.lan/"))
    assert "changed after sealing" in refusal()
    write_manifest(copy)
    assert "password" in refusal()
    for key, text in (
        ("port", "http://plug.lan/?token=s3cret"),
        ("port", "http://plug.lan/p?id=1&access_key=s3cret"),
        ("port", "http://plug.lan/cm?user=admin&pw=s3cret"),
        ("note", "Authorization: Bearer s3cret-s3cret"),
        ("note", "wpa psk=s3cret"),
        ("token", "s3cret"),
        ("wifi_psk", "s3cret"),
        ("access_token", "s3cret"),
        ("client-secret", "s3cret"),
    ):
        _change(meter, partial(dict.update, **{"port": "x", key: text}))
        write_manifest(copy)
        assert "password" in refusal()
        _change(meter, partial(dict.update, **{key: ""}))
    (copy / "manifest.json").unlink()
    assert "fde seal" in refusal()
