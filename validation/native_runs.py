"""A workload on this machine itself, through the agent's marks and sampler: CPU time by phase.

What the workloads of suite `paper` need is in the guest's image, which is read here without
starting anything: its file system is ext4, and debugfs needs no mount. Without the image an archive
is packed of the Python files of every checkout.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.marks import Marks
from agent.measure import DROP_CACHES
from agent.sampler import Sampler
from analysis.energy import trust
from contract.parameters import ParameterValue
from instrumentation.sources.powercap import PowercapSource
from lab import image
from validation import processes
from workloads import programs
from workloads.base import Context, Work, Workload

SEED = 1
SOURCE = "/usr/src/linux-source-6.12.tar.xz"
CLIP = "/usr/share/fde-testbed/clip.mpg"
# Both hold the word that is searched for, as the kernel's source does.
LIBRARIES = ("stdlib", "purelib")


@dataclass(frozen=True)
class Taken:
    """CPU seconds in a phase of `took_s`: the agent's own, those of all busy CPUs, and those of the
    programs that it started."""

    phase: str
    own_s: float
    busy_s: float
    children_s: float
    took_s: float

    @property
    def cpu_s(self) -> float:
        return min(self.busy_s, self.children_s)

    @property
    def share(self) -> tuple[float, bool]:
        """Our share, and whether it is of the time."""
        return trust.share(self.own_s, self.cpu_s, self.took_s)


class Native:
    """Runs workloads below `folder`; `drops` says whether the page cache can be emptied here."""

    def __init__(self, folder: Path, zones: Path, rapl_hz: float) -> None:
        self.drops = os.access(DROP_CACHES, os.W_OK)
        self._folder = folder
        self._zones = zones
        self._rapl_hz = rapl_hz

    def phases(
        self,
        workload: Workload,
        parameters: Mapping[str, ParameterValue],
        assets: Mapping[str, Path],
    ) -> list[Taken]:
        """What each phase of one run took. Raises WorkloadError."""
        with PowercapSource.open(self._zones) as source, self._places() as places:
            sampler = Sampler(source, self._rapl_hz)
            marks = Marks(source, sampler)
            children_s: dict[str, float] = {}

            @contextmanager
            def phase(name: str) -> Iterator[Work]:
                before_s = programs_s()
                with marks.phase(name) as work:
                    yield work
                children_s[name] = programs_s() - before_s

            context = Context(
                **places,
                assets=assets,
                parameters=parameters,
                seed=SEED,
                phase=phase,
                drop_caches=self._drop_caches,
                leave_out=lambda what, reason: say(f"{workload.name}: without {what}: {reason}"),
                volume=None,
            )
            try:
                workload.prepare(context)
                self._drop_caches()
                with sampler:
                    workload.run(context)
            finally:
                workload.cleanup(context)
            return [_taken(document, children_s) for document in marks.document()]

    @contextmanager
    def _places(self) -> Iterator[dict[str, Path]]:
        """The folders of one run; a server of another user may enter them."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        places = {name: folder / name for name in ("disk", "scratch", "shared", "kept")}
        try:
            for place in (folder, *places.values()):
                place.mkdir(exist_ok=True)
                place.chmod(0o755)
            yield places
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _drop_caches(self) -> None:
        os.sync()
        if self.drops:
            DROP_CACHES.write_text("3\n")


def programs_s() -> float:
    """CPU seconds of what this process started: of what has ended, and of what runs, as a server
    does through all of its phases (in steps of 10 ms, as a rule)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = usage.ru_utime + usage.ru_stime
    for pid in processes.descendants(os.getpid()):
        with suppress(OSError):
            total_s += processes.cpu_s(pid, waited_children=True)
    return total_s


def _taken(document: Mapping[str, Any], children_s: Mapping[str, float]) -> Taken:
    name, took_ns = document["name"], document["t_end_ns"] - document["t_start_ns"]
    own_s, busy_s = document["own_cpu_s"], document["cpu_busy_s"]
    return Taken(name, own_s, busy_s, children_s[name], took_ns / 1e9)


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Assets:
    """The files by the names that workloads use, and a description of the source."""

    paths: dict[str, Path]
    source: str


def provide(folder: Path) -> Assets:
    """The image's full kernel source and its clip, copied into `folder`; where the image is not in
    the cache, Python's library as an archive, and no clip."""
    root = image.location().root
    source = extracted(root, SOURCE, folder)
    if source is None:
        source = _packed(folder / "libraries.tar.gz")
        source_name = "Python files of this environment: there is no image, or no debugfs"
    else:
        source_name = f"{source.name} of the guest's image"
    source_name = f"{source_name}, {source.stat().st_size / 1e6:.0f} MB packed"
    paths = {"kernel_tree": source, "kernel_grep": source}
    clip = extracted(root, CLIP, folder)
    return Assets({**paths, "clip": clip} if clip else paths, source_name)


def extracted(root: Path, path: str, folder: Path) -> Path | None:
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
            for file in sorted(Path(sysconfig.get_path(library)).rglob("*.py")):
                packed.add(file, arcname=str(Path(library) / file.relative_to(file.anchor)))
    return archive
