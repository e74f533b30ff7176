"""Stop services that start work unasked (timers, updaters, indexers, …), and start them again.

Stopped units are noted in memory-backed /run: after a boot all of them run again.
"""

from __future__ import annotations

import pwd
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from agent.system import frequency
from agent.system.command import CommandError, run
from agent.system.lock import RUN
from contract import strict_json
from contract.files import write_json
from contract.plan import Quiet
from contract.schema import REST

REMEMBERED = RUN / "quiet.json"
TIMERS = "*.timer"
# Services by what they do. The desktop's are display managers: with them end the sessions that they
# opened. Indexers are services of a user's own systemd.
GROUPS: dict[str, tuple[str, ...]] = {
    "timers": (TIMERS, "anacron", "atd", "bcron", "cron", "crond", "cronie", "fcron"),
    "updates": ("fwupd", "packagekit", "snapd", "unattended-upgrades"),
    "disks": ("smartd", "smartmontools", "udisks2"),
    "indexers": ("baloo*", "*-baloo*", "localsearch-*", "tracker-*"),
    "desktop": ("gdm", "gdm3", "greetd", "lightdm", "lxdm", "ly", "sddm", "slim", "xdm"),
    "databases": ("mariadb", "mongod", "mysql", "postgresql", "postgresql@*", "redis-server"),
}
# All timers are stopped but these: time, network, watchdogs, and ours.
KEPT = (
    *("*chrony*", "*ntp*", "*timesync*", "*network*", "*dhcp*", "*ssh*"),
    *("*watchdog*", "fde-*"),
)
LIMIT_S = 90.0
MANAGERS = "user@*.service"


@dataclass(frozen=True)
class Remembered:
    """Units that were stopped, and the processor's settings before; kept in /run."""

    units: tuple[str, ...] = ()
    processor: frequency.Settings | None = None


@dataclass(frozen=True)
class Disturbers:
    """Output of `python3 -m agent quiet list`: active units by group."""

    by_group: Annotated[Mapping[str, tuple[str, ...]], REST]


def disturbers(systemctl: str = "systemctl") -> dict[str, list[str]] | None:
    """List active units that may start work by themselves, by group; None without systemd.

    A unit of a user's own systemd is `UID/unit`. `list-units` is one message to systemd, `show` one
    for each unit: it is asked only about listed units.
    """
    system = [name for group in GROUPS if group != "indexers" for name in patterns(group)]
    options = ["--state=active", "--full", "--plain", "--no-legend"]
    try:
        listed = run([systemctl, "list-units", *options, MANAGERS, *system], timeout_s=LIMIT_S).out
        listed_units = [unit for units in disturbing(listed).values() for unit in units]
        shown = ""
        if listed_units:
            shown = run([systemctl, "show", "--property=Id,Transient", *listed_units]).out
    except CommandError:
        return None
    stay = lasting(shown)
    by_group = {group: [u for u in us if u in stay] for group, us in disturbing(listed).items()}
    uids = [n[5:-8] for n in _names(listed) if n.startswith("user@") and n.endswith(".service")]
    by_group["indexers"] = []
    for uid in uids:
        # A user's systemd may not be asked in the agent's sandbox.
        with suppress(CommandError, KeyError, ValueError):
            argv = [*_of_user(systemctl, uid), "list-units", *options, *patterns("indexers")]
            units = disturbing(run(argv, timeout_s=LIMIT_S).out)["indexers"]
            by_group["indexers"] += [f"{uid}/{unit}" for unit in units]
    return {group: by_group[group] for group in GROUPS if by_group.get(group)}


def describe_disturbers(by_group: Mapping[str, Sequence[str]], stop: Collection[str]) -> list[str]:
    """Return a line on the services that a suite stops, and one on the others."""
    words = {group: f"{group} ({', '.join(units)})" for group, units in by_group.items()}
    stopped = "; ".join(word for group, word in words.items() if group in stop)
    others = "; ".join(word for group, word in words.items() if group not in stop)
    return [
        *([f"stopped while a suite runs: {stopped}"] if stopped else []),
        *([f"will disturb, and fde_stop does not allow to stop them: {others}"] if others else []),
    ]


