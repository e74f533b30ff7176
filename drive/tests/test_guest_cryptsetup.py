"""The guest's own cryptsetup on the self-encrypting drive, unmodified, in both of its modes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drive.tests.guest_sed import DISK, GuestSed

pytestmark = pytest.mark.lab

PARTS = (f"{DISK}-part1", f"{DISK}-part2")
NAMES = ("fde-drive-test-1", "fde-drive-test-2")
MAPPED = tuple(f"/dev/mapper/{name}" for name in NAMES)
PASSPHRASE, ADMIN_PIN = "a passphrase", "an administrator's pin"
PLAINTEXT = "plaintext-of-the-cryptsetup-test"
HEADER_BLOCKS = (16 << 20) // 4096  # cryptsetup keeps 16 MiB for its header
INSIDE = HEADER_BLOCKS + 7
BOTH_MODES = pytest.mark.parametrize("mode", ["--hw-opal-only", "--hw-opal"])


@pytest.fixture
def parts(guest_sed: GuestSed) -> Iterator[GuestSed]:
    """Two partitions of 40 MiB on a drive as it left the factory."""
    table = "label: gpt\nstart=1MiB, size=40MiB\nstart=41MiB, size=40MiB\n"
    guest_sed.run(f"sfdisk -q --wipe always {DISK}; udevadm settle; test -b {PARTS[1]}", table)
    yield guest_sed
    guest_sed.run(f"for name in {' '.join(NAMES)}; do cryptsetup close $name; done", check=False)


def luks_format(mode: str, device: str = PARTS[0]) -> str:
    pbkdf = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000"
    return f"cryptsetup luksFormat -q --type luks2 {mode} {pbkdf} {device}"


def secrets_of(passphrase: str = PASSPHRASE, admin_pin: str = ADMIN_PIN) -> str:
    """Return what luksFormat reads."""
    return f"{passphrase}\n{admin_pin}"


def luks_open(index: int = 0) -> str:
    return f"cryptsetup open --key-file - {PARTS[index]} {NAMES[index]}"


def close(index: int = 0) -> str:
    return f"cryptsetup close {NAMES[index]}"


def is_locked(sed: GuestSed, number: int = 1) -> bool:
    rows = {row["range"]: row for row in sed.ask("status")["ranges"]}
    return bool(rows[number]["read_locked"] and rows[number]["write_locked"])


@pytest.mark.conformance(
    "cryptsetup", "Activate SP", "GenKey K_AES_256", "Get C_PIN", "Get Locking", "Get SP",
    "Set ACE", "Set Authority", "Set C_PIN", "Set Locking", "StartSession SessionManager",
    "StartSession SessionManager refused",
)  # fmt: skip
@BOTH_MODES
def test_from_format_to_erase(parts: GuestSed, mode: str) -> None:
    parts.run(luks_format(mode), secrets_of())
    dump = parts.run(f"cryptsetup luksDump {PARTS[0]}").stdout
    assert ("hw-opal\n" if mode == "--hw-opal-only" else "hw-opal-crypt") in dump
    assert "OPAL segment number: 1" in dump
    assert is_locked(parts)
    parts.refuses(luks_open(), "another passphrase")
    assert is_locked(parts)

    parts.run(luks_open(), PASSPHRASE)
    table = parts.run(f"dmsetup table {NAMES[0]}").stdout
    assert (" linear " in table) is (mode == "--hw-opal-only")
    parts.write(7, PLAINTEXT, MAPPED[0])
    assert PLAINTEXT in parts.read(7, MAPPED[0])
    assert "resize" in parts.refuses(f"cryptsetup resize --size 4096 {NAMES[0]}", PASSPHRASE)
    parts.run(close())
    parts.assert_denied(INSIDE, PARTS[0])
    assert not parts.medium_holds(PLAINTEXT)

    parts.refuses(f"cryptsetup luksErase -q {PARTS[0]}", "not the administrator's")
    parts.run(luks_open(), PASSPHRASE)
    assert PLAINTEXT in parts.read(7, MAPPED[0])
    parts.run(close())
    parts.run(f"cryptsetup luksErase -q {PARTS[0]}", ADMIN_PIN)
    parts.refuses(luks_open(), PASSPHRASE)
    assert PLAINTEXT not in parts.read(INSIDE, PARTS[0])

    parts.refuses(luks_format(mode), secrets_of(admin_pin="not the administrator's"))
    parts.run(
        luks_format(mode), secrets_of()
    )  # an owned drive is formatted again with the same PIN
    parts.run(luks_open(), PASSPHRASE)


@pytest.mark.conformance(
    "cryptsetup", "Activate SP", "GenKey K_AES_256", "Get C_PIN", "Get Locking", "Get SP",
    "Set ACE", "Set Authority", "Set C_PIN", "Set Locking", "StartSession SessionManager",
)  # fmt: skip
def test_two_partitions_are_two_ranges(parts: GuestSed) -> None:
    secrets = ("the first passphrase", "the second passphrase")
    for part, secret in zip(PARTS, secrets, strict=True):
        parts.run(luks_format("--hw-opal-only", part), secrets_of(secret))
    assert "OPAL segment number: 2" in parts.run(f"cryptsetup luksDump {PARTS[1]}").stdout
    for index, secret in enumerate(secrets):
        parts.run(luks_open(index), secret)
        parts.write(7, f"{PLAINTEXT}-{index}", MAPPED[index])

    parts.run(close(0))
    assert is_locked(parts, 1) and not is_locked(parts, 2)
    parts.assert_denied(INSIDE, PARTS[0])
    assert f"{PLAINTEXT}-1" in parts.read(7, MAPPED[1])
    parts.refuses(luks_open(0), secrets[1])

    parts.run(f"cryptsetup luksErase -q {PARTS[0]}", ADMIN_PIN)
    assert f"{PLAINTEXT}-1" in parts.read(7, MAPPED[1])
    parts.run(close(1))
    parts.run(luks_open(1), secrets[1])
    assert f"{PLAINTEXT}-1" in parts.read(7, MAPPED[1])


@pytest.mark.conformance("cryptsetup", "Revert SP", "StartSession SessionManager refused")
def test_a_factory_reset_gives_the_drive_back_without_its_data(parts: GuestSed) -> None:
    parts.run(luks_format("--hw-opal-only"), secrets_of())
    parts.write(0, PLAINTEXT)
    reset = f"cryptsetup luksErase -q --hw-opal-factory-reset {DISK}"
    parts.refuses(reset, "NOT-WHAT-STANDS-ON-THE-LABEL")
    assert PLAINTEXT in parts.read(0)
    assert parts.ask("status")["locking_active"]
    parts.run(reset, parts.psid)
    assert not parts.ask("status")["locking_active"]
    assert PLAINTEXT not in parts.read(0)
