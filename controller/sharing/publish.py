"""A sealed suite as one file that can be cited, and such a file checked and opened elsewhere.

A bundle is a gzipped tar of one folder, its `sums.json` first: the sealed suite, the tables and the
page derived from it, the JSON Schemas of its documents, the licence, CITATION.cff (Citation File
Format 1.2.0) and bundle.json. The same suite gives the same bytes.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from agent import pack
from analysis.report import build, verification
from analysis.stats.results import Results
from analysis.suite import group, manifest
from analysis.suite.bundle import ABOUT, FORMAT, unpack
from analysis.suite.manifest import Findings
from analysis.suite.suite_folder import suite_id
from contract import exports
from contract.command_results import Identifying, PublishResult
from contract.documents import DOCUMENTS, BundleDocument
from contract.errors import ControllerError
from contract.files import sha256_of, write, write_json
from contract.places import SCHEMAS, SHARE, version
from contract.suite_files import is_packed
from controller.session import seal, suite_folder
from controller.sharing import identifying_data

AUTHORS = ("The authors of this suite",)
PIECE = 1 << 20


def identified(folder: Path) -> list[Identifying]:
    """List what in a suite identifies; raises ControllerError if it cannot be published."""
    if group.is_group(folder):
        raise ControllerError("group-not-published", folder=folder)
    suite_id(folder)  # a plan of this version, and neither links nor pipes beside it
    with suite_folder.locked(folder):  # no session is at work
        check = manifest.check(folder)
        if not check.sealed:
            raise ControllerError("suite-not-sealed", problem=check.problems[0], folder=folder)
        if check.problems:
            raise ControllerError("seal-broken", problem=check.problems[0])
        if held := identifying_data.secrets(folder):
            raise ControllerError("secret-inside", file=held[0], folder=folder)
        return identifying_data.identifying(folder)


NAMED = 3  # files that are named with each


def listing(identifying: Sequence[Identifying]) -> list[str]:
    """List what identifies, line by line."""
    lines = ["What was recognised as identifying a person or a machine stays in the bundle:"]
    for mark in identifying:
        more = f" and {len(mark.files) - NAMED} more" if len(mark.files) > NAMED else ""
        lines.append(f"  {mark.kind}: {mark.text} ({', '.join(mark.files[:NAMED])}{more})")
    return lines if identifying else ["Nothing was recognised that identifies a person or machine."]


def publish(
    folder: Path, out: Path, identifying: Sequence[Identifying], authors: Sequence[str]
) -> PublishResult:
    """Pack a suite of which `identified` has found this. Raises ControllerError, SuiteError."""
    if (out.is_file() or out.is_dir()) and not exports.is_stdout(out):
        raise ControllerError("bundle-exists", path=out)
    for name in (path.relative_to(folder).as_posix() for path in seal.files(folder)):
        if not is_packed(name):
            raise ControllerError("strange-file-inside", name=name, folder=folder)
    with tempfile.TemporaryDirectory(prefix="fde-publish-") as temporary:
        copy = Path(temporary) / suite_id(folder)
        for path in (*seal.files(folder), folder / seal.MANIFEST):
            place = copy / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        made = build.build(copy).results
        assert made is not None
        _describe(copy, made, authors or AUTHORS)
        packed = Path(temporary) / "bundle"
        with packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
            pack.pack(copy, file)  # type: ignore[arg-type]  # it only writes
        out.parent.mkdir(parents=True, exist_ok=True)
        with packed.open("rb") as source:
            exports.export(out, iter(lambda: source.read(PIECE), b""))
        size_bytes, suite = packed.stat().st_size, made.suite.suite_id
        return PublishResult(
            True, str(out), suite, size_bytes, sha256_of(packed), tuple(identifying)
        )


def kept(path: Path, place: Path) -> Path:
    """Return a folder unchanged, or a bundle unpacked below `place` with its page made here.

    It is kept under the bundle's own sum: no other bundle is found there. Raises SuiteError.
    """
    if not path.is_file():
        return path
    folder_of_bundle = place / sha256_of(path)
    if not folder_of_bundle.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix=".unpacking-") as temporary:
            folder, _ = unpack(path, Path(temporary) / "bundle")
            try:
                folder.parent.rename(folder_of_bundle)
            except OSError:
                if not folder_of_bundle.is_dir():  # else another command was first
                    raise
    return next(folder_of_bundle.iterdir())


def verify(path: Path) -> Findings:
    """Verify a folder or a bundle. Raises SuiteError, ControllerError."""
    if not path.is_file():
        suite_id(path)  # a plan of this version, and neither links nor pipes beside it
        return verification.verify(path)
    with tempfile.TemporaryDirectory(prefix="fde-bundle-") as temporary:
        return verification.verify(*unpack(path, Path(temporary)))


def _describe(folder: Path, suite_results: Results, authors: Sequence[str]) -> None:
    """Everything that a bundle has beside the suite."""
    (folder / "schema").mkdir()
    for name in DOCUMENTS:
        shutil.copyfile(SCHEMAS / f"{name}.json", folder / "schema" / f"{name}.json")
    shutil.copyfile(SHARE / "LICENSE", folder / "LICENSE")
    software = yaml.safe_load((SHARE / "CITATION.cff").read_text(encoding="utf-8"))
    what = BundleDocument(FORMAT, suite_results.suite.suite_id, version(), manifest.code())
    write_json(folder / ABOUT, asdict(what))
    title = (
        f"Energy of disk encryption: suite {suite_results.suite.suite_id} ({suite_results.origin})"
    )
    date = suite_results.suite.plan.created_wall[:10]
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these figures, please cite them, and the software.",
        "type": "dataset",
        "title": title,
        "authors": [{"name": name} for name in authors],
        "date-released": date,
        "license": software["license"],
        "references": [
            {key: software[key] for key in ("type", "title", "authors", "license")},
            *software["references"],
        ],
    }
    text = yaml.safe_dump(citation, sort_keys=False, allow_unicode=True)
    write(folder / "CITATION.cff", [text.encode()])
