"""Whether this machine is a guest of the virtual lab, and what the lab passed to it."""

from __future__ import annotations

from pathlib import Path

SIMULATED_RAPL = Path("/sys/module/fde_rapl_sim")


def lab_word(key: str, command_line: str) -> str | None:
    """Return a word that the virtual lab gave its guest's kernel, None outside of it.

    `fde.machine`: what the guest runs on (kvm, uml, tcg); `fde.disks`: the model of its disks.
    """
    words = (word.partition("=") for word in command_line.split())
    return next((value for name, _, value in words if name == key), None)
