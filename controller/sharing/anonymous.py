"""A sealed suite without what identifies: only fields that are known not to are written.

Each document has its rules in `anonymous.yml`: a field without a rule is left out, a file
without rules is not written. A meter's raw bytes are kept where every line of them has the form of
a reading. Else its records stand in their place (`instrumentation.readings`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from analysis.suite import latencies
from contract import schema, strict_json
from contract.command_results import Identifying
from contract.documents import MeterDocument
from contract.errors import ControllerError
from contract.extensions import ExtensionError
from contract.files import sha256_of, write, write_json
from contract.plan import digest
from controller.session import seal
from controller.sharing.anonymous_rules import LEFT_OUT, Names, fields
from instrumentation import decode, readings
from instrumentation.accuracy import NOT_STATED
from instrumentation.meters import registry as meter_kinds
from instrumentation.meters.base import MeterError
from instrumentation.meters.smartpower3 import LINE
from instrumentation.trace import StreamError, StreamWriter, read_frames

# Whole lines that hold nothing but a meter's readings.
RAW_LINES = {"smartpower3": re.compile(LINE.pattern + rb"\r\n")}
OWNERS = "as its owner states"


class Anonymous:
    """What one suite's folder becomes. `without_raw`: meters whose records stand alone."""

    def __init__(self, key: bytes, identifying: Sequence[Identifying]) -> None:
        self.names = Names(key, identifying)
        self.without_raw: list[str] = []

    def renamed(self, energy: pl.DataFrame) -> pl.DataFrame:
        """Return an energy table of the original suite with the names of this one."""
        kinds: dict[str, tuple[str, ...]]
        kinds = {name: (name,) for name in ("configuration", "workload", "phase")}
        kinds |= {"source": ("meter",), "component": ("zone", "channel")}
        names = {
            column: {old: new for (group, old), new in self.names.names.items() if group in groups}
            for column, groups in kinds.items()
        }
        names["run_id"] = self.names.runs
        return energy.with_columns(
            pl.col(column).replace(mapping) for column, mapping in names.items()
        )

    def write(self, folder: Path, parent: Path) -> Path:
        """Write what is kept of a sealed suite below `parent`; the new folder.

        Raises ControllerError.
        """
        try:
            return self._write(folder, parent)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ControllerError("document-unknown", folder=folder, error=error) from None

    def _write(self, folder: Path, parent: Path) -> Path:
        plan = _document(folder / "plan.json")
        self.names.learn(plan)
        made = self.names.apply(DOCUMENTS["plan.json"], plan, "plan.json")
        made["runs"] = [run for run in made["runs"] if run.get("run_id")]
        made["suite_id"] = f"{made['suite']}-{made['host']}-{self.names.day}"
        place = parent / str(made["suite_id"])
        place.mkdir(parents=True)
        made["sha256"] = digest(made)
        self.names.sums[str(plan["sha256"])] = made["sha256"]
        write_json(place / "plan.json", made)
        rest = (path for path in seal.files(folder) if path != folder / "plan.json")
        # Files whose sums stand in others come first: what a run names, it, the journal.
        ranks = {"run.json": 1, "journal.jsonl": 3, "requests.jsonl": 4}
        for path in sorted(rest, key=lambda path: ranks.get(path.name, 0)):
            self._write_file(folder, path, place)
        for path in sorted((folder / "meters").glob("*/")):
            self._write_meter(path, place / "meters")
        seal.decode(place)
        files = {str(path.relative_to(place)): sha256_of(path) for path in seal.files(place)}
        why = "by fde publish --anonymous: the sums are of the files that it has written"
        write_json(place / seal.MANIFEST, {"format": seal.FORMAT, "made_anew": why, "files": files})
        return place

    def _write_file(self, folder: Path, path: Path, place: Path) -> None:
        relative = path.relative_to(folder)
        rules = DOCUMENTS.get(_rule_name(relative.parts, relative.stem) or "")
        new = self._new_place(relative)
        document = _report_of_fio(path) if rules == FIO else None
        if rules is None or new is None or (rules == FIO and document is None):
            if relative.parts[0] != "meters":
                self.names.left_out[f"file {relative.name}"] += 1
            return
        before = path.read_bytes()
        (place / new).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            after = b""
            for line in before.splitlines():
                try:
                    document = strict_json.loads(line)
                except ValueError:  # torn by a power cut
                    continue
                kept = self.names.apply(rules, document, relative.name)
                if isinstance(kept, dict):
                    after += json.dumps(_with_detail(kept)).encode() + b"\n"
        else:
            document = self.names.apply(rules, document or _document(path), relative.name)
            after = json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"
        self.names.sums[hashlib.sha256(before).hexdigest()] = hashlib.sha256(after).hexdigest()
        write(place / new, [after], sync=False)

    def _new_place(self, relative: Path) -> Path | None:
        if relative.parts[0] == "runs":
            run = self.names.run_id(relative.parts[1])
            kept = self.names.kept_name(relative.name) if len(relative.parts) > 3 else ""
            new = Path("kept", kept) if kept else Path(relative.name)
            return None if run is LEFT_OUT else Path("runs", run) / new
        if relative.parts[0] == "precondition":
            return relative.with_name(f"{self.names.name('disk', relative.stem)}.json")
        return relative

    def _write_meter(self, folder: Path, parent: Path) -> None:
        described = _document(folder / "meter.json")
        meter = schema.read(MeterDocument, described)
        name = meter.name
        new = self.names.name("meter", name)
        number = re.fullmatch(r"\.\d{1,4}", folder.name.removeprefix(name))
        place = parent / f"{new}{number[0] if number else ''}"
        place.mkdir(parents=True)
        made = self.names.apply(DOCUMENTS["meter.json"], described, "meter.json")
        _state_sources(made["accuracy"], meter)
        try:
            if not self._raw_lines(folder, place, made):
                self._records(folder, place, made)
                self.without_raw += [new] if new not in self.without_raw else []
        except (decode.DecodeError, StreamError, KeyError, OSError) as error:
            raise ControllerError("meter-not-anonymous", meter=folder.name, error=error) from None
        write_json(place / "meter.json", made)

    def _raw_lines(self, folder: Path, place: Path, made: Mapping[str, Any]) -> bool:
        """Write the raw bytes that are lines of readings, if the same records come of them."""
        pattern = RAW_LINES.get(str(made["kind"]))
        if pattern is None:
            return False
        frames = list(read_frames(folder / "stream.raw"))
        stream = b"".join(frame.data for frame in frames if not frame.sent)
        mask = bytearray(len(stream))
        for match in pattern.finditer(stream):
            mask[match.start() : match.end()] = b"\1" * len(match[0])
        writer = StreamWriter(place / "stream.raw")
        at = 0
        for frame in frames:
            if frame.sent:
                continue
            part = mask[at : at + len(frame.data)]
            kept = bytes(itertools.compress(frame.data, part))
            at += len(frame.data)
            if kept or not frame.data:
                writer.append(frame.t_mono_ns, kept)
        writer.close()
        write_json(place / "meter.json", made)
        if _same(decode.tables(folder), decode.tables(place)):
            return True
        (place / "stream.raw").unlink()
        return False

    def _records(self, folder: Path, place: Path, made: dict[str, Any]) -> None:
        """Write the records of a meter in place of its raw bytes."""
        tables = list(decode.tables(folder))
        flags = {
            str(word)
            for table in tables
            for text in table["flags"].unique()
            for word in text.split()
        }
        energy = any(name.startswith("energy_j_") for table in tables for name in table.columns)
        settings = readings.Settings(str(made["kind"]), energy, tuple(sorted(flags)))
        readings.write(place / "stream.raw", tables, settings)
        made["kind"], made["baud"] = readings.Readings.kind, 0
        made["channels"] = {str(n): name for n, name in enumerate(made["channels"].values())}
        made["settings"] = {
            "of": settings.of,
            "has_energy": energy,
            "flag_words": [self.names.apply("coded flag", word) for word in settings.flag_words],
        }


