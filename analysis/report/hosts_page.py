"""The report of several hosts: one page, hosts.csv and hosts.parquet, beside the group's file."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from analysis.report import answer, build, hosts_matrix, hosts_sections, hosts_table, markup
from analysis.report.build import Built
from analysis.report.figures import hosts_forest
from analysis.report.markup import Html
from analysis.stats.contrasts import counted
from analysis.stats.hosts import Effect, Hosts, hosts
from analysis.suite import manifest
from analysis.suite.group import is_group, members
from analysis.suite.records import MEASURED
from contract import files

FIGURE = (
    "Change of the system's energy against the baseline, paired within the blocks of each host, "
    "with 95 % intervals. Below the hosts their mean (black diamond) with its interval for these "
    "hosts. Filled: a verdict. Hollow: inconclusive. ≠ the hosts surely differ, ≈ they are alike "
    "within the margin, ? neither is shown. Each interval stands for itself."
)
INDEX = (
    ("Do the hosts differ?", "differ"),
    ("Pictures", "pictures"),
    ("Each host's own report", "own"),
    ("Provenance", "provenance"),
)


def write(folders: Sequence[Path], out: Path) -> Built:
    """Report of a group's folder, or of suites named one by one, whose page goes below `out`.

    Every suite without an up-to-date report of its own gets one first, for the page leads there.
    Raises SuiteError or OSError.
    """
    place = folders[0]
    if len(folders) == 1 and is_group(place):
        folders = members(place)
    else:
        place = out / f"{folders[0].resolve().name}-and-{len(folders) - 1}-more"
        place.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        if not (folder / "report.html").exists() or not _current(folder):
            build.build(folder)
    found = hosts(folders)
    held = io.BytesIO()
    table = hosts_table.table(found)
    table.write_parquet(held)
    files.write(place / "hosts.parquet", [held.getvalue()])
    files.write(place / "hosts.csv", [table.write_csv().encode()])
    title = f"Disk encryption in joules: {place.resolve().name}"
    files.write(place / "report.html", [markup.page(title, html(found, place)).encode()])
    return Built(place / "report.html", hosts_sections.text(found))


def _current(folder: Path) -> bool:
    return manifest.current(folder / "energy.parquet")


def html(found: Hosts, place: Path) -> Html:
    """What stands on the page; links to the hosts' own reports are relative to `place`."""
    page = _head(found, place)
    page += markup.heading("The answer", 2, "answer")
    said = markup.join(
        markup.paragraph(sentence, "answer") for sentence in hosts_sections.sentences(found)
    )
    page += markup.columns(said, hosts_matrix.matrix(found), _box(found))
    page += markup.links("Contents", INDEX)
    page += markup.heading("Do the hosts differ?", 2, "differ") + hosts_sections.tests(found)
    page += markup.heading("Pictures", 2, "pictures")
    page += markup.join(
        markup.picture(drawn, FIGURE, found.origin, wide=True)
        for drawn in hosts_forest.draw(found, _by_name(found))
    )
    page += markup.heading("Each host's own report", 2, "own") + _own(found, place)
    page += markup.heading("Provenance", 2, "provenance") + hosts_sections.provenance(found)
    return page


def _head(found: Hosts, place: Path) -> Html:
    page = markup.heading("What disk encryption costs in joules, on several hosts", 1, "top")
    facts = [place.resolve().name, answer.count(len(found.names), "host"), ", ".join(found.names)]
    page += markup.paragraph(" · ".join(facts), "facts")
    if found.origin != MEASURED:
        banner = markup.paragraph(answer.banner(found.origin))
        page += markup.note(f"{found.origin.capitalize()}. ", banner, found.origin)
    return page


def _box(found: Hosts) -> Html:
    """How far to trust each host; then what is not the same on all of them."""
    box = markup.note("How far to trust it", markup.bullets(hosts_sections.trusted(found)), "plain")
    if found.shared.said:
        box += markup.note("Not alike", markup.bullets(found.shared.said), "warning")
    return box


def _by_name(found: Hosts) -> dict[str, list[Effect]]:
    """Effects by heading; over all workloads only those against the baseline have a place."""
    suite = found.first
    whole = (
        [e for e in found.overall if e.base == suite.baseline] if len(counted(suite)) > 1 else []
    )
    effects = [e for e in (*whole, *found.single) if e.by_host]
    return {
        name: list(of) for name, of in groupby(effects, lambda e: hosts_sections.heading(e, found))
    }


def _own(found: Hosts, place: Path) -> Html:
    items = []
    for host in found.hosts:
        report = Path(os.path.relpath(host.suite.folder.resolve() / "report.html", place.resolve()))
        link = escape(quote(report.as_posix()), quote=True)
        items.append(
            f'<li><a href="{link}">{escape(host.name)}</a>: {escape(host.suite.suite_id)}</li>'
        )
    return Html(f"<ul>{''.join(items)}</ul>\n")
