"""Build the guest's image with mmdebstrap from Debian packages, and cache it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.errors import LabError
from lab import cache
from lab.apt import Mirror
from lab.apt import find as find_mirror
from lab.cache import Say
from lab.state import GIB, InDirectory, cache_dir

HERE = Path(__file__).resolve().parent
GUEST = HERE / "guest"
MODULE = HERE / "rapl_sim"
MODULE_SOURCES = ("fde_rapl_sim.c", "Makefile")
SUITE = "trixie"
DISK_BYTES = 6 * GIB  # sparse: the guest's limit, not the size of the file
BUILD_ROOM_BYTES = 5 * GIB  # tree and image together, with the package cache at its peak
BENCH = "/usr/src/fde-build"  # in the guest, during the build
UNWANTED = ("doc/*", "man/*", "info/*", "locale/*", "lintian/*", "bug/*")
OVERLAY = "overlay.tar"
PROGRAMS = ("mmdebstrap", "mke2fs", "newuidmap")
ROOM_BYTES = 3 * GIB


@dataclass(frozen=True)
class Image:
    """A built image; `root` (raw ext4) is read-only, guests write to an overlay over it."""

    directory: Path
    root = InDirectory("root.img")
    kernel = InDirectory("vmlinuz")
    initrd = InDirectory("initrd.img")


def location(directory: Path | None = None) -> Image:
    """Return the image of the current inputs in this cache, whether it is built or not."""
    name = cache.content_hash(inputs(), HERE, recipe())
    return Image((directory or cache_dir()) / "images" / name)


def ensure(say: Say, directory: Path | None = None) -> Image:
    """Return the image, building it if the cache lacks it. Raises LabError."""
    image = location(directory)
    cache.ensure(image.directory, "image", ROOM_BYTES, lambda new: build(new, say), say)
    return image


def words(name: str) -> list[str]:
    """Return the lines of lab/guest/`name` without comments."""
    lines = (GUEST / name).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def inputs() -> list[Path]:
    """Return every file that determines the image's contents, in a fixed order."""
    overlay = [p for p in GUEST.rglob("*") if p.is_file()]
    return sorted([*overlay, *(MODULE / n for n in MODULE_SOURCES)])


def recipe() -> str:
    """Return the commands that build the image, identical on every machine and checkout."""
    root = Path("root")
    debootstrap = _debootstrap(root, Mirror(None, (), None))
    words = [*debootstrap, *_mke2fs(root, Path("disk")), str(DISK_BYTES)]
    return "\n".join(words).replace(str(HERE), "")


def build(target: Path, say: Say) -> None:
    """Fill the directory `target` with root.img, vmlinuz and initrd.img.

    Raises LabError, with the end of the log, if a step fails.
    """
    cache.require_programs(*PROGRAMS)
    with cache.work_directory("image", BUILD_ROOM_BYTES, target) as (work, log):
        root, disk = work / "root", work / "root.img"
        try:
            pack_overlay(GUEST / "overlay", work / OVERLAY)
            say("image: packages (mmdebstrap, one to three minutes)")
            _run(_debootstrap(root, find_mirror()), log, say)
            say("image: ext4 file system")
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
            disk.chmod(0o666)  # the namespace's root, which writes it, is another user outside
            _run(_entered(_mke2fs(root, disk)), log, say)
            _take_boot_files(work, target)
            _run(["cp", "--sparse=always", str(disk), str(target / "root.img")], log, say)
        finally:
            _helper(["rm", "-rf", str(root)])


def pack_overlay(tree: Path, archive: Path) -> None:
    """Pack a directory with root as owner and standard modes, independent of the checkout."""

    def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with tarfile.open(archive, "w") as tar:
        for path in sorted(tree.iterdir()):
            tar.add(path, path.name, filter=as_root)


def _debootstrap(root: Path, source: Mirror) -> list[str]:
    """Return the mmdebstrap command that makes the tree `root`."""
    packages = words("packages.txt") + words("build-packages.txt")
    # Copied into the new root together with finish.sh, which reads them.
    lists = (GUEST / n for n in ("finish.sh", "build-packages.txt", "masked-units.txt"))
    ingredients = " ".join(f"'{p}'" for p in (*lists, *(MODULE / n for n in MODULE_SOURCES)))
    command = [
        "mmdebstrap",
        "--mode=unshare",
        "--format=directory",
        "--variant=minbase",
        "--components=main",
        f"--include={','.join(packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=force-unsafe-io",
        *(f"--aptopt={option}" for option in source.apt_options),
        *(f"--dpkgopt=path-exclude=/usr/share/{path}" for path in UNWANTED),
        f"--essential-hook=tar-in '{root.with_name(OVERLAY)}' /",
        f'--customize-hook=mkdir "$1{BENCH}"',
        f"--customize-hook=copy-in {ingredients} {BENCH}",
        f'--customize-hook=chroot "$1" /bin/sh {BENCH}/finish.sh',
    ]
    if source.certificates is not None:
        folder = source.certificates.parent
        command += [
            f'--setup-hook=mkdir -p "$1{folder}"',
            f"--setup-hook=copy-in '{source.certificates}' {folder}",
        ]
    return [*command, SUITE, str(root), *([source.url] if source.url else [])]


def _mke2fs(root: Path, disk: Path) -> list[str]:
    """Return the command that packs the tree `root` into the sparse ext4 file `disk`."""
    # Write the tables now: lazy initialisation would be disk traffic while the guest measures.
    options = "lazy_itable_init=0,lazy_journal_init=0"
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-L", "fde-root", "-E", options]
    return [*command, "-d", str(root), str(disk)]


def _take_boot_files(work: Path, target: Path) -> None:
    """Copy kernel and initrd out of the tree: QEMU boots them directly."""
    boot = work / "boot"
    boot.mkdir(mode=0o777)
    boot.chmod(0o777)
    copy = f"cp '{work}'/root/boot/vmlinuz-* '{boot}/vmlinuz' && "
    copy += f"cp '{work}'/root/boot/initrd.img-* '{boot}/initrd.img' && chmod 0644 '{boot}'/*"
    _helper(["sh", "-c", copy])
    for name in ("vmlinuz", "initrd.img"):
        if not (boot / name).exists():
            raise LabError("image-incomplete", name=name)
        shutil.copyfile(boot / name, target / name)


def _entered(command: Sequence[str]) -> list[str]:
    """Return `command`, run with the user ids that the guest will have."""
    return [*([] if os.geteuid() == 0 else ["mmdebstrap", "--unshare-helper"]), *command]


def _helper(command: Sequence[str]) -> None:
    environment = {**os.environ, "PATH": cache.system_path()}
    subprocess.run(_entered(command), check=False, env=environment, capture_output=True)


def _run(command: Sequence[str], log: Path, say: Say) -> None:
    """Run one step; lines that start with `image:` are also printed."""
    started = time.monotonic()

    def on_line(line: str) -> None:
        if line.startswith("image:"):
            say(f"{line} ({time.monotonic() - started:.0f} s)")

    cache.run(command, log, on_line, environment={"TMPDIR": str(log.parent)})
