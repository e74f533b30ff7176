"""Details of single workloads: contents of files, amounts of work, caches, room."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import account
from contract.tests import programs as stand_ins
from contract.tests.refusal import Refusal, refuses
from workloads import database, drift_check, programs, registry, trees
from workloads.base import Needs
from workloads.tests import contract

# How compressed files begin.
MAGIC = {"gz": b"\x1f\x8b", "xz": b"\xfd7zXZ", "bz2": b"BZh"}


Assets = dict[str, Path]
Spy = Callable[[str], Path]


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_incompressible_files_are_seeded_and_all_different(root: Path) -> None:
    settings = {"small_files": 3, "small_mib": 1, "large_mib": 2, "source": "incompressible"}
    contexts = []
    for side, seed in (("a", 7), ("b", 7), ("c", 8)):
        context, _ = contract.new_run("file_io", root / side, **settings)
        contexts.append(replace(context, seed=seed))
        contract.perform(registry.load("file_io"), contexts[-1])
    first, second, other = (digests(context.disk) for context in contexts)
    assert first == second
    assert len(first) == len(set(first.values())) == 4
    assert not set(first.values()) & set(other.values())
    for file in contexts[0].disk.iterdir():
        data = file.read_bytes()
        assert len(zlib.compress(data)) > 0.99 * len(data)
    assert [f.stat().st_size >> 20 for f in sorted(contexts[0].disk.iterdir())] == [1, 1, 1, 2]


def test_the_source_is_shared_only_within_a_block(root: Path) -> None:
    first, _ = contract.new_run("file_io", root / "first", small_mib=1, large_mib=1)
    shared, workload = first.shared, registry.load("file_io")
    workload.prepare(first)
    (source,) = shared.iterdir()
    source.write_bytes(b"unchanged")
    workload.prepare(first)
    assert source.read_bytes() == b"unchanged"
    workload.prepare(replace(first, seed=first.seed + 1))
    (other,) = shared.iterdir()
    assert other != source and other.stat().st_size == 5 * (1 << 20)


def test_an_incomplete_source_is_not_shared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, _ = contract.new_run("file_io", root, small_mib=1, large_mib=1)

    def full(_self: random.Random, _size: int) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(random.Random, "randbytes", full)
    with pytest.raises(OSError) as raised:
        registry.load("file_io").prepare(context)
    assert raised.value.errno == errno.ENOSPC
    assert list(context.shared.iterdir()) == []


@pytest.fixture
def spy(root: Path, monkeypatch: pytest.MonkeyPatch) -> Spy:
    """Put a program first that notes its arguments, one call a line, and then is the real one."""

    def put(program: str) -> Path:
        real, notes = programs.find(program), root / "notes"
        script = f'echo "$@" >>{notes}\nexec {real} "$@"'
        shadow = stand_ins.program(root / "shadow" / program, script)
        monkeypatch.setenv("PATH", str(shadow.parent), prepend=":")
        return notes

    return put


def test_zero_files_hold_zeros_and_dd_reports_are_saved(root: Path) -> None:
    sizes = {"small_files": 3, "small_mib": 1, "large_mib": 1, "source": "zero"}
    context, _ = contract.performed("file_io", root / "a", **sizes)
    assert all(not any(file.read_bytes()) for file in context.disk.iterdir())
    lines = (context.kept / "dd-write-small.txt").read_text().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("1048576 bytes") and " copied, " in line for line in lines)


def test_without_read_back_only_the_writes_run(root: Path) -> None:
    sizes = {"small_mib": 1, "large_mib": 1, "read_back": False}
    _, phases = contract.performed("file_io", root / "a", **sizes)
    assert phases.names == ["write-small", "write-large"]


def test_separate_small_files_are_phases_from_cold_caches(root: Path) -> None:
    sizes = {"small_files": 2, "small_mib": 1, "large_mib": 1, "separate": True}
    context, phases = contract.performed("file_io", root / "a", **sizes)
    small = [f"{way}-small-{number}" for way in ("write", "read") for number in (1, 2)]
    assert phases.names == [*small, "write-large", "read-large"]
    assert {(work.amounts["files"], work.amounts["bytes"]) for work in phases.works} == {(1, 2**20)}
    assert sorted(p.name for p in context.kept.glob("dd-*.txt")) == sorted(
        f"dd-{name}.txt" for name in phases.names
    )


@pytest.mark.parametrize(("cache", "reads"), [("cold", 1), ("warm", 3)])
def test_a_warm_cache_reads_every_file_beforehand(
    cache: str, reads: int, root: Path, spy: Spy
) -> None:
    notes = spy("dd")
    sizes = {"small_files": 1, "small_mib": 1, "large_mib": 1}
    _, phases = contract.performed("file_io", root / "a", **sizes, cache=cache)
    read = [line for line in notes.read_text().splitlines() if "/disk/file" in line]
    read = [line for line in read if "of=/dev/null" in line]
    assert len(read) == 2 * reads
    assert phases.names == ["write-small", "read-small", "write-large", "read-large"]


def test_warm_seconds_repeats_and_counts_all_reads(root: Path, spy: Spy) -> None:
    notes = spy("dd")
    sizes = {"small_files": 2, "small_mib": 1, "large_mib": 1}
    settings = {**sizes, "cache": "warm", "warm_seconds": 0.2}
    _, phases = contract.performed("file_io", root / "a", **settings)
    lines = notes.read_text().splitlines()
    amounts = phases.works[phases.names.index("read-small")].amounts
    rounds = sum("file-0000 of=/dev/null" in line for line in lines) - 2
    assert rounds > 1
    assert amounts == {"files": 2 * rounds, "bytes": 2 * rounds * 2**20}


@pytest.mark.parametrize(("cache", "searches"), [("cold", 2), ("warm", 4)])
def test_a_warm_cache_searches_every_copy_beforehand(
    cache: str, searches: int, root: Path, assets: Assets, spy: Spy
) -> None:
    notes = spy("grep")
    _, phases = contract.performed("kernel_grep", root / "a", assets, copies=2, cache=cache)
    assert phases.names == ["grep-1", "grep-2"]
    assert sum(" module " in line for line in notes.read_text().splitlines()) == searches


def test_file_io_needs_room_for_files_and_source() -> None:
    def needs(**settings: Any) -> Needs:
        sizes = {"small_files": 3, "small_mib": 10, "large_mib": 20, **settings}
        return registry.load("file_io").needs(registry.complete("file_io", sizes), {})

    mib = 1 << 20
    assert needs(source="zero") == Needs(disk_bytes=50 * mib, memory_bytes=64 * mib)
    made_up = needs()
    assert made_up == Needs(50 * mib, 50 * mib, 64 * mib + 30 * mib)
    assert needs(source="zero", cache="warm").memory_bytes == made_up.memory_bytes


def test_trees_need_the_room_of_their_unpacked_files(root: Path, assets: Assets) -> None:
    """The estimate is at most slightly larger than the file system's allocation."""
    for only in ("", "*/net/*"):
        sizes = registry.complete("kernel_grep", {"copies": 3, "only": only, "cache": "warm"})
        needs = registry.load("kernel_grep").needs(sizes, assets)
        tree = root / f"tree{bool(only)}"
        tree.mkdir()
        programs.run(trees.unpack_command(assets["kernel_grep"], tree, only))
        files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
        taken_bytes = sum(-(-path.stat().st_size // 4096) * 4096 for path in files)
        assert taken_bytes <= needs.disk_bytes / 3 <= taken_bytes + 4096 * 3 * len(files)
        assert needs.memory_bytes * 3 == needs.disk_bytes
    sizes = registry.complete("kernel_tree", {})
    archive_bytes = assets["kernel_tree"].stat().st_size
    needs = registry.load("kernel_tree").needs(sizes, assets)
    assert needs.disk_bytes > archive_bytes + trees.listed(assets["kernel_tree"], "").room_bytes


def test_a_pattern_of_members_is_not_read_as_an_option(root: Path, assets: Assets) -> None:
    mark, archive = root / "ran", assets["kernel_grep"]
    command = f"--to-command=touch {mark}"
    with refuses("program-failed", program="tar"):
        programs.run(trees.unpack_command(archive, root, command))
    assert not mark.exists()


def test_an_invalid_archive_is_refused(root: Path) -> None:
    broken = root / "broken.tar.gz"
    broken.write_bytes(b"nothing")
    with refuses("archive-unread"):
        registry.load("kernel_grep").needs(
            registry.complete("kernel_grep", {}), {"kernel_grep": broken}
        )


@pytest.mark.parametrize(("fsync", "fsync_large"), [(True, False), (False, False), (False, True)])
def test_fsync_applies_to_writes_only(fsync: bool, fsync_large: bool, root: Path, spy: Spy) -> None:
    notes = spy("dd")
    settings = {"small_files": 2, "small_mib": 1, "large_mib": 1}
    settings |= {"fsync": fsync, "fsync_large": fsync_large}
    context, _ = contract.performed("file_io", root / "a", **settings)
    calls = [line for line in notes.read_text().splitlines() if "if=" in line]
    disk = str(context.disk)
    writes = [line for line in calls if f"of={disk}" in line]
    reads = [line for line in calls if f"if={disk}" in line and "of=/dev/null" in line]
    assert len(writes) == len(reads) == 3
    assert ["conv=fsync" in line for line in writes] == [fsync, fsync, fsync or fsync_large]
    assert not any("conv=fsync" in line for line in reads)


@pytest.mark.parametrize("wait", [True, False])
def test_sync_applies_to_every_phase_of_the_tree(
    wait: bool, root: Path, assets: Assets, spy: Spy
) -> None:
    notes = spy("sync")
    context, _ = contract.performed("kernel_tree", root / "a", assets, sync=wait)
    calls = [line for line in notes.read_text().splitlines() if line != "--version"]
    assert calls == [f"-f {context.disk}"] * (4 if wait else 0)


@pytest.mark.parametrize(
    ("recompress", "program"), [("as-archive", "gzip"), ("xz", "xz"), ("bz2", "bzip2")]
)
def test_the_repacked_tree_is_complete(
    recompress: str, program: str, root: Path, assets: Assets
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed here: install it to test this")
    name = "kernel_tree"
    phases = contract.Phases(fail_after=3)  # after `tar`, before `delete`
    values = registry.complete(name, {"recompress": recompress})
    context = contract.context_for(root / "run", phases, assets, values)
    with pytest.raises(contract.InjectedError, match="tar"):
        contract.perform(registry.load(name), context)
    suffix = "gz" if recompress == "as-archive" else recompress
    again = root / "again"
    again.mkdir()
    packed = context.disk / f"again.tar.{suffix}"
    assert packed.read_bytes().startswith(MAGIC[suffix]), "not compressed as its name says"
    programs.run(trees.unpack_command(packed, again, ""))
    assert digests(again) == digests(context.disk / "tree")
    assert len(digests(again)) == 40


def test_the_kernel_tree_is_deleted_and_counted(root: Path, assets: Assets) -> None:
    context, phases = contract.performed("kernel_tree", root / "a", assets, only="*/net/*")
    assert list(context.disk.iterdir()) == []
    copied, *on_tree = (work.amounts for work in phases.works)
    assert copied == {"bytes": assets["kernel_tree"].stat().st_size, "files": 1}
    assert [amounts["files"] for amounts in on_tree] == [20, 20, 22]


def test_grep_counts_every_matching_line(root: Path, assets: Assets) -> None:
    _, phases = contract.performed("kernel_grep", root / "a", assets)
    # 30 files with two lines each; grep -r does not follow the symbolic link.
    assert phases.works[0].amounts["matches"] == 60
    assert phases.works[0].amounts["files"] == 40


def test_grep_without_a_match_is_a_failure(root: Path, assets: Assets) -> None:
    with refuses("word-absent", word="absent"):
        contract.performed("kernel_grep", root / "a", assets, word="absent")


def test_an_unknown_archive_type_cannot_run(root: Path) -> None:
    archive = root / "source.rar"
    archive.touch()
    reasons = registry.load("kernel_tree").requires({}, {"kernel_tree": archive})
    assert any("not an archive this can unpack" in reason for reason in reasons)


def test_the_compressor_of_the_archive_is_required(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = root / "source.tar.zst"
    archive.touch()
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.setattr("workloads.programs.SEARCH_PATH_SUFFIX", ())
    reasons = registry.load("kernel_grep").requires({}, {"kernel_grep": archive})
    assert "kernel_grep needs the program zstd: install its package." in reasons


def test_the_compressor_of_the_new_archive_is_required(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = root / "source.tar"
    archive.touch()
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.setattr("workloads.programs.SEARCH_PATH_SUFFIX", ())
    assets = {"kernel_tree": archive}
    reasons = registry.load("kernel_tree").requires({"recompress": "bz2"}, assets)
    assert "kernel_tree needs the program bzip2: install its package." in reasons


@pytest.mark.parametrize("start", ["#!/bin/sh\n", "\x7fELF"])
def test_a_script_in_front_of_a_program_is_refused(
    start: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "dd").write_text(start)
    (root / "dd").chmod(0o755)
    monkeypatch.setenv("PATH", str(root))
    reasons = registry.load("file_io").requires({}, {})
    assert bool(reasons) == (start == "#!/bin/sh\n")


def test_the_report_of_sysbench_from_1_1_on_is_read() -> None:
    lines = ("Number of threads: 2", "    time elapsed:  1.0004s", "    total number of events: 9")
    expected = {"threads": 2.0, "seconds": 1.0004, "events": 9.0}
    assert drift_check.counted("\n".join(lines)) == expected


@pytest.fixture
def binaries() -> database.Binaries:
    """Provide a database server that can be run here."""
    binaries_here, reasons = database.find(), database.reasons("sql")
    if reasons or binaries_here is None:
        pytest.skip(" ".join(reasons))
    return binaries_here


def test_a_server_that_cannot_start_is_refused(root: Path, binaries: database.Binaries) -> None:
    data = root / "data"
    database.initialise(binaries, data, root / "tmp")
    (data / "ibdata1").write_bytes(b"no table space")
    with refuses("server-ended"):
        database.start(binaries, data, root / "tmp", root / "log", buffer_pool_mib=16)
    assert contract.processes_using(root) == []


def test_a_second_database_is_a_copy_of_the_empty_first_one(
    root: Path, binaries: database.Binaries
) -> None:
    context, _ = contract.new_run("sql", root / "run")
    for name in ("first", "second"):
        data, temporary = context.disk / name, context.disk / f"{name}-tmp"
        database.provide(binaries, data, temporary, context.shared)
        log = context.scratch / "log"
        server = database.start(binaries, data, temporary, log, buffer_pool_mib=8)
        try:
            assert server.execute("SHOW DATABASES LIKE 'kept'").strip() == ""
            server.execute("CREATE DATABASE kept")
        finally:
            server.stop()
        # Without its own program MariaDB cannot make another.
        binaries = replace(binaries, install=Path("/bin/false"))


def test_a_folder_closed_to_the_server_is_named(root: Path, binaries: database.Binaries) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives the data to another user")
    root.chmod(0o700)
    with refuses("folder-closed", folder=str(root)):
        database.initialise(binaries, root / "data", root / "tmp")


CLIPS = Path(__file__).parent / "clips"
needs_mplayer = pytest.mark.skipif(not programs.find("mplayer"), reason="mplayer is not installed")


@needs_mplayer
@pytest.mark.parametrize(
    ("clip", "frames"),
    [
        ("h264.mp4", 26),
        ("fragmented.mp4", 26),
        ("empty-frames.avi", 51),
        ("variable.mkv", 61),
        ("screen.mkv", 31),
        ("late.webm", 61),
        ("telecine.mpg", 25),
    ],
)
def test_any_clip_is_cut_to_one_second(clip: str, frames: int, root: Path) -> None:
    """Clips without frame counts, with fields, variable rates, or stamps from 100 s on."""
    _, phases = contract.performed("video", root / "a", {"clip": CLIPS / clip}, seconds=1)
    (work,) = phases.works
    assert work.planned["frames"] == work.reported["frames"] == frames
    assert work.planned["video_s"] == work.reported["video_s"] == pytest.approx(1, abs=0.03)
    assert work.amounts["video_s"] == work.planned["video_s"]
    assert work.amounts["bytes"] == (CLIPS / clip).stat().st_size
    assert account.judge(phases.documents())[0].ok


@needs_mplayer
def test_bytes_after_the_played_part_are_not_counted(root: Path) -> None:
    """Player and count skip data after the film."""
    clip = root / "clip.mp4"
    size_bytes = 1 << 22
    box = size_bytes.to_bytes(4, "big") + b"free" + bytes(size_bytes - 8)
    clip.write_bytes((CLIPS / "h264.mp4").read_bytes() + box)
    _, phases = contract.performed("video", root / "a", {"clip": clip}, seconds=1, reads=2)
    play, read = phases.works
    assert 7975 < play.amounts["bytes"] < size_bytes / 4
    assert read.amounts["bytes"] == 2 << 20
    assert play.disk_bounds["read_bytes"].least > 0.9 * play.amounts["bytes"]


@needs_mplayer
@pytest.mark.parametrize(
    ("clip", "settings", "failure"),
    [
        ("sound.mka", {}, refuses("not-played", clip="sound.mka")),
        ("make.py", {}, refuses("not-played", clip="make.py")),
        ("h264.mp4", {"seconds": 5}, refuses("clip-too-short", seconds=5)),
        ("slides.mkv", {"seconds": 1}, refuses("clip-not-cut", seconds=1)),
        (
            "h264.mp4",
            {"seconds": 1, "decoder": "mpeg12,"},
            refuses("wrong-decoder", decoder="ffh264", wanted="mpeg12"),
        ),
    ],
)
def test_an_unplayable_clip_fails(
    root: Path, clip: str, settings: dict[str, Any], failure: Refusal
) -> None:
    with failure:
        contract.performed("video", root / "a", {"clip": CLIPS / clip}, **settings)
