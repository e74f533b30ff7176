"""What a power cut may leave of a folder: only what was brought to the medium is sure to be there.

While a function works, each call that changes a name (audit events, PEP 578) and each fsync is a
step. At every step the folder is written down as five cuts could leave it: with the names and the
contents that were brought to the medium, and no others; with all names as they are, but of the
contents those that were brought to the medium, the others being empty, cut in half or zeros; and
with all of it as it is.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "open", "os.truncate")
Inode = tuple[int, int]
Tree = dict[str, bytes | None]  # contents by path; None for a folder
# What is left of contents that were not brought to the medium.
LOSSES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@dataclass(frozen=True)
class Cut:
    """What is left: `when` is the step, `how` which of the five."""

    when: str
    how: str
    tree: Tree

    def write(self, folder: Path) -> None:
        """Make that folder."""
        folder.mkdir(parents=True)
        for name, content in self.tree.items():
            path = folder / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


@dataclass
class Medium:
    """What is surely there of the folder `top`. Inodes are held open, so that none comes twice."""

    top: Path
    contents: dict[Inode, bytes] = field(default_factory=dict)
    names: dict[Inode, dict[str, tuple[Inode, bool]]] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)
    _busy: bool = False

    def keep(self, fd: int) -> None:
        """Make an fsync: of a file its content, of a folder its names."""
        status = os.fstat(fd)
        inode = status.st_dev, status.st_ino
        place = f"/proc/self/fd/{fd}"
        if stat.S_ISDIR(status.st_mode):
            entries = [(name, os.lstat(f"{place}/{name}")) for name in os.listdir(place)]  # noqa: PTH208
            self.names[inode] = {
                name: ((s.st_dev, s.st_ino), stat.S_ISDIR(s.st_mode)) for name, s in entries
            }
        else:
            with open(place, "rb") as file:  # noqa: PTH123
                self.contents[inode] = file.read()
        self._held.append(os.dup(fd))

    def keep_all(self) -> None:
        """As after a sync of everything."""
        for path in (self.top, *self.top.rglob("*")):
            fd = os.open(path, os.O_RDONLY)
            self.keep(fd)
            os.close(fd)

    def step(self, when: str) -> None:
        """Write down what a cut now would leave."""
        if self._busy:
            return
        self._busy = True
        try:
            sure = dict(self._sure(self._inode(self.top)))
            now = {
                str(path.relative_to(self.top)): None if path.is_dir() else path.read_bytes()
                for path in sorted(self.top.rglob("*"))
            }
            kept = {
                name: None if content is None else self.contents.get(self._inode(self.top / name))
                for name, content in now.items()
            }
            trees: dict[str, Tree] = {"sure": sure, "all": now}
            for how, lose in LOSSES.items():
                trees[how] = {
                    name: lose(content)
                    if content is not None and kept[name] is None
                    else kept[name]
                    for name, content in now.items()
                }
            for how, tree in trees.items():
                self.cuts.append(Cut(when, how, tree))
        finally:
            self._busy = False

    def _inode(self, path: Path) -> Inode:
        status = path.lstat()
        return status.st_dev, status.st_ino

    def _sure(self, folder: Inode, above: str = "") -> Iterator[tuple[str, bytes | None]]:
        for name, (inode, is_folder) in self.names.get(folder, {}).items():
            # Of a file that was never brought to the medium the name alone is there.
            yield above + name, None if is_folder else self.contents.get(inode, b"")
            if is_folder:
                yield from self._sure(inode, f"{above}{name}/")

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)


_hearing: list[Callable[[str], None]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if _hearing and event in STEPS:
        flags = arguments[2] if event == "open" else os.O_CREAT
        if isinstance(flags, int) and flags & (os.O_CREAT | os.O_TRUNC):
            _hearing[-1](f"{event} {arguments[0]}")


sys.addaudithook(_heard)


@contextmanager
def recorded(top: Path) -> Iterator[Medium]:
    """All cuts of `top` while the context lasts; what is there at first is on the medium."""
    medium, fsync = Medium(top), os.fsync

    def heard(fd: int) -> None:
        fsync(fd)
        medium.keep(fd)
        medium.step(f"fsync {os.readlink(f'/proc/self/fd/{fd}')}")  # noqa: PTH115

    medium.keep_all()
    os.fsync = heard  # type: ignore[assignment]
    _hearing.append(medium.step)
    try:
        yield medium
        medium.step("the word")
    finally:
        _hearing.pop()
        os.fsync = fsync
        medium.close()
