"""MySQL for the guest: Debian's unstable suite has it, the guest's own suite MariaDB alone.

The guest reaches no archive, so the packages are fetched here, kept in the cache, and sent. The two
servers' packages exclude each other: MySQL's are unpacked beside MariaDB, whose programs have other
names (mariadbd, mariadb).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from contract.errors import LabError
from lab import cache, image
from lab.cache import Say
from lab.state import GIB, cache_dir
from lab.tests.fetched import Fetcher, extracted

SUITES = (image.SUITE, "sid")
PACKAGES = ("mysql-server-core", "mysql-client-core", "mysql-server")
NEEDED = re.compile(r"^\s+Depends: (lib[^\s<]+)$")
NEWER = ("libstdc++6/sid",)  # what the guest has in a version that is too old
LIBRARIES, UNPACKED = "libraries", "unpacked"
FOLDER = "/root/mysql"  # in the guest
ROOM_BYTES = GIB // 4
# As the packages' own scripts do: a link of MariaDB's is no file of MySQL's.
INSTALL = f"""set -e
dpkg --install {{0}}/{LIBRARIES}/*.deb
for name in /usr/sbin/mysqld /usr/bin/mysql; do [ ! -L $name ] || rm $name; done
for deb in {{0}}/{UNPACKED}/*.deb; do
  dpkg-deb --fsys-tarfile $deb |
    tar -C / --keep-directory-symlink --exclude='./etc/[!a]*' --exclude=./var -xf -
done
rm -r {{0}}
"""


def ensure(say: Say) -> Path:
    """Return a directory with the packages, fetched now if the cache has none. Raises LabError."""
    guest = image.ensure(say)
    name = cache.content_hash([], guest.directory, f"{SUITES} {PACKAGES} {guest.directory.name}")
    folder = cache_dir() / "mysql" / name

    def fetch(target: Path) -> None:
        cache.require_programs("apt-get", "debugfs")
        with cache.work_directory("mysql", ROOM_BYTES, target) as (work, log):
            status = extracted(guest.root, "/var/lib/dpkg/status", work)
            if status is None:
                raise LabError(f"the guest's list of packages cannot be read from {guest.root}")
            apt = Fetcher(work, SUITES, lambda argv, on: cache.run(argv, log, on), status)
            depends = [line for package in PACKAGES[:2] for line in apt.depends(package)]
            libraries = [match[1] for match in map(NEEDED.match, depends) if match]
            older = {name.partition("/")[0] for name in NEWER}
            packages = dict.fromkeys(name for name in libraries if name not in older)
            needed = apt.download_with_needs(*packages, *NEWER)
            apt.download(*PACKAGES)
            for place, debs in ((LIBRARIES, needed), (UNPACKED, sorted(work.glob("*.deb")))):
                (target / place).mkdir()
                for deb in debs:
                    (target / place / deb.name).write_bytes(deb.read_bytes())

    cache.ensure(folder, "MySQL", ROOM_BYTES, fetch, say)
    return folder


def install(
    send: Callable[[Path, str], object], ssh: Callable[[str], object], packages: Path
) -> None:
    """Have MySQL beside MariaDB in a guest that is up: its own overlay, the image stays."""
    send(packages, FOLDER)
    ssh(INSTALL.format(f"{FOLDER}/{packages.name}"))
