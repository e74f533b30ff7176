"""A bundle (`fde publish`): a suite's folder in one file, unpacked while it is needed."""

from __future__ import annotations

import errno
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from analysis.suite.records import SuiteError
from contract import packed, schema, strict_json
from contract.documents import BundleDocument
from contract.suite_files import is_packed

FORMAT: Literal["fde-bundle/1"] = "fde-bundle/1"
ABOUT = "bundle.json"
FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Folders of suites as they are; a bundle is unpacked for as long as this lasts.

    Raises SuiteError, one sentence, where a bundle is not whole or of another version.
    """
    with ExitStack() as stack:
        folders = []
        for path in paths:
            if path.is_file():
                temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="fde-bundle-"))
                folders.append(unpacked(path, Path(temporary))[0])
            else:
                folders.append(path)
        yield folders


def unpacked(path: Path, to: Path) -> tuple[Path, list[str]]:
    """Unpack what a bundle must have below `to`; its folder, and the names of all other members."""
    to.mkdir(exist_ok=True)
    try:
        with path.open("rb") as file:
            left = packed.extract(file, to, lambda name: is_packed(name.partition("/")[2]))
    except OSError as error:
        if error.errno in FULL:
            raise SuiteError("no-room", path=path, folder=to.parent) from None
        raise _changed(path, error) from None
    except (tarfile.TarError, EOFError, zlib.error, ValueError, TypeError) as error:
        raise _changed(path, error) from None
    folders = [folder for folder in to.iterdir() if folder.is_dir()]
    if len(folders) != 1 or not (folders[0] / ABOUT).is_file():
        raise SuiteError("not-a-bundle", path=path)
    about(folders[0])
    return folders[0], left


def _changed(path: Path, error: Exception) -> SuiteError:
    return SuiteError("bundle-changed", path=path, error=error)


def about(folder: Path) -> BundleDocument:
    """bundle.json of an unpacked bundle. Raises SuiteError."""
    try:
        document = strict_json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if isinstance(document, Mapping) and document.get("format") != FORMAT:
            raise SuiteError(
                "bundle-format",
                format=document.get("format"),
                known=FORMAT,
                testbed=document.get("testbed", "not named"),
            )
        return schema.read(BundleDocument, document)
    except (OSError, ValueError) as error:
        raise SuiteError("bundle-unread", about=ABOUT, error=error) from None
