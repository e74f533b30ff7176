"""The child's tasks on files: a recipe's known answers, and a file again and again."""

from __future__ import annotations

import filecmp
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from workloads.base import WorkloadError
from workloads.crypt import recipes, repeat
from workloads.crypt.child import Outcome, Task
from workloads.crypt.recipes import CHUNK_BYTES, RSA_BYTES, Recipe

# More than any recipe adds to a small file.
ROOM_BYTES = 4096
COST_TRIES = 10

_made: dict[str, Recipe] = {}


def _recipe(request: dict[str, Any]) -> tuple[Outcome, None]:
    """Make a recipe with its keys and try it; of RSA also the seconds of a private operation."""
    name = request["recipe"]
    _made[name] = recipe = recipes.make(name, request["seed"])
    outcome = recipe.check()
    if isinstance(recipe, recipes.RsaOaep):
        wrapped = recipe.wrap(bytes(CHUNK_BYTES))
        started_s = time.perf_counter()
        for _ in range(COST_TRIES):
            recipe.unwrap(wrapped)
        outcome["unwrap_s"] = (time.perf_counter() - started_s) / COST_TRIES
    return outcome, None


def _file(request: dict[str, Any]) -> tuple[Outcome, Task]:
    """Lay out one file's encryption or decryption, doing it once; `go` repeats it."""
    recipe = _made[request["recipe"]]
    source, target = Path(request["source"]), Path(request["target"])
    target.unlink(missing_ok=True)  # it might be longer than the new one
    size = source.stat().st_size
    # A target of OAEP is longer than its source, by a third and up to a block.
    room = size * RSA_BYTES // CHUNK_BYTES + ROOM_BYTES
    read, written = bytearray(size + ROOM_BYTES), bytearray(room)
    turn = recipe.encrypt if request["encrypt"] else recipe.decrypt
    whole = _Whole(turn, source, target, read, written, fsync=request["fsync"])
    whole()
    operation = whole if request["file_io"] else partial(turn, read, size, written)
    return {}, partial(repeat.for_seconds, operation, request["seconds"], 1)


@dataclass(frozen=True)
class _Whole:
    """Read the file, turn it, write the other; unbuffered, in one call each."""

    turn: Callable[[bytearray, int, bytearray], int]
    source: Path
    target: Path
    read: bytearray
    written: bytearray
    fsync: bool

    def __call__(self) -> None:
        with self.source.open("rb", buffering=0) as file:
            size = file.readinto(self.read)
        length = self.turn(self.read, size or 0, self.written)
        # Not truncated before: ext4 would begin to write back whenever such a file is closed.
        target = os.open(self.target, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if os.write(target, memoryview(self.written)[:length]) != length:
                raise WorkloadError(f"{self.target.name} was not written whole: is the disk full?")
            if self.fsync:
                os.fsync(target)
        finally:
            os.close(target)


def _same(request: dict[str, Any]) -> tuple[Outcome, None]:
    """Compare two files."""
    if not filecmp.cmp(request["first"], request["second"], shallow=False):
        name = Path(request["first"]).name
        raise WorkloadError(f"{name} was not decrypted to what it was before.")
    return {}, None


_BY_NAME = {"recipe": _recipe, "file": _file, "same": _same}


def answer(request: dict[str, Any]) -> tuple[Outcome, Task | None]:
    """What a request asks for, and the task that it lays out, if any."""
    return _BY_NAME[request["do"]](request)
