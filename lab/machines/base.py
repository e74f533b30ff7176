"""Inputs for starting the guest on any machine, and abilities that not every machine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.image import Image
from lab.network import Network

# In the lab's directory: the guest's writes to its root disk, over the image that labs share.
OVERLAY = "root.overlay"

# Abilities that some guests lack; tests and fault trials declare those that they need.
WATCHDOG = "a watchdog device"
TWO_CPUS = "two CPUs"
DEBIAN_KERNEL = "Debian's own kernel"


@dataclass(frozen=True)
class Guest:
    """Everything that a machine needs to start the guest.

    `folder` is the lab's directory and `sockets` a short one for Unix sockets; `credentials` are
    files by the name of their systemd credential; `ssh_port` is for machines that forward one;
    `host_page` is the memory that the guest shares with the meter (`lab.host_time.HostPage`).
    """

    image: Image
    folder: Path
    sockets: Path
    console: Path
    network: Network
    host_page: Path
    ssh_port: int
    credentials: Mapping[str, Path] = field(default_factory=dict)
    kernel_words: Sequence[str] = ()
