"""The guest image: built once, kept in the cache under the hash of everything that goes into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab import cache, image_build
from lab.paths import GIB, cache_dir

ROOM_BYTES = 3 * GIB


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


def location(directory: Path | None = None) -> Image:
    """Where the image of the present inputs is, or would be, in this cache."""
    name = cache.content_hash(image_build.inputs(), image_build.HERE, image_build.recipe())
    return Image((directory or cache_dir()) / "images" / name)


def ensure(say: cache.Say, directory: Path | None = None) -> Image:
    """The image, built now if it is not in the cache. Raises LabError."""
    image = location(directory)
    cache.ensure(image.directory, "image", ROOM_BYTES, lambda new: image_build.build(new, say), say)
    return image
