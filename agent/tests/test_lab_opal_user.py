"""The authority that a provisioned drive gives to its range opens that range, and nothing else.

cryptsetup makes it (User2 for range 1) and gives it the volume key for a PIN. Here that key is
taken from the header, and everything else is tried with it on the real drive.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agent.tests.guest import FOLDER, OPAL, Target
from drive.tests.guest_sed import NOT_AUTHORIZED, SCRIPTS, SUCCESS

pytestmark = pytest.mark.lab

CONFIGURATIONS = [OPAL]
ADMIN1, USER1, USER2 = 0, 1, 2
UNLOCKED, LOCKED = 2, 4
DATA_STORE = "0000100100000000"


@pytest.fixture(scope="module")
def users_pin(target: Target) -> str:
    """Provide the volume key, in hexadecimal."""
    target.lab.send(SCRIPTS, FOLDER)
    by_id = target.by_id("sed")
    dump = "cryptsetup luksDump --batch-mode --dump-volume-key --key-file -"
    shown = target.lab.ssh(
        f"{dump} --volume-key-file {FOLDER}/key {by_id}-part1 >&2; base64 -w0 {FOLDER}/key; "
        f"rm {FOLDER}/key",
        stdin=target.secrets["luks_passphrase"].encode(),
    ).stdout
    return base64.b64decode(shown).hex()


def session(who: int = USER2, lr: int = 1) -> dict[str, Any]:
    return {"who": who, "opal_key": {"lr": lr}}


def answers(target: Target, pin: str, *steps: tuple[str, dict[str, Any]]) -> list[int | None]:
    """Return what each call returns, this key for every PIN; None where the kernel refuses."""
    script = f"""
import json, os, sys
sys.path.insert(0, "{FOLDER}/{SCRIPTS.name}")
import opal_ioctl
pin = bytes.fromhex("{pin}")
def with_pin(values):
    for name, value in values.items():
        if isinstance(value, dict):
            with_pin(value)
    if "lr" in values:
        values |= {{"key": tuple(pin) + (0,) * (256 - len(pin)), "key_len": len(pin)}}
    return values
fd = os.open("{target.by_id("sed")}", os.O_RDONLY)
steps = json.loads({json.dumps(json.dumps(steps))})
found = [opal_ioctl._step(fd, name, with_pin(values)).get("code") for name, values in steps]
print(json.dumps(found))
"""
    codes: list[int | None] = json.loads(target.python(script))
    return codes


def test_a_user_opens_and_locks_its_own_range(target: Target, users_pin: str) -> None:
    assert not target.reads("sed")
    unlock = ("LOCK_UNLOCK", {"session": session(), "l_state": UNLOCKED})
    assert answers(target, users_pin, unlock) == [SUCCESS]
    assert target.reads("sed")
    lock = ("LOCK_UNLOCK", {"session": session(), "l_state": LOCKED})
    status = ("GET_LR_STATUS", {"session": session()})
    assert answers(target, users_pin, lock, status) == [SUCCESS, SUCCESS]
    assert not target.reads("sed")


FIRST_BLOCKS = {"range_start": 0, "range_length": 8}
ZEROS = {"data": "00" * 16, "flags": 2}
OTHER_RANGES, ANY_STATE = (0, 2, 3), (UNLOCKED, LOCKED)
STATES = "the state of other ranges"
OTHERS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "other ranges": [
        ("LOCK_UNLOCK", {"session": session(lr=lr), "l_state": state})
        for lr in OTHER_RANGES
        for state in ANY_STATE
    ],
    STATES: [("GET_LR_STATUS", {"session": session(lr=lr)}) for lr in OTHER_RANGES],
    "the place of a range": [
        ("LR_SETUP", {**FIRST_BLOCKS, "RLE": on, "WLE": on, "session": session(lr=lr)})
        for lr in (1, 2)
        for on in (0, 1)
    ],
    "the keys of ranges": [
        (name, session(lr=lr)) for name in ("ERASE_LR", "SECURE_ERASE_LR") for lr in (0, 1, 2)
    ],
    "who may open a range": [
        ("ADD_USR_TO_LR", {"session": session(lr=2), "l_state": UNLOCKED}),
        ("ACTIVATE_USR", session(who=USER1)),
    ],
    "the PINs of others": [
        ("SET_PW", {"session": session(lr=0), "new_user_pw": session(who=who, lr=0)})
        for who in (ADMIN1, USER1)
    ],
    "another user's place": [
        ("LOCK_UNLOCK", {"session": session(who=who), "l_state": UNLOCKED}) for who in (USER1, 3)
    ],
    "the MBR and the data store": [
        ("ENABLE_DISABLE_MBR", {"key": {"lr": 0}, "enable_disable": 0}),
        ("GENERIC_TABLE_RW", {"key": {"lr": 0}, "table_uid": DATA_STORE, **ZEROS}),
    ],
    "the drive": [("REVERT_TPR", {"lr": 0})],
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_user_changes_nothing_but_its_range(target: Target, users_pin: str, what: str) -> None:
    before = target.medium("sed")
    codes = answers(target, users_pin, *OTHERS[what])
    assert SUCCESS not in codes
    assert NOT_AUTHORIZED in codes or what == STATES
    assert target.medium("sed") == before
    assert not target.reads("sed")
    # The owner finds it as it was; and its own right PIN sets the count of refused ones back.
    assert target.output_lines("prepare") == [{"changed": False, "actions": []}]


def test_the_users_pin_differs_from_the_owners_and_the_passphrase(target: Target) -> None:
    script = f"""
from pathlib import Path
from agent.storage import opal_ioctl, secrets
own = secrets.load(Path("{FOLDER}/secrets.json"))
try:
    opal_ioctl.range_status("{target.by_id("sed")}", 1, own.luks_passphrase)
except opal_ioctl.OpalError as error:
    print(error.status)
"""
    assert target.python(script) == str(NOT_AUTHORIZED)
    assert target.output_lines("prepare") == [{"changed": False, "actions": []}]
