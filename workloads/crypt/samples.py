"""Write seeded text, binary and image files of an exact size."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

MIB = 1 << 20
SMALLEST_BYTES = 4096
# 512 pixels of three bytes.
_ROW_BYTES = 1536
_HEADER_BYTES = 54
_SYLLABLES = ("ba", "de", "ki", "lo", "mu", "ner", "pa", "ris", "so", "tan", "ve", "zu")


def write(path: Path, kind: str, size: int, seed: int) -> None:
    """Write a file of `size` bytes, at least `SMALLEST_BYTES`, with content from the seed."""
    remaining = size
    with path.open("wb") as file:
        for piece in KINDS[kind](size, random.Random(f"{kind} {seed}")):
            file.write(piece[:remaining])
            remaining -= len(piece)
            if remaining <= 0:
                return
        file.write(bytes(remaining))


def _text(_size: int, generator: random.Random) -> Iterator[bytes]:
    """Yield lines of twelve words out of 2000, of one to four syllables."""
    words = ["".join(generator.choices(_SYLLABLES, k=generator.randint(1, 4))) for _ in range(2000)]
    while True:
        lines = (" ".join(generator.choices(words, k=12)) for _ in range(1000))
        yield ("\n".join(lines) + "\n").encode()


def _image(size: int, generator: random.Random) -> Iterator[bytes]:
    """Yield a BMP of 24 bits a pixel: slanting ramps with noise in their lowest two bits."""
    height = (size - _HEADER_BYTES) // _ROW_BYTES
    offset, planes, bits, inch = _HEADER_BYTES, 1, 24, 2835
    yield struct.pack("<2sIHHI", b"BM", size, 0, 0, offset)
    yield struct.pack(
        *("<IiiHHIIiiII", 40, _ROW_BYTES // 3, height, planes, bits),
        *(0, height * _ROW_BYTES, inch, inch, 0, 0),
    )
    ramp = bytes(range(256)) * (_ROW_BYTES // 256 + 1)
    low_bits = int.from_bytes(b"\3" * _ROW_BYTES)
    for row in range(height):
        start = row % 256
        clean = int.from_bytes(ramp[start : start + _ROW_BYTES])
        noise = int.from_bytes(generator.randbytes(_ROW_BYTES)) & low_bits
        yield (clean ^ noise).to_bytes(_ROW_BYTES)


KINDS: dict[str, Callable[[int, random.Random], Iterator[bytes]]] = {
    "text": _text,
    "binary": lambda _, generator: iter(partial(generator.randbytes, MIB), b""),
    "image": _image,
}