def _state_sources(made: dict[str, Any], meter: MeterDocument) -> None:
    """Replace the source of a limit of error that is the driver's own sentence."""
    settings = {k: v for k, v in meter.settings.items() if not isinstance(v, str)}
    known = {NOT_STATED, OWNERS, ""}
    try:
        driver = meter_kinds.load(meter.kind)(meter.channels, settings)
        accuracy = driver.accuracy.described()
        known |= {str(accuracy["source"]), *(str(term["source"]) for term in accuracy["terms"])}
    except (ExtensionError, MeterError, TypeError, ValueError):
        pass  # it needs texts that its owner gave
    old = meter.accuracy
    terms = zip(made.get("terms") or (), old.get("terms") or (), strict=False)
    for new, before in ((made, old), *terms):
        if "source" in before:
            new["source"] = before["source"] if before["source"] in known else OWNERS


def _same(before: Iterator[pl.DataFrame], after: Iterator[pl.DataFrame]) -> bool:
    """Whether two recordings have the same records, whatever their channels are called."""
    written, other = (
        pl.concat([pl.DataFrame(), *tables], how="diagonal") for tables in (before, after)
    )
    if len(written.columns) != len(other.columns):
        return False
    written = written.rename(dict(zip(written.columns, other.columns, strict=True)))
    text = pl.selectors.categorical().cast(pl.String)
    return written.with_columns(text).equals(other.with_columns(text))


DOCUMENTS: Mapping[str, Any] = fields()["documents"]
FIO = DOCUMENTS["fio"]


def _rule_name(parts: Sequence[str], stem: str) -> str | None:
    """Name the rules for a file of a suite; None where it is left out."""
    if parts[0] == "runs":
        if parts[2:-1] == ("kept",) and parts[-1] == f"{stem}.json":
            return "fio"
        return parts[2] if len(parts) == 3 and parts[2] in ("run.json", "rapl.jsonl") else None
    if parts[0] == "precondition":
        return "precondition" if len(parts) == 2 and parts[1] == f"{stem}.json" else None
    if parts[0] == "provenance":
        if parts[1:] == ("first-readings.json",):
            return "first-readings"
        known = len(parts) == 2 and re.fullmatch(
            r"(?:before|after|before-resumed-\d{1,4})\.json", parts[-1]
        )
        return "provenance" if known else None
    return parts[0] if len(parts) == 1 else None


def _report_of_fio(path: Path) -> Any:
    """Return what the analysis reads of a report of fio's; None where a file is none."""
    try:
        return schema.write(latencies.parse_report(path))
    except (OSError, ValueError):
        return None


def _document(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raises ValueError."""
    document = strict_json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return document


def _with_detail(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the journal with the codes of a void run in place of a sentence."""
    facts = line.get("facts") or {}
    known = ("at", "checks", "mismatches", "error", "cause")
    codes = [str(facts[key]) for key in known if key in facts]
    return {**line, "detail": " ".join(codes)} if line.get("state") == "void" else line
