"""Parts of cryptsetup that a guest lacks: the newest version, its tests and keyctl, by apt.

The guest reaches no archive, so the packages are fetched here and sent.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import image
from lab.tests.fetched import Fetcher

NEWEST = "sid"
UNWANTED = ("systemd_", "libsystemd", "gcc-", "libc-gconv", "openssl-provider")
# Its libraries are newer than the guest's, so that it runs with its own loader.
PROGRAM = """#!/bin/sh
R={folder}/newest/usr
exec $R/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path $R/lib/x86_64-linux-gnu \
  $R/sbin/cryptsetup "$@"
"""


def run(argv: Sequence[str], say: Callable[[str], None]) -> None:
    """Run a program that must succeed; its lines go to `say`."""
    result = subprocess.run(argv, capture_output=True, text=True, check=True)
    for line in result.stdout.splitlines():
        say(line)


def send_newest(lab: Any, folder: str, work: Path) -> None:
    """Put the newest cryptsetup into the guest's `folder`, as bin/cryptsetup; `work` is empty."""
    (work / "newest").mkdir()
    for package in Fetcher(work, (NEWEST,), run).download_with_needs("cryptsetup-bin"):
        if not package.name.startswith(UNWANTED):
            run(["dpkg-deb", "-x", str(package), str(work / "newest")], print)
    lab.send(work / "newest", folder)
    program = f"{folder}/bin/cryptsetup"
    lab.ssh(
        f"mkdir -p {folder}/bin; cat >{program}; chmod +x {program}",
        stdin=PROGRAM.format(folder=folder).encode(),
    )


def send_tests(lab: Any, suite: str, folder: str, work: Path) -> None:
    """Put the tests of a suite's cryptsetup into the guest's `folder`, as tests; `work` is empty.

    What they need and the guest lacks, keyctl, is installed in its overlay.
    """
    Fetcher(work, (suite,), run).download_source("cryptsetup")
    (archive,) = work.glob("cryptsetup_*.orig.tar.gz")
    (work / "tests").mkdir()
    with tarfile.open(archive) as source:
        for member in source:
            path = Path(member.name)
            if path.parent.name == "tests" and path.name in (
                "compat-test-opal",
                "luks2_invalid_cipher.img.xz",
            ):
                content = source.extractfile(member)
                assert content is not None
                (work / "tests" / path.name).write_bytes(content.read())
    lab.send(work / "tests", folder)
    keys = work / "keys"
    keys.mkdir()
    packages = Fetcher(keys, (image.SUITE,), run).download_with_needs("keyutils")
    names = [path for path in packages if path.name.startswith(("keyutils_", "libkeyutils1_"))]
    for package in names:
        lab.send(package, folder)
    lab.ssh(f"cd {folder} && dpkg --install --force-depends *keyutils*.deb")
