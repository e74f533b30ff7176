"""A wrong PIN costs one try a command, and never the drive's last ones: the drive itself counts.

`make test` tries `prepare`, a suite, and the limits of each authority, which include `teardown` and
`storage leave`; `make test-all` also tries every command by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.storage import secrets
from agent.tests.guest import FOLDER, OPAL, PLAIN, Target
from agent.tests.suite_lab import planned_runs
from drive.tests.guest_sed import SCRIPTS
from workloads import registry

pytestmark = pytest.mark.lab

SUITE = "/var/tmp/fde-agent-test/tries"


@pytest.fixture(scope="module")
def owned(lab: Any) -> Iterator[Target]:
    """Provide a drive that took our PIN, and an agent that is given another one."""
    target = Target(lab, [PLAIN, OPAL], 64 * 2**20)
    target.agent("prepare")
    yield target
    forget(target)
    target.agent("teardown")


@pytest.fixture
def target(owned: Target) -> Target:
    """Provide the same, the count of refused tries at nothing and the wrong PIN in the secrets."""
    forget(owned)
    spoil(owned)
    return owned


def spoil(target: Target, **changes: str) -> None:
    """Put another PIN, or other secrets, in place of the right ones."""
    wrong = changes or {"opal_admin_pin": "another PIN"}
    target.put("secrets.json", {**target.secrets, **wrong})


def forget(target: Target) -> None:
    """Do what a restart does to our count; to the drive's, as Admin1's, the right PIN does it."""
    target.lab.ssh(f"rm -f {secrets.PLACE}")
    target.put("secrets.json", target.secrets)
    target.agent("storage leave")


def refused(target: Target) -> int:
    """How many logins the drive has refused since it was started."""
    calls = target.ask("sed", "calls")["calls"]
    refusal = ("StartSession", "NOT_AUTHORIZED")
    return sum(call["count"] for call in calls if (call["method"], call["status"]) == refusal)


def cost(target: Target, arguments: str) -> tuple[int, str]:
    """Refused logins of one command of the agent, and what it said."""
    before = refused(target)
    printed = target.refusal(arguments)
    return refused(target) - before, printed


@pytest.mark.parametrize(
    "command",
    [
        "prepare",
        pytest.param("teardown", marks=pytest.mark.slow),
        pytest.param("storage leave", marks=pytest.mark.slow),
        pytest.param("storage enter plain", marks=pytest.mark.slow),
        pytest.param("storage enter opal", marks=pytest.mark.slow),
        pytest.param("storage prove plain opal", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_pin_costs_one_try(target: Target, command: str) -> None:
    tries, printed = cost(target, command)
    assert tries == 1
    assert "1 of 2 tries" in printed
    assert printed.count("not authorised") == 1


def test_a_suite_with_a_wrong_pin_costs_one_try(target: Target) -> None:
    idle = {"name": "idle", "parameters": registry.complete("idle", {"seconds": 1})}
    runs = planned_runs((0, name, "idle") for name in ("plain", "opal"))
    frozen = target.frozen_plan(workloads=[idle], runs=runs, settle_s=0.2, tail_s=0.5)
    target.lab.ssh(f"rm -rf {SUITE}; mkdir -p {SUITE}")
    target.put(f"{SUITE}/plan.json", frozen)
    before = refused(target)
    assert target.agent(f"run --suite-dir {SUITE}", check=False).returncode == 1
    last = json.loads(target.lab.ssh(f"tail -n 1 {SUITE}/journal.jsonl").stdout)
    assert last["state"] == "suite-failed"
    assert last["detail"].count("not authorised") == 1
    assert refused(target) - before == 1


def test_the_third_try_is_not_made(target: Target) -> None:
    assert [cost(target, "storage leave")[0] for _ in range(2)] == [1, 1]
    for command in ("storage leave", "prepare", "storage enter opal"):
        tries, printed = cost(target, command)
        assert tries == 0
        way_out = f"--psid-revert {target.disks['sed']['serial']}"
        assert all(word in printed for word in ("nothing was tried", "power", way_out))
    # The owner of the whole drive is another authority, with a count of its own.
    assert [cost(target, "teardown")[0] for _ in range(3)] == [1, 1, 0]
    # Nothing was locked out: the right PIN opens it once ours and its count are set back.
    forget(target)
    target.agent("storage enter opal")
    target.agent("storage leave")


def test_a_right_pin_resets_the_count(target: Target) -> None:
    cost(target, "storage leave")
    target.put("secrets.json", target.secrets)
    target.agent("storage leave")
    spoil(target)
    assert [cost(target, "storage leave")[0] for _ in range(3)] == [1, 1, 0]


def test_a_wrong_psid_is_not_tried_for_a_third_time(target: Target) -> None:
    spoil(target, sed_psid="0" * 32)
    command = f"teardown --psid-revert {target.disks['sed']['serial']}"
    assert [cost(target, command)[0] for _ in range(3)] == [1, 1, 0]


def test_each_pin_is_tried_once_on_an_owned_drive_that_locks_nothing(target: Target) -> None:
    """Such a drive looks like one without an owner: the MSID is tried first, then our PIN."""
    steps = [
        ["PSID_REVERT_TPR", {"lr": 0, "key": target.secrets["sed_psid"]}],
        ["TAKE_OWNERSHIP", {"lr": 0, "key": "somebody's PIN"}],
    ]
    target.lab.send(SCRIPTS, FOLDER)
    target.lab.ssh(
        f"python3 {FOLDER}/{SCRIPTS.name}/opal_ioctl.py",
        stdin=json.dumps({"device": target.by_id("sed"), "steps": steps}).encode(),
    )
    tries, printed = cost(target, "prepare")
    assert (tries, "--psid-revert" in printed) == (2, True)
    tries, printed = cost(target, "prepare")
    assert tries == 0
    assert "nothing was tried" in printed
    target.agent(f"teardown --psid-revert {target.disks['sed']['serial']}")
