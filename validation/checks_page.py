"""`python3 -m validation.checks_page`: print docs/checks.md, made from the tables themselves."""

from __future__ import annotations

from agent.checks.table import TABLE, Check
from agent.system import quiet

HEAD = """\
# All checks around a run

Printed from the tables in `agent/checks` by `python3 -m validation.checks_page >docs/checks.md`.
[What they mean for a user](dangers.md#what-is-checked-around-every-run).

Checks *before* run when the workload is prepared, checks *after* when its last phase has ended, and
*during* compares the two. A **blocker** voids the run. **wait** waits at most that long; after a
warning, the next wait is half as long.

| check | when | severity | what is checked |
|---|---|---|---|
"""
QUIET = """
## What is switched off while a suite runs

`fde_stop` of the inventory chooses groups (default: timers, updates, disks). `fde check` and
`fde run` name what is active.

{groups}

Never stopped: timers named {kept}, and transient units. Stopped services start again when the suite
ends, after a boot, or by `python3 -m agent quiet back`. `fde_governor` and `fde_turbo` are restored
in the same way.

## The kernel's log

A line of level warning or worse is a warning. If it matches `agent/checks/kernel_log_grave.txt` the
run is void; `agent/checks/kernel_log_allowed.txt` lists harmless lines.

## What was tried

`python -m agent.tests.dangers` lists the dangerous situations. `make test-dangers` tries each in
the virtual lab: the agent must refuse with one sentence, and both media must be unchanged.
"""


def document() -> str:
    """Return the text of docs/checks.md."""
    rows = "".join(
        f"| `{check.name}` | {check.when} | {_severity(check)} | {check.what} |\n"
        for check in TABLE
    )
    kept_timers = ", ".join(f"`{name}`" for name in quiet.KEPT)
    groups = "\n".join(
        f"- `{group}`: {', '.join(f'`{unit}`' for unit in units)}"
        for group, units in quiet.GROUPS.items()
    )
    return HEAD + rows + QUIET.format(groups=groups, kept=kept_timers)


def _severity(check: Check) -> str:
    if check.wait is None:
        return check.severity
    limit_s = check.wait.limit_s
    limit = f"{limit_s / 3600:g} h" if limit_s >= 3600 else f"{limit_s / 60:g} min"
    return f"{check.severity}, {limit}, then {check.wait.then}"


if __name__ == "__main__":
    print(document(), end="")
