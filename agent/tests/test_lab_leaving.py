"""Leaving a configuration that somebody holds: it always ends closed and locked.

`make test` tries every configuration and every kind of holder once, `make test-all` more pairs of
them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from agent.tests.guest import AES, OPAL, PLAIN, Target
from contract.places import MOUNT_POINT

pytestmark = pytest.mark.lab

EXTENT_BYTES = 256 * 2**20
ON_PLAIN: dict[str, dict[str, Any]] = {
    "luks2": {"kind": "dmcrypt", **AES},
    "luks1": {"kind": "dmcrypt", **AES, "header": "luks1", "sector_size": 512},
    "no-header": {"kind": "dmcrypt", **AES, "header": "none"},
    "cascade": {"kind": "tcrypt", "cipher": "aes-twofish-serpent", "key_bits": 256},
}
CONFIGURATIONS = [PLAIN, OPAL, *({**PLAIN, "name": n, **entry} for n, entry in ON_PLAIN.items())]
# A program that stays in a folder, and what a container has: a mount namespace of its own.
SITS = f"(cd {MOUNT_POINT} && exec sleep 900) >/dev/null 2>&1 </dev/null & "
LEAKS = "unshare --mount --propagation private sleep 900 >/dev/null 2>&1 </dev/null & sleep 1; "
FILE = f"dd if=/dev/zero of={MOUNT_POINT}/file bs=1M count=32 status=none; "
GONE = "pkill -x sleep; "
FREEZE = f"fsfreeze --freeze {MOUNT_POINT}; "
LOOP = f"{FILE} losetup /dev/loop7 {MOUNT_POINT}/file; "


@dataclass(frozen=True)
class Case:
    """Who is in the way of leaving a configuration, and what is reported then."""

    configuration: str
    make: str
    undo: str = ""
    code: str = ""
    named: str = ""


SWAP = f"{FILE} mkswap -q {MOUNT_POINT}/file; swapon {MOUNT_POINT}/file; "
NESTED = f"mkdir {MOUNT_POINT}/in; mount -t tmpfs none {MOUNT_POINT}/in; "
OPENS = "(exec 9</dev/mapper/fde-data; exec sleep 900) & "
SUSPENDED = f"touch {MOUNT_POINT}/a; timeout 60 cryptsetup luksSuspend fde-data; "
CASES = [
    Case("plain", NESTED, "", "busy"),
    Case("luks1", LOOP, "losetup -d /dev/loop7", "busy", "loop7"),
    Case("no-header", SWAP),
    Case("cascade", OPENS, GONE, "held", "sleep["),
    Case("luks2", LEAKS + FREEZE, GONE, "held", f"{MOUNT_POINT} for sleep["),
    Case("opal", f"dmsetup suspend fde-data; {SITS}", GONE, "busy", "sleep["),
    Case("opal", f"mount --bind {MOUNT_POINT} /mnt; "),
    # As by an agent that was killed while its workload had suspended it: nobody waits for it.
    Case("opal", SUSPENDED),
]
FURTHER_CASES = [
    *(Case(name, SITS, GONE, "busy", "sleep[") for name in ("plain", "opal", *ON_PLAIN)),
    Case("opal", LEAKS, GONE, "held", f"{MOUNT_POINT} for sleep["),
    Case("opal", FREEZE),
    Case("luks2", FREEZE + SITS, GONE, "busy", "sleep["),
    Case("luks2", LOOP, "losetup -d /dev/loop7", "busy", "loop7"),
    Case("opal", SWAP),
    Case("opal", NESTED, "", "busy"),
    *(Case(name, OPENS, GONE, "held", "sleep[") for name in ("opal", "luks2")),
    Case("luks2", SUSPENDED),
]


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in FURTHER_CASES)],
    ids=str,
)
def test_leaving_ends_locked_in_spite_of_any_user(target: Target, case: Case) -> None:
    target.agent(f"storage enter {case.configuration}")
    target.lab.ssh(f"{{ {case.make} }} >/dev/null 2>&1 </dev/null; sleep 0.5")
    output = target.agent("storage leave", check=False)
    problems = json.loads(output.stdout.splitlines()[-1]).get("problems", [])
    assert [problem["code"] for problem in problems] == ([case.code] if case.code else [])
    assert all(case.named in str(problem["facts"]) for problem in problems)
    assert_closed(target)
    # Whoever holds it still does: the same configuration is entered beside it, and is as planned.
    assert target.output_lines(f"storage prove {case.configuration}")[0]["proof"]["ok"]
    assert_closed(target)
    target.lab.ssh(f"{case.undo}\nudevadm settle", check=False)
    gone = "for n in $(seq 50); do dmsetup ls | grep -q fde- || exit 0; sleep 0.2; done; exit 1"
    target.lab.ssh(f"({gone}) && ! findmnt /mnt")


def assert_closed(target: Target) -> None:
    tables = target.lab.ssh("dmsetup table | grep : || true").stdout.splitlines()
    assert not [line for line in tables if not line.startswith("fde-dead-")]
    assert all(line.split()[-1] in ("error", "devices") for line in tables), tables
    assert all(r["read_locked"] for r in target.ask("sed", "status")["ranges"] if r["range"])
