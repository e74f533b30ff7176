"""cryptsetup's own test of Opal drives, compat-test-opal, on the lab's, for two versions of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import image
from lab.devices import DRIVES, by_id
from lab.state import REPOSITORY
from lab.tests import cryptsetup

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(3600)]  # 8 min on a quiet host

FOLDER = "/root/compat"
LAST_CASE = 47
# It looks for dm-crypt's version in every line with "crypt", and passes case 27 over if the kernel
# has dm-inlinecrypt, too.
DMSETUP = """#!/bin/sh
if [ "$1" = targets ]; then /usr/sbin/dmsetup targets | grep -v inlinecrypt; exit; fi
exec /usr/sbin/dmsetup "$@"
"""


@pytest.mark.parametrize("suite", [image.SUITE, cryptsetup.NEWEST])
def test_cryptsetups_own_test_passes_every_case(
    suite: str, lab: LabHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases 44 and 47 need AES-GCM, AES-CCM and dm-integrity of the kernel."""
    (sed,) = (kind for kind in DRIVES if kind.role == "sed")
    programs = "/usr/sbin"
    lab.ssh(f"rm -rf {FOLDER}; mkdir -p {FOLDER}")
    if suite == cryptsetup.NEWEST:
        (tmp_path / "newest").mkdir()
        cryptsetup.send_newest(lab, FOLDER, tmp_path / "newest")
        programs = f"{FOLDER}/bin"
    (tmp_path / "source").mkdir()
    cryptsetup.send_tests(lab, suite, FOLDER, tmp_path / "source")
    lab.ssh(f"cat >{FOLDER}/psid", stdin=Path(lab.state["drives"]["sed"]["psid_file"]).read_bytes())
    shim = f"{FOLDER}/shim/dmsetup"
    lab.ssh(f"mkdir {FOLDER}/shim; cat >{shim}; chmod +x {shim}", stdin=DMSETUP.encode())
    words = f"PATH={FOLDER}/shim:$PATH CRYPTSETUP_PATH={programs}"
    words += f" OPAL2_DEV={by_id(sed.model, sed.serial)} OPAL2_PSID_FILE={FOLDER}/psid"
    try:
        result = lab.ssh(f"cd {FOLDER}/tests && {words} bash compat-test-opal 2>&1", check=False)
        version = lab.ssh(f"{programs}/cryptsetup --version").stdout.split()[1]
    finally:
        lab.ssh(f"rm -rf {FOLDER}")
    log = REPOSITORY / "build" / f"compat-test-opal-{version}.log"
    log.write_text(result.stdout, encoding="utf-8")
    cases = [int(number) for number in re.findall(r"^CASE: \[(\d+)\]", result.stdout, re.MULTILINE)]
    with capsys.disabled():
        print(f"\ncompat-test-opal of cryptsetup {version}: cases {cases} ({log})")
    assert result.returncode == 0, result.stdout[-3000:]
    assert cases == list(range(LAST_CASE + 1))
