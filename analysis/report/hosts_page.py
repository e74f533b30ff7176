"""The report of several hosts: one page, hosts.csv and hosts.parquet, beside the group's file."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from analysis.report import (
    answer,
    build,
    hosts_matrix,
    hosts_sections,
    hosts_table,
    render,
    view,
)
from analysis.report.build import Built
from analysis.report.figures import hosts_forest
from analysis.report.view import Blocks, Link, Page, Section
from analysis.stats.contrasts import counted
from analysis.stats.hosts import Effect, Hosts, hosts
from analysis.suite import manifest
from analysis.suite.group import is_group, members
from contract import files

FIGURE = (
    "Change of the system's energy against the baseline, paired within the blocks of each host, "
    "with 95 % intervals. Below the hosts their mean (black diamond) with its interval for these "
    "hosts. Filled: a verdict. Hollow: inconclusive. ≠ the hosts differ significantly, ≈ they are "
    "alike within the margin, ? neither is shown. Each interval stands for itself."
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
        current = manifest.current(folder / "energy.parquet")
        if not current or not (folder / "report.html").exists():
            build.build(folder)
    found = hosts(folders)
    held = io.BytesIO()
    table = hosts_table.table(found)
    table.write_parquet(held)
    files.write(place / "hosts.parquet", [held.getvalue()])
    files.write(place / "hosts.csv", [table.write_csv().encode()])
    files.write(place / "report.html", [render.html(page(found, place)).encode()])
    return Built(place / "report.html", render.text(hosts_sections.terminal(found)))


def page(found: Hosts, place: Path) -> Page:
    """What stands on the page; links to the hosts' own reports are relative to `place`."""
    pictures = view.join(
        view.picture(drawn, FIGURE, found.origin, wide=True)
        for drawn in hosts_forest.draw(found, _by_name(found))
    )
    below = (
        Section("Do the hosts differ?", "differ", hosts_sections.tests(found)),
        Section("Pictures", "pictures", pictures),
        Section("Each host's own report", "own", _own(found, place)),
        Section("Provenance", "provenance", hosts_sections.provenance(found)),
    )
    said = view.join(view.paragraph(s, "answer") for s in hosts_sections.sentences(found))
    first = view.columns(said, hosts_matrix.matrix(found), _box(found))
    facts = [place.resolve().name, answer.count(len(found.names), "host"), ", ".join(found.names)]
    return Page(
        f"Disk encryption in joules: {place.resolve().name}",
        "What disk encryption costs in joules, on several hosts",
        view.paragraph(" · ".join(facts), "facts") + answer.banner(found.origin),
        (Section("The answer", "answer", first + view.index(below)), *below),
    )


def _box(found: Hosts) -> Blocks:
    """How far to trust each host; then what is not the same on all of them."""
    box = view.note("How far to trust it", view.bullets(hosts_sections.trusted(found)), "plain")
    if found.shared.said:
        box += view.note("Not alike", view.bullets(found.shared.said), "warning")
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


def _own(found: Hosts, place: Path) -> Blocks:
    def link(folder: Path) -> str:
        report = folder.resolve() / "report.html"
        return quote(Path(os.path.relpath(report, place.resolve())).as_posix())

    own = (Link(h.name, link(h.suite.folder), f": {h.suite.suite_id}") for h in found.hosts)
    return view.links(own)
