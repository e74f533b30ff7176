"""The kernel of User Mode Linux: the archived one of lab/kernel/, or one built from source.

lab/kernel/ has the name and SHA-256 of Debian's source, our configuration and patches, and the
archive of a build. LAB_KERNEL=build builds the kernel here instead. The cache holds the program and
its modules in the layout of the guest's /lib/modules/<release>.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from contract import schema
from contract.errors import LabError
from contract.files import sha256_of, write_json
from contract.strict_json import read_object
from lab import cache
from lab.apt import Apt
from lab.cache import Say
from lab.image import MODULE
from lab.state import GIB, InDirectory, cache_dir

FOLDER = Path(__file__).resolve().parents[1] / "kernel"
CONFIG = FOLDER / "uml.config"
PATCHES = (FOLDER / "uml.patch", FOLDER / "aes.patch")
RAPL = MODULE / "fde_rapl_sim.c"
INPUTS = (CONFIG, *PATCHES, RAPL)
ARCHIVE = FOLDER / "kernel.tar.xz"
RECORD = FOLDER / "kernel.json"
# The mirror removes a version of its backports after weeks; the snapshot archive keeps it.
SUITE = "trixie-backports"
SNAPSHOT = "http://snapshot.debian.org/archive/debian/20261128T000000Z"
ROOM_BYTES = GIB // 4
BUILD_ROOM_BYTES = 2 * GIB
PROGRAMS = ("apt-get", "bc", "bison", "depmod", "dpkg-deb", "flex", "gcc", "make", "patch", "xz")
# Large parts of the source that this configuration never compiles; Kconfig files are needed.
UNUSED = (
    "*/Documentation/*/*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/ethernet/*.[ch]",
    "*/drivers/net/wireless/*.[ch]",
    "*/sound/*.[ch]",
    "*/tools/testing",
)
DECLARED = re.compile(r"^\s*(?:menu)?config\s+(\w+)", re.MULTILINE)
# Fixed values for the time, user and host that a build would otherwise embed.
REPRODUCIBLE = {
    "KBUILD_BUILD_HOST": "lab",
    "KBUILD_BUILD_TIMESTAMP": "1970-01-01",
    "KBUILD_BUILD_USER": "fde",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
}


@dataclass(frozen=True)
class Record:
    """Contents of lab/kernel/kernel.json: the source, our inputs and the compiler.

    `contents_sha256` is the sum of the uncompressed archive, `inputs` the hash of our files.
    """

    package: str
    version: str
    source_sha256: str
    compiler: str
    inputs: str
    contents_sha256: str

    @classmethod
    def read(cls) -> Record:
        """Read the record of the repository."""
        return schema.read(cls, read_object(RECORD))


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache; `built`: it was built here."""

    directory: Path
    built: bool
    program = InDirectory("linux")
    # Mounted at /lib/modules in the guest: one directory, named by the release.
    modules = InDirectory("modules")

    def facts(self) -> dict[str, str | float]:
        """Return the kernel's build record; only its name if there is none."""
        return {"kernel": self.directory.name, **read_object(self.directory / cache.FACTS)}


def inputs_hash() -> str:
    """Return the hash of our files that go into a build."""
    recipe = f"{UNUSED} {sorted(REPRODUCIBLE.items())}"
    return cache.content_hash(INPUTS, FOLDER.parent, recipe)


def location(directory: Path) -> Kernel:
    """Return the kernel in this cache, whether it exists or not; one built here comes first.

    If our files are not those of the archive, only a build has them.
    """
    kernels, record, inputs = directory / "kernels", Record.read(), inputs_hash()
    built = Kernel(kernels / f"{inputs}-built", built=True)
    requested = os.environ.get("LAB_KERNEL", "") == "build"
    if requested or built.directory.exists() or record.inputs != inputs:
        return built
    return Kernel(kernels / record.contents_sha256[:16], built=False)


