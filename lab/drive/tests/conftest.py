from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.drive.tests.process import Drive

MakeDrive = Callable[..., Drive]


@pytest.fixture
def make_drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeDrive]:
    """Starts real drive processes; they must end cleanly and without a traceback."""
    drives: list[Drive] = []

    def make(opal: bool, block_bytes: int = 4096) -> Drive:
        drive = Drive(Path(tmp_path_factory.mktemp("drive")), opal, block_bytes)
        drives.append(drive)
        drive.start()
        return drive

    yield make
    for drive in drives:
        drive.stop()


@pytest.fixture
def sed(make_drive: MakeDrive) -> Drive:
    """A self-encrypting drive as it leaves the factory."""
    return make_drive(opal=True)
