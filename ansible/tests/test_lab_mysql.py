"""MySQL itself beside MariaDB, under AppArmor that enforces, from provisioning to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from contract.places import MOUNT_POINT

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROFILE = "/usr/sbin/mysqld"
LOCAL = "/etc/apparmor.d/local/usr.sbin.mysqld"
WHY = (
    "import json; from workloads import database; "
    "print(json.dumps(database.reasons('sql', 'mysql')))"
)


def _refused(controller: Any) -> list[str]:
    """Why the workload does not run in the guest, as the agent there says it."""
    assert controller.lab is not None
    command = controller.AGENT.replace("python3 -m agent", f'python3 -c "{WHY}"')
    lines: list[str] = json.loads(controller.lab.ssh(command).stdout)
    return lines


def _runs(folder: Path) -> dict[tuple[str, str], tuple[dict[str, Any], Path]]:
    documents = [(json.loads(p.read_text()), p.parent) for p in folder.glob("runs/*/run.json")]
    return {(run["configuration"], run["workload"]): (run, place) for run, place in documents}


def test_both_servers_have_joules_in_one_report_while_apparmor_enforces(
    confined: Any, tmp_path: Path
) -> None:
    lab = confined.lab
    assert lab is not None
    enforced = lab.ssh("cat /sys/kernel/security/apparmor/profiles").stdout.splitlines()
    assert f"{PROFILE} (enforce)" in enforced
    done = confined.play("site.yml")
    assert done.returncode == 0, "site.yml failed; its output stands above"
    rule = f"{MOUNT_POINT}/** rwk,  # fde-testbed"
    assert lab.ssh(f"cat {LOCAL}").stdout.splitlines() == [rule]
    assert _refused(confined) == []

    place = ["--target", str(confined.target), "--inventory", confined.inventory]
    run = ["run", "--suite", "databases", "--out", str(tmp_path), *place]
    assert confined.python("controller", *run).returncode == 0, "the suite failed; see above"
    (folder,) = tmp_path.iterdir()
    assert confined.python("controller", "report", str(folder)).returncode == 0

    energy = pl.read_parquet(folder / "energy.parquet").filter(pl.col("phase") == "all")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for configuration in ("plain", "dmcrypt-aes256"):
        for server in ("mariadb", "mysql"):
            document, runs = _runs(folder)[configuration, f"sql-{server}"]
            assert document["status"] == "finished", document["void_reason"]
            log = (runs / "kept" / "server.txt").read_text()
            assert ("MariaDB" in log) == (server == "mariadb")
            assert (f"AppArmor: {PROFILE} (enforce)" in log) == (server == "mysql")
            joules = energy.filter(configuration=configuration, workload=f"sql-{server}")
            assert set(joules["component"]) >= {"system", "drive", "package-0", "dram"}
            assert joules["energy_j"].min() > 0
            assert f"SQL ({server})" in page

    # Where the profile that is loaded does not allow the data, the workload says so.
    reload = "apparmor_parser --replace /etc/apparmor.d/usr.sbin.mysqld"
    lab.ssh(f"cp {LOCAL} /root/rule; : > {LOCAL}; {reload}")
    (sentence,) = _refused(confined)
    assert f"while AppArmor confines {PROFILE}: provision the target again" in sentence
    lab.ssh(f"cp /root/rule {LOCAL}; {reload}")

    done = confined.play("teardown.yml", fde_keep=False)
    assert done.returncode == 0, "teardown.yml failed; its output stands above"
    assert lab.ssh(f"cat {LOCAL}").stdout == ""
    denied = lab.ssh("cat /sys/kernel/security/apparmor/profiles").stdout.splitlines()
    assert f"{PROFILE} (enforce)" in denied
