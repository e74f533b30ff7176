"""A sealed suite as one file that can be cited, and such a file checked and opened elsewhere.

A bundle is a gzipped tar of one folder, its `sums.json` first: the sealed suite, the tables and the
page derived from it, the JSON Schemas of its documents, the licence, CITATION.cff (Citation File
Format 1.2.0) and bundle.json. The same suite gives the same bytes.
"""

from __future__ import annotations

import gzip
import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import polars as pl
import yaml

from agent import pack
from analysis.money import budgets
from analysis.report import build
from analysis.spreadsheet import csv_bytes
from analysis.stats import alike, results
from analysis.stats.alike import ROUNDING
from analysis.stats.results import Results
from analysis.suite import group, manifest
from analysis.suite.bundle import ABOUT, FORMAT, unpacked
from analysis.suite.manifest import Findings
from analysis.suite.suite_folder import suite_id
from contract import exports
from contract.command_results import Identifying, PublishResult
from contract.documents import DOCUMENTS, BundleDocument
from contract.errors import ControllerError
from contract.files import sha256_of, write, write_json
from contract.packed import SUMS
from contract.places import SCHEMAS, SHARE, version
from contract.suite_files import DERIVED, is_known, is_packed, is_sealed
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
            folder, _ = unpacked(path, Path(temporary) / "bundle")
            try:
                folder.parent.rename(folder_of_bundle)
            except OSError:
                if not folder_of_bundle.is_dir():  # else another command was first
                    raise
    return next(folder_of_bundle.iterdir())


def verify(path: Path) -> Findings:
    """Verify a folder or a bundle as `results.verify` does.

    Every table is made again and compared, and each file that is left is named. Figures that are
    apart by no more than `ROUNDING` are the same; the differences between this machine and theirs
    are listed. Raises SuiteError, ControllerError.
    """
    if not path.is_file():
        suite_id(path)  # a plan of this version, and neither links nor pipes beside it
        return _verified(path, [])
    with tempfile.TemporaryDirectory(prefix="fde-bundle-") as temporary:
        return _verified(*unpacked(path, Path(temporary)))


def _verified(folder: Path, left: Sequence[str]) -> Findings:
    again = results.results(folder, raw=True)
    verified = results.verify(folder, again)
    is_bundle = (folder / ABOUT).is_file()
    sentences, problems = list(verified.confirmed), list(verified.problems)
    made: dict[str, pl.DataFrame | bytes] = {
        "energy.parquet": again.all_energy,
        "summary.parquet": again.summary,
        "summary.csv": csv_bytes(again.summary),
        "budget.csv": csv_bytes(budgets.table(again)),
    }
    derived = [name for name in DERIVED if is_bundle or (folder / name).exists()]
    apart = {name: _apart(folder / name, made[name]) for name in derived}
    try:
        unlike = manifest.unlike_here(folder / "energy.parquet")
    except (OSError, pl.exceptions.PolarsError):  # which is a problem already
        unlike = ""
    if changed := [name for name, far in apart.items() if far > ROUNDING]:
        ours = "by the same code and packages, on the same kind of processor: they were changed"
        cause = f"with {unlike}" if unlike else ours
        problems.append(
            f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} not what the raw data "
            f"give here. The {'bundle' if is_bundle else 'suite'}'s tables were made {cause}."
        )
    elif derived:
        frames = again.all_energy, again.summary, budgets.table(again)
        figures = sum(
            frame.select(pl.col(pl.Float64).count()).sum_horizontal().sum() for frame in frames
        )
        rounded = [name for name, far in apart.items() if far]
        how = "bit for bit"
        if rounded:
            how += f" but for rounding in {' and '.join(rounded)}, by {max(apart.values()):.0e} "
            how += "of a figure at most" + f": with {unlike}" * bool(unlike)
        sentences.append(f"{figures} figures in {len(derived)} tables were made again, {how}.")
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in files]
    passed_over = [name.partition("/")[2] or name for name in left]
    sums = {SUMS} if is_bundle else set()  # where tar unpacked it
    strange = [name for name in names if not is_known(name) and name not in sums]
    strange += [name for name in passed_over if is_sealed(name) or not is_known(name)]
    problems += [f"{name} is no file of a suite: its contents are unknown." for name in strange]
    names += passed_over
    # The seal, the raw data or this program vouches for what is in the others.
    vouched = (*DERIVED, ABOUT, seal.MANIFEST)
    unproven = {n for n in names if is_known(n) and not is_sealed(n) and n not in vouched}
    if rest := sorted(unproven):
        folders = dict.fromkeys(f"{n.partition('/')[0]}/" for n in rest if "/" in n)
        listed = ", ".join([*(n for n in rest if "/" not in n), *folders])
        sentences.append(f"Not proven, and no figure rests on it: {listed}.")
    return Findings(tuple(sentences), tuple(problems))


def _apart(path: Path, made: pl.DataFrame | bytes) -> float:
    """How far figures that are kept are from those made here (`alike.table_distance`)."""
    try:
        if isinstance(made, bytes):
            return alike.csv_distance(path.read_bytes(), made)
        return alike.table_distance(alike.read_table(path, made), made)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return math.inf


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