def ensure(say: Say) -> Kernel:
    """Return the kernel, unpacking or building it if the cache lacks it. Raises LabError."""
    if (wish := os.environ.get("LAB_KERNEL", "")) not in ("", "build"):
        raise LabError("no-such-kernel", wish=wish)
    kernel = location(cache_dir())
    if kernel.built:
        return build(say)
    cache.ensure(kernel.directory, "kernel", ROOM_BYTES, _unpack_archive, say)
    return kernel


def build(say: Say) -> Kernel:
    """Return a kernel built on this host, building it if the cache has none. Raises LabError."""
    kernel = Kernel(cache_dir() / "kernels" / f"{inputs_hash()}-built", built=True)

    def make(target: Path) -> None:
        _require_build_programs()
        with cache.work_directory("kernel", BUILD_ROOM_BYTES, target) as (work, log):
            Build(say, log).make(work, target)

    cache.ensure(kernel.directory, "kernel", ROOM_BYTES, make, say)
    return kernel


def rebuild(say: Say, *, keep: bool) -> bool:
    """Build the kernel again; return whether it matches the archive. `keep` replaces the archive.

    Raises LabError if the build fails, or if a different compiler makes the comparison meaningless.
    """
    _require_build_programs()
    record, compiler = Record.read(), _compiler()
    target = Path(os.environ.get("FDE_BUILD", "build")).absolute() / "kernel"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if compiler != record.compiler and not keep:
        raise LabError("other-compiler", compiler=compiler, recorded=record.compiler)
    with cache.work_directory("kernel", BUILD_ROOM_BYTES, target) as (work, log):
        Build(say, log).make(work, target)
    contents = _pack(target)
    contents_sha256 = hashlib.sha256(contents).hexdigest()
    say(f"kernel: built in {target}; SHA-256 of its contents {contents_sha256}")
    if keep:
        ARCHIVE.write_bytes(lzma.compress(contents, preset=9 | lzma.PRESET_EXTREME))
        sums = {"inputs": inputs_hash(), "contents_sha256": contents_sha256}
        write_json(RECORD, asdict(replace(record, compiler=compiler, **sums)), 0o644)
        return True
    say(f"kernel: that of lab/kernel/               {record.contents_sha256}")
    return contents_sha256 == record.contents_sha256


def _require_build_programs() -> None:
    try:
        cache.require_programs(*PROGRAMS)
    except LabError as error:
        raise LabError("no-build-program", program=error.facts["program"]) from error


def _compiler() -> str:
    """Return the tool versions that affect the build's bytes: gcc, binutils and libc."""
    versions = []
    for argv in (["gcc", "--version"], ["ld", "--version"], ["ldd", "--version"]):
        shown = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        versions.append(shown.partition("\n")[0].strip())
    return "; ".join(versions)


def _unpack_archive(target: Path) -> None:
    """Fill `target` with the archive's program and modules. Raises LabError if it is damaged."""
    record = Record.read()
    try:
        contents = lzma.decompress(ARCHIVE.read_bytes())
    except (OSError, lzma.LZMAError):
        contents = b""
    if hashlib.sha256(contents).hexdigest() != record.contents_sha256:
        raise LabError("kernel-damaged", path=ARCHIVE)
    unpack = ["tar", "--extract", "--no-same-owner", "--file=-", f"--directory={target}"]
    subprocess.run(unpack, input=contents, check=True)
    _note(target, record)


