"""`python -m validation.papers_native`: our share of the CPU time, on this machine's own processor.

The workloads of suite `paper` that can run here, without any disk set up for them, through the
agent's own marks and sampler, with files in memory for the counters. In the lab the agent is
emulated like all else, which is not what it costs on a target.

A phase's share is the agent's CPU seconds over those of the measured programs. Two figures are at
hand for these: what /proc/stat counts, which has all other processes of this machine in it, and
what the agent's children took (getrusage(2), proc_pid_stat(5)), which lacks the kernel's own
threads. The smaller of both is used, so that the share is never given too small. A phase whose
programs keep no CPU busy is held against its time, as in the report.

To wait for a program takes the agent some 0.2 ms, so that phases that are over in hundredths of a
second miss the target where the disk is fast. The worst phase is given whatever its length, and its
miss is allowed below a second and up to `REGRESSION`; beside it stands the worst that took a
second. `file_io` runs once more with files for phases of seconds.

What the workloads need is in the guest's image, which is read here without starting anything: its
file system is ext4, and debugfs needs no mount. Without the image an archive is packed of the
Python files of every checkout.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.marks import Marks
from agent.measure import DROP_CACHES, SCRATCH_ROOT
from agent.sampler import Sampler
from analysis.energy import run_checks
from contract.documents import Phase
from contract.errors import LabError
from contract.interrupts import term_interrupts
from contract.parameters import ParameterValue
from controller.planning.suites import SuiteWorkload, load_suite
from instrumentation.sources.powercap import PowercapSource
from lab import image
from lab.state import require_room
from lab.tests.fetched import extracted
from validation import bench, processes
from validation.bench import Figure, at_least, at_most
from validation.metrology.cost import TMPFS, zones_tree
from workloads import registry
from workloads.base import Context, Work, Workload, WorkloadError

BENCH = bench.FOLDER / "workloads.json"
PART = "own share, natively"
SUBJECT = f"none: of '{PART}', this machine's own processor"
# A copy is a phase of its own: more of them would show the same. The image's clip lasts 6 s.
SIZES: Mapping[str, Mapping[str, ParameterValue]] = {
    "kernel_grep": {"copies": 2},
    "video": {"seconds": 5.0},
}
# The paper's files, but no more of them than this disk takes in this time.
LONGEST_S = 20.0
# A phase that took so long counts as long; file_io-longer writes what this disk takes in LONGER_S.
LONG_S = 1.0
REGRESSION = 0.1  # of the CPU time of a phase that is shorter
LONGER_S = 5.0
PROBE_MIB = 128
MIB = 1 << 20
SEED = 1
SOURCE = "/usr/src/linux-source-6.12.tar.xz"
CLIP = "/usr/share/fde-testbed/clip.mpg"
# Both hold the word that is searched for, as the kernel's source does.
LIBRARIES = ("stdlib", "purelib")


@dataclass(frozen=True)
class Taken:
    """CPU seconds in a phase of `took_s`: the agent's, all busy CPUs', its children's."""

    phase: str
    own_s: float
    busy_s: float
    children_s: float
    took_s: float

    @property
    def share(self) -> tuple[float, bool]:
        """Our share, and whether it is a share of the time."""
        return run_checks.own_share(self.own_s, min(self.busy_s, self.children_s), self.took_s)


