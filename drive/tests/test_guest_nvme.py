"""The guest's own nvme-cli: `nvme sed …` on the self-encrypting drive, unmodified.

It asks for passwords at the terminal. Its `initialize` makes the whole disk one lockable range.
"""

from __future__ import annotations

from typing import Any

import pytest

from drive.tests.guest_sed import DISK, GuestSed

pytestmark = pytest.mark.lab

OLD, NEW, WRONG = "the old password", "the new password", "a wrong password"
BLOCK = 100
PLAINTEXT = "plaintext-of-the-nvme-test"
UNAUTHORISED = "Host Not Authorized"
SURE = (("Continue (y/n)? ", "y"), ("Are you sure (y/n)? ", "y"))


def nvme(sed: GuestSed, command: str, *answers: tuple[str, str], device: str = DISK) -> Any:
    result = sed.at_terminal(["nvme", "sed", *command.split(), device], *answers)
    assert result["unasked"] == 0, result
    return result


def works(sed: GuestSed, command: str, *answers: tuple[str, str]) -> str:
    result = nvme(sed, command, *answers)
    assert result["code"] == 0, result
    return str(result["output"])


def fails(sed: GuestSed, command: str, *answers: tuple[str, str], device: str = DISK) -> str:
    result = nvme(sed, command, *answers, device=device)
    assert result["code"] != 0, result
    return str(result["output"])


def current(password: str) -> tuple[str, str]:
    return "Password:", password


def chosen(password: str, again: str | None = None) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("New Password:", password), ("Re-enter New Password:", again or password)


def features(sed: GuestSed) -> dict[str, bool]:
    lines = works(sed, "discover").splitlines()[1:]
    pairs = (line.split(":") for line in lines if ":" in line)
    return {name.strip(): value.strip() == "yes" for name, value in pairs}


@pytest.mark.conformance(
    "nvme", "Activate SP", "Get C_PIN", "Get SP", "Set C_PIN", "Set Locking",
    "StartSession SessionManager", "StartSession SessionManager refused",
)  # fmt: skip
def test_locking_and_unlocking_the_whole_disk(guest_sed: GuestSed) -> None:
    assert features(guest_sed) == {
        "Locking Supported": True,
        "Locking Feature Enabled": False,
        "Locked": False,
        "Media Encryption": True,
        "MBR Enabled": False,
        "MBR Done": False,
    }
    guest_sed.write(BLOCK, PLAINTEXT)
    assert "uninitialized" in fails(guest_sed, "lock")
    assert "don't match" in fails(guest_sed, "initialize", *chosen(OLD, WRONG))
    assert not features(guest_sed)["Locking Feature Enabled"]
    works(guest_sed, "initialize", *chosen(OLD))
    assert features(guest_sed)["Locking Feature Enabled"]
    assert "initialized" in fails(guest_sed, "initialize")

    assert UNAUTHORISED in fails(guest_sed, "lock --ask-key", current(WRONG))
    works(guest_sed, "lock --ask-key", current(OLD))
    assert features(guest_sed)["Locked"]
    guest_sed.assert_denied(BLOCK)
    assert UNAUTHORISED in fails(guest_sed, "unlock --ask-key", current(WRONG))
    works(guest_sed, "unlock --read-only --ask-key", current(OLD))
    assert PLAINTEXT in guest_sed.read(BLOCK)
    guest_sed.assert_denied(BLOCK, ways="w")
    works(guest_sed, "unlock --ask-key", current(OLD))
    guest_sed.write(BLOCK + 1, PLAINTEXT)
    assert not features(guest_sed)["Locked"]


@pytest.mark.conformance(
    "nvme", "Activate SP", "Get C_PIN", "Get SP", "Revert SP", "Set C_PIN", "Set Locking",
    "StartSession SessionManager", "StartSession SessionManager refused",
)  # fmt: skip
def test_another_password(guest_sed: GuestSed) -> None:
    works(guest_sed, "initialize", *chosen(OLD))
    assert UNAUTHORISED in fails(guest_sed, "password", current(WRONG), *chosen(NEW))
    works(guest_sed, "password", current(OLD), *chosen(NEW))
    assert UNAUTHORISED in fails(guest_sed, "lock --ask-key", current(OLD))
    works(guest_sed, "lock --ask-key", current(NEW))
    guest_sed.assert_denied(BLOCK)
    # Linux 6.12 changes Admin1's PIN only, so the owner is still known by the old one.
    assert UNAUTHORISED in fails(guest_sed, "revert --destructive", *SURE, current(NEW))
    guest_sed.assert_denied(BLOCK)
    works(guest_sed, "revert --destructive", *SURE, current(OLD))
    assert not features(guest_sed)["Locking Feature Enabled"]


@pytest.mark.conformance("nvme", "Revert SP")
def test_reverting_by_the_label(guest_sed: GuestSed) -> None:
    works(guest_sed, "initialize", *chosen(OLD))
    guest_sed.write(BLOCK, PLAINTEXT)
    works(guest_sed, "lock")  # the kernel remembers the password
    assert UNAUTHORISED in fails(guest_sed, "revert --psid", *SURE, ("PSID:", "NOT-THE-LABEL"))
    guest_sed.assert_denied(BLOCK)
    works(guest_sed, "revert --psid", *SURE, ("PSID:", guest_sed.psid))
    assert not features(guest_sed)["Locking Feature Enabled"]
    assert PLAINTEXT not in guest_sed.read(BLOCK)


@pytest.mark.conformance("nvme", "RevertSP ThisSP", "Revert SP")
def test_reverting_without_losing_data(guest_sed: GuestSed) -> None:
    works(guest_sed, "initialize", *chosen(OLD))
    guest_sed.write(BLOCK, PLAINTEXT)
    assert UNAUTHORISED in fails(guest_sed, "revert", current(WRONG))
    works(guest_sed, "revert", current(OLD))
    assert not features(guest_sed)["Locking Feature Enabled"]
    assert PLAINTEXT in guest_sed.read(BLOCK)
    works(guest_sed, "initialize", *chosen(NEW))  # it has no owner any more
