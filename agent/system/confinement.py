"""The rule by which AppArmor lets the database server use the disks under test.

A distribution's profile of mysqld allows the distribution's own data directory, and the server's
files below /var/tmp. The data on the disks under test are elsewhere: one rule in the profile's
local part (apparmor.d(5), /etc/apparmor.d/local/README) allows them, and a teardown removes it.
AppArmor still confines the server in all else.
"""

from __future__ import annotations

from pathlib import Path

from agent.system.command import run
from contract import system_text
from contract.places import MOUNT_POINT

FOLDER = Path("/etc/apparmor.d")
PROFILES = Path("/sys/kernel/security/apparmor/profiles")
SERVERS = ("usr.sbin.mysqld", "usr.sbin.mariadbd", "mariadbd", "mysqld")
RULE = f"{MOUNT_POINT}/** rwk,  # fde-testbed"
PARSER_LIMIT_S = 300.0


def set_rule(
    folder: Path = FOLDER, loaded: Path = PROFILES, parser: str = "apparmor_parser", *, allow: bool
) -> list[str]:
    """Add the rule if AppArmor is on and a server has a profile, or remove it everywhere.

    Other lines stay. Returns the actions.
    """
    actions = []
    on = loaded.exists()
    for name in SERVERS:
        profile, local = folder / name, folder / "local" / name
        lines = system_text.read(local).splitlines() if local.exists() else []
        reads_local = profile.exists() and f"local/{name}>" in system_text.read(profile)
        if (RULE in lines) == allow or (allow and not (on and reads_local)):
            continue
        other_lines = [line for line in lines if line != RULE]
        local.parent.mkdir(exist_ok=True)
        new_lines = [*other_lines, RULE] if allow else other_lines
        local.write_text("".join(f"{line}\n" for line in new_lines))
        if on and profile.exists():
            run([parser, "--replace", str(profile)], timeout_s=PARSER_LIMIT_S)
        verb = "allows" if allow else "no longer allows"
        actions.append(f"AppArmor's profile {name} {verb} data below {MOUNT_POINT}")
    return actions
