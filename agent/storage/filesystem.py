"""Encryption by the file system: fscrypt on ext4, below a folder that stands in the mount point.

Contents and names are encrypted; sizes, times, owners, the tree's shape and all of the file
system's own structures are not, which the proof shows as well. Calls, modes and their numbers are
those of linux/fscrypt.h and Documentation/filesystems/fscrypt.rst. The key is a new random one at
each switch, and goes with the mount.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from agent.storage import plaintext_probe
from agent.storage.base import DISCARD, PROCESSOR, Expectation, Place
from agent.storage.devices import opened
from agent.storage.plain import Plain
from agent.storage.secrets import Secrets
from contract.errors import AgentError
from contract.parameters import Parameter
from contract.plan import Configuration

# Of contents and of names.
MODES = {"aes-256-xts": (1, 4), "adiantum": (9, 9)}
_LABELS = {"aes-256-xts": "AES-256", "adiantum": "Adiantum"}
_ADD_KEY, _SET_POLICY, _GET_POLICY_EX = 0xC0506617, 0x800C6613, 0xC0096616
_POLICY = struct.Struct("=BBBBB3x16s")
_KEY = struct.Struct("=II16s16xII32x")  # kind of the name, 0, name, key's length, 0
_NAME_IS_IDENTIFIER, _KEY_BYTES, _PAD_32 = 2, 64, 3
_SUPERBLOCK_MAGIC, _SUPERBLOCK_MAGIC_AT = b"\x53\xef", 1024 + 56


class FilesystemError(AgentError):
    """The file system does not encrypt."""


class FilesystemEncryption(Plain):
    """dm-linear as for plain, and an encrypted folder on it."""

    name: ClassVar[str] = "filesystem"
    encrypted_by: ClassVar[str] = PROCESSOR
    filesystems: ClassVar[tuple[str, ...]] = ("ext4",)
    mkfs_options: ClassVar[tuple[str, ...]] = ("-O", "encrypt")
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("cipher", "aes-256-xts", "", "of contents", choices=tuple(MODES), required=True),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        return f"fscrypt {_LABELS[str(configuration.settings['cipher'])]}"

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        layers = super().expectation(place, configuration).layers
        return Expectation(layers=layers, encrypted_files=True)

    def after_mount(
        self, folder: Path, configuration: Configuration, secrets: Secrets
    ) -> Path | None:
        del secrets
        inner = folder / "encrypted"
        inner.mkdir(mode=0o755)
        try:
            identifier = _add_key(folder, os.urandom(_KEY_BYTES))
            modes = MODES[str(configuration.settings["cipher"])]
            _ioctl(inner, _SET_POLICY, bytearray(_POLICY.pack(2, *modes, _PAD_32, 0, identifier)))
        except OSError as error:
            raise FilesystemError(
                f"Configuration {configuration.name} cannot be ({error.strerror}): the kernel "
                "needs CONFIG_FS_ENCRYPTION and the cipher, or leave the configuration out."
            ) from error
        return inner

    def findings(
        self, place: Place, configuration: Configuration, folder: Path, key: str
    ) -> dict[str, Any]:
        try:
            found = _names(place, folder, f"plaintext-name-{key}")
            policy = bytearray(struct.pack("=Q", _POLICY.size) + bytes(_POLICY.size))
            _ioctl(folder, _GET_POLICY_EX, policy)
        except OSError as error:
            return {"refused": f"the encrypted folder cannot be examined ({error.strerror})"}
        version, *modes = _POLICY.unpack_from(policy, 8)[:3]
        found |= {"policy_version": version, "modes": modes}
        if tuple(modes) != MODES[str(configuration.settings["cipher"])]:
            return found | {"refused": f"the folder's policy has modes {modes}"}
        if not found["directory_on_medium"]:
            return found | {"refused": "the folder's entries were not found on the raw partition"}
        if found["names_on_medium"]:
            return found | {"refused": "names of files lie in plaintext on the raw partition"}
        return found


def _names(place: Place, folder: Path, name: str) -> dict[str, Any]:
    """Whether the folder's block is where the file system says (its own entry, `.`, is there with
    the inode's number, never encrypted), whether a file's name is in it, and whether the
    superblock can be read. Raises OSError."""
    path = folder / name
    path.touch()
    try:
        with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
            os.fsync(fd)
            os.sync()
            physical = plaintext_probe.physical(fd)
        begin = place.extent.offset_bytes
        block = plaintext_probe.read_direct(place.partition, begin + physical)
        first = plaintext_probe.read_direct(place.partition, begin)
    finally:
        with suppress(OSError):
            path.unlink()
    own_entry = struct.pack("<IHBB", folder.stat().st_ino, 12, 1, 2) + b"."
    magic = first[_SUPERBLOCK_MAGIC_AT : _SUPERBLOCK_MAGIC_AT + 2]
    return {
        "directory_on_medium": block.startswith(own_entry),
        "names_on_medium": name.encode() in block,
        "superblock_on_medium": magic == _SUPERBLOCK_MAGIC,
    }


def _add_key(folder: Path, key: bytes) -> bytes:
    """The key's identifier, which the kernel makes from it."""
    head = _KEY.pack(_NAME_IS_IDENTIFIER, 0, bytes(16), len(key), 0)
    buffer = bytearray(head + key)
    _ioctl(folder, _ADD_KEY, buffer)
    identifier: bytes = _KEY.unpack_from(buffer)[2]
    return identifier


def _ioctl(folder: Path, number: int, buffer: bytearray) -> None:
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        fcntl.ioctl(fd, number, buffer, True)
