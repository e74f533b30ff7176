"""Create, load, query and drop a database, as in Fujimoto et al., section III D."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from contract import system_text
from contract.parameters import Parameter
from workloads import database, programs
from workloads.base import (
    QUIET_BYTES,
    Assets,
    Context,
    Needs,
    Parameters,
    Workload,
    WorkloadError,
    one_of,
    unfit,
)

DATABASE = "fde"
TABLE = "sbtest1"
MIB = 1 << 20
# Generous, for both servers: an empty database's folder with its logs, and the room of a row of
# sysbench's table and its index on partly filled pages (its columns hold 188 bytes).
EMPTY_BYTES = 256 * MIB
ROW_BYTES = 400
COLUMNS_BYTES = 188
PAGE_BYTES = 16384
SECTOR_BYTES = 512
# Statements of sysbench 1.0's transactions by script (oltp_common.lua), BEGIN and COMMIT included,
# and the number of those that read, each from a random row on.
STATEMENTS = {"read-only": 16, "read-write": 20}
READS = 14
QUERIES = ("com_select", "com_insert", "com_update", "com_delete", "com_begin", "com_commit")
MOVED = (*QUERIES, "innodb_pages_read")
# Two clients that write hardly ever meet on as many rows for each (InnoDB locks up to 8 of a
# transaction at once, with the gaps beside them).
ROWS_PER_CLIENT = 10_000
# The required share of the expected pages, because the rows read are random.
CHANCE_SHARE = 0.8
# The largest share of the buffer pool that pages may take and still be found there later.
POOL_SHARE = 0.5
LOG_BYTES = 128 << 10
_REPORT = re.compile(
    r"^\s*(queries|transactions|ignored errors|reconnects):\s+(\d+)\s", re.MULTILINE
)


class Sql(Workload):
    """Phases `create`, `load`, `query-cold`, `query-warm`, `drop`, on the disk under test.

    The server is stopped in order and started again between `load` and the queries, as by a boot:
    its data files are read past the page cache, so that only an empty buffer pool makes the
    queries of `query-cold` read from the disk. `query-warm` runs the same transactions again. They
    are those of sysbench's `script`: its read-only ones, the paper's "a few queries", or its
    read-write ones, each committed durably. Changed pages are written, and the page cache is
    emptied, before each phase but `load`. Starting and stopping the server is not measured.
    """

    name = "sql"
    summary = "a database created, loaded, queried cold and warm, and dropped"
    parameters = (
        Parameter("rows", 2000, "rows", "rows loaded into the table", minimum=1),
        Parameter("events", 50, "transactions", "transactions of each query phase", minimum=1),
        Parameter("threads", 1, "", "clients at the same time", minimum=1),
        Parameter("buffer_pool_mib", 16, "MiB", "the server's own cache", minimum=8),
        Parameter("redo_log_mib", 0, "MiB", "log of changes, 0 for the server's size", minimum=0),
        one_of("server", "any: MySQL if it is there", "any", "mariadb", "mysql"),
        one_of("script", "sysbench's transactions", "read-only", "read-write"),
    )
    small: ClassVar = {"rows": 100, "events": 3}
    program = "the database server, driven by sysbench"
    programs = ("sysbench", "cp")

    def __init__(self) -> None:
        self._server: database.Instance | None = None
        self._start: Callable[[], database.Instance] | None = None

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        kind = str(parameters["server"])
        reasons = super().requires(parameters, assets) + database.reasons(self.name, kind)
        server = (binaries := database.find(kind)) and binaries.server
        return reasons + (unfit(self.name, server.name, server) if server else [])

    def check(self, parameters: Parameters) -> None:
        rows, threads = int(parameters["rows"]), int(parameters["threads"])
        least = threads * ROWS_PER_CLIENT
        if threads > 1 and rows < least and parameters["script"] == "read-write":
            raise WorkloadError("too-few-rows", rows=rows, threads=threads, least=least)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room for data with logs, an empty database, buffer pool and server."""
        data_bytes = int(parameters["rows"]) * ROW_BYTES
        return Needs(
            disk_bytes=EMPTY_BYTES + data_bytes,
            scratch_bytes=EMPTY_BYTES,
            memory_bytes=(int(parameters["buffer_pool_mib"]) * 5 // 4 + 256) * MIB,
        )

    def prepare(self, context: Context) -> None:
        kind = str(context.parameters["server"])
        binaries = database.find(kind)
        missing = database.reasons(self.name, kind, context.disk)
        if binaries is None or missing:
            raise WorkloadError(*missing)
        data, temporary = context.disk / "data", context.disk / "tmp"
        database.provide(binaries, data, temporary, context.shared)
        self._start = partial(
            database.start,
            binaries,
            data,
            temporary,
            context.scratch / "server.log",
            buffer_pool_mib=int(context.parameters["buffer_pool_mib"]),
            redo_log_mib=int(context.parameters["redo_log_mib"]),
        )
        self._server = self._start()

    def run(self, context: Context) -> None:
        server, start = self._server, self._start
        if server is None or start is None:
            raise WorkloadError("no-server")
        rows = int(context.parameters["rows"])

        _warm_up(context, server)
        create = server.client(f"CREATE DATABASE {DATABASE}")
        work, _ = programs.measured(context, "create", create)
        work.plan(queries=1)
        work.add(queries=_databases(server))
        sysbench = _sysbench(context, server)
        work, output = programs.measured(context, "load", [*sysbench, "prepare"])
        _keep(context, "load", output)
        work.plan(rows=rows)
        work.report(rows=sum(map(int, re.findall(r"Inserting (\d+) records", output))))
        work.add(rows=int(server.execute(f"SELECT COUNT(*) FROM {DATABASE}.{TABLE}")))
        work.disk_writes(rows * COLUMNS_BYTES)
        # Otherwise the first query would analyse the table and write the result.
        server.execute(f"ANALYZE TABLE {DATABASE}.{TABLE}")

        server.shut_down()
        self._server = server = start()
        cold_bytes = _query(context, server, "query-cold")
        _query(context, server, "query-warm", cold_bytes)
        (context.kept / "server.txt").write_text(server.described())
        for reason in server.fallbacks():
            context.leave_out("the server's defaults", reason)

        _warm_up(context, server)
        drop = server.client(f"DROP DATABASE {DATABASE}")
        work, _ = programs.measured(context, "drop", drop)
        work.plan(queries=1)
        work.add(queries=1 - _databases(server))

    def cleanup(self, context: Context) -> None:
        if self._server is not None:
            self._server.stop()
            log = system_text.read(self._server.log)
            (context.kept / "server.log").write_text(log[-LOG_BYTES:])
            self._server = None


def _query(
    context: Context, server: database.Instance, phase: str, cold_bytes: int | None = None
) -> int:
    """Run the transactions as a phase; return the bytes that the server reports as read.

    `cold_bytes` is the result of the same transactions before, None for the first ones. We count
    transactions and queries with the server's counters, independently of sysbench's report.
    """
    parameters = context.parameters
    rows, events = int(parameters["rows"]), int(parameters["events"])
    script, pool_bytes = str(parameters["script"]), int(parameters["buffer_pool_mib"]) * MIB
    _warm_up(context, server)
    earlier, before = server.status(), server.status()
    work, output = programs.measured(context, phase, [*_sysbench(context, server), "run"])
    after = server.status()
    _keep(context, phase, output)
    # MySQL's client makes an additional query when it reads the counters.
    moved = {name: after[name] - 2 * before[name] + earlier[name] for name in MOVED}
    read_bytes = moved["innodb_pages_read"] * after["innodb_page_size"]
    work.plan(transactions=events, queries=events * STATEMENTS[script])
    work.report(**reported(output, phase), bytes=read_bytes)
    work.add(transactions=moved["com_commit"], queries=sum(moved[name] for name in QUERIES))
    if script == "read-only":
        work.disk_writes_nothing()
    else:  # at least one commit, separate for each client or shared by all
        work.disk_writes(SECTOR_BYTES * events / int(parameters["threads"]))
    # The server's threads may have read a few pages between its two counts, but outside the phase.
    by_itself = max(0, read_bytes - QUIET_BYTES)
    if cold_bytes is None:
        work.disk_reads(max(by_itself, touched_bytes(rows, events)))
    elif cold_bytes <= POOL_SHARE * pool_bytes and script == "read-only":
        work.disk_reads_none_of(cold_bytes)
    else:  # writing transactions also read rollback segments, different ones each time
        work.disk_reads(by_itself)
    return read_bytes


def reported(output: str, phase: str) -> dict[str, float]:
    """Return queries and transactions in sysbench's report.

    WorkloadError without a report, or if some failed and were skipped or repeated.
    """
    counts = {name.replace(" ", "_"): int(count) for name, count in _REPORT.findall(output)}
    if set(counts) != {"queries", "transactions", "ignored_errors", "reconnects"}:
        raise WorkloadError("no-sysbench-report", output=programs.last_line(output))
    disturbed = {name: counts.pop(name) for name in ("ignored_errors", "reconnects")}
    if any(disturbed.values()):
        raise WorkloadError("transactions-disturbed", phase=phase, **disturbed)
    return {name: float(count) for name, count in counts.items()}


def touched_bytes(rows: int, events: int) -> float:
    """Return the expected bytes of a table that the transactions read at least.

    Each of `READS` reads of a transaction begins at a random row of a table of P full pages: n of
    them touch P (1 - (1 - 1/P)^n) pages, here with the exponential function. Real pages are not
    full, so that the table has more.
    """
    pages = math.ceil(rows * COLUMNS_BYTES / PAGE_BYTES)
    return CHANCE_SHARE * PAGE_BYTES * pages * -math.expm1(-events * READS / pages)


def _sysbench(context: Context, server: database.Instance) -> list[str]:
    parameters = context.parameters
    # All rows are equally likely: with sysbench's default most reads go to few pages.
    return [
        *("sysbench", _script(context), "--db-driver=mysql", "--mysql-user=root"),
        *(f"--mysql-socket={server.socket_path}", f"--mysql-db={DATABASE}"),
        *("--tables=1", f"--table-size={parameters['rows']}", f"--threads={parameters['threads']}"),
        *(f"--events={parameters['events']}", "--time=0", f"--rand-seed={context.seed}"),
        "--rand-type=uniform",
    ]


def _script(context: Context) -> str:
    return f"oltp_{context.parameters['script']}".replace("-", "_")


def _databases(server: database.Instance) -> int:
    """Count the databases of our name: one or none."""
    return len(server.execute(f"SHOW DATABASES LIKE '{DATABASE}'").split())


def _keep(context: Context, phase: str, output: str) -> None:
    (context.kept / f"sysbench-{phase}.txt").write_text(output)


def _warm_up(context: Context, server: database.Instance) -> None:
    """Write changed pages and empty the page cache; load the programs, not the data."""
    server.flush()
    programs.cold_start(context, ["sysbench", _script(context), "help"])
    server.execute("SELECT 1")
