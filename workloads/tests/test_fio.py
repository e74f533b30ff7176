"""Workloads with fio: its options, its counts, omissions, and its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from contract.tests.programs import wait_until
from contract.tests.refusal import Refusal, refuses
from workloads import access_patterns, block_sizes, fio, programs, registry
from workloads.base import Context, WorkloadError
from workloads.child import ROOT
from workloads.tests import contract

KIB, MIB = 1024, 1024 * 1024
# Holds a fio with the arguments after the folder for its files, says so, and waits.
HOLDER = """
import sys, time
from pathlib import Path
from workloads.fio import Held
with Held(sys.argv[2:], Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
with_fio = pytest.mark.skipif(
    shutil.which("fio") is None, reason="fio is not installed: install its package."
)


@pytest.fixture
def laid(root: Path) -> tuple[Context, Path]:
    """Provide a run of `access_patterns`, and its file of zeros."""
    context, _ = contract.new_run("access_patterns", root / "a", file_mib=4)
    (context.disk / "file").write_bytes(bytes(4 * MIB))
    return context, context.disk / "file"


def holding(laid: tuple[Context, Path], job: fio.Job) -> fio.Held:
    context, file = laid
    return fio.Held(fio.command(file, job, context.seed), context.scratch)


def option(argv: list[str], name: str) -> str | None:
    values = [word.partition("=")[2] for word in argv if word.startswith(f"--{name}=")]
    return values[-1] if values else None


def report(**changes: object) -> str:
    side = {"io_bytes": 4096, "total_ios": 2}
    job = {"read": side, "write": {"io_bytes": 0, "total_ios": 0}, "error": 0, **changes}
    return json.dumps({"jobs": [job]})


def test_fio_gets_the_papers_accesses(root: Path) -> None:
    context, _ = contract.new_run("access_patterns", root)
    commands = {
        (way, order): fio.command(
            Path("file"), access_patterns.job(context, way, order), context.seed
        )
        for way in ("write", "read")
        for order in ("sequential", "random")
    }
    for (way, order), argv in commands.items():
        random = order == "random"
        assert option(argv, "rw") == ("rand" if random else "") + way
        assert option(argv, "bs") == str(4 * (KIB if random else MIB))
        assert option(argv, "size") == str(1024 * MIB)
        assert option(argv, "direct") == "1" and option(argv, "randseed") == "7"
        assert option(argv, "runtime") == ("30000ms" if random else None)
        assert option(argv, "end_fsync") == ("1" if way == "write" else None)
        assert option(argv, "time_based") is None


def test_bytes_and_operations_are_those_of_fios_report() -> None:
    assert fio.counted(report()).amounts == {"bytes": 4096, "operations": 2}
    side = {"io_bytes": 512, "total_ios": 1}
    assert fio.counted(report(write=side)).amounts == {"bytes": 4608, "operations": 3}


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", refuses("no-fio-report", output="no output")),
        ("fio: cannot allocate", refuses("no-fio-report", output="fio: cannot allocate")),
        ('{"jobs": []}', refuses("no-fio-report")),
        (report(error=5), refuses("fio-moved-nothing", error=5)),
        (report(read={"io_bytes": 0, "total_ios": 0}), refuses("fio-moved-nothing")),
    ],
)
def test_an_invalid_fio_report_is_refused(output: str, message: Refusal) -> None:
    with message:
        fio.counted(output)


def test_the_papers_steps_are_21_from_512_bytes_to_64_mib() -> None:
    sizes = block_sizes.steps(registry.complete("block_sizes", {}))
    assert len(sizes) == 21
    assert (sizes[0], sizes[1], sizes[14], sizes[15], sizes[-1]) == (
        *(512, KIB, 8 * MIB, 12 * MIB, 64 * MIB),
    )
    assert list(sizes) == sorted(sizes)


