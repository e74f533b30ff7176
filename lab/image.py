"""The guest image: built once, kept in the cache under the hash of everything that goes into it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import image_build
from lab.errors import LabError
from lab.paths import GIB, cache_dir, require_room

ROOM_BYTES = 3 * GIB
KEPT = 2
BUILDING = "building-"


@dataclass(frozen=True)
class Image:
    """A built image; nobody writes `root` (raw ext4), guests put an overlay over it."""

    directory: Path

    @property
    def root(self) -> Path:
        return self.directory / "root.img"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.img"


def content_hash(files: Iterable[Path], base: Path, recipe: str) -> str:
    """Hash of `recipe` and of the files: paths below `base`, execute bits and contents.

    The order of `files` does not matter, nor where `base` is.
    """
    digest = hashlib.sha256(recipe.encode())
    for file in sorted(files):
        content = file.read_bytes()
        executable = os.access(file, os.X_OK)
        head = f"{file.relative_to(base).as_posix()}\0{int(executable)}\0{len(content)}\0"
        digest.update(head.encode() + content)
    return digest.hexdigest()[:16]


def location(cache: Path | None = None) -> Image:
    """Where the image of the present inputs is, or would be."""
    name = content_hash(image_build.inputs(), image_build.HERE, image_build.recipe())
    return Image((cache or cache_dir()) / "images" / name)


def ensure(say: image_build.Say, cache: Path | None = None) -> Image:
    """The image, built now if it is not in the cache. Raises LabError."""
    image = location(cache)
    if image.directory.exists():
        return image
    images = image.directory.parent
    require_room(images, ROOM_BYTES, "the guest image")
    images.mkdir(parents=True, exist_ok=True)
    with _lock(images / "lock", say):
        if not image.directory.exists():
            _build(image, say)
    return image


def _build(image: Image, say: image_build.Say) -> None:
    started = time.monotonic()
    parent = image.directory.parent
    _sweep(parent)
    temporary = Path(tempfile.mkdtemp(prefix=BUILDING, dir=parent))
    try:
        image_build.build(temporary, say)
        seconds = time.monotonic() - started
        allocated = sum(p.stat().st_blocks * 512 for p in temporary.iterdir())
        facts = {"build_s": round(seconds, 1), "allocated_bytes": allocated}
        (temporary / "build.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(image.directory)
        (parent / image_build.FAILED_LOG).unlink(missing_ok=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    say(f"guest: image of {allocated / 1e9:.2f} GB made in {seconds:.0f} s: {image.directory}")


def _sweep(images: Path) -> None:
    """Drop what a killed build left behind, and old images but the two last made.

    The caller holds the lock, so nobody is building. A guest that runs on a dropped image keeps it:
    its files are open.
    """
    for leftover in images.glob(f"{BUILDING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    finished = sorted(images.glob("*/build.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in finished[KEPT:]:
        shutil.rmtree(old.parent, ignore_errors=True)


@contextmanager
def _lock(path: Path, say: image_build.Say) -> Iterator[None]:
    """One build at a time; the kernel lets go of the lock if the builder dies."""
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("guest: another build is under way; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise LabError(f"cannot lock {path}: {error.strerror}") from error
        yield
