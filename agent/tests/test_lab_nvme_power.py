"""A drive's own power, through the kernel's pass-through: the virtual drive measures, we read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.tests.guest import Target

pytestmark = pytest.mark.lab

# Prints the energy of two reads, in µJ, and the seconds between; or the code of a refusal.
SCRIPT = """
import json, time
from instrumentation.sources.nvme import NvmePowerError, NvmeSource
try:
    source = NvmeSource.open()
except NvmePowerError as error:
    print(json.dumps({"refused": error.code}))
else:
    time.sleep(1.5)
    first = source.read()
    time.sleep(3)
    last = source.read()
    source.close()
    print(json.dumps({name: [(last[name].energy_uj - first[name].energy_uj) / 1e6,
          (last[name].t_after_ns - first[name].t_after_ns) / 1e9] for name in source.names}))
"""


def test_joules_of_a_drive_that_measures_its_power(lab: Any) -> None:
    target = Target(lab, [], 1 << 30)
    assert json.loads(target.python(SCRIPT)) == {"refused": "no-nvme-power"}
    target.ask("sed", "measure-power", idle_w=2.5)
    try:
        drives = json.loads(target.python(SCRIPT))
    finally:
        target.ask("sed", "measure-power")
    ((energy_j, seconds),) = drives.values()  # of the one drive that measures
    assert energy_j / seconds == pytest.approx(2.5, rel=0.02)
