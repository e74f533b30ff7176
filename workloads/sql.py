"""Create, load, query and drop a database, as in Fujimoto et al., section III D."""

from __future__ import annotations

import re
from typing import ClassVar

from contract.parameters import Parameter
from workloads import database, programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError, one_of

DATABASE = "fde"
MIB = 1 << 20
# Generous, for both servers: an empty database's folder with its logs, and what a row of sysbench's
# table and its index take on pages that are partly filled (its columns hold 188 bytes).
EMPTY_BYTES = 256 * MIB
ROW_BYTES = 400


class Sql(Workload):
    """Phases `create`, `load`, `query`, `drop`, on a server with its data on the disk under test.

    Initialising and starting the server is not measured, nor is stopping it. The queries are those
    of sysbench's `script`: its read-write transactions, which are committed durably, or its
    read-only ones, the paper's "a few queries". The page cache is emptied
    before `create` and `query`; `load` and `drop` continue with what their forerunner left.
    """

    name = "sql"
    summary = "a database created, loaded, queried and dropped"
    parameters = (
        Parameter("rows", 2000, "rows", "rows loaded into the table", minimum=1),
        Parameter("events", 50, "transactions", "transactions of the query phase", minimum=1),
        Parameter("threads", 1, "", "clients at the same time", minimum=1),
        Parameter("buffer_pool_mib", 16, "MiB", "the server's own cache", minimum=8),
        Parameter(
            "redo_log_mib", 0, "MiB", "the server's log of changes, 0 for its own size", minimum=0
        ),
        one_of("server", "any: MySQL if it is there", "any", "mariadb", "mysql"),
        one_of("script", "sysbench's transactions", "read-write", "read-only"),
    )
    small: ClassVar = {"rows": 100, "events": 3}
    program = "the database server, driven by sysbench"
    programs = ("sysbench", "cp")

    def __init__(self) -> None:
        self._server: database.Instance | None = None

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        return super().requires(parameters, assets) + database.reasons(
            self.name, str(parameters["server"])
        )

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room for data with logs, an empty database kept aside, pool and server."""
        data_bytes = int(parameters["rows"]) * ROW_BYTES
        return Needs(
            disk_bytes=EMPTY_BYTES + data_bytes,
            scratch_bytes=EMPTY_BYTES,
            memory_bytes=(int(parameters["buffer_pool_mib"]) * 5 // 4 + 256) * MIB,
        )

    def prepare(self, context: Context) -> None:
        wanted = str(context.parameters["server"])
        binaries = database.find(wanted)
        missing = database.reasons(self.name, wanted, context.disk)
        if binaries is None or missing:
            raise WorkloadError(*missing)
        data, temporary = context.disk / "data", context.disk / "tmp"
        database.provide(binaries, data, temporary, context.shared)
        pool_mib = int(context.parameters["buffer_pool_mib"])
        log = context.scratch / "server.log"
        redo_mib = int(context.parameters["redo_log_mib"])
        self._server = database.start(
            binaries, data, temporary, log, buffer_pool_mib=pool_mib, redo_log_mib=redo_mib
        )
        (context.kept / "server.txt").write_text(database.described(self._server))

    def run(self, context: Context) -> None:
        server = self._server
        if server is None:
            raise WorkloadError("no-server")
        rows, events = int(context.parameters["rows"]), int(context.parameters["events"])
        sysbench = _sysbench(context, server)

        _warm_up(context, server)
        create = server.client(f"CREATE DATABASE {DATABASE}")
        work, _ = programs.measured(context, "create", create)
        work.add(queries=1)
        work, _ = programs.measured(context, "load", [*sysbench, "prepare"])
        work.add(rows=rows)
        _warm_up(context, server)
        work, output = programs.measured(context, "query", [*sysbench, "run"])
        work.add(**counted(output, events))
        drop = server.client(f"DROP DATABASE {DATABASE}")
        work, _ = programs.measured(context, "drop", drop)
        work.add(queries=1)

    def cleanup(self, context: Context) -> None:  # noqa: ARG002
        if self._server is not None:
            self._server.stop()
            self._server = None


def counted(output: str, events: int) -> dict[str, float]:
    """Return queries and transactions in sysbench's report.

    WorkloadError if fewer than asked for.
    """
    counts = dict(re.findall(r"^\s*(queries|transactions):\s+(\d+)\s", output, re.MULTILINE))
    if set(counts) != {"queries", "transactions"}:
        raise WorkloadError("no-sysbench-report", output=programs.last_line(output))
    if int(counts["transactions"]) < events:
        raise WorkloadError("transactions-missing", done=counts["transactions"], events=events)
    return {name: float(count) for name, count in counts.items()}


def _sysbench(context: Context, server: database.Instance) -> list[str]:
    parameters = context.parameters
    return [
        *("sysbench", _script(context), "--db-driver=mysql", "--mysql-user=root"),
        *(f"--mysql-socket={server.socket_path}", f"--mysql-db={DATABASE}"),
        *("--tables=1", f"--table-size={parameters['rows']}", f"--threads={parameters['threads']}"),
        *(f"--events={parameters['events']}", "--time=0", f"--rand-seed={context.seed}"),
    ]


def _script(context: Context) -> str:
    return f"oltp_{context.parameters['script']}".replace("-", "_")


def _warm_up(context: Context, server: database.Instance) -> None:
    programs.cold_start(context, ["sysbench", _script(context), "help"])
    server.execute("SELECT 1")