def patterns(group: str) -> list[str]:
    """Return a group's units as `systemctl list-units` takes them."""
    return [name if name.endswith(".timer") else f"{name}.service" for name in GROUPS[group]]


def _names(listed: str) -> list[str]:
    """Return the unit names of `systemctl list-units`: a line a unit, its name first."""
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def disturbing(listed: str) -> dict[str, list[str]]:
    """Return the units in `systemctl list-units` that disturb, by group."""
    names = sorted({n for n in _names(listed) if not any(fnmatchcase(n, name) for name in KEPT)})
    return {
        group: [n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns(group))]
        for group in GROUPS
    }


def lasting(shown: str) -> list[str]:
    """Return the units that are not transient, from what `systemctl show` printed.

    Transient units are left alone: once stopped they are gone and cannot be started again.
    """
    units = properties(shown)
    return sorted({u["Id"] for u in units if "Id" in u and u.get("Transient") != "yes"})


def properties(shown: str) -> Iterator[dict[str, str]]:
    """Yield the `Key=value` lines of each unit in `systemctl show`; blank lines part units."""
    for block in shown.split("\n\n"):
        yield dict(line.partition("=")[::2] for line in block.splitlines())


def _of_user(systemctl: str, uid: str) -> list[str]:
    """Return the command line of systemctl for a user's own systemd.

    Raises KeyError if the user does not exist.
    """
    name, place = pwd.getpwuid(int(uid)).pw_name, f"XDG_RUNTIME_DIR=/run/user/{uid}"
    return ["runuser", "-u", name, "--", "env", place, systemctl, "--user"]


def stop(
    quiet: Quiet | None = None,
    systemctl: str = "systemctl",
    path: Path = REMEMBERED,
    processor: frequency.Processor | None = None,
) -> list[str]:
    """Stop services that disturb and may be stopped, and set governor and turbo if asked.

    Returns what was stopped, empty if nothing was active. A unit that does not stop is no error
    here: the check `timers` reports it before every run. Raises CommandError if the processor
    could not be set.
    """
    quiet, processor = quiet or Quiet(), processor or frequency.Processor()
    by_group = disturbers(systemctl) or {}
    units = [unit for group in quiet.stop for unit in by_group.get(group, ())]
    sets_processor = quiet.governor is not None or quiet.turbo is not None
    if units or sets_processor:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = strict_json.load(Remembered, path) or Remembered()
        # Before they are stopped, so that an agent killed in between leaves nothing off for good.
        # Of the processor what was first: the second time it is as we have set it.
        first = before.processor or (processor.state() if sets_processor else None)
        write_json(path, asdict(Remembered(tuple(sorted({*before.units, *units})), first)))
        _ask(systemctl, "stop", units)
    if sets_processor:
        processor.set(quiet.governor, quiet.turbo)
    return sorted(units)


def restart(
    systemctl: str = "systemctl",
    path: Path = REMEMBERED,
    processor: frequency.Processor | None = None,
) -> list[str]:
    """Start again what `stop` stopped, whoever called it, and set the processor as it was.

    Returns the units. Raises CommandError if the processor could not be set, after all other steps.
    """
    before = strict_json.load(Remembered, path) or Remembered()
    if before.units:
        _ask(systemctl, "start", before.units)
    if before.processor:
        (processor or frequency.Processor()).restore(before.processor)
    path.unlink(missing_ok=True)
    return list(before.units)


def _ask(systemctl: str, verb: str, units: Collection[str]) -> None:
    """Call systemctl once for the machine and once for each user."""
    for uid in sorted({unit.rpartition("/")[0] for unit in units}):
        names = [unit.rpartition("/")[2] for unit in units if unit.rpartition("/")[0] == uid]
        try:
            argv = _of_user(systemctl, uid) if uid else [systemctl]
            run([*argv, verb, *names], ok=range(256), timeout_s=LIMIT_S)
        except (CommandError, KeyError, ValueError):
            continue  # it takes longer than anybody should wait: systemd continues with it
