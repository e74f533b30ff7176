"""A static page of many suites: machines, disks and ciphers, with links to each one's report."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.report import render, view, words
from analysis.report.view import Page
from analysis.stats.results import Results
from analysis.suite.records import SuiteError
from contract import schema, strict_json
from contract.names import Name

ENTRY, MARKS = "entry.json", "marks.csv"
ABOUT = 100  # characters of a suite's own description; the report has all of it
NO_MACHINE = "none: synthetic"
NO_CIPHER = {"none": "none", "drive": "the drive's own"}  # by what encrypts


@dataclass(frozen=True)
class Row:
    """A configuration of a suite; `energy` in words is beside the suite's baseline."""

    machine: str
    disk: str
    cipher: str
    configuration: str
    energy: str


@dataclass(frozen=True)
class Entry:
    """A page of the site: its name, origin of figures, address, bundle and a sentence.

    `bundle` is empty where there is none.
    """

    title: str
    origin: str
    page: str
    bundle: str
    about: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class OwnEntry:
    """entry.json: a recording that is no suite, and the reason why; marks.csv stands beside it."""

    format: Literal["fde-gallery-entry/1"]
    name: Name
    title: str
    origin: Literal["measured", "modelled", "synthetic"]
    machine: str
    instrument: str
    about: str
    reason: str


def of_suite(results: Results, page: str, bundle: str) -> Entry:
    """Return a suite's entry."""
    suite = results.suite
    beside = {
        contrast.other: contrast
        for contrast in results.contrasts
        if contrast.base == suite.baseline
    }
    rows = []
    for name in suite.configurations:
        role = suite.disk_of(name)
        model = suite.machine.get(f"disks.{role}.model", role)
        stack = suite.stacks[name]
        energy = "baseline"
        if name != suite.baseline:
            energy = words.change_in(beside[name].comparison if name in beside else None)
        cipher = str(stack.settings.get("cipher") or NO_CIPHER.get(stack.encrypted_by or "", "?"))
        rows.append(Row(_machine(results), model, cipher, suite.label(name), energy))
    scale = textwrap.shorten(suite.plan.scale, ABOUT, placeholder=" …")
    about = f"{scale}; {suite.plan.blocks or '?'} blocks"
    return Entry(suite.suite_id, results.origin, page, bundle, about, tuple(rows))


def _machine(results: Results) -> str:
    machine = results.suite.machine
    if lab := machine.get("lab_machine"):
        return f"virtual lab: {words.LAB_MACHINES.get(lab, lab)}"
    return machine.get("cpu.model") or (
        NO_MACHINE if results.origin == "synthetic" else "not named"
    )


def own_entry(folder: Path) -> tuple[OwnEntry, Page]:
    """Return what is no suite, and its page: joules of each marked load.

    The difference of the counter. Raises SuiteError. Raises SuiteError.
    """
    try:
        document = strict_json.loads((folder / ENTRY).read_text(encoding="utf-8"))
        entry = schema.read(OwnEntry, document)
        with (folder / MARKS).open(encoding="utf-8", newline="") as file:
            rows = list(map(_load, csv.DictReader(file)))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, csv.Error) as error:
        raise SuiteError("marks-unread", folder=folder / ENTRY, marks=MARKS, error=error) from None
    head = view.paragraph(f"{entry.machine}, read by {entry.instrument}: {entry.origin}.", "facts")
    head += view.paragraph(entry.about) + view.note(
        "No suite. ", view.paragraph(entry.reason), "plain"
    )
    what = "Energy of each marked load: the counter at its end less that at its begin"
    heads = ["Load", "Time (s)", "Energy (J)", "Mean power (W)"]
    table = view.table(what, heads, rows, origin=entry.origin)
    return entry, Page(entry.title, entry.title, head + table, ())


def _load(row: Mapping[str, str]) -> list[str]:
    seconds = (int(row["end_ns"]) - int(row["begin_ns"])) / 1e9
    energy_j = (int(row["end_mj"]) - int(row["begin_mj"])) / 1e3
    joules, watts = words.number(energy_j, 1), words.number(energy_j / seconds, 1)
    return [row["name"], words.number(seconds, 2), joules, watts]


def of_own(entry: OwnEntry, page: str) -> Entry:
    """Its line in the gallery."""
    row = Row(entry.machine, "none", "none", entry.instrument, words.NOTHING)
    return Entry(entry.title, entry.origin, page, "", entry.about, (row,))


def html(entries: Sequence[Entry]) -> str:
    """Return the gallery's page, without anything from elsewhere."""
    rows = [row for entry in entries for row in entry.rows]
    filters = {
        "machine": ("Machine", sorted({row.machine for row in rows})),
        "disk": ("Disk", sorted({row.disk for row in rows})),
        "cipher": ("Cipher", sorted({row.cipher for row in rows})),
        "origin": ("Figures", sorted({entry.origin for entry in entries})),
    }
    template = render.environment().get_template("gallery.html.j2")
    script = render.asset("gallery.js")
    return template.render(
        entries=entries, filters=filters, script=script, digest=render.digest(script)
    )
