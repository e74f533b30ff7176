"""Several hosts: their statistics against independent ones, groups of known effects, the page."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind

from analysis.report import build, hosts_page, hosts_sections
from analysis.report.hosts_page import table
from analysis.stats import host_effects as factor
from analysis.stats.comparison import LogRatio, of_mean
from analysis.stats.hosts import Effect, Hosts, hosts
from analysis.stats.results import mark, results, write
from analysis.stats.stats import Floats
from analysis.suite.group import members
from analysis.suite.records import SuiteError
from analysis.tests.known import known
from analysis.tests.pages import Shared, change_plan, text_of, without_own
from contract.tests.refusal import Refusal, refuses
from controller.tests.command import Fde
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_group, write_suite

OPTIONS = Options(blocks=5, interval_ms=100, workloads=("kernel_grep", "sql", "idle"), noise=0.002)


def logs(seed: int, *shapes: tuple[float, float, int]) -> list[Floats]:
    """Of each (mean, deviation, blocks) a host."""
    generator = np.random.default_rng(seed)
    return [generator.normal(mean, sd, n) for mean, sd, n in shapes]


def test_a_mean_of_two_hosts_is_welchs() -> None:
    first, other = logs(1, (0.1, 0.004, 5), (0.3, 0.02, 9))
    effect = factor.these_hosts([first, other])
    wanted = stats.ttest_ind(first, -other, equal_var=False)
    assert float(effect.df) == pytest.approx(wanted.df)
    limits = wanted.confidence_interval(0.95)
    assert [2 * float(x) for x in effect.interval()] == pytest.approx([limits.low, limits.high])
    assert float(effect.p_value()) == pytest.approx(wanted.pvalue)


def test_one_host_and_hosts_in_general_are_students() -> None:
    (first,) = logs(2, (0.01, 0.02, 7))
    effect, wanted = LogRatio.of(first), stats.ttest_1samp(first, 0.0)
    limits = wanted.confidence_interval(0.95)
    assert [float(x) for x in effect.interval()] == pytest.approx([limits.low, limits.high])
    assert float(effect.p_value()) == pytest.approx(wanted.pvalue)


def test_hosts_weigh_the_same_whatever_their_blocks() -> None:
    few, many = np.array([0.1, 0.2]), np.full(50, 0.5) + np.tile([0.01, -0.01], 25)
    assert float(factor.these_hosts([few, many]).mean) == pytest.approx((0.15 + 0.5) / 2)


def test_a_mean_of_hosts_follows_their_skewness() -> None:
    skewed = np.log(1 + np.array([0.0, 0.001, 0.0, 0.002, 0.001, 0.0, 0.001, 0.15]))
    alone, mean = LogRatio.of(skewed), factor.these_hosts([skewed])
    assert float(alone.skewness) > 0
    assert np.allclose(mean.interval(), alone.interval(), rtol=1e-12)
    # Of two such hosts it is 1/√2 as skewed; against each other it cancels.
    both = factor.these_hosts([skewed, skewed])
    assert float(both._curve) == pytest.approx(float(alone._curve) / math.sqrt(2))
    assert float(factor.combined([alone, alone], [1.0, -1.0])._curve) == pytest.approx(0)
    c = of_mean(both, 8, 0.02)
    assert known(c.high) == pytest.approx(math.exp(float(both.interval()[1])))


def test_whether_hosts_differ_is_welchs_test() -> None:
    """Of two hosts the t test's p-value; of three Welch's own formula (1951)."""
    first, other, third = logs(3, (0.0, 0.01, 5), (0.02, 0.03, 8), (0.01, 0.002, 6))
    pair = float(factor.p_differ([first, other]))
    assert pair == pytest.approx(stats.ttest_ind(first, other, equal_var=False).pvalue)
    groups = [first, other, third]
    weights = np.array([len(g) / np.var(g, ddof=1) for g in groups])
    means = np.array([np.mean(g) for g in groups])
    common = np.sum(weights * means) / np.sum(weights)
    loss = np.sum((1 - weights / np.sum(weights)) ** 2 / (np.array([5, 8, 6]) - 1))
    f = np.sum(weights * (means - common) ** 2) / 2 / (1 + 2 * (3 - 2) / (3**2 - 1) * loss)
    wanted = stats.f.sf(f, 2, (3**2 - 1) / (3 * loss))
    assert float(factor.p_differ(groups)) == pytest.approx(wanted)


def test_alike_is_the_worst_pair_of_an_independent_tost() -> None:
    groups = logs(4, (0.0, 0.004, 6), (0.005, 0.006, 8), (-0.003, 0.002, 7))
    limit = math.log1p(0.02)
    wanted = max(
        ttost_ind(a, b, -limit, limit, usevar="unequal")[0]
        for a, b in ((groups[0], groups[1]), (groups[0], groups[2]), (groups[1], groups[2]))
    )
    assert float(factor.p_alike(groups, 0.02)) == pytest.approx(wanted)


def test_arrays_of_lots_are_as_each_lot_alone() -> None:
    generator = np.random.default_rng(5)
    lots = [generator.normal(0, sd, (4, n)) for sd, n in ((0.01, 5), (0.02, 6), (0.01, 7))]
    of_lots = factor.these_hosts(lots), factor.p_differ(lots), factor.p_alike(lots, 0.02)
    for k in range(4):
        alone = [host[k] for host in lots]
        assert float(of_lots[0].df[k]) == pytest.approx(float(factor.these_hosts(alone).df))
        assert of_lots[1][k] == pytest.approx(float(factor.p_differ(alone)))
        assert of_lots[2][k] == pytest.approx(float(factor.p_alike(alone, 0.02)))


def test_hosts_without_scatter_have_no_test_and_no_warning() -> None:
    still = [np.full(4, 0.1), np.full(4, 0.2)]
    assert np.isnan(float(factor.p_differ(still)))
    assert float(factor.these_hosts(still).error) == 0
    assert [float(x) for x in factor.these_hosts(still).interval()] == pytest.approx([0.15, 0.15])
    assert factor.alike(None, 1.0) == "inconclusive"


@pytest.fixture(scope="module")
def same_folders(shared: Shared) -> list[Path]:
    """Three hosts with the same effects."""
    dearer = {"alder": 1.0, "birch": 1.0, "cedar": 1.0}
    return members(shared("same-hosts", lambda root: write_group(root, dearer, OPTIONS))[1])


@pytest.fixture(scope="module")
def same(same_folders: list[Path]) -> Hosts:
    return hosts(same_folders)


@pytest.fixture(scope="module")
def other_folder(shared: Shared) -> Path:
    """Two hosts, on the second of which software costs more."""
    dearer = {"alder": 1.0, "birch": 1.6}
    return Path(shared("other-hosts", lambda root: write_group(root, dearer, OPTIONS))[1])


@pytest.fixture(scope="module")
def other(other_folder: Path) -> Hosts:
    return hosts(members(other_folder))


def effects(compared: Hosts) -> dict[tuple[str, str], Effect]:
    return {
        (e.workload, e.other): e for e in (*compared.overall, *compared.single) if e.base == "plain"
    }


def test_equal_hosts_are_alike_and_their_mean_is_the_truth(same: Hosts) -> None:
    assert same.names == ["alder", "birch", "cedar"]
    assert same.component == "system"
    for key, effect in effects(same).items():
        assert effect.hosts != "differ", key
        assert effect.these is not None and effect.general is not None
        assert effect.general.n == 3 and effect.these.n == 5
    mean = effects(same)["all", "dmcrypt-aes256"]
    assert mean.hosts == "alike"
    assert mean.these is not None and mean.these.verdict == "differs"
    assert not same.shared.remarks


def test_hosts_that_differ_are_told_apart_and_not_where_they_do_not(other: Hosts) -> None:
    by_pair = effects(other)
    assert by_pair["all", "dmcrypt-aes256"].hosts == "differ"
    assert by_pair["kernel_grep", "dmcrypt-aes128"].hosts == "differ"
    assert by_pair["all", "opal"].hosts == "alike"
    assert by_pair["idle", "dmcrypt-aes256"].hosts != "differ"
    assert all(effect.general is None for effect in by_pair.values())  # two hosts


def test_each_hosts_own_figures_are_those_of_its_own_report(other: Hosts) -> None:
    for host in other.hosts:
        derived, name = results(host.suite.folder), host.name
        for contrast in derived.contrasts:
            mine = next(
                e for e in other.overall if (e.base, e.other) == (contrast.base, contrast.other)
            ).by_host[name]
            assert mine.ratio == pytest.approx(known(contrast.comparison).ratio, rel=1e-12)
            # The host's own report adds what of the meter's own error does not cancel.
            assert mine.low == pytest.approx(known(contrast.comparison).low, rel=1e-5)
        for row in derived.summary.filter(component="system").iter_rows(named=True):
            if row["ratio"] is not None:
                cell = effects(other)[row["workload"], row["configuration"]].by_host[name]
                assert cell.ratio == pytest.approx(row["ratio"])
                # Skewed blocks widen the intervals of the host's own report alone.
                if cell.low == pytest.approx(row["ratio_low"], rel=1e-5):
                    assert cell.verdict == row["verdict"]


def test_the_answer_never_pools_hosts_that_differ(other: Hosts, same: Hosts) -> None:
    drive, software, general = hosts_sections.sentences(other)
    assert "alike within ±2 %" in drive
    assert "on alder" in software and "on birch" in software
    assert (
        "the hosts differ significantly; their mean" in software and "is no host's own" in software
    )
    assert "is unknown from 2" in general and "alder and birch alone" in general
    drive, software, general = hosts_sections.sentences(same)
    assert "On these 3 hosts" in software and "differ significantly" not in software
    assert "3 were chosen at random" in general and "the host is the unit" in general


def stub(folder: Path) -> None:
    """Write a host's own report without its page."""
    derived = results(folder)
    write(derived)
    (folder / "report.html").write_text("its own", encoding="utf-8")
    mark(derived, "report.html")