def test_fio_needs_room_for_the_file_and_memory_for_requests() -> None:
    values = registry.complete("block_sizes", {})
    needs = registry.load("block_sizes").needs(values, {})
    assert (needs.disk_bytes, needs.memory_bytes) == (256 * MIB, 4 * 64 * MIB)
    values = registry.complete("access_patterns", {"file_mib": 8})
    assert registry.load("access_patterns").needs(values, {}).disk_bytes == 8 * MIB


@with_fio
def test_the_file_is_seeded_and_cannot_be_compressed(root: Path) -> None:
    contents = []
    for side, seed in (("a", 7), ("b", 7), ("c", 8)):
        context, _ = contract.new_run("access_patterns", root / side, file_mib=4)
        registry.load("access_patterns").prepare(replace(context, seed=seed))
        (file,) = context.disk.iterdir()
        contents.append(file.read_bytes())
    assert contents[0] == contents[1] != contents[2] and len(contents[0]) == 4 * MIB
    assert len(zlib.compress(contents[0])) > 0.99 * len(contents[0])


@with_fio
def test_every_phase_works_on_the_file_that_was_laid_out(root: Path) -> None:
    settings = {"file_mib": 4, "passes": 3, "random_mib": 1, "random_seconds": 0.0}
    context, recorded = contract.new_run("access_patterns", root / "a", **settings)
    workload = registry.load("access_patterns")
    workload.prepare(context)
    (file,) = context.disk.iterdir()
    before, content = file.stat(), file.read_bytes()
    workload.run(context)
    after = file.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert file.read_bytes() != content
    moved = {name: work.amounts for name, work in zip(recorded.names, recorded.works, strict=True)}
    assert moved == {
        "write-sequential": {"bytes": 12 * MIB, "operations": 3},
        "read-sequential": {"bytes": 12 * MIB, "operations": 3},
        "write-random": {"bytes": MIB, "operations": 256},
        "read-random": {"bytes": MIB, "operations": 256},
    }
    for name in recorded.names:
        saved_report = (context.kept / f"{name}.json").read_text()
        assert fio.counted(saved_report).amounts == moved[name]


@with_fio
@pytest.mark.parametrize("fresh", [True, False])
def test_only_fresh_data_is_incompressible(fresh: bool, root: Path) -> None:
    settings = {"file_mib": 4, "random_mib": 4, "random_seconds": 0.0, "fresh": fresh}
    context, _ = contract.performed("access_patterns", root / "a", **settings)
    (file,) = context.disk.iterdir()
    assert (len(zlib.compress(file.read_bytes())) > 0.99 * 4 * MIB) is fresh


@with_fio
def test_a_random_phase_ends_in_time(root: Path) -> None:
    settings = {"file_mib": 64, "random_mib": 1 << 20, "random_seconds": 0.1}
    _, recorded = contract.performed("access_patterns", root / "a", **settings)
    assert all(0 < work.amounts["bytes"] < 1 << 40 for work in recorded.works)


@with_fio
def test_sizes_unfit_for_direct_io_are_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fio, "direct_bytes", lambda _path: 4096)
    settings = {"file_mib": 1, "steps": "512,4096", "seconds": 0.1, "access_bytes": 512}
    _, recorded = contract.performed("block_sizes", root / "a", **settings)
    assert recorded.names == ["write.4096B", "read.4096B", "burst.read"]
    assert [parts for parts, _ in recorded.left_out] == ["write.512B, read.512B", "access.read"]
    assert all("multiples of 4096 B, which 512 B is not" in why for _, why in recorded.left_out)


@with_fio
def test_small_steps_repeat_until_the_time_is_over(root: Path) -> None:
    settings = {"file_mib": 1, "steps": "393216", "seconds": 0.3, "engine": "psync", "depth": 1}
    _, recorded = contract.performed("block_sizes", root / "a", **settings)
    assert recorded.names == ["write.393216B", "read.393216B", "access.read", "burst.read"]
    for work in recorded.works[:2]:
        assert work.amounts["bytes"] > 10 * MIB
        # Two of them fit the file; a third would have to be cut.
        assert work.amounts["bytes"] == 393216 * work.amounts["operations"]


