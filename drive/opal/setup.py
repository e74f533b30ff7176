"""Puts an Opal drive together from its files."""

from __future__ import annotations

from pathlib import Path

from drive.identify import DriveConfig
from drive.media import EncryptedMedia
from drive.opal.byte_table import ByteTable
from drive.opal.core import Core
from drive.opal.locking import Locking
from drive.opal.tper import Tper
from drive.opal.uids import DATA_STORE, MBR
from drive.state import DriveState, StateFile

MBR_BYTES = 128 << 20  # the least that Opal 2.01 asks for, section 4.3.5.4
DATA_STORE_BYTES = 10 << 20  # likewise, section 4.3.7.1


def open_tper(
    file: StateFile,
    state: DriveState,
    media: EncryptedMedia,
    config: DriveConfig,
    block_sid_feature: bool = False,
) -> Tper:
    """The drive's TPer, powered on; its byte tables lie beside the state file."""
    tables = {
        MBR: ByteTable(beside(file.path, "mbr"), MBR_BYTES),
        DATA_STORE: ByteTable(beside(file.path, "datastore"), DATA_STORE_BYTES),
    }
    locking = Locking(state, media, config.blocks, config.block_bytes, tables[MBR])
    return Tper(Core(locking, tables, file.save), block_sid_feature)


def beside(path: Path, suffix: str) -> Path:
    """`state.json` and `mbr` give `state.json.mbr`."""
    return path.with_name(f"{path.name}.{suffix}")
