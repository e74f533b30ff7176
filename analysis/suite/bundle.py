"""A bundle (`fde publish`): a suite's folder in one file, unpacked while it is needed."""

from __future__ import annotations

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


@contextmanager
def open_suites(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the folders of suites; bundles among `paths` are unpacked while the context lasts.

    Raises SuiteError, one sentence, if a bundle is incomplete or of another version.
    """
    with ExitStack() as stack:
        folders = []
        for path in paths:
            if path.is_file():
                temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="fde-bundle-"))
                folders.append(unpack(path, Path(temporary))[0])
            else:
                folders.append(path)
        yield folders


def unpack(path: Path, to: Path) -> tuple[Path, list[str]]:
    """Unpack a bundle below `to`; return the suite's folder and the names of skipped members."""
    to.mkdir(exist_ok=True)
    try:
        with path.open("rb") as file:
            skipped = packed.extract(file, to, lambda name: is_packed(name.partition("/")[2]))
    except (OSError, tarfile.TarError, EOFError, zlib.error, ValueError, TypeError) as error:
        if isinstance(error, OSError) and error.errno and error.filename != str(path):
            facts = {"folder": to.parent, "reason": error.strerror}
            raise SuiteError("not-unpacked", path=path, **facts) from None
        is_tar = not isinstance(error, tarfile.ReadError)
        reason = error if is_tar else f"it is no tar file, or not all of one ({error})"
        raise SuiteError("bundle-changed", path=path, error=reason) from None
    folders = [folder for folder in to.iterdir() if folder.is_dir()]
    if len(folders) != 1 or not (folders[0] / ABOUT).is_file():
        raise SuiteError("not-a-bundle", path=path)
    read_about(folders[0])
    return folders[0], skipped


def read_about(folder: Path) -> BundleDocument:
    """Read bundle.json of an unpacked bundle. Raises SuiteError."""
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
