"""Encrypt or decrypt a whole file again and again; check each recipe first by known answers."""

from __future__ import annotations

import filecmp
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from workloads.base import WorkloadError
from workloads.children import serving
from workloads.children.serving import Outcome, Task, serve
from workloads.crypt import libraries, recipes
from workloads.crypt.recipes import CHUNK_BYTES, RSA_BYTES, Recipe

# More than any recipe adds to a small file.
ROOM_BYTES = 4096
COST_TRIES = 10

_made: dict[str, Recipe] = {}


@dataclass(frozen=True)
class Make:
    """A request to make a recipe."""

    recipe: str
    seed: int


@dataclass(frozen=True)
class Turn:
    """A request to encrypt or decrypt a file, repeated for `seconds`."""

    recipe: str
    encrypt: bool
    source: str
    target: str
    seconds: float
    file_io: bool
    fsync: bool


@dataclass(frozen=True)
class Compare:
    """A request to compare two files."""

    first: str
    second: str


def recipe(request: Make) -> tuple[Outcome, None]:
    """Create a recipe with its keys and test it; of RSA also time a private operation."""
    name = request.recipe
    _made[name] = instance = recipes.make(name, request.seed)
    outcome: Outcome = asdict(instance.check())
    if isinstance(instance, recipes.RsaOaep):
        wrapped = instance.wrap(bytes(CHUNK_BYTES))
        started_s = time.perf_counter()
        for _ in range(COST_TRIES):
            instance.unwrap(wrapped)
        outcome["unwrap_s"] = (time.perf_counter() - started_s) / COST_TRIES
    return outcome, None


def file(request: Turn) -> tuple[Outcome, Task]:
    """Prepare one file's encryption or decryption by doing it once; the task repeats it."""
    instance = _made[request.recipe]
    source, target = Path(request.source), Path(request.target)
    target.unlink(missing_ok=True)  # it might be longer than the new one
    size = source.stat().st_size
    # A target of OAEP is longer than its source, by a third and up to a block.
    room = size * RSA_BYTES // CHUNK_BYTES + ROOM_BYTES
    read, written = bytearray(size + ROOM_BYTES), bytearray(room)
    turn = instance.encrypt if request.encrypt else instance.decrypt

    def turn_file() -> None:
        """Read the file, encrypt or decrypt it, write the other; unbuffered, one call each."""
        with source.open("rb", buffering=0) as opened:
            filled = opened.readinto(read)
        length = turn(read, filled or 0, written)
        # Do not truncate it first: ext4 would begin to write back whenever such a file is closed.
        fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            if os.write(fd, memoryview(written)[:length]) != length:
                raise WorkloadError("file-cut-short", file=target.name)
            if request.fsync:
                os.fsync(fd)
        finally:
            os.close(fd)

    turn_file()
    step = turn_file if request.file_io else partial(turn, read, size, written)
    return {}, partial(serving.for_seconds, step, request.seconds)


def same(request: Compare) -> tuple[Outcome, None]:
    """Check that two files are identical; WorkloadError if not."""
    if not filecmp.cmp(request.first, request.second, shallow=False):
        raise WorkloadError("file-changed", file=Path(request.first).name)
    return {}, None


if __name__ == "__main__":
    libraries.restart_without_legacy()
    serve(recipe=recipe, file=file, same=same)
