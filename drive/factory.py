"""Puts a drive together from its files, which one process uses at a time."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from drive.identify import DriveConfig
from drive.media import EncryptedMedia, Media, MediaError, PlainMedia, open_backing
from drive.opal.core import new_secret, new_state
from drive.opal.setup import open_tper
from drive.opal.tper import Tper
from drive.options import UsageError
from drive.own_files import check_distinct
from drive.state import DriveState, StateError, StateFile, sweep_leftovers, write_atomically
from drive.stats import Stats
from drive.subsystem import Subsystem


@dataclass(frozen=True)
class Drive:
    """A drive that is ready to be served; `tper` is None for a plain one."""

    subsystem: Subsystem
    tper: Tper | None


def build(options: argparse.Namespace) -> Drive:
    """Opens or makes the files. A file that is not a drive's is left as it is.

    Raises UsageError, ForeignFileError, MediaError, StateError or OSError.
    """
    check_distinct(options)
    if options.stats is not None:
        stats = Stats(options.stats)
    else:
        with tempfile.NamedTemporaryFile(prefix="virtual-drive-") as unnamed:
            stats = Stats(Path(unnamed.name))
    if options.opal:
        StateFile(options.state).load()  # nothing is made beside a file that is another's
        _lock_state(options.state)
        _check_pair(options)
        for path in (options.state, options.psid_file):
            sweep_leftovers(path)
    fd = open_backing(options.backing, options.size_bytes)
    _lock(fd, options.backing)
    blocks = options.size_bytes // options.block_size
    config = DriveConfig(
        *(options.nqn, options.model, options.serial, options.block_size, blocks, options.opal),
        second_blocks=options.second_namespace // options.block_size,
    )
    media: Media
    if not options.opal:
        media = PlainMedia(fd, options.block_size)
        return Drive(Subsystem(config, media, stats, None), None)
    file = StateFile(options.state)
    state = _opal_state(options, file, fd, config)
    if (state.blocks, state.block_bytes) != (config.blocks, config.block_bytes):
        raise StateError(
            f"{options.state} belongs to a disk of {state.blocks} sectors of {state.block_bytes} "
            f"bytes, not {config.blocks} of {config.block_bytes}; give that --size and --block-size"
        )
    encrypted = EncryptedMedia(fd, options.block_size, stats)
    tper = open_tper(file, state, encrypted, config, options.block_sid_feature)
    return Drive(Subsystem(config, encrypted, stats, tper), tper)


def _lock(fd: int, path: Path) -> None:
    """Holds the file until this process ends; raises MediaError if another one holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise MediaError(f"{path} is in use by another drive; stop that one first") from error


def _lock_state(path: Path) -> None:
    """The state file is replaced with each change, so that a file beside it is locked."""
    beside = path.with_name(f"{path.name}.lock")
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _lock(fd, path)


def _check_pair(options: argparse.Namespace) -> None:
    if options.state.exists() and not options.backing.exists():
        raise UsageError(
            f"{options.state} is there but {options.backing} is not; bring the image back, or "
            "remove the state as well to begin with a new drive"
        )


def _opal_state(
    options: argparse.Namespace, file: StateFile, fd: int, config: DriveConfig
) -> DriveState:
    """The kept state, or that of a new drive whose PSID is the label's."""
    state = file.load()
    if state is not None:
        if options.key_bits not in (None, state.key_bits):
            raise UsageError(
                f"{options.state} is of a drive with {state.key_bits}-bit keys; leave --key-bits "
                "out, or begin with a new image and state"
            )
        return state
    if not _all_holes(fd):
        raise UsageError(
            f"{options.backing} holds data but {options.state} is missing: a new state makes new "
            "keys, under which the data could never be read; restore it, or give an empty image"
        )
    state = new_state(_psid(options.psid_file), config, options.key_bits or 256)
    file.save(state)
    return state


def _psid(path: Path) -> bytes:
    if path.exists():
        psid = path.read_bytes().strip()
    else:
        psid = new_secret()
        write_atomically(path, psid)
    if not 0 < len(psid) <= 32:
        raise UsageError(f"{path} must hold a PSID of 1 to 32 bytes")
    return psid


def _all_holes(fd: int) -> bool:
    """Whether nothing was ever written to the file, as far as its file system can tell."""
    try:
        os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return True
        raise
    return False
