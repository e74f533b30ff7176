"""Build a drive from its files, which only one process may use at a time."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import tempfile
from pathlib import Path

from .identify import DriveConfig
from .media import EncryptedMedia, MediaError, PlainMedia, open_backing
from .opal.byte_table import ByteTable
from .opal.core import Core, new_secret, new_state
from .opal.locking import Locking
from .opal.tper import Tper
from .opal.uids import DATA_STORE, MBR
from .options import UsageError
from .own_files import beside, check_distinct
from .state import DriveState, StateError, StateFile, sweep_leftovers, write_atomically
from .stats import Stats
from .subsystem import Subsystem

MBR_BYTES = 128 << 20  # the least that Opal 2.01 asks for, section 4.3.5.4
DATA_STORE_BYTES = 10 << 20  # likewise, section 4.3.7.1


def build(options: argparse.Namespace) -> Subsystem:
    """Open or create the files of a drive. A file that is not a drive's is left unchanged.

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
        # The state file is replaced with each change, so a file beside it is locked.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        _lock(os.open(beside(options.state, "lock"), flags, 0o600), options.state)
        if options.state.exists() and not options.backing.exists():
            raise UsageError(
                f"{options.state} is there but {options.backing} is not; bring the image back, or "
                "remove the state as well to begin with a new drive"
            )
        for path in (options.state, options.psid_file):
            sweep_leftovers(path)
    fd = open_backing(options.backing, options.size_bytes)
    _lock(fd, options.backing)
    blocks = options.size_bytes // options.block_size
    config = DriveConfig(
        *(options.nqn, options.model, options.serial, options.block_size, blocks, options.opal),
        second_blocks=options.second_namespace // options.block_size,
    )
    if not options.opal:
        return Subsystem(config, PlainMedia(fd, options.block_size), stats)
    file = StateFile(options.state)
    state = _opal_state(options, file, fd, config)
    if (state.blocks, state.block_bytes) != (config.blocks, config.block_bytes):
        raise StateError(
            f"{options.state} belongs to a disk of {state.blocks} sectors of {state.block_bytes} "
            f"bytes, not {config.blocks} of {config.block_bytes}; give that --size and --block-size"
        )
    encrypted = EncryptedMedia(fd, options.block_size, stats)
    tper = open_tper(file, state, encrypted, config, options.block_sid_feature)
    return Subsystem(config, encrypted, stats, tper)


def open_tper(
    file: StateFile,
    state: DriveState,
    media: EncryptedMedia,
    config: DriveConfig,
    block_sid_feature: bool,
) -> Tper:
    """Return the drive's TPer, powered on; its byte tables are stored next to the state file."""
    tables = {
        MBR: ByteTable(beside(file.path, "mbr"), MBR_BYTES),
        DATA_STORE: ByteTable(beside(file.path, "datastore"), DATA_STORE_BYTES),
    }
    locking = Locking(state, media, config.blocks, config.block_bytes, tables[MBR])
    return Tper(Core(locking, tables, file.save), block_sid_feature)


def _lock(fd: int, path: Path) -> None:
    """Lock the file until this process ends; raises MediaError if another one holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise MediaError(f"{path} is in use by another drive; stop that one first") from error


def _opal_state(
    options: argparse.Namespace, file: StateFile, fd: int, config: DriveConfig
) -> DriveState:
    """Load the stored state, or create that of a new drive with the label's PSID."""
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
    """Return whether nothing was ever written to the file, as far as its file system knows."""
    try:
        os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return True
        raise
    return False
