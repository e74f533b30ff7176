"""Two guests as the hosts of one suite, each with its own drives, secrets and meter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.suite.group import members

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HOSTS = ("first", "second")
CONFIGURATIONS = ("plain", "dmcrypt-aes128")
WORKLOADS = {"file_io", "kernel_tree", "kernel_grep", "sql", "video", "idle"}


@pytest.fixture(scope="module")
def folder(two_hosts: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the group's folder, after its suites have run and have been reported."""
    out = tmp_path_factory.mktemp("suites")
    sizes = ("--suite", "micro", "--blocks", "2", "--out", str(out))
    place = ("--inventory", two_hosts.inventory, "--configurations", ",".join(CONFIGURATIONS))
    result = two_hosts.python("controller", "run", *sizes, *place)
    assert result.returncode == 0, "the suite failed; see its output above"
    (group_folder,) = (path.parent for path in out.glob("*/group.json"))
    result = two_hosts.python("controller", "report", str(group_folder))
    assert result.returncode == 0, "the report failed; see its output above"
    return group_folder


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def test_every_host_finished_its_runs_in_the_same_order(folder: Path) -> None:
    plans = [read(suite / "plan.json") for suite in members(folder)]
    assert [plan["host"] for plan in plans] == list(HOSTS)
    assert plans[0]["runs"] == plans[1]["runs"]
    for suite in members(folder):
        runs = [read(path) for path in suite.glob("runs/*/run.json")]
        assert len(runs) == len(plans[0]["runs"])
        for run in runs:
            assert run["status"] == "finished", (run["run_id"], run["void_reason"])
            assert run["proof"]["ok"]


def test_the_hosts_are_two_machines_measured_at_once_each_by_its_own_meter(folder: Path) -> None:
    suites = members(folder)
    for key in ("machine_id", "boot_id"):
        assert len({read(suite / "identity.json")[key] for suite in suites}) == 2
    ports = [Path(read(suite / "meters/meter0/meter.json")["port"]) for suite in suites]
    assert [port.parent.name for port in ports] == list(HOSTS)
    links = [(suite / "clock.jsonl").read_text(encoding="utf-8").splitlines() for suite in suites]
    assert max(json.loads(lines[0])["t_send_ns"] for lines in links) < min(
        json.loads(lines[-1])["t_receive_ns"] for lines in links
    )
    for suite in suites:
        energy = pl.read_parquet(suite / "energy.parquet").filter(source="meter0", phase="all")
        for configuration in CONFIGURATIONS:
            mine = energy.filter(configuration=configuration)
            assert set(mine["workload"]) >= WORKLOADS
            assert mine["energy_j"].min() > 0
            assert mine["coverage"].min() > 0.9


def test_the_report_has_a_line_for_each_host(folder: Path) -> None:
    rows = pl.read_csv(folder / "hosts.csv").filter(component="system")
    for workload in WORKLOADS:
        assert set(rows.filter(workload=workload)["host"]) == set(HOSTS)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "2 hosts" in page and "Modelled" in page
    for suite in members(folder):
        assert f"../{suite.name}/report.html" in page


def test_what_both_hosts_have_measured_is_verified(two_hosts: Any, folder: Path) -> None:
    result = two_hosts.python("controller", "verify", str(folder))
    assert result.returncode == 0
    assert result.stdout.count("have the sums of their seal") == 2
