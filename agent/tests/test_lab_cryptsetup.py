"""The newest cryptsetup that Debian has, beside the guest's own: every configuration is proven."""

from __future__ import annotations

from typing import Any

import pytest

from agent.tests.guest import CODE, Target
from agent.tests.test_lab_configurations import CONFIGURATIONS, EXTENT_BYTES
from lab.tests import cryptsetup

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def target(lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Target:
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    cryptsetup.send_newest(lab, CODE, tmp_path_factory.mktemp("apt"))
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
