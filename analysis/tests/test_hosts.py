"""A group of hosts: their page has a line each from their own reports."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pytest

from analysis.report import answer, build, hosts_page, words
from analysis.report.view import Table
from analysis.stats.results import Results, mark, results, write
from analysis.suite.group import members
from analysis.suite.records import SuiteError
from analysis.tests.known import known
from analysis.tests.pages import Shared, pieces, without_own
from controller.tests.command import Fde
from validation.synthetic.suite import Options, write_group

OPTIONS = Options(blocks=5, interval_ms=100, workloads=("kernel_grep", "sql", "idle"), noise=0.002)


@pytest.fixture(scope="module")
def folder(shared: Shared) -> Path:
    """Two hosts, on the second of which software costs more."""
    dearer = {"alder": 1.0, "birch": 1.6}
    return Path(shared("other-hosts", lambda root: write_group(root, dearer, OPTIONS))[1])


@pytest.fixture(scope="module")
def hosts(folder: Path) -> list[Results]:
    return [results(member) for member in members(folder)]


def test_each_host_has_a_line_with_the_figures_of_its_own_report(hosts: list[Results]) -> None:
    (table,) = pieces(Table, hosts_page.table(hosts))
    assert [row[0] for row in table.rows] == ["alder", "birch"]
    assert table.headers[1:-1] == tuple(
        hosts[0].suite.label(name) for name in ("opal", "dmcrypt-aes128", "dmcrypt-aes256")
    )
    for host, row in zip(hosts, table.rows, strict=True):
        for name, cell in zip(host.suite.configurations[1:], row[1:-1], strict=True):
            c = known(known(answer.against_baseline(host, name)).comparison)
            assert cell == f"{words.change_in(c)} {words.sign(c.verdict, c.ratio, c.both)}"
        assert row[-1] == "5 of 5 blocks"


def test_a_configuration_that_one_host_lacks_leaves_its_cell_empty(hosts: list[Results]) -> None:
    plan = hosts[1].suite.plan
    fewer = tuple(entry for entry in plan.configurations if entry.name != "opal")
    declared = replace(plan.analysis, contrasts=())
    suite = replace(hosts[1].suite, plan=replace(plan, configurations=fewer, analysis=declared))
    lacking = Results(suite, hosts[1].clock, hosts[1].all_energy, ())
    (table,) = pieces(Table, hosts_page.table([hosts[0], lacking]))
    assert [row[1] == words.NOTHING for row in table.rows] == [False, True]


def stub(folder: Path) -> None:
    """Write a host's own report without its page."""
    derived = results(folder)
    write(derived)
    (folder / "report.html").write_text("its own", encoding="utf-8")
    mark(derived, "report.html")


def test_the_command_writes_one_page_that_leads_to_the_hosts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    shutil.copytree(folder.parent, tmp_path / "hosts")
    group = tmp_path / "hosts" / folder.name
    monkeypatch.setattr(build, "build", stub)
    stdout = fde("report", group).out
    assert "MODELLED" in stdout and "alder" in stdout and "birch" in stdout
    page = without_own((group / "report.html").read_text(encoding="utf-8"))
    for word in ("NaN", "None", ">nan", "<script", "http://", "https://"):
        assert word not in re.sub(r'src="data:[^"]*"', "", page), word
    links = [unquote(link) for link in re.findall(r'href="(\.\.[^"]*)"', page)]
    assert len(links) == 2
    assert all((group / link).is_file() for link in links)
    rows = pl.read_csv(group / "hosts.csv")
    assert set(rows["host"]) == {"alder", "birch"}
    assert rows.height == sum(results(member).summary.height for member in members(group))
    before = {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    fde("report", group)
    assert before == {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    foreign = members(group)[0] / "report.html"
    foreign.write_text("<script>of a stranger</script>", encoding="utf-8")
    fde("report", group)
    assert foreign.read_text(encoding="utf-8") == "its own"
    stdout = fde("verify", group).out
    assert all(f"{path.name}:\n" in stdout for path in members(group))


def test_a_group_that_is_damaged_is_refused(tmp_path: Path) -> None:
    none = '{"format": "fde-group/1", "suites": []}'
    for text in ("{", '{"format": "fde-group/2", "suites": ["a"]}', "[]", none):
        (tmp_path / "group.json").write_text(text, encoding="utf-8")
        with pytest.raises(SuiteError, match=r"group.json"):
            members(tmp_path)
