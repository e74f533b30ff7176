"""Powercap trees in the kernel's layouts, as real files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MAX_UJ = 262_143_328_850
P, M = "intel-rapl/intel-rapl", "intel-rapl-mmio/intel-rapl-mmio"


def child(control: str, top: int, number: int) -> str:
    """Return the path of a zone below a top zone."""
    return f"{control}:{top}/{control.split('/')[1]}:{top}:{number}"


@dataclass(frozen=True)
class Tree:
    """`zones` gives the name of each zone by its path.

    `names` are the expected zones in order, `add_up` those that may be added up. A zone counts 1000
    + its place in `zones`. `files` overrides a file's content (None: it is missing); `same` makes
    one zone show another's counter.
    """

    zones: Mapping[str, str]
    names: tuple[str, ...]
    add_up: tuple[str, ...]
    files: Mapping[str, str | None] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    flat: bool = False

    def lay_out(self, root: Path) -> Path:
        """Write the tree below `root`; return the folder for the reader."""
        for number, (path, name) in enumerate(self.zones.items()):
            zone = root / path
            zone.mkdir(parents=True)
            (zone / "name").write_text(name + "\n")
            (zone / "energy_uj").write_text(f"{1000 + number}\n")
            (zone / "max_energy_range_uj").write_text(f"{MAX_UJ}\n")
        for path, content in self.files.items():
            (root / path).unlink(missing_ok=True)
            if content is not None:
                (root / path).write_text(content)
        for path, other in self.same.items():
            (root / path / "energy_uj").unlink()
            (root / path / "energy_uj").symlink_to(root / other / "energy_uj")
        return self._linked(root) if self.flat else root

    def _linked(self, root: Path) -> Path:
        """Return a folder with only the flat links of the class."""
        links = root / "class"
        links.mkdir()
        for path in self.zones:
            (links / Path(path).name).symlink_to(root / path)
        return links


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Act as a user without rights who may enter `folder`, if this is root."""
    is_root = os.geteuid() == 0
    if is_root:
        for parent in (folder, *folder.parents):
            if parent.stat().st_mode & 0o001 == 0:
                parent.chmod(parent.stat().st_mode | 0o111)
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@contextmanager
def counting(root: Path) -> Iterator[None]:
    """Increase every counter file of a tree, each at a different rate."""
    files = {path.resolve() for path in root.rglob("energy_uj")}
    descriptors = [os.open(path, os.O_RDWR) for path in sorted(files)]
    stop = threading.Event()

    def count() -> None:
        step = 0
        while not stop.wait(0.001):
            step += 1
            for number, descriptor in enumerate(descriptors):
                os.pwrite(descriptor, b"%d\n" % (10**9 + step * (number + 1)), 0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for descriptor in descriptors:
            os.close(descriptor)


def zones(top: str, *parts: str, at: int = 0, control: str = P) -> dict[str, str]:
    """Return a top zone and those below it, by their paths."""
    below = {child(control, at, number): part for number, part in enumerate(parts)}
    return {f"{control}:{at}": top, **below}


ONE_SOCKET = zones("package-0", "core", "uncore", "dram")
_ONE_SOCKET_NAMES = ("package-0", "core", "uncore", "dram")
_DIES = zones("package-0-die-0", "dram") | zones("package-0-die-1", "dram", at=1)
_DIE_NAMES = tuple(f"package-0-die-{n}{part}" for n in (0, 1) for part in ("", "/dram"))
_TWO_SOCKETS = ("package-0", "package-0/dram", "package-1", "package-1/dram")
_FOUR_SOCKETS = tuple(f"package-{n}{part}" for n in range(4) for part in ("", "/dram"))
_TWELVE = tuple(f"package-{n}" for n in range(12))
_RANGE = f"{P}:0/max_energy_range_uj"

TREES: dict[str, Tree] = {
    "one socket": Tree(ONE_SOCKET, _ONE_SOCKET_NAMES, ("package-0", "dram")),
    "two sockets, each with all its parts": Tree(
        ONE_SOCKET | zones("package-1", "core", "uncore", "dram", at=1),
        tuple(f"package-{n}{part}" for n in (0, 1) for part in ("", "/core", "/uncore", "/dram")),
        _TWO_SOCKETS,
    ),
    "four sockets": Tree(
        {k: v for n in range(4) for k, v in zones(f"package-{n}", "dram", at=n).items()},
        _FOUR_SOCKETS,
        _FOUR_SOCKETS,
    ),
    "AMD, two sockets": Tree(
        zones("package-0", "core") | zones("package-1", "core", at=1),
        ("package-0", "package-0/core", "package-1", "package-1/core"),
        ("package-0", "package-1"),
    ),
    "psys first": Tree(
        zones("psys") | zones("package-0", "dram", at=1),
        ("psys", "package-0", "dram"),
        ("package-0", "dram"),
    ),
    "psys between packages": Tree(
        zones("package-0", "dram") | zones("psys", at=1) | zones("package-1", "dram", at=2),
        ("package-0", "package-0/dram", "psys", "package-1", "package-1/dram"),
        _TWO_SOCKETS,
    ),
    "a psys for each package": Tree(
        {f"{P}:0": "package-0", f"{P}:1": "psys", f"{P}:2": "package-1", f"{P}:3": "psys-1"},
        ("package-0", "psys", "package-1", "psys-1"),
        ("package-0", "package-1"),
    ),
    "multi-die": Tree(_DIES, _DIE_NAMES, _DIE_NAMES),
    "two packages of one name": Tree(
        zones("package-0", "dram") | zones("package-0", "dram", at=1), _DIE_NAMES, _DIE_NAMES
    ),
    "one counter as two packages of one name": Tree(
        zones("package-0") | zones("package-0", at=1),
        _DIE_NAMES[::2],
        _DIE_NAMES[:1],
        same={f"{P}:1": f"{P}:0"},
    ),
    "two memories of one name": Tree(
        zones("package-0", "dram", "dram"),
        ("package-0", "dram-0", "dram-1"),
        ("package-0", "dram-0", "dram-1"),
    ),
    "two psys of one name": Tree(
        {f"{P}:0": "package-0", f"{P}:1": "psys", f"{P}:2": "psys"},
        ("package-0", "psys-0", "psys-1"),
        ("package-0",),
    ),
    "a package beside its dies": Tree(
        {**_DIES, f"{M}:0": "package-0"},
        (*_DIE_NAMES, "package-0"),
        ("package-0", "package-0-die-0/dram", "package-0-die-1/dram"),
    ),
    "mirrored die": Tree(
        _DIES, _DIE_NAMES, _DIE_NAMES[:2], same={f"{P}:1": f"{P}:0", child(P, 1, 0): child(P, 0, 0)}
    ),
    "mirrored die, memory of its own": Tree(
        _DIES, _DIE_NAMES, (*_DIE_NAMES[:2], _DIE_NAMES[3]), same={f"{P}:1": f"{P}:0"}
    ),
    "mmio twin": Tree(
        ONE_SOCKET | zones("package-0", "dram", control=M), _ONE_SOCKET_NAMES, ("package-0", "dram")
    ),
    "mmio twin of one of two packages": Tree(
        zones("package-0", "dram")
        | zones("package-1", "dram", at=1)
        | zones("package-0", "dram", control=M),
        _TWO_SOCKETS,
        _TWO_SOCKETS,
    ),
    "mmio alone": Tree(zones("package-0", control=M), ("package-0",), ("package-0",)),
    "no dram": Tree(zones("package-0", "core"), ("package-0", "core"), ("package-0",)),
    "maximum unreadable": Tree(
        zones("package-0"), ("package-0",), ("package-0",), files={_RANGE: None}
    ),
    "maximum 0": Tree(zones("package-0"), ("package-0",), ("package-0",), files={_RANGE: "0\n"}),
    "flat links alone": Tree(ONE_SOCKET, _ONE_SOCKET_NAMES, ("package-0", "dram"), flat=True),
    "twelve packages": Tree({f"{P}:{n}": name for n, name in enumerate(_TWELVE)}, _TWELVE, _TWELVE),
}
