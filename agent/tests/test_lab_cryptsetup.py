"""The newest cryptsetup that Debian has, beside the guest's own: every configuration is proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.tests.guest import CODE, Target
from agent.tests.test_lab_configurations import CONFIGURATIONS
from lab.tests import cryptsetup

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_every_configuration_is_proven(target: Target, tmp_path: Path) -> None:
    target.agent("teardown")
    cryptsetup.send_newest(target.lab, CODE, tmp_path)
    target.agent("prepare")
    version = target.lab.ssh(f"{CODE}/bin/cryptsetup --version").stdout
    packaged = target.lab.ssh("/usr/sbin/cryptsetup --version").stdout
    assert version != packaged and "HW_OPAL" in version
    lines = target.output_lines("storage prove")
    assert [entry["configuration"] for entry in lines] == [c["name"] for c in CONFIGURATIONS]
    unproven = {e["configuration"]: e["proof"]["mismatches"] for e in lines if not e["proof"]["ok"]}
    assert unproven == {}
