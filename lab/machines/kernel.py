"""The kernel of User Mode Linux: Debian's source, our configuration, kept in the cache.

There are two: one with all that any configuration, paper or test asks for, and one of what a
first suite needs, which is built in three quarters of the time. LAB_KERNEL=first asks for it where
there is no other yet. Beside the program lie its modules as the guest finds them in
/lib/modules/<release>, with the module of the modelled RAPL zones among them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.errors import LabError
from contract.strict_json import read_object
from lab import cache
from lab.apt import Apt
from lab.cache import Say
from lab.image import MODULE, MODULE_SOURCES
from lab.state import GIB, InDirectory, cache_dir

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "uml.config"
MORE_CONFIG = HERE / "uml-full.config"
PATCH = HERE / "uml.patch"
# Debian's newest kernel for the guest's release handles page faults and system calls two to three
# times as fast (seccomp in place of ptrace, since 6.16). It changes every few weeks; 6.12 stays.
PACKAGE = "linux-source"
SUITES = ("trixie-backports", "trixie")
ROOM_BYTES = GIB // 4
BUILD_ROOM_BYTES = 2 * GIB
PROGRAMS = ("apt-get", "bc", "bison", "depmod", "dpkg-deb", "flex", "gcc", "make", "patch", "xz")
# Large parts of the source that this configuration never compiles; their Kconfig files are read.
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
COMPILED = re.compile(r"\s+(CC|AR|LD|AS)\b")
# Lines of a whole build that COMPILED finds, for the progress, by the number of its config files.
STEPS = {1: 1310, 2: 1730}
PROGRESS_S = 15.0


@dataclass(frozen=True)
class Kernel:
    """A built kernel, and the files of its configuration."""

    directory: Path
    configs: tuple[Path, ...] = (CONFIG,)
    program = InDirectory("linux")
    # Becomes /lib/modules in the guest: one directory, named by the release.
    modules = InDirectory("modules")

    def facts(self) -> dict[str, str | float]:
        """Return what the build noted of itself; empty where there is none."""
        return {"kernel": self.directory.name, **read_object(self.directory / cache.FACTS)}


def location(directory: Path) -> Kernel:
    """Where the kernel of the present configuration is, or would be, in this cache.

    LAB_KERNEL is `full`, also where it is not set, or `first`; a full one serves for both.
    """
    full = _location(directory / "kernels", (CONFIG, MORE_CONFIG))
    if os.environ.get("LAB_KERNEL", "") in ("", "full") or full.directory.exists():
        return full
    return _location(directory / "first-kernels", (CONFIG,))


def _location(kernels: Path, configs: tuple[Path, ...]) -> Kernel:
    inputs = [*configs, PATCH, *(MODULE / name for name in MODULE_SOURCES)]
    recipe = f"{PACKAGE} {SUITES} {UNUSED}"
    name = cache.content_hash(inputs, HERE.parent, recipe)
    return Kernel(kernels / name, configs)


def ensure(say: Say, stop: threading.Event | None = None) -> Kernel:
    """Return the kernel, built if it is not cached. Raises LabError; StoppedError by `stop`."""
    kernel = location(cache_dir())

    def build(target: Path) -> None:
        cache.require_programs(*PROGRAMS)
        with cache.work_directory("kernel", BUILD_ROOM_BYTES, target) as (work, log):
            Build(kernel.configs, say, log, stop).make(work, target)

    cache.ensure(kernel.directory, "kernel", ROOM_BYTES, build, say)
    return kernel


class Build:
    """The steps of one build, their output in `log`; they end where `stop` is set."""

    def __init__(
        self, configs: Sequence[Path], say: Say, log: Path, stop: threading.Event | None = None
    ) -> None:
        self._configs, self._say, self._log, self._stop = configs, say, log, stop

    def make(self, work: Path, target: Path) -> None:
        """Fill `target` with `linux` and `modules`, of the first suite with a buildable kernel."""
        for suite in SUITES:
            place = work / suite
            place.mkdir()
            try:
                source = self.fetch(place, suite)
                tree = self.unpack(place)
                self.configure(tree)
                self.compile(tree)
                break
            except LabError as error:
                if isinstance(error, cache.StoppedError) or suite == SUITES[-1]:
                    raise
                self._say(f"kernel: that of {suite} cannot be built ({error})")
                shutil.rmtree(place)
        self.install(tree, place, target)
        (target / cache.FACTS).write_text(json.dumps({"source": source}), encoding="utf-8")

    def run(self, command: Sequence[str], on_line: Say = lambda _line: None) -> None:
        cache.run(command, self._log, on_line, stop=self._stop)

    def fetch(self, work: Path, suite: str) -> str:
        """Fetch Debian's source package by apt, from separate lists; returns name and version."""
        self._say(f"kernel: the source of {suite} (about 160 MB)")
        apt = Apt(work, [suite], self.run)
        # PACKAGE itself is empty and depends on the one with the version.
        named = (line for line in apt.depends(PACKAGE) if f"Depends: {PACKAGE}-" in line)
        package = next((line.split()[-1] for line in named), PACKAGE)
        apt.download(package)
        version = next(work.glob("*.deb")).name.split("_")[1]
        return f"{package} {version}"

    def unpack(self, work: Path) -> Path:
        """Return what is compiled of it, in `work`."""
        tree = work / "source"
        tree.mkdir()
        excluded = " ".join(f"--exclude='{part}'" for part in UNUSED)
        unpack = (
            f"set -e; cd '{work}'; dpkg-deb --fsys-tarfile *.deb | "
            "tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | "
            f"tar -xJ -C '{tree}' --strip-components=1 {excluded}; rm *.deb"
        )
        self.run(["sh", "-c", unpack])
        patch = ["patch", "--strip=1", "--forward", f"--input={PATCH}"]
        self.run([*patch, f"--directory={tree}"])
        return tree

    def configure(self, tree: Path) -> None:
        """Our lines on top of nothing; one that the kernel does not take is an error.

        Passed over are options that this version does not have at all.
        """
        lines = [
            line for path in self._configs for line in path.read_text(encoding="utf-8").splitlines()
        ]
        config = tree / "fde.config"
        config.write_text("\n".join([*lines, ""]), encoding="utf-8")
        words = ["ARCH=um", f"KCONFIG_ALLCONFIG={config}", "allnoconfig"]
        self.run(["make", "-s", "-C", str(tree), *words])
        taken = (tree / ".config").read_text(encoding="utf-8").splitlines()
        lost = [line for line in lines if line.startswith("CONFIG_") and line not in taken]
        if lost:  # of these, what the source's Kconfig files declare
            sources = [p.read_text("utf-8", errors="replace") for p in tree.rglob("Kconfig*")]
            known = {f"CONFIG_{name}" for text in sources for name in DECLARED.findall(text)}
            lost = [line for line in lost if line.split("=")[0] in known]
        if lost:
            raise LabError(f"it does not take these lines of its configuration: {', '.join(lost)}")

    def compile(self, tree: Path) -> None:
        """On all processors, with a word now and then on how far it is."""
        jobs = (os.cpu_count() or 1) + 1  # one waits for the disk now and then
        started = reported = time.monotonic()
        done = 0

        def on_line(line: str) -> None:
            nonlocal reported, done
            done += COMPILED.match(line) is not None
            now_s = time.monotonic()
            if now_s - reported >= PROGRESS_S:
                share = min(99, round(100 * done / STEPS[len(self._configs)]))
                self._say(f"kernel: about {share} % compiled ({now_s - started:.0f} s)")
                reported = now_s

        make = ["make", "-C", str(tree), "ARCH=um", f"-j{jobs}"]
        self.run([*make, "linux", "modules"], on_line)

    def install(self, tree: Path, work: Path, target: Path) -> None:
        """Strip and place the results, the RAPL module among them."""
        module = work / "rapl_sim"
        module.mkdir()
        for name in MODULE_SOURCES:
            shutil.copy2(MODULE / name, module / name)
        make = ["make", "-s", "-C", str(tree), "ARCH=um"]
        self.run([*make, f"M={module}", "modules"])
        into = f"INSTALL_MOD_PATH={work / 'root'}"
        self.run([*make, into, "INSTALL_MOD_STRIP=1", "modules_install"])
        self.run([*make, into, "INSTALL_MOD_STRIP=1", f"M={module}", "modules_install"])
        shutil.copytree(work / "root" / "lib" / "modules", target / "modules", symlinks=True)
        for link in target.glob("modules/*/build"):
            link.unlink()
        self.run(["strip", "-o", str(target / "linux"), str(tree / "linux")])
