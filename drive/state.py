"""Persistent state of an Opal drive, and the file that stores it.

The file holds a data key in clear (`open_key`) exactly while the drive must serve its range after
power-on before anybody has authenticated; otherwise only wrapped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "fde-drive/2"
POWER_CYCLE, HARDWARE, HOT_PLUG, PROGRAMMATIC = range(4)  # TCG reset types (Opal 2.01, table 13)
_MAX_FILE_BYTES = 1 << 20
_log = logging.getLogger("drive")


class StateError(Exception):
    """The state file cannot be used; the message is one sentence for people."""


@dataclass
class Credential:
    """Verifier of a PIN (scrypt of its hash); the PIN also unwraps the SP's key, `wrapped_kek`."""

    salt: bytes
    cost: int
    verifier: bytes
    wrapped_kek: bytes = b""


@dataclass
class Authority:
    """An authority that may open sessions; without a credential it cannot, enabled or not."""

    enabled: bool = False
    credential: Credential | None = None


@dataclass
class RangeState:
    """A row of the Locking table with its media key."""

    start: int = 0
    length: int = 0
    read_lock_enabled: bool = False
    write_lock_enabled: bool = False
    read_locked: bool = False
    write_locked: bool = False
    lock_on_reset: list[int] = field(default_factory=lambda: [POWER_CYCLE])
    open_key: bytes = b""
    wrapped_key: bytes = b""

    @property
    def readable(self) -> bool:
        return not (self.read_lock_enabled and self.read_locked)

    @property
    def writable(self) -> bool:
        return not (self.write_lock_enabled and self.write_locked)

    @property
    def served_at_power_on(self) -> bool:
        """Whether a power cycle leaves the range readable or writable for anybody."""
        locks = POWER_CYCLE in self.lock_on_reset
        keeps_read = not (self.read_lock_enabled and (locks or self.read_locked))
        keeps_write = not (self.write_lock_enabled and (locks or self.write_locked))
        return keeps_read or keeps_write

    def lock_for_reset(self, event: int) -> None:
        """Lock what is enabled, if `event` is one that locks."""
        if event in self.lock_on_reset:
            self.read_locked = self.read_locked or self.read_lock_enabled
            self.write_locked = self.write_locked or self.write_lock_enabled


@dataclass
class MbrControl:
    """The MBRControl table's row."""

    enabled: bool = False
    done: bool = False
    done_on_reset: list[int] = field(default_factory=lambda: [POWER_CYCLE])

    @property
    def shadows(self) -> bool:
        """Whether hosts see the MBR table in place of the first blocks."""
        return self.enabled and not self.done

    def reset(self, event: int) -> None:
        """Show the shadow again, if `event` requires it."""
        if event in self.done_on_reset:
            self.done = False


@dataclass
class DriveState:
    """The whole state of one drive; `ranges[0]` is the global range.

    `admin1` and `programmatic_reset` are the Admin SP's. `aces` and `names` hold only changed
    values, by UID in hexadecimal.
    """

    blocks: int
    block_bytes: int
    key_bits: int
    msid: bytes
    sid: Credential
    psid: Credential
    admin1: Authority = field(default_factory=Authority)
    programmatic_reset: bool = False
    locking_active: bool = False
    authorities: dict[str, Authority] = field(default_factory=dict)
    aces: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, bytes] = field(default_factory=dict)
    ranges: list[RangeState] = field(default_factory=list)
    mbr: MbrControl = field(default_factory=MbrControl)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    raise TypeError(type(value).__name__)


def _revive(value: dict[str, Any]) -> Any:
    return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else value


def _authority(row: dict[str, Any]) -> Authority:
    credential = row.pop("credential")
    return Authority(**row, credential=Credential(**credential) if credential else None)


def dump(state: DriveState) -> bytes:
    """Return the state as JSON."""
    document = {"format": FORMAT, **asdict(state)}
    return json.dumps(document, default=_plain, indent=1).encode() + b"\n"


def parse(data: bytes) -> DriveState:
    """Parse the output of `dump`; raises StateError for anything else."""
    try:
        document = json.loads(data, object_hook=_revive)
        if document.pop("format") != FORMAT:
            raise ValueError("another format")
        for name in ("sid", "psid"):
            document[name] = Credential(**document[name])
        document["admin1"] = _authority(document["admin1"])
        document["authorities"] = {k: _authority(v) for k, v in document["authorities"].items()}
        document["mbr"] = MbrControl(**document["mbr"])
        document["ranges"] = [RangeState(**row) for row in document["ranges"]]
        return DriveState(**document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"not a drive state of format {FORMAT}: {error}") from error


class StateFile:
    """The state file; at any instant it holds the old or the new state whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> DriveState | None:
        """Return the stored state, None without a file; raises StateError if it is damaged."""
        try:
            status = self.path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
                raise StateError(f"{self.path} is not a drive's state; name another file")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return parse(data)
        except StateError as error:
            raise StateError(
                f"{self.path} is damaged or not a drive's ({error}); restore it or name another "
                "file; if it was this drive's, remove it together with the image to begin again"
            ) from error

    def save(self, state: DriveState) -> None:
        """Replace the state file atomically."""
        write_atomically(self.path, dump(state))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path`, readable by the owner only, as a whole or not at all.

    Raises OSError with the old file in place, and never once the new one is.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        try:
            os.fsync(directory)
        except OSError as error:  # it is written, and may not outlast a crash of the host
            _log.error("the folder of %s could not be flushed: %s", path, error)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(directory)


def sweep_leftovers(path: Path) -> None:
    """Remove what a killed `write_atomically` left next to `path`, which may hold keys.

    No other process may be writing it.
    """
    ours = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{8}")
    for entry in path.parent.iterdir():
        if ours.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink():
            entry.unlink()