def _pack(directory: Path) -> bytes:
    """Return program and modules as a tar archive without owners and times."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        modules = sorted((directory / "modules").rglob("*"))
        for path in (directory / "linux", directory / "modules", *modules):
            member = tar.gettarinfo(path, path.relative_to(directory).as_posix())
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or path.name == "linux" else 0o644
            with path.open("rb") if member.isfile() else io.BytesIO() as content:
                tar.addfile(member, content)
    return packed.getvalue()


def _note(target: Path, record: Record) -> None:
    facts = {"source": f"{record.package} {record.version}", "compiler": record.compiler}
    (target / cache.FACTS).write_text(json.dumps(facts), encoding="utf-8")


class Build:
    """The steps of one build, with output in `log`."""

    def __init__(self, say: Say, log: Path) -> None:
        self._say, self._log = say, log

    def make(self, work: Path, target: Path) -> None:
        """Fill `target` with `linux` and `modules`."""
        record = Record.read()
        tree = self.unpack(self.fetch(work, record), work)
        self.configure(tree)
        self._say("kernel: compiling (5 to 20 minutes)")
        jobs = (os.cpu_count() or 1) + 1  # one more, for when another waits for the disk
        self._make(tree, f"-j{jobs}", "linux", "modules")
        self._make(tree, f"INSTALL_MOD_PATH={work}", "INSTALL_MOD_STRIP=1", "modules_install")
        shutil.copytree(work / "lib" / "modules", target / "modules", symlinks=True)
        for link in target.glob("modules/*/build"):
            link.unlink()
        # The tables for unwinding are not used, but a tenth of the archive.
        unwinding = ["--remove-section=.eh_frame", "--remove-section=.eh_frame_hdr"]
        self.run(["strip", *unwinding, "-o", str(target / "linux"), str(tree / "linux")])
        _note(target, replace(record, compiler=_compiler()))

    def run(self, command: Sequence[str]) -> None:
        cache.run(command, self._log, environment=REPRODUCIBLE)

    def _make(self, tree: Path, *words: str) -> None:
        self.run(["make", "-C", str(tree), "ARCH=um", *words])

    def fetch(self, work: Path, record: Record) -> Path:
        """Return Debian's source package from its mirror, else from the snapshot archive.

        Raises LabError if neither has it, or if it is not the recorded one.
        """
        self._say(f"kernel: {record.package} {record.version} (about 160 MB)")

        def run(argv: Sequence[str], on_line: Say) -> None:
            cache.run(argv, self._log, on_line)

        for name, archive in (("mirror", None), ("snapshot", SNAPSHOT)):
            (work / name).mkdir()
            with suppress(LabError):  # its reason is in the log
                apt = Apt(work / name, [SUITE], run, archive=archive)
                apt.download(f"{record.package}={record.version}")
                break
        package = next(work.glob("*/*.deb"), None)
        if package is None or sha256_of(package) != record.source_sha256:
            raise LabError("no-kernel-source", package=record.package, version=record.version)
        return package

    def unpack(self, package: Path, work: Path) -> Path:
        """Return the unpacked source tree, with our patches and the module of the RAPL zones."""
        tree = work / "source"
        tree.mkdir()
        excluded = " ".join(f"--exclude='{part}'" for part in UNUSED)
        unpack = (
            f"set -e; dpkg-deb --fsys-tarfile '{package}' | "
            "tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | "
            f"tar -xJ -C '{tree}' --strip-components=1 {excluded}; rm '{package}'"
        )
        self.run(["sh", "-c", unpack])
        for patch in PATCHES:
            self.run(["patch", "--strip=1", f"--input={patch}", f"--directory={tree}"])
        powercap = tree / "drivers" / "powercap"
        shutil.copyfile(RAPL, powercap / RAPL.name)
        with (powercap / "Makefile").open("a", encoding="ascii") as file:
            file.write(f"obj-m += {RAPL.stem}.o\n")
        return tree

    def configure(self, tree: Path) -> None:
        """Apply our lines to an empty configuration; raise LabError if the kernel rejects one.

        Options that this version does not have are skipped.
        """
        lines = CONFIG.read_text(encoding="utf-8").splitlines()
        self._make(tree, "-s", f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
        taken = (tree / ".config").read_text(encoding="utf-8").splitlines()
        lost = [line for line in lines if line.startswith("CONFIG_") and line not in taken]
        if lost:  # ignore options that the source's Kconfig files do not declare
            sources = [p.read_text("utf-8", errors="replace") for p in tree.rglob("Kconfig*")]
            options = {f"CONFIG_{name}" for text in sources for name in DECLARED.findall(text)}
            lost = [line for line in lost if line.split("=")[0] in options]
        if lost:
            raise LabError(f"it does not take these lines of its configuration: {', '.join(lost)}")
