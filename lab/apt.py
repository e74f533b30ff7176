"""Download Debian packages by apt with separate lists and caches, without changing the host's.

They come from the mirror that the environment names, else from the host's own Debian mirror.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEFAULT_MIRROR = "http://deb.debian.org/debian"
FIELDS = "$(IDENTIFIER)|$(REPO_URI)|$(LABEL)|$(COMPONENT)"

Run = Callable[[Sequence[str], Callable[[str], None]], None]


@dataclass(frozen=True)
class Mirror:
    """A Debian mirror and the host's apt.conf lines for it; mmdebstrap chooses if `url` is None."""

    url: str | None
    apt_options: tuple[str, ...]
    certificates: Path | None


def find(environment: Mapping[str, str] = os.environ) -> Mirror:
    """Return the mirror to build from, with proxy and certificates of the host's apt."""
    options = transport_options(_output("apt-config", "dump"))
    certificates = next(
        (Path(o.split('"')[1]) for o in options if o.startswith("Acquire::https::CaInfo ")), None
    )
    url = environment.get("FDE_MIRROR") or debian_url(
        _output("apt-get", "indextargets", "--format", FIELDS).splitlines()
    )
    return Mirror(url, options, certificates)


def _output(*command: str) -> str:
    """Return a program's standard output, empty if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def transport_options(dump: str) -> tuple[str, ...]:
    """Return the proxy and certificate settings in the output of `apt-config dump`."""
    prefixes = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CaInfo")
    return tuple(line for line in dump.splitlines() if line.startswith(prefixes))


def debian_url(index_targets: Iterable[str]) -> str | None:
    """Return Debian's main archive from the lines of `apt-get indextargets`, or None.

    The label is known only after the lists are fetched; before that the usual path must do.
    """
    rows = [line.split("|") for line in index_targets]
    main = [r for r in rows if len(r) == 4 and r[0] == "Packages" and r[3] == "main"]
    labelled = [r[1] for r in main if r[2] == "Debian"]
    by_path = [
        r[1] for r in main if r[2] in ("", "$(LABEL)") and r[1].rstrip("/").endswith("/debian")
    ]
    return next(iter(labelled or by_path), None)


class Apt:
    """apt in the directory `work`, for `suites`, of which the first is preferred.

    `status` is dpkg's status file of the system to install on; None for an empty system. `run` runs
    a command and passes its lines on; it raises LabError if the command fails. `archive` replaces
    the mirror, and may be a snapshot of it.
    """

    def __init__(
        self,
        work: Path,
        suites: Sequence[str],
        run: Run,
        status: Path | None = None,
        archive: str | None = None,
    ) -> None:
        self.work, self.run = work, run
        mirror = archive or find().url or DEFAULT_MIRROR
        for part in ("lists/partial", "archives/partial"):
            (work / "apt" / part).mkdir(parents=True)
        if status is None:
            status = work / "status"
            status.touch()
        self.sources = work / "sources.list"
        self.sources.write_text(
            "".join(f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in suites)
        )
        options = {
            "Dir::Etc::SourceList": self.sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State": work / "apt",
            "Dir::State::Status": status,
            "Dir::Cache": work / "apt",
            "Acquire::Languages": "none",
            "APT::Default-Release": suites[0],
            "Acquire::Check-Valid-Until": str(archive is None).lower(),
        }
        self.words = [f"-o{name}={value}" for name, value in options.items()]
        if os.geteuid() == 0:
            self.words.append("-oAPT::Sandbox::User=root")  # the directory is root's alone
        run(["apt-get", "-qq", *self.words, "update"], _ignore)

    def download(self, *packages: str) -> None:
        """Download only these packages into `work`."""
        place = f'cd "{self.work}" && exec apt-get -qq "$@"'
        self.run(["sh", "-c", place, "sh", *self.words, "download", *packages], _ignore)


def _ignore(_line: str) -> None:
    pass
