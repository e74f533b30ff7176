"""Bundles: a sealed suite packed into one citable file, verified and unpacked elsewhere.

A bundle is a gzipped tar of one folder, starting with `sums.json`. It contains the sealed suite,
its tables and report, the JSON Schemas of its documents, the licence, CITATION.cff (Citation File
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
from agent.system import lock
from analysis.report import build, verification
from analysis.stats.results import Results
from analysis.suite import group, manifest
from analysis.suite.bundle import ABOUT, FORMAT, unpack
from analysis.suite.manifest import Findings
from analysis.suite.records import SuiteError
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


def find_identifying(folder: Path) -> list[Identifying]:
    """List identifying texts in a suite; raises ControllerError if it cannot be published."""
    if group.is_group(folder):
        raise ControllerError("group-not-published", folder=folder)
    suite_id(folder)  # requires a plan of this version, and neither links nor pipes
    if process := lock.holder(folder / suite_folder.LOCK):  # the folder may be read-only
        raise ControllerError("suite-in-use", suite_dir=folder, holder=f"process {process}")
    check = manifest.check(folder)
    if not check.sealed:
        raise ControllerError("suite-not-sealed", problem=check.problems[0], folder=folder)
    if check.problems:
        raise ControllerError("seal-broken", problem=check.problems[0])
    if files := identifying_data.files_with_secrets(folder):
        raise ControllerError("secret-inside", file=files[0], folder=folder)
    return identifying_data.find_identifying(folder)


MOST_FILES = 3  # that are named for each text


def describe_identifying(identifying: Sequence[Identifying]) -> list[str]:
    """Return a line for each identifying text."""
    lines = ["What was recognised as identifying a person or a machine stays in the bundle:"]
    for mark in identifying:
        files = ", ".join(mark.files[:MOST_FILES])
        if len(mark.files) > MOST_FILES:
            files += f" and {len(mark.files) - MOST_FILES} more"
        lines.append(f"  {mark.kind}: {mark.text} ({files})")
    return lines if identifying else ["Nothing was recognised that identifies a person or machine."]


def publish(
    folder: Path, out: Path, identifying: Sequence[Identifying], authors: Sequence[str]
) -> PublishResult:
    """Pack a suite into a bundle at `out`; raises ControllerError, SuiteError.

    `identifying` are the texts from `find_identifying`, which the result lists.
    """
    if (out.is_file() or out.is_dir()) and not exports.is_stdout(out):
        raise ControllerError("bundle-exists", path=out)
    for name in (path.relative_to(folder).as_posix() for path in seal.files(folder)):
        if not is_packed(name):
            raise ControllerError("strange-file-inside", name=name, folder=folder)
    with tempfile.TemporaryDirectory(prefix="fde-publish-") as temporary:
        copy = Path(temporary) / suite_id(folder)
        for path in (*seal.files(folder), folder / seal.MANIFEST):
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        results = build.build(copy).results
        assert results is not None
        _add_documents(copy, results, authors or AUTHORS)
        packed = Path(temporary) / "bundle"
        with packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
            pack.pack(copy, file)  # type: ignore[arg-type]  # it only writes
        out.parent.mkdir(parents=True, exist_ok=True)
        with packed.open("rb") as source:
            exports.export(out, iter(lambda: source.read(PIECE), b""))
        size_bytes, suite = packed.stat().st_size, results.suite.suite_id
        return PublishResult(
            True, str(out), suite, size_bytes, sha256_of(packed), tuple(identifying)
        )


def unpack_cached(path: Path, cache: Path) -> Path:
    """Unpack a bundle below `cache`, with a report built here; return a folder unchanged.

    The bundle's sum is the name of its folder in the cache. Raises SuiteError.
    """
    if not path.is_file():
        return path
    folder_of_bundle = cache / sha256_of(path)
    if not folder_of_bundle.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            facts = {"folder": cache, "reason": error.strerror}
            raise SuiteError("not-unpacked", path=path, **facts) from None
        with tempfile.TemporaryDirectory(dir=cache, prefix=".unpacking-") as temporary:
            folder, _ = unpack(path, Path(temporary) / "bundle")
            try:
                folder.parent.rename(folder_of_bundle)
            except OSError:
                if not folder_of_bundle.is_dir():  # otherwise another command was faster
                    raise
    return next(folder_of_bundle.iterdir())


def verify(path: Path) -> Findings:
    """Verify a folder or a bundle; raises SuiteError, ControllerError."""
    if not path.is_file():
        suite_id(path)  # requires a plan of this version, and neither links nor pipes
        return verification.verify(path)
    with tempfile.TemporaryDirectory(prefix="fde-bundle-") as temporary:
        return verification.verify(*unpack(path, Path(temporary)))


def _add_documents(folder: Path, results: Results, authors: Sequence[str]) -> None:
    """Write the schemas, the licence, bundle.json and CITATION.cff of a bundle."""
    (folder / "schema").mkdir()
    for name in DOCUMENTS:
        shutil.copyfile(SCHEMAS / f"{name}.json", folder / "schema" / f"{name}.json")
    shutil.copyfile(SHARE / "LICENSE", folder / "LICENSE")
    software = yaml.safe_load((SHARE / "CITATION.cff").read_text(encoding="utf-8"))
    about = BundleDocument(FORMAT, results.suite.suite_id, version(), manifest.code())
    write_json(folder / ABOUT, asdict(about))
    citation = {
        "cff-version": "1.2.0",
        "message": "If you use these figures, please cite them, and the software.",
        "type": "dataset",
        "title": f"Energy of disk encryption: suite {results.suite.suite_id} ({results.origin})",
        "authors": [{"name": name} for name in authors],
        "date-released": results.suite.plan.created_wall[:10],
        "license": software["license"],
        "references": [
            {key: software[key] for key in ("type", "title", "authors", "license")},
            *software["references"],
        ],
    }
    text = yaml.safe_dump(citation, sort_keys=False, allow_unicode=True)
    write(folder / "CITATION.cff", [text.encode()])
