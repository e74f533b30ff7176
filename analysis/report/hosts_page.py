"""The report of several hosts: one page, hosts.csv and hosts.parquet, beside the group's file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from analysis.report import answer, build, hosts_sections, render, view, words
from analysis.report.build import Built
from analysis.report.view import Blocks, Link, Page, Section
from analysis.spreadsheet import csv_bytes
from analysis.stats.hosts import Effect, Hosts, hosts
from analysis.suite import manifest
from analysis.suite.group import is_group, members
from contract import files


def write(folders: Sequence[Path], out: Path, say: Callable[[str], None] = lambda _: None) -> Built:
    """Report of a group's folder, or of suites named one by one, whose page goes below `out`.

    `say` gets the terminal's text before the page is written.

    Every suite without an up-to-date report gets one first, for the page leads there.
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
    group = hosts(folders)
    text = render.text(hosts_sections.terminal(group))
    say(text)
    held = io.BytesIO()
    statements = table(group)
    statements.write_parquet(held)
    files.write(place / "hosts.parquet", [held.getvalue()])
    files.write(place / "hosts.csv", [csv_bytes(statements)])
    files.write(place / "report.html", [render.html(page(group, place)).encode()])
    return Built(place / "report.html", text)


def page(group: Hosts, place: Path) -> Page:
    """Return what stands on the page; links to the hosts' own reports are relative to `place`."""
    below = (
        Section("Do the hosts differ?", "differ", hosts_sections.tests(group)),
        Section("Each host's own report", "own", _links(group, place)),
        Section("Provenance", "provenance", hosts_sections.provenance(group)),
    )
    answers = view.join(view.paragraph(s, "answer") for s in hosts_sections.sentences(group))
    box = view.note("How far to trust it", view.bullets(hosts_sections.trusted(group)), "plain")
    if group.shared.remarks:
        box += view.note("Not alike", view.bullets(group.shared.remarks), "warning")
    first = view.columns(answers, hosts_sections.matrix(group), box)
    facts = [place.resolve().name, words.count(len(group.names), "host"), ", ".join(group.names)]
    return Page(
        f"Disk encryption in joules: {place.resolve().name}",
        "What disk encryption costs in joules, on several hosts",
        view.paragraph(" · ".join(facts), "facts") + answer.banner(group.origin),
        (Section("The answer", "answer", first + view.index(below)), *below),
    )


def _links(group: Hosts, place: Path) -> Blocks:
    def link(folder: Path) -> str:
        report = folder.resolve() / "report.html"
        return quote(Path(os.path.relpath(report, place.resolve())).as_posix())

    links = (Link(h.name, link(h.suite.folder), f": {h.suite.suite_id}") for h in group.hosts)
    return view.links(links)


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


def table(group: Hosts) -> pl.DataFrame:
    """hosts.parquet and hosts.csv (columns: data/README.md): a row an effect × host, and its means.

    The tests between hosts stand in the rows of `these-hosts`.
    """
    rows = [row for effect in (*group.overall, *group.single) for row in _rows(group, effect)]
    return pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")


def _rows(group: Hosts, effect: Effect) -> Iterator[tuple[object, ...]]:
    """Yield a row a host, then those of the means."""
    untested = (*(None for _ in TESTS), "")
    tests = tuple(getattr(effect, name) for name in (*TESTS, "hosts"))
    what = effect.workload, effect.base, effect.other, group.component
    of_hosts = [
        (effect.by_host.get(h.name), (HOST, h.name, h.suite.suite_id), untested, h.results.origin)
        for h in group.hosts
    ]
    of_all = [
        (effect.these, (THESE, "", ""), tests, group.origin),
        (effect.general, (GENERAL, "", ""), untested, group.origin),
    ]
    for c, statement, tested, origin in (*of_hosts, *of_all):
        if c is not None:
            figures = (c.n, *c.columns.values(), c.verdict)
            yield (*what, *statement, *figures, *tested, origin)
