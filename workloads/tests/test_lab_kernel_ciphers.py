"""The kernel's ciphers on the lab's guest: checked, driver by driver, and nothing remains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent.tests.guest import Guest

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

# In the guest: each job once, the drivers that it reports, and the devices before the end.
SCRIPT = """
import json, os
from workloads.children.kernel_ciphers import CipherJob, prepare
from workloads.children.serving import MissingError
jobs = (
    (["aes"], "xts", 256, ""),
    (["aes"], "xts", 128, "xts-aes-lib"),
    (["serpent"], "cbc", 256, ""),
    (["aes", "twofish", "serpent"], "xts", 256, ""),
    (["absent"], "xts", 256, ""),
    (["aes"], "xts", 256, "xts-aes-absent"),
)
outcomes = []
for names, mode, bits, driver in jobs:
    for operation in ("encrypt", "decrypt"):
        try:
            job = CipherJob(tuple(names), mode, bits, driver, operation, 65536, 2)
            drivers, steps = prepare(job)
            for step in steps:
                step()
            outcomes.append(drivers)
            del steps, step
        except MissingError as error:
            outcomes.append([problem.code for problem in error.problems])
os.system("udevadm settle")
remaining = [n for n in os.listdir("/dev/mapper") if n.startswith("fde-cipher")]
remaining += os.listdir("/dev/shm") + [n for n in os.listdir("/sys/block") if n.startswith("dm-")]
print(json.dumps([outcomes, remaining]))
"""


def test_ciphers_drivers_and_cascades_are_right_and_leave_nothing(lab: LabHandle) -> None:
    guest = Guest(lab)
    outcomes, remaining = json.loads(guest.python(SCRIPT))
    encrypt, decrypt = outcomes[::2], outcomes[1::2]
    assert encrypt == decrypt and remaining == []
    best, lib, serpent, cascade, cipher, driver = encrypt
    assert best[0].startswith("xts-aes-") and lib == ["xts-aes-lib"] and len(cascade) == 3
    assert "serpent" in serpent[0]
    assert (cipher, driver) == (["no-key-length"], ["kernel-lacks-cipher"])
