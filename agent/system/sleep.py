"""Whether a machine may sleep when idle: what its kernel can do, and what asks for it.

Masked targets turn systemd's sleep off (systemd-sleep.conf(5), systemctl(1)). Sleep is requested by
logind (logind.conf(5)), a desktop's session, or the lid of a laptop.
"""

from __future__ import annotations

import configparser
from pathlib import Path

from contract import system_text
from contract.examination import SleepState

TARGETS = ("sleep.target", "suspend.target")
_UNITS = ("etc/systemd/system", "run/systemd/system")
_LOGIND = ("usr/lib", "etc", "run")
_SLEEPS = frozenset({"suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate"})


def read_state(root: Path = Path("/")) -> SleepState:
    """Read what can put the machine to sleep."""
    state = root / "sys/power/state"
    settings = _logind(root)
    lid = any((root / "proc/acpi/button/lid").glob("*"))
    idle, closed = settings.get("idleaction", "ignore"), settings.get("handlelidswitch", "suspend")
    manager = root / "etc/systemd/system/display-manager.service"
    units = [root / folder / name for name in TARGETS for folder in _UNITS]
    return SleepState(
        able=bool(system_text.read(state).split()) if state.exists() else None,
        masked=any(p.is_symlink() and str(p.readlink()) == "/dev/null" for p in units),
        idle_action=idle if idle in _SLEEPS else "",
        lid_action=closed if lid and closed in _SLEEPS else "",
        desktop=manager.readlink().name if manager.is_symlink() else "",
    )


def _logind(root: Path) -> dict[str, str]:
    """Return the keys of [Login]: the main file, then its drop-ins by their names."""
    main = [root / place / "systemd/logind.conf" for place in _LOGIND]
    drops = [p for d in _LOGIND for p in (root / d / "systemd/logind.conf.d").glob("*.conf")]
    settings: dict[str, str] = {}
    for path in (*main, *sorted(drops, key=lambda p: p.name)):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue
        settings |= dict(parser["Login"]) if parser.has_section("Login") else {}
    return settings
