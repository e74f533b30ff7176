"""What the workloads of suite `paper` need on this machine itself: the kernel source and the clip.

They lie in the guest's image, which is read here without starting anything: its file system is
ext4, and debugfs needs no mount. Without the image an archive is packed of what every checkout has.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import image
from workloads import programs

SOURCE = "/usr/src/linux-source-6.12.tar.xz"
CLIP = "/usr/share/fde-testbed/clip.mpg"
# Both hold the word that is searched for, as the kernel's source does.
LIBRARIES = ("stdlib", "purelib")


@dataclass(frozen=True)
class Assets:
    """The files by the names that workloads know, and in words what the source is."""

    paths: dict[str, Path]
    source: str


def provide(folder: Path) -> Assets:
    """The image's full kernel source and its clip, copied into `folder`; where the image is not in
    the cache, Python's library as an archive, and no clip."""
    root = image.location().root
    source = taken(root, SOURCE, folder)
    if source is None:
        source = _packed(folder / "libraries.tar.gz")
        said = "Python files of this environment: there is no image, or no debugfs"
    else:
        said = f"{source.name} of the guest's image"
    said = f"{said}, {source.stat().st_size / 1e6:.0f} MB packed"
    paths = {"kernel_tree": source, "kernel_grep": source}
    clip = taken(root, CLIP, folder)
    return Assets({**paths, "clip": clip} if clip else paths, said)


def taken(root: Path, path: str, folder: Path) -> Path | None:
    """A file of the image, or None: debugfs ends with 0 whether or not it found it."""
    debugfs = programs.find("debugfs")
    if debugfs is None or not root.exists():
        return None
    found = folder / Path(path).name
    request = f'dump "{path}" "{found}"'
    subprocess.run([debugfs, "-R", request, root], capture_output=True, check=False)
    return found if found.exists() and found.stat().st_size else None


def _packed(archive: Path) -> Path:
    with tarfile.open(archive, "w:gz", compresslevel=6) as packed:
        for library in LIBRARIES:
            for file in _sources(Path(sysconfig.get_path(library))):
                packed.add(file, arcname=str(Path(library) / file.relative_to(file.anchor)))
    return archive


def _sources(library: Path) -> Iterator[Path]:
    return (file for file in sorted(library.rglob("*.py")) if file.is_file())
