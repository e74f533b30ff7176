"""MySQL itself next to MariaDB, from provisioning to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def _runs(folder: Path) -> dict[tuple[str, str], tuple[dict[str, Any], Path]]:
    documents = [(json.loads(p.read_text()), p.parent) for p in folder.glob("runs/*/run.json")]
    return {(run["configuration"], run["workload"]): (run, place) for run, place in documents}


def test_both_servers_have_joules_in_one_report(with_mysql: Any, tmp_path: Path) -> None:
    result = with_mysql.play("site.yml")
    assert result.returncode == 0, "site.yml failed; its output stands above"
    place = ["--target", str(with_mysql.target), "--inventory", with_mysql.inventory]
    run = ["run", "--suite", "databases", "--out", str(tmp_path), *place]
    assert with_mysql.python("controller", *run).returncode == 0, "the suite failed; see above"
    (folder,) = tmp_path.iterdir()
    assert with_mysql.python("controller", "report", str(folder)).returncode == 0

    energy = pl.read_parquet(folder / "energy.parquet").filter(pl.col("phase") == "all")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for configuration in ("plain", "dmcrypt-aes256"):
        for server in ("mariadb", "mysql"):
            document, runs = _runs(folder)[configuration, f"sql-{server}"]
            assert document["status"] == "finished", document["void_reason"]
            log = (runs / "kept" / "server.txt").read_text()
            assert ("MariaDB" in log) == (server == "mariadb")
            joules = energy.filter(configuration=configuration, workload=f"sql-{server}")
            assert set(joules["component"]) >= {"system", "drive", "package-0", "dram"}
            assert joules["energy_j"].min() > 0
            assert f"SQL ({server})" in page