def test_the_command_writes_one_page_that_leads_to_the_hosts(
    other: Hosts,
    other_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fde: Fde,
) -> None:
    shutil.copytree(other_folder.parent, tmp_path / "hosts")
    group = tmp_path / "hosts" / other_folder.name
    monkeypatch.setattr(build, "build", stub)
    stdout = fde("report", group).out
    assert "MODELLED" in stdout and "these hosts" in stdout
    page = without_own((group / "report.html").read_text(encoding="utf-8"))
    for word in ("NaN", "None", ">nan", "<script", "http://", "https://"):
        assert word not in re.sub(r'src="data:[^"]*"', "", page), word
    for word in ("AMD Ryzen 5 3600", "ExampleMaker A100 sed", "modelled", "Welch", "drift check"):
        assert word in page, word
    links = [unquote(link) for link in re.findall(r'href="(\.\.[^"]*)"', page)]
    assert len(links) == 2
    assert all((group / link).is_file() for link in links)
    rows = pl.read_parquet(group / "hosts.parquet")
    assert rows.equals(table(other))
    assert pl.read_csv(group / "hosts.csv").height == rows.height
    before = {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    fde("report", group)
    assert before == {path: (path / "report.html").stat().st_mtime_ns for path in members(group)}
    foreign = members(group)[0] / "report.html"
    foreign.write_text("<script>of a stranger</script>", encoding="utf-8")
    fde("report", group)
    assert foreign.read_text(encoding="utf-8") == "its own"
    stdout = fde("verify", group).out
    assert all(f"{path.name}:\n" in stdout for path in members(group))


def test_suites_named_one_by_one_have_a_page_below_build(
    same_folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "build", lambda _: None)
    built = hosts_page.write(same_folders[:2], tmp_path)
    name = built.page.parent.name
    assert name.startswith("synthetic-alder-20260101T000000Z-and-1-more-")
    assert "is unknown from 2" in built.text


def test_every_statement_has_its_row(same: Hosts) -> None:
    rows = table(same)
    statements = rows.filter(workload="sql", configuration="opal")
    assert statements["statement"].to_list() == [*["host"] * 3, "these-hosts", "hosts-in-general"]
    assert statements["host"].to_list() == ["alder", "birch", "cedar", "", ""]
    assert statements["p_differ_holm"].is_not_null().to_list() == [False] * 3 + [True, False]
    assert statements["n"].to_list() == [5, 5, 5, 5, 3]


@pytest.fixture
def pair(shared: Shared, tmp_path: Path) -> list[Path]:
    """Two small hosts that a test may spoil."""
    small = replace(OPTIONS, blocks=2, configurations=("plain", "opal"))
    dearer = {"alder": 1.0, "birch": 1.0}
    folder, group = shared("pair", lambda root: write_group(root, dearer, small))
    shutil.copytree(folder, tmp_path / "pair")
    return members(tmp_path / "pair" / group.name)


def plan_of(folder: Path) -> dict[str, list[dict[str, object]]]:
    plan: dict[str, list[dict[str, object]]] = json.loads(
        (folder / "plan.json").read_text(encoding="utf-8")
    )
    return plan


def test_other_parameters_and_stacks_are_left_out_and_said(pair: list[Path]) -> None:
    plan = plan_of(pair[1])
    plan["workloads"][1]["parameters"] = {"rows": 5}
    change_plan(pair[1], **{**plan, "settle_s": 9})
    group = hosts(pair)
    assert group.shared.workloads == ("kernel_grep", "idle")
    assert "Workload sql is left out: it is not the same on every host." in group.shared.remarks
    assert any(
        "rest before a run (alder 0.5, birch 9)" in remark for remark in group.shared.remarks
    )
    assert {e.workload for e in group.single} == {"kernel_grep", "idle"}
    assert "over 1 of 2 workloads" in hosts_sections.sentences(group)[0]


def test_the_drift_check_is_not_told_to_be_left_out(pair: list[Path]) -> None:
    for folder in pair:
        drift_check = {"name": "drift_check", "parameters": {"seconds": 1}}
        change_plan(folder, workloads=[*plan_of(folder)["workloads"], drift_check])
    assert hosts(pair).shared.remarks == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"origin": "measured"}, refuses("hosts-differ", difference="what their figures are")),
        (
            {"analysis": {"margin": 0.05}},
            refuses("hosts-differ", values_by_host="alder 0.02, birch 0.05"),
        ),
        ({"host": "alder"}, refuses("same-host", host="alder")),
        (
            {
                "configurations": [
                    {"name": "bare", "kind": "plain", "disk": "plain", "encrypted_by": "none"}
                ]
            },
            refuses("hosts-differ", values_by_host="alder plain, birch bare"),
        ),
        (
            {"workloads": [{"name": "sql", "parameters": {"rows": 1}}]},
            refuses("nothing-same", kind="workload"),
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    pair: list[Path], changes: dict[str, object], words: Refusal
) -> None:
    change_plan(pair[1], **changes)
    with words:
        hosts(pair)


