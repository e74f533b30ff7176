"""Simulate power cuts: only names and contents that were synced to the medium are sure to survive.

While a function works, each call that changes a name (audit events, PEP 578) and each fsync is a
step. At every step the folder is recorded as five cuts could leave it: with the synced names and
contents only; with all names, but contents that were not synced empty, cut in half or zeros; and
with everything.
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
# What is left of contents that were not synced.
LOSSES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@dataclass(frozen=True)
class Cut:
    """The folder after a cut: `when` is the step, `how` one of the five outcomes."""

    when: str
    how: str
    tree: Tree

    def write(self, folder: Path) -> None:
        """Create that folder."""
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
    """The synced state of the folder `top`. Inodes are held open, so that no number is reused."""

    top: Path
    contents: dict[Inode, bytes] = field(default_factory=dict)
    names: dict[Inode, dict[str, tuple[Inode, bool]]] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)
    _busy: bool = False

    def keep(self, fd: int) -> None:
        """Record an fsync: of a file its content, of a folder its names."""
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
        """Record everything as synced."""
        for path in (self.top, *self.top.rglob("*")):
            fd = os.open(path, os.O_RDONLY)
            self.keep(fd)
            os.close(fd)

    def step(self, when: str) -> None:
        """Record what a power cut at this moment would leave."""
        if self._busy:
            return
        self._busy = True
        try:
            sure = dict(self._sure(self._inode(self.top)))
            current = {
                str(path.relative_to(self.top)): None if path.is_dir() else path.read_bytes()
                for path in sorted(self.top.rglob("*"))
            }
            synced = {
                name: None if content is None else self.contents.get(self._inode(self.top / name))
                for name, content in current.items()
            }
            trees: dict[str, Tree] = {"sure": sure, "all": current}
            for how, lose in LOSSES.items():
                trees[how] = {
                    name: lose(content)
                    if content is not None and synced[name] is None
                    else synced[name]
                    for name, content in current.items()
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
            # Of a file that was never synced only the name survives.
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
    """Record all cuts of `top` within the context, which begins with everything synced."""
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
