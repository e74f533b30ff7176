"""The newest cryptsetup that Debian has, beside the guest's own: every configuration is proven.

Its libraries are newer than the guest's, so that it runs with its own loader.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.tests.guest import CODE, Target
from agent.tests.test_lab_configurations import CONFIGURATIONS, EXTENT_BYTES
from lab.apt import Apt

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SUITE = "sid"
UNWANTED = ("systemd_", "libsystemd", "gcc-", "libc-gconv", "openssl-provider")
PROGRAM = f"""#!/bin/sh
R={CODE}/newest/usr
exec $R/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path $R/lib/x86_64-linux-gnu \
  $R/sbin/cryptsetup "$@"
"""


def run(argv: Sequence[str], say: Callable[[str], None]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        say(line)


@pytest.fixture(scope="module")
def target(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Target:
    work = tmp_path_factory.mktemp("apt")
    (work / "newest").mkdir()
    for package in Apt(work, (SUITE,), run).download_with_needs("cryptsetup-bin"):
        if not package.name.startswith(UNWANTED):
            run(["dpkg-deb", "-x", str(package), str(work / "newest")], print)
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    target.lab.send(work / "newest", CODE)
    target.lab.ssh(
        f"mkdir -p {CODE}/bin; cat >{CODE}/bin/cryptsetup; chmod +x {CODE}/bin/cryptsetup",
        stdin=PROGRAM.encode(),
    )
    target.agent("teardown")
    target.agent("prepare")
    return target


def test_every_configuration_is_proven(target: Target) -> None:
    version = target.lab.ssh(f"{CODE}/bin/cryptsetup --version").stdout
    packaged = target.lab.ssh("/usr/sbin/cryptsetup --version").stdout
    assert version != packaged and "HW_OPAL" in version
    lines = target.said("storage prove")
    assert [entry["configuration"] for entry in lines] == [c["name"] for c in CONFIGURATIONS]
    unproven = {e["configuration"]: e["proof"]["mismatches"] for e in lines if not e["proof"]["ok"]}
    assert unproven == {}
    target.agent("teardown")
