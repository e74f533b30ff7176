"""Read a tar from an untrusted sender within bounds on memory and unpacked size."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from typing import IO

# More than a path of `agent.pack` needs in an extended header; tarfile reads it into memory whole.
_MOST_HEADER_BYTES = 1 << 16
# Of one parsed document; that of a suite with 10^5 runs has some 20 MB.
_MOST_DOCUMENT_BYTES = 16 << 20
# Of all members together: streams of meters as text are compressed to a tenth.
_MOST_UNPACKED_BYTES = 256 << 20
_MOST_RATIO = 100


class _Member(tarfile.TarInfo):
    """A tar member with short extended headers and a size that matches its content."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError("a header is longer than any is")
        try:
            member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        except RecursionError:
            raise tarfile.ReadError("its headers have headers") from None
        return member

    def _refuse_sparse(self, *_: object) -> None:
        raise tarfile.ReadError("a member is sparse")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def open_tar(file: IO[bytes]) -> tarfile.TarFile:
    """Open a tar, gzipped or not, for one pass with `members`."""
    start = file.read(2)
    file.seek(0)
    mode = "r|gz" if start == b"\x1f\x8b" else "r|"
    return tarfile.open(fileobj=file, mode=mode, tarinfo=_Member)  # type: ignore[call-overload,no-any-return]


def members(tar: tarfile.TarFile, file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """Yield the members of the tar in `file`, each before its content is read.

    Raises ValueError if one of them, or all of them relative to the size of the file, are too
    large; also what tarfile and the decompression raise.
    """
    packed_bytes = os.fstat(file.fileno()).st_size
    remaining_bytes = max(_MOST_UNPACKED_BYTES, _MOST_RATIO * packed_bytes)
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile collects all earlier members
        remaining_bytes -= member.size + tarfile.BLOCKSIZE
        if remaining_bytes < 0:
            raise ValueError(f"it unpacks to more than {_MOST_RATIO} times its size")
        if member.name.endswith(".json") and member.size > _MOST_DOCUMENT_BYTES:
            raise ValueError(f"{member.name[:100]} is longer than any document is")
        yield member
