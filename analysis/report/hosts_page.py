"""The report of several hosts: one page, hosts.csv and hosts.parquet, beside the group's file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl

from analysis.report import answer, build, hosts_sections, render, view, words
from analysis.report.build import Built
from analysis.report.figures import forest
from analysis.report.view import Blocks, Link, Page, Section
from analysis.spreadsheet import csv_bytes
from analysis.stats.comparison import Comparison
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


def write(folders: Sequence[Path], out: Path, say: Callable[[str], None] = lambda _: None) -> Built:
    """Report of a group's folder, or of suites named one by one, whose page goes below `out`.

    `say` gets the terminal's text before the page is written.

    Every suite without an up-to-date report of its own gets one first, for the page leads there.
    Raises SuiteError or OSError.
    """
    place = folders[0]
    if len(folders) == 1 and is_group(place):
        folders = members(place)
    else:
        paths = [folder.resolve() for folder in folders]
        others = files.short_digest(str(path) for path in paths[1:])
        place = out / f"{paths[0].name}-and-{len(paths) - 1}-more-{others}"
        place.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        if not manifest.current(folder / "report.html"):
            build.build(folder)
    found = hosts(folders)
    text = render.text(hosts_sections.terminal(found))
    say(text)
    held = io.BytesIO()
    statements = table(found)
    statements.write_parquet(held)
    files.write(place / "hosts.parquet", [held.getvalue()])
    files.write(place / "hosts.csv", [csv_bytes(statements)])
    files.write(place / "report.html", [render.html(page(found, place)).encode()])
    return Built(place / "report.html", text)


def page(found: Hosts, place: Path) -> Page:
    """What stands on the page; links to the hosts' own reports are relative to `place`."""
    seen = {
        name: there
        for name, of in hosts_sections.by_heading(found).items()
        if (there := [effect for effect in of if effect.by_host])
    }
    pictures = view.join(
        view.picture(drawn, FIGURE, found.origin, wide=True)
        for drawn in forest.draw_hosts(found, seen)
    )
    below = (
        Section("Do the hosts differ?", "differ", hosts_sections.tests(found)),
        Section("Pictures", "pictures", pictures),
        Section("Each host's own report", "own", _own(found, place)),
        Section("Provenance", "provenance", hosts_sections.provenance(found)),
    )
    said = view.join(view.paragraph(s, "answer") for s in hosts_sections.sentences(found))
    box = view.note("How far to trust it", view.bullets(hosts_sections.trusted(found)), "plain")
    if found.shared.said:
        box += view.note("Not alike", view.bullets(found.shared.said), "warning")
    first = view.columns(said, hosts_sections.matrix(found), box)
    facts = [place.resolve().name, words.count(len(found.names), "host"), ", ".join(found.names)]
    return Page(
        f"Disk encryption in joules: {place.resolve().name}",
        "What disk encryption costs in joules, on several hosts",
        view.paragraph(" · ".join(facts), "facts") + answer.banner(found.origin),
        (Section("The answer", "answer", first + view.index(below)), *below),
    )


def _own(found: Hosts, place: Path) -> Blocks:
    def link(folder: Path) -> str:
        report = folder.resolve() / "report.html"
        return quote(Path(os.path.relpath(report, place.resolve())).as_posix())

    own = (Link(h.name, link(h.suite.folder), f": {h.suite.suite_id}") for h in found.hosts)
    return view.links(own)


HOST, THESE, GENERAL = "host", "these-hosts", "hosts-in-general"
TESTS = ("p_differ", "p_differ_holm", "p_alike", "p_alike_holm")  # of an effect, between hosts
SCHEMA: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("workload", "base", "configuration", "component"), pl.String()),
    **dict.fromkeys(("statement", "host", "suite_id"), pl.String()),
    "n": pl.Int64(),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), pl.Float64()),
    **dict.fromkeys(("p_adjusted", "p_equivalence_adjusted"), pl.Float64()),
    "verdict": pl.String(),
    **dict.fromkeys(TESTS, pl.Float64()),
    **dict.fromkeys(("hosts", "origin"), pl.String()),
}


def table(found: Hosts) -> pl.DataFrame:
    """hosts.parquet and hosts.csv (columns: data/README.md): a row an effect × host, and its means.

    The tests between hosts stand in the rows of `these-hosts`.
    """
    rows = [row for effect in (*found.overall, *found.single) for row in _rows(found, effect)]
    return pl.DataFrame(rows, schema=dict(SCHEMA))


def _rows(found: Hosts, effect: Effect) -> Iterator[dict[str, Any]]:
    same = {
        "workload": effect.workload,
        "base": effect.base,
        "configuration": effect.other,
        "component": found.component,
        "host": "",
        "suite_id": "",
        "hosts": "",
        "origin": found.origin,
    }
    for host in found.hosts:
        if host.name in effect.by_host:
            own = {"host": host.name, "suite_id": host.suite.suite_id, "origin": host.found.origin}
            yield {**same, "statement": HOST, **own, **_of(effect.by_host[host.name])}
    if effect.these is not None:
        tests = {name: getattr(effect, name) for name in (*TESTS, "hosts")}
        yield {**same, "statement": THESE, **_of(effect.these), **tests}
    if effect.general is not None:
        yield {**same, "statement": GENERAL, **_of(effect.general)}


def _of(c: Comparison) -> dict[str, Any]:
    return {"n": c.n, **c.columns, "verdict": c.verdict}
