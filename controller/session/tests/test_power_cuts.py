"""A sealed suite is complete on the medium, whenever the controller loses power."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent import pack
from analysis.suite import manifest
from contract import journal
from contract import plan as plans
from contract.errors import AgentError
from contract.identity import Identity
from controller.session import fetch, seal, target_identity
from controller.tests.examples import plan
from controller.tests.power_cuts import Cut, recorded
from validation.synthetic.suite import Options, write_suite

SMALL = Options(blocks=1, interval_ms=500, configurations=("plain", "opal"), workloads=("idle",))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a suite folder before its results are fetched, and the target's archive of them."""
    suite_dir = tmp_path_factory.mktemp("controller") / "suite"
    write_suite(suite_dir, SMALL, seal=False)
    document = json.loads((suite_dir / "plan.json").read_text(encoding="utf-8"))
    idle = {"name": "idle", "parameters": {}}
    complete = {**plan(), **document, "workloads": [idle], "disks": plan()["disks"]}
    frozen = plans.freeze({key: value for key, value in complete.items() if key != "sha256"})
    (suite_dir / "plan.json").write_text(json.dumps(frozen), encoding="utf-8")
    for name in ("timing.json", "meters/meter0/samples.parquet"):
        (suite_dir / name).unlink()
    target = tmp_path_factory.mktemp("target") / frozen["suite_id"]
    target.mkdir()
    shutil.copy(suite_dir / "plan.json", target)
    for name in ("runs", "provenance", "journal.jsonl"):
        shutil.move(suite_dir / name, target / name)
    archive = target.parent / "results.tar"
    with archive.open("wb") as file:
        pack.pack(target, file)
    return suite_dir, archive


def _fetched_and_sealed(folder: Path, archive: Path) -> None:
    """Fetch and seal as a session does at its end, and as fde resume does after a cut."""
    plan = plans.load(folder / "plan.json")
    lines = {plan.suite_id: len(journal.read(archive.parent / plan.suite_id / "journal.jsonl"))}
    target_identity.require_same_machine(plan, folder, Identity("m", None, lines), plan.sha256)
    fetch.clean_up_after_kill(folder)
    fetch.unpack(archive, folder)
    seal.seal(folder)


def _wrong(cut: Cut, folder: Path, archive: Path, names: set[str]) -> str:
    """Return the faults of a folder after a cut; empty if it has none."""
    cut.write(folder)
    problems = manifest.check(folder)
    if cut.when == "the word" and not problems.sealed:
        return "called sealed, and is not"
    if (folder / manifest.MANIFEST).exists():
        missing = names - {str(path.relative_to(folder)) for path in folder.rglob("*")}
        return " ".join([*problems.problems, *(f"{name} is missing" for name in sorted(missing))])
    try:
        _fetched_and_sealed(folder, archive)
    except AgentError as error:
        return f"it cannot continue: {error}"
    return " ".join(manifest.check(folder).problems)


def test_no_power_cut_leaves_a_seal_on_incomplete_files(
    measured: tuple[Path, Path], tmp_path: Path, thorough: bool
) -> None:
    suite_dir, archive = measured
    folder = Path(shutil.copytree(suite_dir, tmp_path / "suite"))
    with recorded(folder) as medium:
        _fetched_and_sealed(folder, archive)
    cuts = medium.cuts
    sums = json.loads((folder / manifest.MANIFEST).read_text(encoding="utf-8"))["files"]
    assert len(cuts) > 100 and len({cut.how for cut in cuts}) == 5
    different = {json.dumps(sorted((k, str(v)) for k, v in c.tree.items())): c for c in cuts}
    bad = []
    for number, cut in enumerate(list(different.values())[:: 1 if thorough else 4]):
        if fault := _wrong(cut, tmp_path / f"cut-{number}", archive, set(sums)):
            bad.append(f"{cut.how} at {cut.when}: {fault}")
        shutil.rmtree(tmp_path / f"cut-{number}")
    assert not bad, "\n".join(bad)
    last = [cut for cut in cuts if cut.when == "the word"]
    assert [_wrong(c, tmp_path / f"last-{c.how}", archive, set(sums)) for c in last] == [""] * 5


def test_a_removed_seal_stays_removed_after_a_power_cut(
    measured: tuple[Path, Path], tmp_path: Path
) -> None:
    suite_dir, archive = measured
    folder = Path(shutil.copytree(suite_dir, tmp_path / "suite"))
    _fetched_and_sealed(folder, archive)
    with recorded(folder) as medium:
        seal.unseal(folder)
        (folder / "clock.jsonl").write_text("{}\n", encoding="utf-8")
    after = [cut for cut in medium.cuts if "clock.jsonl" in cut.when or cut.when == "the word"]
    assert after and all(manifest.MANIFEST not in cut.tree for cut in after)
