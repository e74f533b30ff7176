"""Install packages of seeded contents with dpkg into a root on the disk, then upgrade them all."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError, one_of

MIB, BLOCK_BYTES = 1 << 20, 4096
PHASES = {"install": "1", "upgrade": "2"}
FOLDER = "packages"
# On a Debian 12 machine with 999 packages, the mean size of their 99,355 files is 33 times the
# median: so is that of a log-normal distribution with this standard deviation of the logarithm.
SPREAD = 2.6
# Each piece is repeated, so that contents compress to a third; that machine's packages to 1/3.8.
PIECE_BYTES, REPEATS = 512, 3
# Memory for dpkg itself.
BESIDES_BYTES = 64 * MIB


@dataclass(frozen=True)
class Package:
    """A package with the paths, in its root, and sizes of its files."""

    name: str
    sizes: dict[str, int]
    seed: int

    def contents(self, version: str) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the content of each file of that version."""
        for path, size in self.sizes.items():
            generator = random.Random(f"{self.seed}/{version}/{path}")
            pieces = range(-(-size // (PIECE_BYTES * REPEATS)))
            yield path, b"".join(generator.randbytes(PIECE_BYTES) * REPEATS for _ in pieces)[:size]


class PackageUpgrade(Workload):
    """Phases `install` (into an empty root) and `upgrade` (the same files with other contents).

    dpkg syncs each file and each change of its database: its options here take precedence over the
    machine's configuration of dpkg, which may switch that off. The packages have no scripts, and
    are in the page cache before each phase. An operation is a package: those are counted whose
    files all have their contents, and dpkg-query reports those of the phase's version.
    """

    name = "package_upgrade"
    summary = "packages installed into an empty root, and all of them upgraded"
    parameters = (
        Parameter("packages", 40, "", "number of packages", minimum=1, maximum=1000),
        Parameter("files", 75, "", "number of files in each package", minimum=1),
        Parameter("total_mib", 200, "MiB", "size of the files of all packages", minimum=1),
        one_of(
            "compression",
            "how the packages are compressed: zstd as Ubuntu's, xz as Debian's",
            *("zstd", "xz", "gzip", "none"),
        ),
    )
    small: ClassVar = {"packages": 3, "files": 5, "total_mib": 1}
    program = "dpkg"
    programs = ("dpkg",)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room for the root, where an upgrade keeps both versions of a package."""
        files = int(parameters["packages"]) * int(parameters["files"])
        size_bytes = int(parameters["total_mib"]) * MIB + files * BLOCK_BYTES
        # Both versions packed, compressed or not, and the tree of the package being built.
        return Needs(2 * size_bytes, 3 * size_bytes, BESIDES_BYTES + size_bytes)

    def prepare(self, context: Context) -> None:
        """Build the packages, unless a run of the same block (with the same seed) has."""
        archives = _archives(context)
        if archives.exists():
            return
        for earlier in context.shared.glob(f"{FOLDER}-*"):
            shutil.rmtree(earlier)
        # Incomplete ones, after an error or interrupt, are removed with the run's folder.
        half = context.scratch / FOLDER
        for version in PHASES.values():
            (half / version).mkdir(parents=True)
            for package in seeded_packages(context):
                _build(context, package, version, half / version / f"{package.name}.deb")
        half.rename(archives)

    def run(self, context: Context) -> None:
        root = context.disk / "root"
        admin = root / "var/lib/dpkg"
        for folder in (admin / "info", admin / "updates", root / "var/log"):
            folder.mkdir(parents=True)
        (admin / "status").touch()
        dpkg: programs.Command = [
            *("dpkg", f"--root={root}", f"--log={root}/var/log/dpkg.log", "--no-debsig"),
            *("--force-not-root,bad-path", "--no-force-unsafe-io", "--path-include=*"),
        ]
        _require_safe(context, dpkg)
        packages = list(seeded_packages(context))
        size_bytes = sum(sum(package.sizes.values()) for package in packages)
        files = sum(len(package.sizes) for package in packages)
        for phase, version in PHASES.items():
            archives = sorted((_archives(context) / version).iterdir())
            warm_ups = [[program, "--version"] for program in ("dpkg", "dpkg-deb", "dpkg-split")]
            # Read the packages once, so that the phase does not read the system disk.
            programs.cold_start(context, *warm_ups, ["rm", "--version"], ["cksum", *archives])
            command = [*dpkg, "--install", *archives]
            work, _ = programs.measured(context, phase, command, home=context.scratch)
            work.plan(files=files, bytes=size_bytes, operations=len(packages))
            for package in packages:
                sizes = _right_sizes(root, package, version)
                complete = len(sizes) == len(package.sizes)
                work.add(files=len(sizes), bytes=sum(sizes), operations=int(complete))
            query = ["dpkg-query", f"--admindir={admin}", "--show"]
            query += ["--showformat=${Version} ${db:Status-Abbrev}\n"]
            # Its status is 1 if there are no packages.
            states = programs.run(query, ok=(0, 1)).splitlines()
            work.report(operations=sum(s.split() == [version, "ii"] for s in states))
            work.disk_writes(size_bytes)


def seeded_packages(context: Context) -> Iterator[Package]:
    """Yield the packages of the run's seed; their files together have the size asked for."""
    parameters, generator = context.parameters, random.Random(context.seed)
    count, files = int(parameters["packages"]), int(parameters["files"])
    shares = [generator.lognormvariate(0, SPREAD) for _ in range(count * files)]
    unit = int(parameters["total_mib"]) * MIB / sum(shares)
    for number in range(count):
        name = f"fde-upgrade-{number:03d}"
        part = enumerate(shares[number * files : (number + 1) * files])
        sizes = {f"usr/lib/{name}/{i:04d}": max(1, round(unit * share)) for i, share in part}
        yield Package(name, sizes, context.seed)


def _archives(context: Context) -> Path:
    declared = (str(context.parameters[p.name]) for p in PackageUpgrade.parameters)
    return context.shared / "-".join((FOLDER, str(context.seed), *declared))


def _build(context: Context, package: Package, version: str, archive: Path) -> None:
    """Pack a version of a package, without scripts and with the same bytes each time."""
    tree = context.scratch / "tree"
    for path, content in package.contents(version):
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(
        f"Package: {package.name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: FDE energy testbed <root@localhost>\nDescription: seeded contents\n"
    )
    programs.run(["chmod", "-R", "u=rwX,go=rX", tree])  # whatever the umask
    compression = f"-Z{context.parameters['compression']}"
    # Without a date, it packs the time of the build.
    dated = ("env", "SOURCE_DATE_EPOCH=0", "dpkg-deb")
    build: programs.Command = [*dated, compression, "--root-owner-group", "--build", tree, archive]
    programs.run(build, name="dpkg-deb")
    shutil.rmtree(tree)


def _require_safe(context: Context, dpkg: programs.Command) -> None:
    """Keep what dpkg reports of its options; raises WorkloadError if it would not sync files.

    The disk's traffic does not show that: dpkg starts writing each file in any case.
    """
    options = programs.run([*dpkg, "--force-help"], home=context.scratch)
    _, heading, enabled = options.partition("Currently enabled options:")
    version, _, _ = programs.run([dpkg[0], "--version"]).partition("\n")
    (context.kept / "dpkg.txt").write_text(f"{version}\n{heading}{enabled}", encoding="utf-8")
    if not heading or "unsafe-io" in re.split(r"[,\s]+", enabled):
        raise WorkloadError("unsafe-dpkg")


def _right_sizes(root: Path, package: Package, version: str) -> list[int]:
    """Return the sizes of those files of the package that have the content of that version."""
    return [
        len(content)
        for path, content in package.contents(version)
        if programs.size_bytes(root / path) == len(content)
        and (root / path).read_bytes() == content
    ]
