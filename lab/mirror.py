"""Where the guest's packages come from: the environment, else the host's own Debian mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIELDS = "$(IDENTIFIER)|$(REPO_URI)|$(LABEL)|$(COMPONENT)"


@dataclass(frozen=True)
class Mirror:
    """`url` None leaves the choice to mmdebstrap; `apt_options` are apt.conf lines of the host."""

    url: str | None
    apt_options: tuple[str, ...]
    certificates: Path | None


def find(environment: Mapping[str, str] = os.environ) -> Mirror:
    """The mirror to build from, with the proxy and certificate settings of the host's apt."""
    options = transport_options(_output("apt-config", "dump"))
    certificates = next(
        (Path(o.split('"')[1]) for o in options if o.startswith("Acquire::https::CaInfo ")), None
    )
    url = environment.get("FDE_MIRROR") or debian_url(
        _output("apt-get", "indextargets", "--format", FIELDS).splitlines()
    )
    return Mirror(url, options, certificates)


def _output(*command: str) -> str:
    """Standard output of a program, empty if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def transport_options(dump: str) -> tuple[str, ...]:
    """The lines of `apt-config dump` that say how to reach a mirror (proxy, certificates)."""
    wanted = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CaInfo")
    return tuple(line for line in dump.splitlines() if line.startswith(wanted))


def debian_url(index_targets: Iterable[str]) -> str | None:
    """Main archive of Debian among the lines of `apt-get indextargets`, None if there is none.

    The label is known only once the lists are fetched; before that the usual path has to do.
    """
    rows = [line.split("|") for line in index_targets]
    main = [r for r in rows if len(r) == 4 and r[0] == "Packages" and r[3] == "main"]
    labelled = [r[1] for r in main if r[2] == "Debian"]
    by_path = [
        r[1] for r in main if r[2] in ("", "$(LABEL)") and r[1].rstrip("/").endswith("/debian")
    ]
    return next(iter(labelled or by_path), None)
