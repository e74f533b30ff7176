"""Which folders can hold a file disk, on file systems that this machine's kernel has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.storage import backing, uses
from agent.storage.backing import Backing

PRINT = "import sys; from pathlib import Path; from agent.storage import backing; "
PRINT += "print(backing.unfit(Path(sys.argv[1])))"
TMPFS = "mount -t tmpfs none ."
OVERLAY = (
    f"{TMPFS}; cd .; mkdir a b c d; mount -t overlay none -o lowerdir=a,upperdir=b,workdir=c d"
)


@pytest.mark.parametrize(
    ("mounting", "folder", "kind"),
    [(TMPFS, ".", "tmpfs"), (OVERLAY, "d", "overlay"), ("true", "/proc/self", "proc")],
)
def test_a_file_system_without_blocks_is_unfit(
    mounting: str, folder: str, kind: str, tmp_path: Path
) -> None:
    script = f'cd {tmp_path}; {mounting}; cd {tmp_path}; "$@" {folder}'
    argv = [sys.executable, "-c", PRINT]
    result = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-ec", script, "sh", *argv],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    if "mount:" in result.stderr or "unshare:" in result.stderr:
        pytest.skip(f"this machine mounts no {kind}: {result.stderr.strip()}")
    assert result.stdout.strip() == kind, result.stderr


def test_a_folder_of_a_chroot_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount of its root is not shown there."""
    monkeypatch.setattr(uses, "mounts", list)
    assert backing.describe(tmp_path) == Backing("")
    assert backing.device_of(tmp_path) is None
    assert "chroot" in str(backing.unfit(tmp_path))