class Native:
    """Runs workloads below `folder`; `drops` is whether the page cache can be emptied here."""

    def __init__(self, folder: Path, zones: Path, rapl_hz: float) -> None:
        self.drops = os.access(DROP_CACHES, os.W_OK)
        self.folder = folder
        self._zones = zones
        self._rapl_hz = rapl_hz

    def phases(
        self,
        workload: Workload,
        parameters: Mapping[str, ParameterValue],
        assets: Mapping[str, Path],
    ) -> list[Taken]:
        """Return the CPU times of each phase of one run. Raises WorkloadError."""
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
                leave_out=lambda part, reason: say(f"{workload.name}: without {part}: {reason}"),
            )
            try:
                workload.prepare(context)
                self._drop_caches()
                with sampler:
                    workload.run(context)
            finally:
                workload.cleanup(context)
            return [_taken(phase, children_s) for phase in marks.phases()]

    @contextmanager
    def _places(self) -> Iterator[dict[str, Path]]:
        """Yield the folders of one run; a server of another user may enter them."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
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
    """Return the CPU seconds of this process's children, ended or running (mostly 10 ms steps)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = usage.ru_utime + usage.ru_stime
    for pid in processes.descendants(os.getpid()):
        with suppress(OSError):
            total_s += processes.cpu_s(pid, waited_children=True)
    return total_s


def _taken(phase: Phase, children_s: Mapping[str, float]) -> Taken:
    own_s, busy_s = phase.own_cpu_s or 0.0, phase.cpu_busy_s or 0.0
    return Taken(phase.name, own_s, busy_s, children_s[phase.name], phase.duration_s)


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Assets:
    """The files by the names that workloads use, and a description of the source."""

    paths: dict[str, Path]
    source: str


def provide(folder: Path) -> Assets:
    """Copy the image's full kernel source and its clip into `folder`.

    Where the image is not in the cache: Python's library as an archive, and no clip.
    """
    root = image.location().root
    source = extracted(root, SOURCE, folder)
    if source is None:
        source = folder / "libraries.tar.gz"
        with tarfile.open(source, "w:gz", compresslevel=6) as packed:
            for library in LIBRARIES:
                for file in sorted(Path(sysconfig.get_path(library)).rglob("*.py")):
                    packed.add(file, arcname=str(Path(library) / file.relative_to(file.anchor)))
        source_name = "Python files of this environment: there is no image, or no debugfs"
    else:
        source_name = f"{source.name} of the guest's image"
    source_name = f"{source_name}, {source.stat().st_size / 1e6:.0f} MB packed"
    paths = {"kernel_tree": source, "kernel_grep": source}
    clip = extracted(root, CLIP, folder)
    return Assets({**paths, "clip": clip} if clip else paths, source_name)


