"""The report of a group: a line for each host, from the host's own report."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl

from analysis.report import answer, build, render, view, words
from analysis.report.build import Built
from analysis.report.view import Blocks, Link, Page
from analysis.spreadsheet import csv_bytes
from analysis.stats.results import Results, results
from analysis.suite import manifest
from analysis.suite.group import members
from analysis.suite.records import worst_origin
from contract import files


def write(place: Path, say: Callable[[str], None] = lambda _: None) -> Built:
    """Write report.html and hosts.csv to a group's folder.

    `say` gets the terminal's text before the page is written. The page links to the suites'
    reports, so that outdated ones are built first. Raises SuiteError or OSError.
    """
    folders = members(place)
    for folder in folders:
        if not manifest.is_current(folder / "report.html"):
            build.build(folder)
    hosts = [results(folder) for folder in folders]
    text = render.text(_facts(hosts, place) + table(hosts))
    say(text)
    summaries = pl.concat([host.summary for host in hosts])
    files.write(place / "hosts.csv", [csv_bytes(summaries)])
    files.write(place / "report.html", [render.html(page(hosts, place)).encode()])
    return Built(place / "report.html", text)


def page(hosts: Sequence[Results], place: Path) -> Page:
    """Return the page; its links to the hosts' reports are relative to `place`."""

    def link(folder: Path) -> str:
        report = folder.resolve() / "report.html"
        return quote(Path(os.path.relpath(report, place.resolve())).as_posix())

    reports = view.links(
        Link(h.suite.host, link(h.suite.folder), f": {h.suite.suite_id}") for h in hosts
    )
    return Page(
        f"Disk encryption in joules: {place.resolve().name}",
        "What disk encryption costs in joules, by host",
        _facts(hosts, place),
        table(hosts) + view.key("hosts") + reports,
        (),
        _origin(hosts),
    )


def _facts(hosts: Sequence[Results], place: Path) -> Blocks:
    text = f"{place.resolve().name} · {words.count(len(hosts), 'host')}"
    return (view.Facts(text, answer.mark(_origin(hosts))),)


def table(hosts: Sequence[Results]) -> Blocks:
    """Return each host's changes over all workloads, as in its own report."""
    labels = {
        name: host.suite.label(name)
        for host in hosts
        for name in host.suite.configurations
        if name != host.suite.baseline
    }
    rows = [
        [host.suite.host, *(_change(host, name) for name in labels), host.suite.blocks_done]
        for host in hosts
    ]
    caption = "System energy over all workloads, against the disk without encryption"
    return view.table(caption, ("Host", *labels.values(), "Complete"), rows)


def _change(host: Results, name: str) -> str:
    contrast = answer.contrast_of(host, host.suite.base_of(name), name)
    c = contrast.comparison if contrast else None
    if c is None:
        return words.NOTHING
    return f"{words.change_in(c)} {words.sign(c)}".rstrip()


def _origin(hosts: Sequence[Results]) -> str:
    return worst_origin(host.origin for host in hosts)
