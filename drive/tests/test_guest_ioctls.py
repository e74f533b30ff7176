"""Every Opal call of the guest's kernel (IOC_OPAL_*, 220 to 240) on the self-encrypting drive."""

from __future__ import annotations

import errno
from hashlib import sha256
from typing import Any

import pytest

from drive.tests.guest_sed import (
    DISK,
    FAIL,
    INVALID_PARAMETER,
    NOT_AUTHORIZED,
    SUCCESS,
    GuestSed,
    Step,
)

pytestmark = pytest.mark.lab

PIN, USER_PIN = "the owner's pin", "the first user's pin"
ADMIN1, USER1, USER2 = 0, 1, 2
READ_ONLY, READ_WRITE, LOCKED = 1, 2, 4
SUPPORTED, LOCKING, ENABLED, ANY_LOCKED, MBR_ENABLED, MBR_DONE = (1 << bit for bit in range(6))
MBR_ON, MBR_OFF = 0, 1
TABLE_READ, TABLE_WRITE = 1, 2
DATA_STORE, MBR = "0000100100000000", "0000080400000000"
RANGE_START, RANGE_BLOCKS = 256, 1024
INSIDE, OUTSIDE = RANGE_START + 5, RANGE_START + RANGE_BLOCKS + 5
PLAINTEXT = "plaintext-of-the-ioctl-test"


def key(pin: str = PIN, lr: int = 0) -> dict[str, Any]:
    return {"lr": lr, "key": pin}


def session(who: int = ADMIN1, pin: str = PIN, lr: int = 1) -> dict[str, Any]:
    return {"who": who, "opal_key": key(pin, lr)}


def lock(state: int, code: int = SUCCESS, who: int = ADMIN1, pin: str = PIN, lr: int = 1) -> Step:
    return "LOCK_UNLOCK", {"session": session(who, pin, lr), "l_state": state}, code


TAKE_OWNERSHIP: Step = ("TAKE_OWNERSHIP", key(), SUCCESS)
ACTIVATE: Step = ("ACTIVATE_LSP", {"key": key(), "num_lrs": 1}, SUCCESS)
SET_UP_RANGE: Step = (
    "LR_SETUP",
    {
        "range_start": RANGE_START,
        "range_length": RANGE_BLOCKS,
        "RLE": 1,
        "WLE": 1,
        "session": session(),
    },
    SUCCESS,
)
GET_STATUS: Step = ("GET_STATUS", {}, SUCCESS)


def range_status(who: int = ADMIN1, pin: str = PIN, lr: int = 1) -> Step:
    return "GET_LR_STATUS", {"session": session(who, pin, lr)}, SUCCESS


def set_pin(who: int, new: str, by: int, pin: str, code: int = SUCCESS) -> Step:
    return "SET_PW", {"session": session(by, pin, 0), "new_user_pw": session(who, new, 0)}, code


def add_user(who: int, state: int) -> Step:
    return "ADD_USR_TO_LR", {"session": session(who), "l_state": state}, SUCCESS


def flags(sed: GuestSed) -> int:
    return int(sed.ioctls(GET_STATUS)[0]["flags"])


def test_discovery_and_geometry(guest_sed: GuestSed) -> None:
    status, geometry = guest_sed.ioctls(GET_STATUS, ("GET_GEOMETRY", {}, SUCCESS))
    discovery = guest_sed.ioctl("DISCOVERY", {"data": "00" * 2048})
    assert status["flags"] == SUPPORTED | LOCKING
    assert geometry["logical_block_size"] == 4096
    assert geometry["alignment_granularity"] == 1 and geometry["lowest_aligned_lba"] == 0
    level0 = bytes.fromhex(discovery["data"])
    length = int.from_bytes(level0[:4], "big")
    assert discovery["code"] == length  # this call alone returns no status
    codes, place = [], 48
    while place < 4 + length:
        codes.append(int.from_bytes(level0[place : place + 2], "big"))
        place += 4 + level0[place + 3]
    assert codes[:4] == [0x0001, 0x0002, 0x0003, 0x0203]


