"""Small assets, and a directory that other users can enter, as the database server's must."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    """Provide a fresh directory; pytest's own cannot be entered by the database server's user."""
    directory = Path(tempfile.mkdtemp(prefix="fde-workload-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Provide archives laid out like the kernel's source, and a clip of three seconds."""
    folder = tmp_path_factory.mktemp("assets")
    archive, tree = folder / "source.tar.gz", _source_tree(folder)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tree, arcname=tree.name)
    return {"kernel_tree": archive, "kernel_grep": archive, "clip": _clip(folder / "clip.y4m")}


def _source_tree(folder: Path) -> Path:
    """40 files; 30 of them hold the word `module`, each in two lines."""
    source = folder / "linux"
    for number in range(40):
        file = source / ("net" if number % 2 else "kernel") / f"part{number}" / "file.c"
        file.parent.mkdir(parents=True)
        text = f"int line_{number};\n" * 50
        if number % 4:
            text += "#include <linux/module.h>\nmodule_init(start);\n"
        file.write_text(text)
    (source / "link").symlink_to("net")
    return source


def _clip(path: Path, seconds: int = 3, width: int = 64, height: int = 48) -> Path:
    """Grey frames in the YUV4MPEG2 format, 25 a second."""
    luma, chroma = width * height, width * height // 2
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F25:1 Ip A1:1 C420jpeg\n".encode())
        for number in range(25 * seconds):
            file.write(b"FRAME\n" + bytes([number % 256]) * luma + bytes([128]) * chroma)
    return path
