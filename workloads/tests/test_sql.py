"""The workload `sql`: effects of changed servers and sysbench on its account."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract import account
from contract.tests.programs import program
from contract.tests.refusal import refuses
from workloads import database, registry, sql
from workloads.base import Context
from workloads.tests import contract

if TYPE_CHECKING:
    from conftest import LabHandle

REPORT = """
    queries performed:
        read:                            700
        total:                           1000
    transactions:                        50     (14.20 per sec.)
    queries:                             1000   (284.00 per sec.)
    ignored errors:                      {}      (0.00 per sec.)
    reconnects:                          {}      (0.00 per sec.)
"""
SIZES: dict[str, Any] = {"rows": 2000, "events": 60, "redo_log_mib": 16, "server": "mariadb"}


def test_sysbench_reports_are_read_and_errors_void() -> None:
    assert sql.reported(REPORT.format(0, 0), "x") == {"queries": 1000, "transactions": 50}
    for errors, reconnects in ((1936, 0), (0, 1)):
        with refuses("transactions-disturbed", ignored_errors=errors, reconnects=reconnects):
            sql.reported(REPORT.format(errors, reconnects), "x")
    for broken in ("what is this\n", REPORT.format(0, 0).replace("reconnects", "others")):
        with refuses("no-sysbench-report"):
            sql.reported(broken, "x")


def test_many_writing_clients_need_many_rows() -> None:
    crowd = {"rows": 100, "threads": 8}
    with refuses("too-few-rows", rows=100, threads=8, least=80_000):
        registry.complete("sql", {**crowd, "script": "read-write"})
    for settings in (crowd, {"rows": 5}, {**crowd, "rows": 80_000, "script": "read-write"}):
        registry.complete("sql", settings)


@pytest.mark.parametrize(("rows", "events"), [(100, 3), (2000, 60), (10_000, 1000), (60_000, 50)])
def test_touched_bytes_is_below_simulated_reads(rows: int, events: int) -> None:
    rows_a_page = 71  # of sysbench's, on a page of 16 KiB that is filled to 15/16
    for seed in range(20):
        chance = random.Random(seed)
        pages = {chance.randrange(rows) // rows_a_page for _ in range(sql.READS * events)}
        read_bytes = len(pages) * sql.PAGE_BYTES
        assert 0.5 * read_bytes < sql.touched_bytes(rows, events) < read_bytes


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Provide a folder for runs that share the empty database, where a server can be run."""
    if reasons := database.reasons("sql", "mariadb") or registry.load("sql").requires(SIZES, {}):
        pytest.skip(" ".join(reasons))
    with tempfile.TemporaryDirectory(prefix="fde-sql-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "shared").mkdir()
        yield Path(folder)


def performed(place: Path, name: str, **settings: Any) -> tuple[Context, contract.Phases]:
    context, phases = contract.new_run("sql", place / name, **{**SIZES, **settings})
    contract.perform(registry.load("sql"), replace(context, shared=place / "shared"))
    return context, phases


def differences(phases: contract.Phases) -> set[tuple[str, str, str]]:
    """Return phase, cause and unit of each difference that voids a run.

    The server's count of read bytes replaces the disk's, because others use the disk here as well.
    """
    documents = [
        replace(
            document,
            disk_bounds=work.disk_bounds,
            disk_read_bytes=int(work.reported.get("bytes", 0)),
        )
        for document, work in zip(phases.documents(), phases.works, strict=True)
    ]
    findings = [f for f in account.judge(documents) if f.severity == "blocker" and not f.ok]
    return {(f.facts["phase"], f.cause, f.facts["unit"]) for f in findings}


@pytest.mark.parametrize("script", ["read-only", "read-write"])
def test_cold_queries_read_the_table_and_the_account_of_all_phases_holds(
    place: Path, script: str
) -> None:
    context, phases = performed(place, script, script=script)
    works = dict(zip(phases.names, phases.works, strict=True))
    assert list(works) == ["create", "load", "query-cold", "query-warm", "drop"]
    assert differences(phases) == set()
    assert works["load"].amounts == {"rows": 2000}
    queries = {"transactions": 60, "queries": 60 * sql.STATEMENTS[script]}
    for name in ("query-cold", "query-warm"):
        assert works[name].amounts == works[name].planned == queries
        assert works[name].reported | queries == works[name].reported
        assert ("written_bytes" in works[name].disk_bounds) and works[name].disk_bounds[
            "written_bytes"
        ].most == (None if script == "read-write" else 256 << 10)
    assert works["query-cold"].reported["bytes"] >= sql.touched_bytes(2000, 60)
    if script == "read-only":
        assert works["query-warm"].reported["bytes"] == 0
    reports = {f"sysbench-{phase}.txt" for phase in ("load", "query-cold", "query-warm")}
    assert {path.name for path in context.kept.iterdir()} == reports | {"server.txt", "server.log"}
    described = (context.kept / "server.txt").read_text()
    assert "MariaDB" in described and "fde/sbtest1.ibd: " in described
    log = (context.kept / "server.log").read_text()
    assert log.count("ready for connections") == 2 and log.count("Normal shutdown") == 1


QUERY = [
    (f"query-{state}", unit) for state in ("cold", "warm") for unit in ("transactions", "queries")
]
EVENTS = {(phase, f"work-{how}", unit) for phase, unit in QUERY for how in ("reported", "counted")}
ROWS = {("load", f"work-{how}", "rows") for how in ("reported", "counted")}
COLD = {("query-cold", "disk-read-less", "bytes")}


def install(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program before the one of that name; `REAL` in its text is the original."""
    real = shutil.which(name) or str(database.find("mariadb").server)  # type: ignore[union-attr]
    program(folder / name, text.replace("REAL", real))
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(
    ("steps", "option", "expected"),
    [
        ("*prepare | *run", "--table-size=5", ROWS | COLD),
        ("*prepare", "--table-size=1999", ROWS),
        ("*run", "--table-size=50", COLD),
        ("*run", "--events=30", EVENTS),
        ("*run", "--events=61", EVENTS),
    ],
)
def test_a_sysbench_with_other_options_voids_the_run(
    steps: str,
    option: str,
    expected: set[tuple[str, str, str]],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = re.sub("[^a-z0-9]+", "-", steps + option)
    text = (
        f'case "$*" in {steps}) for word; do shift; '
        f'case $word in {option.partition("=")[0]}=*) word={option};; esac; set -- "$@" "$word"; '
        'done;; esac\nexec REAL "$@"'
    )
    install(place / f"bin{name}", "sysbench", text, monkeypatch)
    _, phases = performed(place, name)
    assert differences(phases) == expected


def test_a_false_sysbench_report_voids_the_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = REPORT.format(0, 0).replace(" 1000 ", " 960 ").replace(" 50 ", " 60 ")
    text = f"case \"$*\" in *' run') echo '{report}';; *) exec REAL \"$@\";; esac"
    install(place / "bin-liar", "sysbench", text, monkeypatch)
    _, phases = performed(place, "liar")
    counted = {difference for difference in EVENTS if difference[1] == "work-counted"}
    assert differences(phases) == counted | COLD


def test_a_server_with_a_loaded_pool_is_not_cold(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = "--innodb-buffer-pool-load-at-startup=ON --innodb-buffer-pool-dump-at-shutdown=ON"
    text = f'exec REAL "$@" {load} --innodb-buffer-pool-dump-pct=100'
    install(place / "bin-warm", "mariadbd", text, monkeypatch)
    _, phases = performed(place, "warm")
    assert differences(phases) == COLD


def test_a_servers_fallbacks_are_recorded_with_reasons(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "echo 'create_uring failed: falling back to libaio' >&2"
    options = "--innodb-flush-method=fsync --innodb-use-native-aio=OFF"
    install(place / "bin-back", "mariadbd", f'{says}\nexec REAL "$@" {options}', monkeypatch)
    _, phases = performed(place, "back")
    reasons = [reason for _, reason in phases.left_out]
    for word in ("falling back to libaio", "asynchronous", "page cache: sbtest1.ibd"):
        assert len([reason for reason in reasons if word in reason]) == 1, reasons


def test_ignored_errors_of_sysbench_void_the_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "ROWS_PER_CLIENT", 1)
    with refuses("transactions-disturbed", phase="query-cold"):
        performed(place, "crowd", rows=8, threads=8, events=400, script="read-write")
    assert "ignored errors" in (place / "crowd" / "kept" / "sysbench-query-cold.txt").read_text()


def test_a_server_that_does_not_stop_in_order_ends_the_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'case "$*" in *--socket*) REAL "$@"; exit 3;; *) exec REAL "$@";; esac'
    install(place / "bin-stop", "mariadbd", text, monkeypatch)
    monkeypatch.setattr(database, "STOP_LIMIT_S", 5.0)
    with refuses("server-not-stopped"):
        performed(place, "stop")
    assert contract.processes_using(place) == []


@pytest.mark.lab
@pytest.mark.parametrize("script", ["read-only", "read-write"])
def test_the_targets_disk_moves_what_the_queries_account_for(script: str, lab: LabHandle) -> None:
    code = "/var/tmp/fde-sql"
    for package in ("contract", "workloads"):
        lab.send(Path(contract.__file__).parents[2] / package, code)
    settings = shlex.quote(json.dumps({**SIZES, "script": script}))
    run = (
        f"cd {code} && python3 -m workloads.tests.contract sql --time-only --root {code}/run "
        f"--device $(basename $(findmnt -no SOURCE -T {code})) --parameters {settings}; "
        f"rm -rf {code}/run"
    )
    sound = json.loads(lab.ssh(run, check=False).stdout)
    assert sound["broken"] == sound["account"] == []