@pytest.mark.conformance(
    "ioctl", "Activate SP", "Get C_PIN", "Get SP", "Revert SP", "Set C_PIN",
    "StartSession SessionManager", "StartSession SessionManager refused",
)  # fmt: skip
def test_ownership_is_taken_once(guest_sed: GuestSed) -> None:
    guest_sed.ioctls(
        ("ACTIVATE_LSP", {"key": key(), "num_lrs": 1}, NOT_AUTHORIZED),  # nobody set this PIN
        ("REVERT_TPR", key("a wrong pin"), NOT_AUTHORIZED),
        ("PSID_REVERT_TPR", key("not what the label says"), NOT_AUTHORIZED),
        TAKE_OWNERSHIP,
        ("TAKE_OWNERSHIP", key("somebody else's"), NOT_AUTHORIZED),  # the MSID is no PIN any more
        ("ACTIVATE_LSP", {"key": key("a wrong pin"), "num_lrs": 1}, NOT_AUTHORIZED),
        ACTIVATE,
    )
    assert flags(guest_sed) == SUPPORTED | LOCKING | ENABLED
    assert guest_sed.ioctl("REVERT_TPR", key(""))["errno"] == errno.EINVAL  # by the kernel
    guest_sed.ioctls(("REVERT_TPR", key("\0"), NOT_AUTHORIZED), ("REVERT_TPR", key(), SUCCESS))
    assert flags(guest_sed) == SUPPORTED | LOCKING
    guest_sed.ioctls(TAKE_OWNERSHIP, ("PSID_REVERT_TPR", key(guest_sed.psid), SUCCESS))
    guest_sed.ioctls(TAKE_OWNERSHIP)


@pytest.mark.conformance(
    "ioctl", "Activate SP", "Get C_PIN", "Get Locking", "Get SP", "Set ACE", "Set Authority",
    "Set C_PIN", "Set C_PIN refused", "Set Locking", "Set Locking refused",
    "StartSession SessionManager", "StartSession SessionManager refused",
)  # fmt: skip
def test_a_range_its_user_and_its_states(guest_sed: GuestSed) -> None:
    guest_sed.write(OUTSIDE, PLAINTEXT)
    too_long = {**SET_UP_RANGE[1], "range_length": 1 << 40}
    guest_sed.ioctls(
        TAKE_OWNERSHIP,
        ACTIVATE,
        ("LR_SETUP", too_long, INVALID_PARAMETER),
        SET_UP_RANGE,
        ("LR_SETUP", {**SET_UP_RANGE[1], "session": session(lr=2)}, INVALID_PARAMETER),  # overlap
        lock(READ_WRITE, NOT_AUTHORIZED, USER1, USER_PIN),  # not enabled yet
        ("ACTIVATE_USR", session(USER1, "a wrong pin"), NOT_AUTHORIZED),
        ("ACTIVATE_USR", session(USER1), SUCCESS),
        ("ACTIVATE_USR", session(USER2), SUCCESS),
        set_pin(USER1, USER_PIN, ADMIN1, PIN),
        set_pin(USER2, "the second's", ADMIN1, PIN),
        set_pin(USER2, "a thief's", USER1, USER_PIN, NOT_AUTHORIZED),
        lock(READ_WRITE, NOT_AUTHORIZED, USER1, USER_PIN),  # nobody gave it the range yet
        add_user(USER1, READ_WRITE),
        add_user(USER1, READ_ONLY),
        lock(READ_WRITE, SUCCESS, USER1, USER_PIN),
        ("SAVE", {"session": session(USER1, USER_PIN), "l_state": READ_WRITE}, SUCCESS),
    )
    guest_sed.write(INSIDE, PLAINTEXT)
    assert PLAINTEXT in guest_sed.read(INSIDE)
    assert not guest_sed.medium_holds(PLAINTEXT)

    guest_sed.ioctls(
        lock(LOCKED, NOT_AUTHORIZED, USER1, "a wrong pin"),
        lock(LOCKED, NOT_AUTHORIZED, USER2, "the second's"),
        lock(READ_ONLY, SUCCESS, USER1, USER_PIN),
    )
    assert PLAINTEXT in guest_sed.read(INSIDE)
    guest_sed.assert_denied(INSIDE, ways="w")

    *_, last = guest_sed.ioctls(lock(LOCKED, SUCCESS, USER1, USER_PIN), range_status())
    assert (last["range_start"], last["range_length"]) == (RANGE_START, RANGE_BLOCKS)
    assert (last["RLE"], last["WLE"], last["l_state"]) == (1, 1, LOCKED)
    assert flags(guest_sed) == SUPPORTED | LOCKING | ENABLED | ANY_LOCKED
    guest_sed.assert_denied(INSIDE)
    assert PLAINTEXT in guest_sed.read(OUTSIDE)

    guest_sed.ioctls(
        lock(READ_WRITE, NOT_AUTHORIZED, USER2, "the second's"),
        set_pin(USER1, "another", USER1, USER_PIN),
        lock(READ_WRITE, NOT_AUTHORIZED, USER1, USER_PIN),  # the old PIN is dead
        lock(READ_WRITE, SUCCESS, USER1, "another"),
    )
    assert PLAINTEXT in guest_sed.read(INSIDE)


