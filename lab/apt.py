"""Debian's packages by apt, with lists and caches of its own: nothing of the host's changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import image

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEFAULT_MIRROR = "http://deb.debian.org/debian"

Run = Callable[[Sequence[str], Callable[[str], None]], None]


class Apt:
    """apt in the directory `work`, for `suites`; the first is preferred where there are several.

    `status` is dpkg's of the system that packages are for: None where nothing is installed. `run`
    runs a command and passes its lines on; it raises LabError where that fails.
    """

    def __init__(
        self, work: Path, suites: Sequence[str], run: Run, status: Path | None = None
    ) -> None:
        self._work, self._run = work, run
        mirror = image.find().url or DEFAULT_MIRROR
        for part in ("lists/partial", "archives/partial"):
            (work / "apt" / part).mkdir(parents=True)
        if status is None:
            status = work / "status"
            status.touch()
        sources = work / "sources.list"
        sources.write_text(
            "".join(f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in suites)
        )
        options = {
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": work / "apt",
            "Dir::State::Status": status,
            "Dir::Cache": work / "apt",
            "Acquire::Languages": "none",
            "APT::Default-Release": suites[0],
        }
        self._words = [f"-o{name}={value}" for name, value in options.items()]
        if os.geteuid() == 0:
            self._words.append("-oAPT::Sandbox::User=root")  # the directory is root's alone
        run(["apt-get", "-qq", *self._words, "update"], _ignore)

    def depends(self, package: str) -> list[str]:
        """What `apt-cache depends` prints, by line."""
        lines: list[str] = []
        self._run(["apt-cache", *self._words, "depends", package], lines.append)
        return lines

    def download(self, *packages: str) -> None:
        """These packages alone, into `work`."""
        place = f'cd "{self._work}" && exec apt-get -qq "$@"'
        self._run(["sh", "-c", place, "sh", *self._words, "download", *packages], _ignore)

    def download_with_needs(self, *packages: str) -> list[Path]:
        """These and what else they need that `status` has not."""
        needs = ["install", "--yes", "--download-only", "--no-install-recommends"]
        self._run(["apt-get", "-qq", *self._words, *needs, *packages], _ignore)
        return sorted((self._work / "apt" / "archives").glob("*.deb"))


def _ignore(_line: str) -> None:
    pass
