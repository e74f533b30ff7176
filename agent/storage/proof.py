"""The proof that a configuration is what the plan says; a mismatch voids the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.errors import AgentError
from agent.plan import Configuration
from agent.storage import canary, devices, mapping, opal
from agent.storage.base import Expectation, Place
from agent.storage.devices import BLOCK, SECTOR_BYTES
from agent.storage.dmcrypt import xts_bits
from agent.storage.secrets import Secrets
from agent.storage.stack import Entered


class ProofError(AgentError):
    """Something that a proof needs could not be read."""


@dataclass(frozen=True)
class Table:
    """A one-line device-mapper table; lengths in 512-byte sectors, `key_bits` of the whole key."""

    target: str
    length_sectors: int
    device: str
    offset_sectors: int
    cipher: str | None = None
    key_bits: int | None = None
    sector_size: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """What must be found; `device` is `major:minor` of the partition."""

    table: Table
    expectation: Expectation
    start_blocks: int
    length_blocks: int
    offset_bytes: int
    size_bytes: int


def parse_table(text: str) -> Table:
    """Parse a `linear` or `crypt` table (kernel documentation); raises ProofError."""
    fields = text.split()
    try:
        if len(text.splitlines()) == 1 and fields[2] == "linear":
            return Table("linear", int(fields[1]), fields[3], int(fields[4]))
        if len(text.splitlines()) == 1 and fields[2] == "crypt":
            options = tuple(fields[9 : 9 + int(fields[8])]) if len(fields) > 8 else ()
            size = [o.partition(":")[2] for o in options if o.startswith("sector_size:")]
            return Table(
                "crypt",
                int(fields[1]),
                fields[6],
                int(fields[7]),
                cipher=fields[3],
                key_bits=_key_bits(fields[4]),
                sector_size=int(size[0]) if size else SECTOR_BYTES,
                options=options,
            )
    except (IndexError, ValueError) as error:
        raise ProofError(f"The table of the mapping cannot be read: {_target(fields)}.") from error
    raise ProofError(f"The mapping is not one linear or crypt segment: {_target(fields)}.")


def without_key(text: str) -> str:
    """The table with a crypt target's key left out, even one that dmsetup has zeroed."""
    fields = text.split()
    if len(fields) > 4 and fields[2] == "crypt":
        fields[4] = f"<{_key_bits(fields[4])}-bit-key>"
    return " ".join(fields)


def _target(fields: list[str]) -> str:
    return " ".join(fields[:4])  # what follows may be a key


def _key_bits(field: str) -> int:
    """A key in the kernel's keyring is `:<bytes>:<type>:<name>`, another is (zeroed) hex."""
    return 8 * int(field.split(":")[1]) if field.startswith(":") else 4 * len(field)


def planned(place: Place, configuration: Configuration, expectation: Expectation) -> Planned:
    """What the plan asks for, in the units in which it is found."""
    name = Path(place.partition).name
    disk = (BLOCK / name).resolve().parent.name
    block_bytes = int((BLOCK / disk / "queue" / "logical_block_size").read_text())
    extent = place.extent
    encrypts = expectation.dm_target == "crypt"
    start_bytes = devices.partition_start_bytes(name) + extent.offset_bytes
    return Planned(
        table=Table(
            expectation.dm_target,
            extent.size_bytes // SECTOR_BYTES,
            (BLOCK / name / "dev").read_text().strip(),
            extent.offset_bytes // SECTOR_BYTES,
            cipher=configuration.cipher if encrypts else None,
            key_bits=xts_bits(configuration) if encrypts else None,
            sector_size=configuration.sector_size if encrypts else None,
        ),
        expectation=expectation,
        start_blocks=start_bytes // block_bytes,
        length_blocks=extent.size_bytes // block_bytes,
        offset_bytes=extent.offset_bytes,
        size_bytes=extent.size_bytes,
    )


def mismatches(
    plan: Planned,
    table: Table,
    luks: Mapping[str, Any] | None,
    range_: Mapping[str, Any] | None,
    seen: Mapping[str, Any],
) -> list[str]:
    """Compare findings with the plan; every difference a sentence, none if it is proven."""
    found = [
        f"dm {key} is {getattr(table, key)!r}, planned {getattr(plan.table, key)!r}"
        for key in asdict(plan.table)
        if key != "options" and getattr(table, key) != getattr(plan.table, key)
    ]
    if plan.expectation.luks_segment is not None:
        found += _luks_mismatches(plan, luks or {})
    if plan.expectation.luks_segment == "hw-opal":
        found += _opal_mismatches(plan, range_ or {})
    return found + _canary_mismatches(plan, seen)


