"""`fde` installed by pip on a separate machine: a guest, whose ordinary user may use sudo.

The guest reaches no package index: what pip would fetch is fetched here, kept in the cache, and
sent. So no network is in the time from a clone to the first joule, and the report notes it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

from contract.errors import LabError
from lab import cache
from lab.state import GIB, REPOSITORY, cache_dir
from validation.bench import Figure, at_most
from validation.first_use.guest import foreign

USER = "owner"
FDE = f"/home/{USER}/env/bin/fde"
PYTHON = "3.13"  # the guest's
# Which wheels the guest's glibc takes (PEP 600); pip wants each by name.
PLATFORMS = ("manylinux2014_x86_64", *(f"manylinux_2_{n}_x86_64" for n in range(17, 42)))
BUILD = ("pip", "setuptools>=77", "wheel")
PINNED = re.compile(r"^[\w.\[\]-]+==[^\\\n]+", re.MULTILINE)
ROOM_BYTES = 2 * GIB
ACCOUNT = f"""
id {USER} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(root) NOPASSWD: ALL' >/etc/sudoers.d/{USER}
"""
INSTALL = """
python3 -m venv --without-pip env
env/bin/python "$(echo wheels/pip-*.whl)/pip" install --quiet --no-index --find-links wheels pip
env/bin/pip install --quiet --no-index --find-links wheels ./fde-testbed
"""


def wheels(say: cache.Say) -> Path:
    """Fetch wheels for the guest's Python, pinned by the lock. Raises LabError."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = [*BUILD, *project["project"]["dependencies"]]
    lock = REPOSITORY / "requirements.lock"
    folder = (
        cache_dir() / "wheels" / cache.content_hash([lock], REPOSITORY, f"{requirements} {PYTHON}")
    )

    def fetch(target: Path) -> None:
        with cache.work_directory("wheels", ROOM_BYTES, target) as (work, log):
            pins = work / "constraints.txt"
            pins.write_text("\n".join(_pins(lock.read_text(encoding="utf-8"))) + "\n")
            options = ["--quiet", "--dest", str(target), "--constraint", str(pins)]
            options += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
            options += [f"--platform={name}" for name in PLATFORMS]
            cache.run([sys.executable, "-P", "-m", "pip", "download", *options, *requirements], log)

    cache.ensure(folder, "wheels", ROOM_BYTES, fetch, say)
    return folder


def _pins(lock: str) -> Iterator[str]:
    """Yield the pins for the guest's Python; pip would evaluate markers for the running one."""
    for line in PINNED.findall(lock):
        requirement = Requirement(line)
        environment = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield f"{requirement.name}{requirement.specifier}"


def send(sh: Callable[[str, bytes], object], packages: Path) -> None:
    """Send the account, a clone of this checkout and the packages; `sh` is a root shell there."""
    sh(ACCOUNT, b"")
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    ).stdout
    for name, folder, listed in (
        ("fde-testbed", REPOSITORY, files),
        ("wheels", packages, b"\0".join(p.name.encode() for p in packages.glob("*.whl")) + b"\0"),
    ):
        packed = subprocess.run(
            ["tar", "--null", "--files-from=-", "-cf", "-"],
            input=listed,
            cwd=folder,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        place = f"/home/{USER}/{name}"
        sh(f"mkdir -p {place}; tar -C {place} -xf -; chown -R {USER}: {place}", packed)


def as_user(script: str) -> str:
    """Return a script of root's that runs this one as the user, in a login shell."""
    quoted = script.replace("'", "'\\''")
    return f"runuser -l {USER} -c 'set -eu\n{quoted}'"


def measure(quick: bool = False) -> list[Figure]:  # noqa: ARG001 - it is as short as it can be
    """Measure the minutes from a clone to the first joule of `fde run`, by RAPL."""
    try:
        packages = wheels(lambda line: print(line, file=sys.stderr))
    except LabError as error:
        raise SystemExit(f"fde: {error}") from error
    with foreign() as guest:
        send(guest.sh, packages)
        started_s = time.monotonic()
        guest.sh(as_user(INSTALL))
        installed_s = time.monotonic() - started_s
        output = guest.sh(as_user(f"sudo {FDE} measure --runs 1 -- sleep 1"))
        took_s = time.monotonic() - started_s
    print(output)
    return [
        at_most("clone to first joule, without the network's time", took_s / 60, "min", 5),
        Figure("of it installing", installed_s / 60, "min"),
        at_most("commands after the install", 1, "", 1),
        at_most("first figures without a joule", int(" J" not in output), "", 0),
    ]
