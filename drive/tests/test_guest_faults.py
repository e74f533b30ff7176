"""What the guest's programs make of drives in trouble that the field knows, and what cures it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drive.tests.guest_sed import (
    AUTHORITY_LOCKED_OUT,
    DISK,
    FAIL,
    NOT_AUTHORIZED,
    SUCCESS,
    GuestSed,
    Step,
)

pytestmark = pytest.mark.lab

PIN = "the owner's pin"
KEY = {"lr": 0, "key": PIN}
TAKE_OWNERSHIP: Step = ("TAKE_OWNERSHIP", KEY, SUCCESS)
ACTIVATE: Step = ("ACTIVATE_LSP", {"key": KEY, "num_lrs": 1}, SUCCESS)
MBR_ENABLED, MBR_DONE = 0x10, 0x20
READ_WRITE = 2
PLAINTEXT = "plaintext-of-the-fault-test"
LUKS_FORMAT = f"cryptsetup luksFormat -q --type luks2 --hw-opal-only {DISK}"
INITIAL_SETUP = f"sedutil-cli --initialSetup opensesame $(readlink -f {DISK})"


@pytest.fixture
def troubled(guest_sed: GuestSed) -> Iterator[GuestSed]:
    """Yield a drive that is cured at the end, whatever it was made to suffer."""
    yield guest_sed
    guest_sed.ask("clear-faults")
    guest_sed.power_cycle()


def unlock(code: int, pin: str = PIN) -> Step:
    session = {"who": 0, "opal_key": {"lr": 0, "key": pin}}
    return "LOCK_UNLOCK", {"session": session, "l_state": READ_WRITE}, code


def test_a_sid_blocked_by_the_firmware(troubled: GuestSed) -> None:
    troubled.ask("fault", name="block-sid")
    troubled.ioctls(("TAKE_OWNERSHIP", KEY, NOT_AUTHORIZED))
    troubled.refuses(LUKS_FORMAT, f"a passphrase\n{PIN}")
    assert "NOT_AUTHORIZED" in troubled.refuses(INITIAL_SETUP)
    troubled.ioctls(("PSID_REVERT_TPR", {"lr": 0, "key": troubled.psid}, SUCCESS))
    troubled.ioctls(("TAKE_OWNERSHIP", KEY, NOT_AUTHORIZED))
    troubled.power_cycle()
    troubled.ioctls(TAKE_OWNERSHIP)


def test_too_many_wrong_pins_lock_an_authority_out(troubled: GuestSed) -> None:
    troubled.ioctls(TAKE_OWNERSHIP, ACTIVATE, unlock(SUCCESS))
    troubled.ioctls(*[unlock(NOT_AUTHORIZED, "a wrong pin")] * 5)
    troubled.ioctls(unlock(AUTHORITY_LOCKED_OUT), unlock(AUTHORITY_LOCKED_OUT, "a wrong pin"))
    troubled.power_cycle()
    troubled.ioctls(unlock(SUCCESS))
    troubled.ask("fault", name="authority-locked-out", authority="Admin1")
    troubled.ioctls(unlock(AUTHORITY_LOCKED_OUT))
    output = troubled.refuses(f"sedutil-cli -n --listLockingRanges x $(readlink -f {DISK})")
    assert "AUTHORITY_LOCKED_OUT" in output
    troubled.ioctls(("PSID_REVERT_TPR", {"lr": 0, "key": troubled.psid}, SUCCESS), TAKE_OWNERSHIP)


def test_a_shadow_left_on_hides_the_disk(troubled: GuestSed) -> None:
    troubled.ioctls(TAKE_OWNERSHIP, ACTIVATE)
    troubled.write(0, PLAINTEXT)
    troubled.ask("fault", name="shadow-on")
    flags = troubled.ioctls(("GET_STATUS", {}, SUCCESS))[0]["flags"]
    assert flags & (MBR_ENABLED | MBR_DONE) == MBR_ENABLED
    assert PLAINTEXT not in troubled.read(0)
    troubled.assert_denied(0, ways="w")
    troubled.ioctls(("MBR_DONE", {"key": KEY, "done_flag": 1}, SUCCESS))
    assert PLAINTEXT in troubled.read(0)


def test_a_drive_that_claims_opal_and_refuses_it(troubled: GuestSed) -> None:
    troubled.ask("fault", name="refuse-opal")
    assert troubled.ioctls(("GET_STATUS", {}, SUCCESS))[0]["flags"] & 1  # supported, it says
    troubled.ioctls(("TAKE_OWNERSHIP", KEY, FAIL))
    troubled.refuses(LUKS_FORMAT, f"a passphrase\n{PIN}")
    assert "method status code FAIL" in troubled.refuses(INITIAL_SETUP)
    troubled.write(9, PLAINTEXT)  # as a disk it works
    assert PLAINTEXT in troubled.read(9)
    troubled.ask("clear-faults")
    troubled.ioctls(TAKE_OWNERSHIP)


def test_errors_of_the_medium(troubled: GuestSed) -> None:
    troubled.write(9, PLAINTEXT)
    troubled.ask("fault", name="io-error", count=1, on="read")
    assert PLAINTEXT in troubled.read(9)  # Linux tries again
    troubled.ask("fault", name="media-error", lba=9)
    assert "error" in troubled.refuses(f"dd if={DISK} bs=4096 skip=9 count=1 iflag=direct")
    assert PLAINTEXT not in troubled.read(8)
    troubled.ask("clear-faults")
    assert PLAINTEXT in troubled.read(9)
