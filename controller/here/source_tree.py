"""A generated source tree, the same on every machine, for the workloads that read the kernel's."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from pathlib import Path

FILES, FOLDERS = 2400, 120
# Sizes are log-normal around the median of Linux 6.12's files, which is some 5 KiB.
MEDIAN_BYTES, SPREAD = 5 << 10, 1.1
SEED = 20261128
WORDS = (
    *("int", "static", "struct", "return", "if", "for", "const", "unsigned", "void", "module"),
    *("device", "page", "lock", "inode", "buffer", "queue", "flags", "offset", "error", "count"),
)


def write(path: Path) -> None:
    """Write the tree as a gzip'ed tar of some 20 MB of text; the contents follow from the seed."""
    generator = random.Random(SEED)
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for number in range(FILES):
            text = _text(generator, int(MEDIAN_BYTES * generator.lognormvariate(0, SPREAD)))
            entry = tarfile.TarInfo(f"linux/part-{number % FOLDERS:02d}/file-{number:04d}.c")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text))


def _text(generator: random.Random, size_bytes: int) -> bytes:
    """Return lines of words and numbers, which compress about as source code does."""
    lines = []
    length = 0
    while length < size_bytes:
        words = generator.choices(WORDS, k=generator.randint(2, 9))
        line = f"\t{' '.join(words)} = {generator.getrandbits(24):#x};\n".encode()
        lines.append(line)
        length += len(line)
    return b"".join(lines)