def sized(
    workload: str, parameters: Mapping[str, ParameterValue], mib_per_s: float
) -> dict[str, ParameterValue]:
    """Return all of an entry's parameters, at the sizes for this machine."""
    values = registry.complete(workload, {**parameters, **SIZES.get(workload, {})})
    if workload == "file_io":
        most_mib = max(1, int(mib_per_s * LONGEST_S))
        small = max(1, most_mib // int(values["small_mib"]))
        values["small_files"] = min(int(values["small_files"]), small)
        values["large_mib"] = min(int(values["large_mib"]), most_mib)
    return values


def entry_figures(
    native: Native, entry: SuiteWorkload, assets: Mapping[str, Path], mib_per_s: float
) -> list[Figure]:
    """Return the worst phase of one of the suite's entries, or why it has none.

    Raises LabError where there is no room for what can run here.
    """
    name = entry.name
    workload = registry.load(entry.workload or name)
    parameters = sized(workload.name, entry.parameters, mib_per_s)
    if reasons := workload.requires(parameters, assets):
        return [Figure(f"{name}: cannot run here: {' '.join(reasons)}", 0, "phases")]
    try:
        needs = workload.needs(parameters, assets)
        require_room(native.folder, needs.disk_bytes + needs.scratch_bytes, name)
        return worst_figures(name, native.phases(workload, parameters, assets))
    except WorkloadError as error:
        return [at_least(f"{name}: failed: {error}", 0, "phases", 1)]


def worst_figures(name: str, phases: Sequence[Taken]) -> list[Figure]:
    """Return our share in its largest phase, and in the worst that took `LONG_S`."""
    worst = max(phases, key=lambda phase: phase.share)
    figures = _phase_figures(f"{name}: our own share, worst phase", worst)
    long = [phase for phase in phases if phase.took_s >= LONG_S]
    if long and worst not in long:
        title = f"{name}: our own share, worst phase of {LONG_S:g} s and more"
        figures += _phase_figures(title, max(long, key=lambda phase: phase.share))
    return figures


def _phase_figures(title: str, taken: Taken) -> list[Figure]:
    """Return the share in one phase, and its components."""
    share, at_rest = taken.share
    base = "its time, for it is at rest" if at_rest else "its CPU time"
    percent, is_short = round(100 * share, 3), taken.took_s < LONG_S
    name = f"{title} ({taken.phase}), of {base}"
    return [
        at_most(name, percent, "%", 100 * run_checks.LIMIT, 100 * REGRESSION * is_short),
        Figure("  our own CPU time in it", round(1000 * taken.own_s, 2), "ms"),
        Figure("  its programs' CPU time", round(taken.children_s, 3), "s"),
        Figure("  CPU time of the whole machine", round(taken.busy_s, 3), "s"),
        Figure("  time", round(taken.took_s, 2), "s"),
    ]


def _longer(mib_per_s: float) -> SuiteWorkload:
    """Return an entry of `file_io` with files that this disk takes seconds for."""
    large_mib = max(1, int(mib_per_s * LONGER_S))
    small_files = max(1, large_mib // 10)
    sizes = {"small_files": small_files, "small_mib": 10, "large_mib": large_mib, "fsync": False}
    return SuiteWorkload("file_io-longer", "file_io", sizes)


def measure(place: Path = SCRATCH_ROOT) -> list[Figure]:
    """Return the figures of all entries of the suite, and the reasons of those left out."""
    suite = load_suite("paper")
    in_memory = TMPFS if TMPFS.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="fde-native-", dir=place) as folder,
        tempfile.TemporaryDirectory(dir=in_memory) as zones,
    ):
        # Servers have users of their own, who must get to their folder.
        Path(folder).chmod(0o755)
        assets = provide(Path(folder))
        native = Native(Path(folder), zones_tree(Path(zones)), float(suite.rapl_hz))
        mib_per_s = _write_rate(Path(folder) / "probe")
        figures = [
            Figure(f"kernel source: {assets.source}", 1, ""),
            Figure("page cache emptied before phases (needs root)", int(native.drops), ""),
            Figure("load of this machine before, 1 min", round(os.getloadavg()[0], 2), ""),
            Figure("this disk writes", round(mib_per_s), "MiB/s"),
        ]
        for entry in [*suite.workloads, _longer(mib_per_s)]:
            start_s = time.monotonic()
            figures += entry_figures(native, entry, assets.paths, mib_per_s)
            say(f"{entry.name}: {time.monotonic() - start_s:.0f} s")
    return figures


def _write_rate(path: Path) -> float:
    """Measure the MiB/s written to this disk, until the data is on it."""
    block = bytes(MIB)
    start_s = time.monotonic()
    with path.open("wb", buffering=0) as file:
        for _ in range(PROBE_MIB):
            file.write(block)
        os.fsync(file.fileno())
    path.unlink()
    return PROBE_MIB / (time.monotonic() - start_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if our share meets its target in every phase of a second or more."""
    parser = argparse.ArgumentParser(prog="python -m validation.papers_native", description=__doc__)
    parser.add_argument("--dir", type=Path, default=SCRATCH_ROOT, help="default /var/tmp")
    options = parser.parse_args(arguments)
    load_1_min = os.getloadavg()[0]
    try:
        with term_interrupts():
            figures = measure(options.dir)
    except (LabError, OSError) as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fde: interrupted; nothing was written", file=sys.stderr)
        return 130
    rows = bench.rows_of(PART, figures)
    print(bench.table(rows))
    bench.write(BENCH, bench.merged(BENCH, rows), SUBJECT, load_1_min)
    print(BENCH)
    return int(bench.missed(rows))


if __name__ == "__main__":
    sys.exit(main())
