"""Switches off what starts work by itself (timers, cron, updaters), and on again exactly that.

What was stopped is remembered in memory-backed /run: after a boot all of it is back by itself.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

from agent.command import CommandError, run
from agent.lock import RUN
from contract.files import write_json

REMEMBERED = RUN / "quiet.json"
# Services that start programs by a calendar of their own, look for updates, or poll disks.
SERVICES = (
    *("anacron", "atd", "bcron", "cron", "crond", "cronie", "fcron"),
    *("fwupd", "packagekit", "snapd", "unattended-upgrades"),
    *("smartd", "smartmontools"),
)
# All timers are stopped but these: time, network, and whatever watches over the machine or is ours.
KEPT = (
    *("*chrony*", "*ntp*", "*timesync*", "*network*", "*dhcp*", "*ssh*"),
    *("*watchdog*", "fde-*"),
)
LIMIT_S = 90.0


def disturbers(systemctl: str = "systemctl") -> list[str] | None:
    """Active units that may start work by themselves; None where systemd does not run.

    `list-units` is one message to systemd, `show` one for each unit: it is left for what was found.
    """
    services = [f"{name}.service" for name in SERVICES]
    options = ["--state=active", "--full", "--plain", "--no-legend"]
    try:
        listed = run([systemctl, "list-units", *options, "*.timer", *services], timeout_s=LIMIT_S)
        found = disturbing(listed.out)
        if not found:
            return []
        shown = run([systemctl, "show", "--property=Id,Transient", *found], timeout_s=LIMIT_S)
    except CommandError:
        return None
    return lasting(shown.out)


def disturbing(listed: str) -> list[str]:
    """What disturbs of what `systemctl list-units` printed: a line a unit, its name first."""
    names = {line.split()[0] for line in listed.splitlines() if line.strip()}
    return sorted(n for n in names if not any(fnmatchcase(n, kept) for kept in KEPT))


def lasting(shown: str) -> list[str]:
    """The units that are not transient, from what `systemctl show` printed: `Key=value` lines, an
    empty one between units.

    Transient units are left alone: once stopped they are gone and cannot be started again.
    """
    units = (
        dict(line.partition("=")[::2] for line in block.splitlines())
        for block in shown.split("\n\n")
    )
    return sorted({u["Id"] for u in units if "Id" in u and u.get("Transient") != "yes"})


def off(systemctl: str = "systemctl", path: Path = REMEMBERED) -> list[str]:
    """Stop what disturbs; returns the units that were stopped, none where nothing was active.

    A unit that does not stop is no error here: the check `timers` tells of it before every run.
    """
    found = disturbers(systemctl) or []
    if found:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Before they are stopped, so that an agent killed in between leaves nothing off for good.
        write_json(path, sorted({*_remembered(path), *found}))
        _ask(systemctl, "stop", found)
    return found


def back(systemctl: str = "systemctl", path: Path = REMEMBERED) -> list[str]:
    """Start again what `off` stopped, whoever called it; returns these units."""
    found = _remembered(path)
    if found:
        _ask(systemctl, "start", found)
    path.unlink(missing_ok=True)
    return found


def _ask(systemctl: str, verb: str, units: list[str]) -> None:
    try:
        run([systemctl, verb, *units], ok=range(256), timeout_s=LIMIT_S)
    except CommandError:
        return  # it takes longer than anybody should wait: systemd continues with it


def _remembered(path: Path) -> list[str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in document] if isinstance(document, list) else []
