"""What device-mapper says of our mappings, read into the terms in which they are planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.command import run
from agent.storage import mapping
from agent.storage.base import Layer, Segment
from agent.storage.devices import SECTOR_BYTES, dm_name
from contract.errors import AgentError


class TableError(AgentError):
    """A table cannot be read."""


def texts(mappings: Iterable[str]) -> dict[str, list[str]]:
    """The lines of the table of each of these mappings, by name; keys are shown as zeros."""
    found: dict[str, list[str]] = {name: [] for name in mappings}
    for line in run(["dmsetup", "table"]).out.splitlines():
        name, _, rest = line.partition(": ")
        if name in found and rest.strip():
            found[name].append(rest.strip())
    return found


def layers(mappings: Mapping[str, str], lines: Mapping[str, list[str]]) -> list[Layer]:
    """These mappings (name to kernel name) as they are; raises TableError."""
    found = []
    for name, kernel in mappings.items():
        # "CRYPT-LUKS2-<its own>-<name>": the first two words tell who made it.
        made_by = "-".join(mapping.uuid(kernel).split("-")[:2])
        segments = tuple(_with_name(parse_line(line)) for line in lines.get(name, []))
        found.append(Layer(name, made_by, segments))
    return found


def parse_line(text: str) -> Segment:
    """One line of a `linear` or `crypt` table (kernel documentation), others by target alone.

    `device` is `major:minor`. Raises TableError.
    """
    fields = text.split()
    try:
        length, target = int(fields[1]), fields[2]
        if target == "linear":
            return Segment(length, target, fields[3], int(fields[4]))
        if target != "crypt":
            return Segment(length, target)
        options = fields[9 : 9 + int(fields[8])] if len(fields) > 8 else []
        sizes = [option.partition(":")[2] for option in options if option.startswith("sector_size")]
        return Segment(
            length,
            target,
            fields[6],
            int(fields[7]),
            cipher=fields[3],
            key_bits=_key_bits(fields[4]),
            sector_size=int(sizes[0]) if sizes else SECTOR_BYTES,
            iv_offset_sectors=int(fields[5]),
            options=tuple(sorted(o for o in options if not o.startswith("sector_size"))),
        )
    except (IndexError, ValueError) as error:
        # What follows may be a key.
        said = " ".join(fields[:4])
        raise TableError(f"The table of a mapping cannot be read: {said}.") from error


def without_key(text: str) -> str:
    """A line with a crypt target's key left out, even one that dmsetup has zeroed."""
    fields = text.split()
    if len(fields) > 4 and fields[2] == "crypt":
        fields[4] = f"<{_key_bits(fields[4])}-bit-key>"
    return " ".join(fields)


def _key_bits(field: str) -> int:
    """A key in the kernel's keyring is `:<bytes>:<type>:<name>`, another is (zeroed) hex."""
    return 8 * int(field.split(":")[1]) if field.startswith(":") else 4 * len(field)


def _with_name(segment: Segment) -> Segment:
    """The segment with the name of the device below instead of its number."""
    if segment.device is None:
        return segment
    kernel = Path(f"/sys/dev/block/{segment.device}").resolve().name
    return Segment(**{**vars(segment), "device": dm_name(kernel) or kernel})