def identify(folder: Path, machine_id: str, boot_id: str) -> None:
    identity = {"format": "fde-identity/1", "machine_id": machine_id, "boot_id": boot_id}
    (folder / "identity.json").write_text(json.dumps(identity), encoding="utf-8")


def test_a_machine_under_two_names_is_refused_and_one_image_is_said(pair: list[Path]) -> None:
    for folder in pair:
        identify(folder, "aa", "x")
    with refuses("same-machine", host="alder", other="birch"):
        hosts(pair)
    identify(pair[0], "aa", "y")
    assert any("have the same machine-id" in remark for remark in hosts(pair).shared.remarks)
    identify(pair[0], "bb", "y")
    assert not hosts(pair).shared.remarks


def test_a_host_without_a_figure_leaves_no_mean(pair: list[Path]) -> None:
    for path in (pair[1] / "runs").glob("*-opal-sql"):
        (path / "run.json").unlink()
    write_manifest(pair[1])
    group = hosts(pair)
    cell = effects(group)["sql", "opal"]
    assert cell.these is None and cell.lacking == ("birch",) and list(cell.by_host) == ["alder"]
    effect = effects(group)["all", "opal"]  # rests on what every host has, and says so
    assert effect.workloads == ("kernel_grep",) and effect.these is not None
    page = text_of(hosts_page.page(group, pair[0].parent))
    assert "no figure of birch" in page and "None" not in page
    assert "alder" in text_of(hosts_sections.terminal(group))


def test_one_block_has_means_without_intervals(tmp_path: Path) -> None:
    single = replace(OPTIONS, blocks=1, configurations=("plain", "opal"))
    group = hosts(members(write_group(tmp_path, {"alder": 1, "birch": 1}, single)))
    effect = effects(group)["all", "opal"]
    assert effect.these is not None and effect.these.low is None
    assert effect.hosts == "inconclusive"
    page = text_of(hosts_page.page(group, tmp_path))
    assert not re.search(r"\bnan\b|\bNaN\b|\bNone\b", page)


def test_a_group_that_is_damaged_or_alone_is_refused(tmp_path: Path) -> None:
    none = '{"format": "fde-group/1", "suites": []}'
    for text in ("{", '{"format": "fde-group/2", "suites": ["a"]}', "[]", none):
        (tmp_path / "group.json").write_text(text, encoding="utf-8")
        with pytest.raises(SuiteError, match=r"group.json"):
            members(tmp_path)
    folder = tmp_path / "one"
    write_suite(folder, replace(OPTIONS, blocks=1, workloads=("sql",)))
    with refuses("one-host-only"):
        hosts([folder])
    with refuses("named-twice"):
        hosts([folder, folder])
