"""The image's key depends on all inputs and only on them; the cache checks its files."""

from __future__ import annotations

import os
import shutil
import tarfile
import threading
from pathlib import Path

import pytest

from contract.errors import LabError
from contract.tests.refusal import refuses
from lab import cache, image
from lab.state import GIB, cache_dir, require_room


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    base = tmp_path / "lab"
    shutil.copytree(image.GUEST, base / "guest")
    shutil.copytree(image.MODULE, base / "rapl_sim")
    return base


def _hash(base: Path, recipe: str = "recipe") -> str:
    return cache.content_hash([p for p in base.rglob("*") if p.is_file()], base, recipe)


def test_hash_does_not_depend_on_place_order_or_time(inputs: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(inputs, moved)  # other inode numbers, other times of directories
    for file in moved.rglob("*"):
        file.touch()
    files = [p for p in moved.rglob("*") if p.is_file()]
    assert cache.content_hash(reversed(files), moved, "recipe") == _hash(inputs)


def _append(file: Path) -> None:
    file.write_text(file.read_text() + "\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda base: _append(base / "guest" / "packages.txt"),
        lambda base: _append(base / "rapl_sim" / "fde_rapl_sim.c"),
        lambda base: (base / "guest" / "overlay" / "etc" / "new").write_text(""),
        lambda base: (base / "guest" / "overlay" / "etc" / "hostname").rename(
            base / "guest" / "overlay" / "etc" / "hostnames"
        ),
        lambda base: (base / "guest" / "overlay" / "etc" / "hostname").chmod(0o755),
    ],
    ids=["package", "module", "new file", "renamed", "mode"],
)
def test_hash_changes_with_everything_that_goes_in(inputs: Path, change: object) -> None:
    before = _hash(inputs)
    assert callable(change)
    change(inputs)
    assert _hash(inputs) != before


def test_hash_changes_with_the_recipe(inputs: Path) -> None:
    assert _hash(inputs, "one") != _hash(inputs, "another")


def test_hash_includes_the_lengths_of_files(tmp_path: Path) -> None:
    """Its content may look like another file's head: lengths are hashed too."""
    single, split = tmp_path / "one", tmp_path / "two"
    single.mkdir()
    split.mkdir()
    (single / "a").write_bytes(b"x")
    (single / "b").write_bytes(b"y")
    (split / "a").write_bytes(b"xb\x000y")
    assert _hash(single) != _hash(split)


def test_recipe_names_no_path_of_this_machine_and_no_mirror() -> None:
    recipe = image.recipe()
    assert str(image.HERE) not in recipe
    assert "://" not in recipe
    assert "linux-image-amd64" in recipe


def test_inputs_include_all_kinds_of_files() -> None:
    names = {p.name for p in image.inputs()}
    assert {"packages.txt", "finish.sh", "fde_rapl_sim.c", "fde-lab-drives", "fstab"} <= names


def test_the_overlay_has_standard_owners_and_modes(tmp_path: Path) -> None:
    """Refused by sshd and systemd-tmpfiles are directories that somebody else may write."""
    tree = tmp_path / "overlay"
    shutil.copytree(image.GUEST / "overlay", tree)
    for path in tree.rglob("*"):
        path.chmod(path.stat().st_mode | 0o020)
    image.pack_overlay(tree, tmp_path / "overlay.tar")
    with tarfile.open(tmp_path / "overlay.tar") as tar:
        modes = {m.name: m.mode for m in tar.getmembers() if (m.uid, m.gid) == (0, 0)}
        assert len(modes) == len(tar.getmembers())
    assert modes["etc/ssh"] == modes["usr/local/sbin/fde-network"] == 0o755
    assert modes["etc/fstab"] == 0o644


def test_a_failed_build_leaves_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Path, _say: object) -> None:
        (target / "root.img").write_bytes(b"half")
        raise LabError("no mirror")

    monkeypatch.setattr(image, "build", fail)
    with pytest.raises(LabError, match="no mirror"):
        image.ensure(lambda _line: None, tmp_path)
    assert not image.location(tmp_path).directory.exists()
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["lock"]