def _luks_mismatches(plan: Planned, luks: Mapping[str, Any]) -> list[str]:
    segment = luks.get("segments", {}).get("0", {})
    wanted: dict[str, Any] = {
        "type": plan.expectation.luks_segment,
        "offset": str(plan.offset_bytes),
    }
    if plan.expectation.dm_target == "crypt":
        wanted |= {"encryption": plan.table.cipher, "sector_size": plan.table.sector_size}
    else:
        wanted |= {"size": str(plan.size_bytes)}
    found = [
        f"LUKS2 {key} is {segment.get(key)!r}, planned {value!r}"
        for key, value in wanted.items()
        if segment.get(key) != value
    ]
    if plan.table.key_bits is not None and luks.get("key_bits") != [plan.table.key_bits]:
        found.append(f"LUKS2 key_bits is {luks.get('key_bits')}, planned [{plan.table.key_bits}]")
    return found


def _opal_mismatches(plan: Planned, opal_found: Mapping[str, Any]) -> list[str]:
    range_ = opal_found.get("range", {})
    status = opal_found.get("status", {})
    wanted = {
        "start_blocks": plan.start_blocks,
        "length_blocks": plan.length_blocks,
        "read_lock_enabled": True,
        "write_lock_enabled": True,
        "state": "unlocked",
    }
    found = [
        f"Opal range {key} is {range_.get(key)!r}, planned {value!r}"
        for key, value in wanted.items()
        if range_.get(key) != value
    ]
    if opal_found.get("locked_read") is None:
        found.append("the range could be read before it was unlocked")
    if not status.get("locking_enabled"):
        found.append("Opal locking is not enabled")
    if status.get("mbr_enabled") and not status.get("mbr_done"):
        found.append("an MBR shadow hides the start of the disk")
    return found


def _canary_mismatches(plan: Planned, seen: Mapping[str, Any]) -> list[str]:
    if not seen["through_mapping"]:
        return ["the canary was not found through the mapping, so the medium proves nothing"]
    if seen["on_medium"] and not plan.expectation.plaintext_on_medium:
        return ["the canary lies in plaintext on the raw partition"]
    if plan.expectation.plaintext_on_medium and not seen["on_medium"]:
        return ["the canary is not on the raw partition, where nothing should encrypt it"]
    return []


def cipher_driver(name: str, crypto: str) -> str | None:
    """The driver of highest priority for an algorithm, from the text of /proc/crypto."""
    best: tuple[int, str] | None = None
    for entry in crypto.split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in entry.splitlines())
        }
        if fields.get("name") == name:
            offer = (int(fields.get("priority", "0")), fields.get("driver", ""))
            best = max(best, offer) if best else offer
    return best[1] if best else None


def algorithm(cipher: str) -> str:
    """The kernel's name of a dm-crypt cipher: aes-xts-plain64 is xts(aes)."""
    words = cipher.split("-")
    return f"{words[1]}({words[0]})" if len(words) > 1 else words[0]


def prove(entered: Entered, secrets: Secrets, folder: Path, key: str) -> dict[str, Any]:
    """Look at the entered configuration and compare; the dictionary of the data contract.

    `folder` lies on the file system under test, `key` makes the canary. Raises AgentError where
    something cannot be read.
    """
    place, configuration = entered.place, entered.configuration
    expectation = entered.kind.expectation()
    text = mapping.table()
    table = parse_table(text)
    luks = opal.luks_metadata(place.partition) if expectation.luks_segment else None
    opal_found = (
        opal.findings(place, secrets, entered.evidence)
        if expectation.luks_segment == "hw-opal"
        else None
    )
    os.sync()
    seen = canary.look(folder, key, mapping.PATH, place.partition, place.extent.offset_bytes)
    plan = planned(place, configuration, expectation)
    found = mismatches(plan, table, luks, opal_found, seen)
    name = algorithm(table.cipher) if table.cipher else None
    return {
        "ok": not found,
        "mismatches": found,
        "planned": asdict(plan),
        "dmsetup_table": without_key(text),
        "luks": luks,
        "opal": opal_found,
        "cipher_driver": cipher_driver(name, Path("/proc/crypto").read_text()) if name else None,
        "key_bits": configuration.key_bits if not found else table.key_bits,
        "sector_size": table.sector_size,
        "canary": seen,
    }