@with_fio
def test_a_held_fio_waits_before_its_first_request(laid: tuple[Context, Path]) -> None:
    with holding(laid, fio.Job("read", 4096, 4096)) as held:
        for _ in range(20):  # it waits, however long we do
            assert held._process.poll() is None
            time.sleep(0.05)
        held.go()
        assert fio.counted(held.report()).amounts == {"bytes": 4096, "operations": 1}


@with_fio
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failing_fio_is_an_error_with_its_message(
    when: str, root: Path, laid: tuple[Context, Path]
) -> None:
    if when == "before":
        laid[1].unlink()
    # There is no such file (in the words of fio 3.39 and 3.33), or no direct I/O of 100 bytes.
    messages = {
        "before": ("file creation disallowed", "refusing extend of file"),
        "after": ("Invalid argument",),
    }
    with (
        refuses("fio-failed", status=1) as refusal,
        holding(laid, fio.Job("read", 100, 1000)) as held,
    ):
        held.go()
        held.report()
    assert any(words in str(refusal.value.facts["reason"]) for words in messages[when])
    assert contract.processes_using(root) == []


@with_fio
def test_a_phase_ends_when_all_is_written(laid: tuple[Context, Path]) -> None:
    _, file = laid
    with holding(laid, fio.Job("write", MIB, 4 * MIB)) as held:
        assert not any(file.read_bytes())
        held.go()
        assert all(any(file.read_bytes()[at : at + MIB]) for at in range(0, 4 * MIB, MIB))


@with_fio
def test_killing_a_held_fio_is_an_error(laid: tuple[Context, Path]) -> None:
    with holding(laid, fio.Job("read", 4096, 4096)) as held:
        programs.kill_group(held._process)
        with refuses("fio-failed", status=-9, reason="it printed no reason"):
            held.go()


@with_fio
def test_a_working_fio_is_killed_with_the_run(laid: tuple[Context, Path]) -> None:
    _, file = laid
    job = fio.Job("read", 4096, MIB, seconds=600, repeat=True)
    with pytest.raises(KeyError), holding(laid, job) as held:
        os.write(held._word, b"go\n")
        time.sleep(0.3)
        assert contract.processes_using(file)
        raise KeyError
    assert contract.processes_using(file) == []


@with_fio
def test_a_held_fio_ends_with_its_parent(laid: tuple[Context, Path]) -> None:
    context, file = laid
    argv = fio.command(file, fio.Job("read", 4096, 4096), context.seed)
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(context.scratch), *argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout and parent.stdout.readline() == b"held\n"
        assert contract.processes_using(file)
        parent.kill()
    wait_until(lambda: not contract.processes_using(file))


def test_direct_bytes_finds_the_unit_of_direct_io(root: Path) -> None:
    file = root / "file"
    file.write_bytes(bytes(MIB))
    assert fio.direct_bytes(file) in fio.ALIGNMENTS
    with refuses("no-direct-io"):
        fio.direct_bytes(Path("/proc/self/stat"))


def test_access_area_is_the_file_or_its_volume(root: Path) -> None:
    context, _ = contract.new_run("block_sizes", root / "a", file_mib=3, steps="65536")
    assert block_sizes.access_area(context) == (context.disk / "test-file", 3 * MIB)
    context, _ = contract.new_run("block_sizes", root / "b", access_area="volume")
    try:
        path, size = block_sizes.access_area(context)
    except WorkloadError as reason:  # in a container its device is not there
        assert "no block device of its own" in str(reason)
        assert "set access_area to file" in str(reason)
    else:
        assert path.stat().st_rdev == context.disk.stat().st_dev
        assert size > shutil.disk_usage(context.disk).used


def test_reading_jobs_are_readonly() -> None:
    for pattern, read_only in (("read", True), ("randread", True), ("write", False)):
        argv = fio.command(Path("/dev/x"), fio.Job(pattern, 4096, MIB), 1)
        assert ("--readonly" in argv) is read_only
