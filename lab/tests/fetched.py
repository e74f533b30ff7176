"""Debian's packages with all that they need, and files of the guest's image, for tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab import cache
from lab.apt import Apt


class Fetcher(Apt):
    """apt that also finds what a package needs."""

    def depends(self, package: str) -> list[str]:
        """Return what `apt-cache depends` prints, by line."""
        lines: list[str] = []
        self.run(["apt-cache", *self.words, "depends", package], lines.append)
        return lines

    def download_source(self, package: str) -> None:
        """Download the parts of a source package into `work`."""
        lines = self.sources.read_text(encoding="utf-8")
        self.sources.write_text(lines.replace("deb [", "deb-src ["), encoding="utf-8")
        self.run(["apt-get", "-qq", *self.words, "update"], print)
        place = f'cd "{self.work}" && exec apt-get -qq "$@"'
        command = ["sh", "-c", place, "sh", *self.words, "source", "--download-only", package]
        self.run(command, print)

    def download_with_needs(self, *packages: str) -> list[Path]:
        """Download packages and the dependencies that `status` lacks."""
        needs = ["install", "--yes", "--download-only", "--no-install-recommends"]
        self.run(["apt-get", "-qq", *self.words, *needs, *packages], print)
        return sorted((self.work / "apt" / "archives").glob("*.deb"))


def extracted(root: Path, path: str, folder: Path) -> Path | None:
    """Extract an image's file into `folder`; None without debugfs, image or file."""
    debugfs = shutil.which("debugfs", path=cache.system_path())
    if debugfs is None or not root.exists():
        return None
    copy = folder / Path(path).name
    # It needs no mount, and ends with 0 whether or not it found the file.
    request = f'dump "{path}" "{copy}"'
    subprocess.run([debugfs, "-R", request, root], capture_output=True, check=False)
    return copy if copy.exists() and copy.stat().st_size else None