@pytest.mark.conformance(
    "ioctl", "GenKey K_AES_256", "Get Locking", "Set Locking", "Erase Locking refused"
)
def test_erasing_changes_one_range_only(guest_sed: GuestSed) -> None:
    guest_sed.ioctls(TAKE_OWNERSHIP, ACTIVATE, SET_UP_RANGE, lock(READ_WRITE))
    guest_sed.write(INSIDE, PLAINTEXT)
    guest_sed.write(OUTSIDE, PLAINTEXT)
    guest_sed.ioctls(
        ("ERASE_LR", session(), NOT_AUTHORIZED),  # a method of the single-user mode
        ("SECURE_ERASE_LR", session(pin="a wrong pin"), NOT_AUTHORIZED),
    )
    assert PLAINTEXT in guest_sed.read(INSIDE)
    guest_sed.ioctls(("SECURE_ERASE_LR", session(), SUCCESS))
    assert PLAINTEXT not in guest_sed.read(INSIDE)
    assert PLAINTEXT in guest_sed.read(OUTSIDE)


@pytest.mark.conformance("ioctl", "RevertSP ThisSP")
@pytest.mark.parametrize("keep", [True, False])
def test_reverting_the_locking_sp_may_keep_the_global_range(
    guest_sed: GuestSed, keep: bool
) -> None:
    guest_sed.ioctls(TAKE_OWNERSHIP, ACTIVATE, SET_UP_RANGE, lock(READ_WRITE))
    guest_sed.write(INSIDE, PLAINTEXT)
    guest_sed.write(OUTSIDE, PLAINTEXT)
    revert = {"key": key(), "options": int(keep)}
    guest_sed.ioctls(
        ("REVERT_LSP", {**revert, "key": key("a wrong pin")}, NOT_AUTHORIZED),
        ("REVERT_LSP", revert, SUCCESS),
    )
    assert flags(guest_sed) == SUPPORTED | LOCKING
    assert PLAINTEXT not in guest_sed.read(INSIDE)
    assert (PLAINTEXT in guest_sed.read(OUTSIDE)) is keep
    guest_sed.ioctls(ACTIVATE)  # the owner's PIN is still the same


@pytest.mark.conformance("ioctl", "RevertSP ThisSP refused")
def test_a_locked_global_range_is_not_kept(guest_sed: GuestSed) -> None:
    global_range = {**SET_UP_RANGE[1], "session": session(lr=0)}
    guest_sed.ioctls(
        TAKE_OWNERSHIP,
        ACTIVATE,
        ("LR_SETUP", global_range, SUCCESS),
        lock(LOCKED, lr=0),
        ("REVERT_LSP", {"key": key(), "options": 1}, FAIL),
    )
    guest_sed.assert_denied(OUTSIDE)


