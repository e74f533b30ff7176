"""Our share of the CPU time on this machine: a small run for real, and what cannot run here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.planning.suites import SuiteWorkload
from lab.tests.fetched import extracted
from validation import papers_native
from validation.metrology.cost import zones_tree
from validation.papers_native import Native, Taken, programs_s
from workloads import registry

SMALL = {"small_files": 4, "small_mib": 1, "large_mib": 16}


@pytest.fixture
def native(tmp_path: Path) -> Native:
    instance = Native(tmp_path, zones_tree(tmp_path / "zones"), 10.0)
    instance.drops = False  # the page cache belongs to other tests too
    return instance


def entry(name: str, **parameters: Any) -> SuiteWorkload:
    return SuiteWorkload(name, parameters=parameters)


def test_each_phase_of_a_small_run_has_a_share_that_is_neither_none_nor_all(native: Native) -> None:
    parameters = registry.complete("file_io", SMALL)
    phases = native.phases(registry.load("file_io"), parameters, {})
    names = ["write-small", "read-small", "write-large", "read-large"]
    assert [phase.phase for phase in phases] == names
    assert all(phase.own_s > 0 and phase.children_s > 0 for phase in phases)
    assert all(0 < phase.share[0] < 1 for phase in phases)


def test_a_workload_that_cannot_run_here_is_named_with_its_reason(native: Native) -> None:
    (figure,) = papers_native.entry_figures(native, entry("kernel_tree"), {}, 100.0)
    assert figure.figure.startswith("kernel_tree: cannot run here: kernel_tree needs the asset")
    assert figure.meets is None


def test_a_workload_that_fails_misses_the_target(native: Native, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_text("no archive")
    assets = {"kernel_grep": broken}
    (figure,) = papers_native.entry_figures(native, entry("kernel_grep"), assets, 100.0)
    assert figure.figure.startswith("kernel_grep: failed: The archive broken.tar")
    assert figure.meets is False


def test_a_run_leaves_nothing_behind(native: Native, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    native.phases(registry.load("idle"), registry.complete("idle", {"seconds": 0.1}), {})
    assert sorted(tmp_path.iterdir()) == before


def test_the_smaller_of_both_cpu_times_counts_and_a_rest_is_held_against_its_time() -> None:
    assert Taken("a", 0.01, busy_s=8.0, children_s=2.0, took_s=4.0).share == (0.005, False)
    assert Taken("a", 0.01, busy_s=1.0, children_s=2.0, took_s=4.0).share == (0.01, False)
    assert Taken("a", 0.01, busy_s=8.0, children_s=0.0, took_s=4.0).share == (0.0025, True)


def test_the_worst_phase_is_reported() -> None:
    phases = [Taken("a", 0.01, 1.0, 1.0, 1.0), Taken("b", 0.02, 1.0, 1.0, 1.0)]
    worst = papers_native.worst_figures("file_io", phases)[0]
    assert "(b)" in worst.figure
    assert (worst.value, worst.target, worst.meets, worst.allowed) == (2.0, 1.0, False, False)
    assert papers_native.worst_figures("file_io", phases[:1])[0].meets is True


def test_the_worst_long_phase_is_reported_after_a_worse_short_one() -> None:
    phases = [Taken("short", 0.001, 0.05, 0.05, 0.1), Taken("long", 0.002, 2.0, 2.0, 2.0)]
    shares = [f for f in papers_native.worst_figures("file_io", phases) if f.unit == "%"]
    assert [(f.value, f.meets, f.allowed) for f in shares] == [(2, False, True), (0.1, True, False)]
    assert "(long)" in shares[1].figure


def test_files_are_no_larger_than_this_disk_takes_in_time() -> None:
    paper = {"small_files": 20, "large_mib": 1024}
    slow = papers_native.sized("file_io", paper, mib_per_s=2.0)
    assert (slow["small_files"], slow["large_mib"]) == (4, 40)
    fast = papers_native.sized("file_io", paper, mib_per_s=500.0)
    assert (fast["small_files"], fast["large_mib"]) == (20, 1024)


@pytest.mark.skipif(
    not all(map(shutil.which, ("mkfs.ext4", "debugfs"))), reason="needs e2fsprogs in PATH"
)
def test_assets_are_extracted_from_an_image_or_missing(tmp_path: Path) -> None:
    tree = tmp_path / "tree" / "usr" / "src"
    tree.mkdir(parents=True)
    (tree / Path(papers_native.SOURCE).name).write_text("source")
    root, out = tmp_path / "root.img", tmp_path / "out"
    out.mkdir()
    make = ["mkfs.ext4", "-q", "-d", str(tmp_path / "tree"), str(root), "8M"]
    subprocess.run(make, check=True)
    copy = extracted(root, papers_native.SOURCE, out)
    assert copy is not None
    assert copy.read_text() == "source"
    assert extracted(root, papers_native.CLIP, out) is None


def test_without_an_image_an_archive_of_this_environment_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDE_CACHE", str(tmp_path / "none"))
    small = Path(json.__file__).parent  # of the library: all of it takes long to pack
    monkeypatch.setattr("sysconfig.get_path", {"stdlib": small}.get)
    monkeypatch.setattr(papers_native, "LIBRARIES", ("stdlib",))
    provided = papers_native.provide(tmp_path)
    assert "there is no image" in provided.source
    assert "clip" not in provided.paths
    for name in ("kernel_tree", "kernel_grep"):
        assert registry.load(name).requires(registry.complete(name, {}), provided.paths) == []


def test_a_program_that_runs_on_counts_and_still_does_once_it_has_ended() -> None:
    before_s = programs_s()
    burns = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ninput()"
    shell = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", burns]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdin is not None
        running.stdout.readline()
        assert programs_s() - before_s >= 0.25
        running.stdin.write(b"\n")
        running.stdin.flush()
        running.wait()
        assert 0.25 <= programs_s() - before_s < 2
