"""Debian's sedutil-cli in the guest on the self-encrypting drive, unmodified.

It takes passwords on its command line, so only ever run it where nobody else can look: here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

import pytest

from drive.tests.guest_sed import BLOCK_BYTES, DISK, PLAIN_DISK, GuestSed

pytestmark = pytest.mark.lab

PIN, NEW, WRONG = "opensesame", "openbarley", "openwheat"
START, BLOCKS = 256, 1024
INSIDE, OUTSIDE = START + 5, START + BLOCKS + 5
PLAINTEXT = "plaintext-of-the-sedutil-test"
NO_LOCKS = {"RLKEna": "N", "WLKEna": "N", "RLocked": "N", "WLocked": "N"}
REFUSED = "NOT_AUTHORIZED"


@pytest.fixture
def owned(guest_sed: GuestSed) -> Iterator[GuestSed]:
    """Yield a drive after sedutil's own set-up."""
    output = sedutil(guest_sed, f"--initialSetup {PIN}")
    assert "Initial setup of TPer complete" in output
    yield guest_sed


def command(arguments: str, device: str = DISK) -> str:
    return f"sedutil-cli {arguments} $(readlink -f {device})"  # it knows disks by /dev/nvme*


def sedutil(sed: GuestSed, arguments: str) -> str:
    output = sed.run(command(arguments))
    return str(output.stdout + output.stderr)


def ranges(sed: GuestSed) -> dict[int, dict[str, str]]:
    """Each range's first block, number of blocks and flags, as sedutil lists them."""
    text = sedutil(sed, f"--listLockingRanges {PIN}")
    rows = re.findall(r"LR(\d+) Begin (\d+) for (\d+)\s+(.*)", text)
    return {
        int(number): {"begin": begin, "for": length, **dict(re.findall(r"(\w+) = (\w)", flags))}
        for number, begin, length, flags in rows
    }


def query(sed: GuestSed) -> dict[str, str]:
    """Return the flags of the locking feature."""
    return dict(re.findall(r"(\w+) = ([YN])", sedutil(sed, "--query")))


@pytest.mark.conformance(
    "sedutil", "Get C_PIN", "Properties SessionManager", "StartSession SessionManager"
)
def test_finding_the_drive(guest_sed: GuestSed) -> None:
    scan = guest_sed.run("sedutil-cli --scan").stdout
    assert re.search(r"/dev/nvme\d+ +2 +fde-lab-sed", scan)
    assert re.search(r"/dev/nvme\d+ +No +fde-lab-plain", scan)
    assert " SED -2- " in sedutil(guest_sed, "--isValidSED")
    assert " NO " in guest_sed.run(command("--isValidSED", PLAIN_DISK)).stdout
    output = sedutil(guest_sed, "--query")
    assert "OPAL 2.0 function (0x0203)" in output and "Locking Users = 9" in output
    assert "MaxComPacketSize = 65536" in output  # of the drive's properties
    flags = query(guest_sed)
    assert flags["LockingEnabled"] == flags["MBREnabled"] == flags["Locked"] == "N"
    assert re.search(r"MSID: [A-Z0-9]{32}\n", sedutil(guest_sed, "--printDefaultPassword"))


@pytest.mark.conformance(
    "sedutil", "Activate SP", "Get C_PIN", "Get SP", "Properties SessionManager", "Revert SP",
    "Set C_PIN", "Set Locking", "Set MBRControl", "StartSession SessionManager",
    "StartSession SessionManager refused",
)  # fmt: skip
def test_setting_up_and_giving_back(guest_sed: GuestSed) -> None:
    assert "Initial setup of TPer complete" in sedutil(guest_sed, f"--initialSetup {PIN}")
    flags = query(guest_sed)
    assert flags["LockingEnabled"] == flags["MBREnabled"] == flags["MBRDone"] == "Y"
    assert REFUSED in guest_sed.refuses(command(f"--initialSetup {WRONG}"))
    guest_sed.write(OUTSIDE, PLAINTEXT)

    sedutil(guest_sed, f"--setAdmin1Pwd {PIN} {NEW}")
    assert REFUSED in guest_sed.refuses(command(f"--setAdmin1Pwd {PIN} {WRONG}"))
    sedutil(guest_sed, f"--setSIDPassword {PIN} {NEW}")
    assert REFUSED in guest_sed.refuses(command(f"--revertTPer {PIN}"))
    assert PLAINTEXT in guest_sed.read(OUTSIDE)
    assert "revertTper completed" in sedutil(guest_sed, f"--revertTPer {NEW}")
    assert query(guest_sed)["LockingEnabled"] == "N"
    assert PLAINTEXT not in guest_sed.read(OUTSIDE)


@pytest.mark.conformance(
    "sedutil", "Activate SP", "Get SP", "Revert SP", "RevertSP ThisSP", "Set C_PIN", "Set Locking",
    "Set MBRControl", "StartSession SessionManager refused",
)  # fmt: skip
def test_leaving_opal_without_losing_data(owned: GuestSed) -> None:
    owned.write(OUTSIDE, PLAINTEXT)
    assert REFUSED in owned.refuses(command(f"--revertNoErase {WRONG}"))
    assert "Revert LockingSP complete" in sedutil(owned, f"--revertNoErase {PIN}")
    assert query(owned)["LockingEnabled"] == "N"
    assert PLAINTEXT in owned.read(OUTSIDE)
    sedutil(owned, f"--revertTPer {PIN}")  # the Locking SP is not active: nothing to erase
    assert PLAINTEXT in owned.read(OUTSIDE)
    sedutil(owned, f"--initialSetup {NEW}")