def test_two_builders_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []
    entered, finish = threading.Event(), threading.Event()

    def build(target: Path, _say: object) -> None:
        built.append(target)
        entered.set()
        assert finish.wait(30)
        (target / "root.img").write_bytes(b"whole")

    monkeypatch.setattr(image, "build", build)
    lines: list[str] = []
    waiting = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        if "another build" in line:
            waiting.set()

    builders = [threading.Thread(target=image.ensure, args=(say, tmp_path)) for _ in range(2)]
    builders[0].start()
    assert entered.wait(30)
    builders[1].start()
    assert waiting.wait(30)
    finish.set()
    for builder in builders:
        builder.join(30)
    assert len(built) == 1
    assert image.location(tmp_path).root.read_bytes() == b"whole"


def test_old_images_and_leftovers_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    for age, name in enumerate(("old", "older", "oldest")):
        (images / name).mkdir(parents=True)
        stamp = images / name / "build.json"
        stamp.write_text("{}")
        os.utime(stamp, (1000 - age, 1000 - age))
    (images / "building-killed").mkdir()
    monkeypatch.setattr(image, "build", lambda _target, _say: None)
    image.ensure(lambda _line: None, tmp_path)
    names = {p.name for p in images.iterdir() if p.is_dir()}
    assert names == {"old", "older", image.location(tmp_path).directory.name}


def test_a_changed_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(target: Path, _say: object) -> None:
        assert target.stat().st_mode & 0o077 == 0
        (target / "modules").mkdir()
        for name in ("root.img", "vmlinuz", "modules/one.ko"):
            (target / name).write_bytes(name.encode())

    monkeypatch.setattr(image, "build", build)
    built = image.ensure(_silent, tmp_path)
    assert built.directory.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(image, "build", lambda *_: pytest.fail("it is built once"))
    for name in ("root.img", "modules/one.ko"):
        path = built.directory / name
        before, content = path.stat(), path.read_bytes()
        path.write_bytes(content.swapcase())  # as long, and with its old time
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with refuses("cache-changed"):
            image.ensure(_silent, tmp_path)
        path.write_bytes(content)
        image.ensure(_silent, tmp_path)
    (built.directory / "more").touch()
    with refuses("cache-changed", file="more"):
        image.ensure(_silent, tmp_path)
    (built.directory / "more").unlink()
    built.directory.chmod(0o777)
    with refuses("cache-open-to-others"):
        image.ensure(_silent, tmp_path)


@pytest.mark.parametrize("sums", [None, b"\xff", b'{"root.img": {}}', b'{"root.img": 1}'])
def test_an_image_without_sums_is_refused(sums: bytes | None, tmp_path: Path) -> None:
    built = image.location(tmp_path)
    built.directory.mkdir(parents=True)
    built.root.write_bytes(b"evil")
    if sums is not None:
        (built.directory / cache.SUMS).write_bytes(sums)
    with refuses("cache-changed", file="root.img"):
        image.ensure(_silent, tmp_path)
    assert built.root.read_bytes() == b"evil"


def test_a_build_is_closed_to_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with cache.work_directory("image", 0, tmp_path / "target") as (work, _):
        (entry,) = tmp_path.iterdir()
        assert entry == work
        others = work.stat().st_mode & 0o007
        assert not others and (os.geteuid() or not work.stat().st_mode & 0o077)


def _silent(_line: str) -> None:
    """Print nothing."""


def test_too_little_room_is_refused_with_both_figures(tmp_path: Path) -> None:
    with refuses("no-room", needed_bytes=3.0, free_bytes=1.0) as raised:
        require_room(tmp_path / "not" / "yet", 3 * GIB, "the guest image", free_bytes=GIB)
    assert "FDE_CACHE" in str(raised.value)
    require_room(tmp_path, 3 * GIB, "the guest image", free_bytes=3 * GIB)


def test_room_is_read_from_the_real_disk(tmp_path: Path) -> None:
    with refuses("no-room", remedy="--dir"):
        require_room(tmp_path / "not" / "yet", 1 << 60, "the lab")


def test_cache_directory_follows_the_environment() -> None:
    assert cache_dir({"FDE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_dir({"FDE_CACHE": "", "XDG_CACHE_HOME": "/b"}) == Path("/b/fde-testbed")
    assert cache_dir({}) == Path.home() / ".cache" / "fde-testbed"