@pytest.mark.conformance("ioctl", "Get Table", "Set MBR", "Set MBRControl")
def test_the_shadow_hides_the_first_blocks(guest_sed: GuestSed) -> None:
    image = bytes(range(256)) * 24  # more than one packet of the kernel's 2048 bytes
    guest_sed.write(0, PLAINTEXT)
    on = {"key": key(), "enable_disable": MBR_ON}
    shadow_off, shadow_on = ({"key": key(), "done_flag": flag} for flag in (1, 0))
    store = {"key": key(), "data": image.hex(), "offset": 0}
    guest_sed.ioctls(
        TAKE_OWNERSHIP,
        ACTIVATE,
        ("ENABLE_DISABLE_MBR", {**on, "key": key("a wrong pin")}, NOT_AUTHORIZED),
        ("WRITE_SHADOW_MBR", {**store, "key": key("a wrong pin")}, NOT_AUTHORIZED),
        ("WRITE_SHADOW_MBR", store, SUCCESS),
        ("ENABLE_DISABLE_MBR", on, SUCCESS),
    )
    assert flags(guest_sed) == SUPPORTED | LOCKING | ENABLED | MBR_ENABLED | MBR_DONE
    assert PLAINTEXT in guest_sed.read(0)

    guest_sed.ioctls(
        ("MBR_DONE", {**shadow_on, "key": key("a wrong pin")}, NOT_AUTHORIZED),
        ("MBR_DONE", shadow_on, SUCCESS),
    )
    assert flags(guest_sed) == SUPPORTED | LOCKING | ENABLED | MBR_ENABLED
    shown = guest_sed.run(f"dd if={DISK} bs=4096 count=2 iflag=direct | sha256sum").stdout
    assert shown.split()[0] == sha256(image.ljust(8192, b"\0")).hexdigest()
    guest_sed.assert_denied(0, ways="w")

    guest_sed.ioctls(("MBR_DONE", shadow_off, SUCCESS))
    assert PLAINTEXT in guest_sed.read(0)
    guest_sed.ioctls(("MBR_DONE", shadow_on, SUCCESS))
    assert PLAINTEXT not in guest_sed.read(0)
    guest_sed.ioctls(("ENABLE_DISABLE_MBR", {**on, "enable_disable": MBR_OFF}, SUCCESS))
    assert PLAINTEXT in guest_sed.read(0)


@pytest.mark.conformance(
    "ioctl", "Get DataStore", "Get MBR", "Get Table", "Set DataStore", "Set MBR"
)
def test_byte_tables_return_written_bytes(guest_sed: GuestSed) -> None:
    guest_sed.ioctls(TAKE_OWNERSHIP, ACTIVATE)
    contents = bytes(range(256)) * 20
    for table in (DATA_STORE, MBR):
        place = {"key": key(), "table_uid": table, "offset": 700}
        write = {**place, "data": contents.hex(), "flags": TABLE_WRITE}
        read = {**place, "data": "00" * len(contents), "flags": TABLE_READ}
        *_, last = guest_sed.ioctls(
            ("GENERIC_TABLE_RW", {**write, "key": key("a wrong pin")}, NOT_AUTHORIZED),
            ("GENERIC_TABLE_RW", write, SUCCESS),
            ("GENERIC_TABLE_RW", {**read, "key": key("a wrong pin")}, NOT_AUTHORIZED),
            ("GENERIC_TABLE_RW", read, SUCCESS),
        )
        assert last["data"] == contents.hex()
        beyond = {**write, "offset": 1 << 40}
        assert guest_sed.ioctl("GENERIC_TABLE_RW", beyond)["errno"] == errno.ENOSPC