@pytest.mark.conformance(
    "sedutil", "GenKey K_AES_256", "Get Locking", "Get LockingInfo", "Set Locking refused"
)
def test_locking_ranges(owned: GuestSed) -> None:
    rows = ranges(owned)
    assert set(rows) == set(range(9))
    assert all(row == {"begin": "0", "for": "0", **NO_LOCKS} for row in rows.values())
    owned.write(OUTSIDE, PLAINTEXT)
    assert REFUSED in owned.refuses(command(f"--setupLockingRange 1 {START} {BLOCKS} {WRONG}"))
    sedutil(owned, f"--setupLockingRange 1 {START} {BLOCKS} {PIN}")
    owned.refuses(command(f"--setupLockingRange 2 {START} 8 {PIN}"))  # it would overlap
    sedutil(owned, f"--enableLockingRange 1 {PIN}")
    owned.write(INSIDE, PLAINTEXT)
    row = {"begin": str(START), "for": str(BLOCKS), "RLKEna": "Y", "WLKEna": "Y"}

    assert REFUSED in owned.refuses(command(f"--setLockingRange 1 LK {WRONG}"))
    assert PLAINTEXT in owned.read(INSIDE)
    sedutil(owned, f"--setLockingRange 1 LK {PIN}")
    assert ranges(owned)[1] == {**row, "RLocked": "Y", "WLocked": "Y"}
    owned.assert_denied(INSIDE)
    assert PLAINTEXT in owned.read(OUTSIDE)
    sedutil(owned, f"--setLockingRange 1 RO {PIN}")
    assert ranges(owned)[1] == {**row, "RLocked": "N", "WLocked": "Y"}
    assert PLAINTEXT in owned.read(INSIDE)
    owned.assert_denied(INSIDE, ways="w")
    assert REFUSED in owned.refuses(command(f"--setLockingRange 1 RW {WRONG}"))
    sedutil(owned, f"--setLockingRange 1 RW {PIN}")
    owned.write(INSIDE + 1, PLAINTEXT)

    assert REFUSED in owned.refuses(command(f"--rekeyLockingRange 1 {WRONG}"))
    assert PLAINTEXT in owned.read(INSIDE)
    sedutil(owned, f"--rekeyLockingRange 1 {PIN}")
    assert PLAINTEXT not in owned.read(INSIDE)
    assert PLAINTEXT in owned.read(OUTSIDE)
    sedutil(owned, f"--setLockingRange 1 LK {PIN}")
    sedutil(owned, f"--disableLockingRange 1 {PIN}")
    owned.write(INSIDE, PLAINTEXT)


@pytest.mark.conformance("sedutil", "Set MBR")
def test_booting_from_the_shadow(owned: GuestSed) -> None:
    image_bytes = 1 << 20
    owned.write(0, PLAINTEXT)
    image = owned.run(f"head -c {image_bytes} /dev/urandom | tee /run/pba.img | sha256sum").stdout
    assert REFUSED in owned.refuses(command(f"--loadPBAimage {WRONG} /run/pba.img"))
    sedutil(owned, f"--loadPBAimage {PIN} /run/pba.img")
    assert PLAINTEXT in owned.read(0)  # MBR Done is set

    sedutil(owned, f"--setMBREnable on {PIN}")
    assert REFUSED in owned.refuses(command(f"--setMBRDone off {WRONG}"))
    sedutil(owned, f"--setMBRDone off {PIN}")
    assert query(owned)["MBREnabled"] == "Y" and query(owned)["MBRDone"] == "N"
    shown = owned.run(f"dd if={DISK} bs=64k count={image_bytes >> 16} iflag=direct | sha256sum")
    assert shown.stdout == image
    after_image = owned.run(
        f"dd if={DISK} bs={BLOCK_BYTES} skip=256 count=1 iflag=direct | sha256sum"
    )
    assert after_image.stdout.split()[0] == sha256(bytes(BLOCK_BYTES)).hexdigest()
    owned.assert_denied(0, ways="w")

    sedutil(owned, f"--setMBRDone on {PIN}")
    assert PLAINTEXT in owned.read(0)
    owned.power_cycle()  # DoneOnReset: the shadow stands there again
    assert query(owned)["MBRDone"] == "N"
    assert PLAINTEXT not in owned.read(0)
    sedutil(owned, f"--setMBREnable off {PIN}")
    assert PLAINTEXT in owned.read(0)


@pytest.mark.conformance("sedutil", "GenKey K_AES_256", "Get Locking")
def test_reverting_by_the_label(owned: GuestSed) -> None:
    sedutil(owned, f"--setupLockingRange 1 {START} {BLOCKS} {PIN}")
    sedutil(owned, f"--enableLockingRange 1 {PIN}")
    owned.write(INSIDE, PLAINTEXT)
    sedutil(owned, f"--setLockingRange 1 LK {PIN}")
    erase = "--yesIreallywanttoERASEALLmydatausingthePSID"
    assert REFUSED in owned.refuses(command(f"{erase} NOTWHATSTANDSONTHELABEL"))
    owned.assert_denied(INSIDE)
    assert "revertTper completed" in sedutil(owned, f"{erase} {owned.psid}")
    assert query(owned)["LockingEnabled"] == "N"
    assert PLAINTEXT not in owned.read(INSIDE)
