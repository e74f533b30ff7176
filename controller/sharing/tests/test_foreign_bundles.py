"""Bundles of strangers: what of them is unpacked, believed, shown and named."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis import load
from analysis.suite import manifest
from analysis.suite.bundle import open_suites
from contract.suite_files import is_packed
from controller.cli.app import main
from controller.sharing.tests.bundles import contents, packed
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

FOREIGN = (
    "jupyterlab.py",
    "polars.py",
    ".hidden",
    "runs/evil.html",
    "runs/0000-b00-plain-idle/kept/evil.html",
    "runs/0000-b00-plain-idle/kept/.evil.json",
    "meters/meter0/evil.py",
    "provenance/evil.html",
    "status/index.html",
    "schema/evil.html",
    "matplotlibrc",
)
PAGE = b"<script>of a stranger</script>"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Of a genuine bundle, by their paths in it, without its sums."""
    folder = tmp_path_factory.mktemp("suites") / "genuine"
    write_suite(
        folder,
        Options(blocks=2, interval_ms=100, workloads=("idle",), configurations=("plain", "opal")),
    )
    bundle = folder.with_name("genuine.tar.gz")
    assert main(["publish", str(folder), "--out", str(bundle)]) == 0
    return contents(bundle)


def top(members: Mapping[str, bytes]) -> str:
    return next(iter(members)).split("/")[0]


def forged(members: Mapping[str, bytes], name: str, *columns: str) -> dict[str, bytes]:
    """Return the same with half of what the drive took, and metadata that anybody can compute."""
    path = f"{top(members)}/{name}"
    says = {
        manifest.SEAL: hashlib.sha256(members[f"{top(members)}/manifest.json"]).hexdigest(),
        manifest.CODE: manifest.code(),
    }
    held = io.BytesIO()
    wrong = pl.read_parquet(members[path]).with_columns(pl.col(*columns) / 2)
    wrong.write_parquet(held, metadata=says)
    return {**members, path: held.getvalue()}


def sealed_again(members: Mapping[str, bytes]) -> dict[str, bytes]:
    path = f"{top(members)}/manifest.json"
    document = json.loads(members[path])
    sums = {name: hashlib.sha256(members[f"{top(members)}/{name}"]) for name in document["files"]}
    document["files"] = {name: digest.hexdigest() for name, digest in sums.items()}
    return {**members, path: json.dumps(document).encode()}


def run_as_json(fde: Fde, *words: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(fde(*words, "--json").out)
    return document


def test_files_outside_the_contract_are_refused(
    members: Mapping[str, bytes], tmp_path: Path, build: Path, fde: Fde
) -> None:
    suite = top(members)
    foreign_files = {f"{suite}/{name}": PAGE for name in (*FOREIGN, "report.html")}
    bundle = packed(tmp_path / "evil.tar.gz", {**members, **foreign_files})
    run_as_json(fde, "summary", bundle)
    files = [path for path in build.rglob("*") if path.is_file()]
    folder = next(build.glob("bundles/*/*"))
    names = {path.relative_to(folder).as_posix() for path in files}
    assert "plan.json" in names and all(map(is_packed, names))
    assert all(PAGE not in path.read_bytes() for path in files)
    assert not list(build.rglob("*.html")) and not list(build.rglob("*.py"))
    captured = fde("verify", bundle, status=1)
    assert all(
        f"{name} is no file of a suite" in captured.err for name in FOREIGN if "status" not in name
    )
    assert "report.html" in captured.out and "status/" in captured.out


def test_a_genuine_bundle_is_verified_and_its_page_is_named_as_not_proven(
    members: Mapping[str, bytes], tmp_path: Path, fde: Fde
) -> None:
    out = fde("verify", packed(tmp_path / "b.tar.gz", members)).out
    assert "Not proven, and no figure rests on it: " in out
    assert all(name in out.splitlines()[-2] for name in ("report.html", "LICENSE", "schema/"))


@pytest.mark.parametrize("name", ["energy.parquet", "meters/meter0/samples.parquet"])
def test_derived_tables_of_a_stranger_are_not_believed(
    name: str, members: Mapping[str, bytes], tmp_path: Path, fde: Fde
) -> None:
    columns = ("energy_j", "power_w") if name == "energy.parquet" else ("power_w_system",)
    false = sealed_again(forged(members, name, *columns))
    bundles = [packed(tmp_path / "a.tar.gz", members), packed(tmp_path / "b.tar.gz", false)]
    with open_suites(bundles) as folders:
        assert load(folders[0]).equals(load(folders[1]))
    answers = [run_as_json(fde, "summary", path)["suites"][0]["answer"] for path in bundles]
    assert answers[0] == answers[1] and len(answers[0]) > 1
    problem = "is not what the raw data give" if name == "energy.parquet" else "does not follow"
    assert f"{name} {problem}" in fde("verify", bundles[1], status=1).err


def test_a_forged_bundle_does_not_affect_the_genuine_one(
    members: Mapping[str, bytes], tmp_path: Path, build: Path, fde: Fde
) -> None:
    """The same suite by name and manifest, with another table and another recording."""
    raw = f"{top(members)}/meters/meter0/stream.raw"
    false = forged(members, "energy.parquet", "energy_j", "power_w")
    false[raw] = false[raw][: len(false[raw]) // 2]
    evil = packed(tmp_path / "evil.tar.gz", false)
    genuine = packed(tmp_path / "genuine.tar.gz", members)
    before = run_as_json(fde, "report", genuine)
    page = Path(before["page"]).read_bytes()
    for path in build.rglob("*"):
        if path.is_file():
            path.unlink()
    for path in sorted(build.rglob("*"), reverse=True):
        path.rmdir()
    run_as_json(fde, "report", evil)
    after = run_as_json(fde, "report", genuine)
    assert (after, Path(after["page"]).read_bytes()) == (before, page)
    folders = {path.parent.parent.name for path in build.glob("bundles/*/*/plan.json")}
    assert folders == {hashlib.sha256(path.read_bytes()).hexdigest() for path in (evil, genuine)}


def test_a_suite_with_foreign_files_is_not_published(tmp_path: Path, fde: Fde) -> None:
    folder = tmp_path / "suite"
    options = Options(blocks=1, workloads=("idle",), configurations=("plain",))
    write_suite(folder, options, seal=False)
    marker = next((folder / "runs").iterdir()) / "kept"
    marker.mkdir()
    (marker / "page.html").write_bytes(PAGE)
    write_manifest(folder)
    out = tmp_path / "b.tar.gz"
    assert (
        "kept/page.html" in fde("publish", folder, "--out", out, status=1).err and not out.exists()
    )
