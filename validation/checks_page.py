"""`python3 -m validation.checks_page`: print docs/checks.md, made from the tables themselves."""

from __future__ import annotations

from agent.checks import kernel_log
from agent.checks.table import TABLE, Check
from agent.system import quiet

HEAD = """\
# What is checked around every run

Made from the tables in `agent/checks` by `python3 -m validation.checks_page >docs/checks.md`.

Checks *before* are made once the workload is prepared and its data is on the disk, those *after*
when its last phase has ended; *during* compares the two moments. None runs within a phase. SMART
values read after a finished run also serve as those before the next one. Every result is kept in
`checks` of the run's `run.json`; what a machine does not offer has none. A **blocker** voids the
run, which is then repeated. With **wait** the run waits, and the journal has an entry for it; after
the time given the check counts as the severity given. Where that is a warning, the next wait is
half as long, so that waiting does not take up the suite's time.

| check | when | severity | what is checked | remedy |
|---|---|---|---|---|
"""
TEMPERATURE = """
The first temperature, the disks' firmware and their error counts are kept in
`provenance/first-readings.json` of the suite folder, so that they are valid after a reboot as well.
"""
QUIET = """
## What is switched off while a suite runs

Of these groups, those that the inventory allows by `fde_stop` (timers, updates and disks by
default). `fde check` and `fde run` name what is active, also of the others.

| group | what |
|---|---|
{groups}

Left alone: timers named {kept}, and transient units. Indexers are services of the users' own
systemd. With `desktop` the sessions end of who is logged in there, and what is not saved is lost.
What was stopped is recorded in `/run`, is started again when the suite ends, however it does
(`python3 -m agent quiet back` does it by hand), and is back after a boot. Governor and
turbo (`fde_governor`, `fde_turbo`) are set by cpupower, recorded and restored likewise.
"""
LISTS = """
## The kernel's log

Lines of level warning and worse count. Those that match one of these void the run:

{grave}

These are known to be harmless; every other line is a warning:

{allowed}
"""


def document() -> str:
    """Return the text of docs/checks.md."""
    rows = "".join(
        f"| `{c.name}` | {c.when} | {_severity(c)} | {c.what} | {c.remedy} |\n" for c in TABLE
    )
    kept_timers = ", ".join(f"`{name}`" for name in quiet.KEPT)
    groups = "\n".join(
        f"| `{group}` | {', '.join(f'`{unit}`' for unit in units)} |"
        for group, units in quiet.GROUPS.items()
    )
    services = QUIET.format(groups=groups, kept=kept_timers)
    grave, allowed = (
        "\n".join(
            f"- `{pattern.expression.pattern}`: {pattern.reason}"
            for pattern in kernel_log.patterns(path)
        )
        for path in (kernel_log.GRAVE, kernel_log.ALLOWED)
    )
    return HEAD + rows + TEMPERATURE + services + LISTS.format(grave=grave, allowed=allowed)


def _severity(check: Check) -> str:
    if check.wait is None:
        return check.severity
    limit_s = check.wait.limit_s
    limit = f"{limit_s / 3600:g} h" if limit_s >= 3600 else f"{limit_s / 60:g} min"
    return f"{check.severity}, {limit}, then {check.wait.then}"


if __name__ == "__main__":
    print(document(), end="")
