"""What a machine of the lab is: something that runs the guest, and what its guest can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lab.cache import Say
from lab.image import Image
from lab.launcher import Launcher
from lab.network import Network
from lab.state import GuestState, Running

# In the lab's directory: what the guest writes to its root disk, over the image that labs share.
OVERLAY = "root.overlay"

# What not every machine's guest has; a test or a fault trial that needs one says so.
WATCHDOG = "a watchdog device"
TWO_CPUS = "two CPUs"
DEBIAN_KERNEL = "Debian's own kernel"


@dataclass(frozen=True)
class Guest:
    """What a machine must know to start the guest.

    `folder` is the lab's directory and `sockets` a short one for Unix sockets; `credentials` are
    files by the name that systemd knows them by; `ssh_port` is for machines that forward one;
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


class Machine(Protocol):
    """Runs the guest. `guest` is its part of the lab's state."""

    name: str
    abilities: frozenset[str]
    needs_wires: bool
    on_one_processor: bool  # of the host

    def why_not(self, image: Image, say: Say, /) -> str | None:
        """Why it cannot serve here, None if it can; it may have to be tried or built first."""

    def address(self, guest: Guest, /) -> tuple[str, int]:
        """Where the guest's SSH server is reached, within the lab's network."""

    def prepare(self, guest: Guest) -> list[str]:
        """Make the guest's root disk and all else that it needs; returns its command.

        Raises LabError where that fails.
        """

    def start(self, launcher: Launcher, command: Sequence[str]) -> Running:
        """Start the guest, or start it again; returns at least its `pid`, and does not wait.

        Raises LabError, with its last lines, where it does not start.
        """

    def reset(self, launcher: Launcher, guest: GuestState, /) -> Running:
        """Press the button on the front: the guest starts again at once, its drives stay on.

        Returns what `start` returns, for the guest as it runs now.
        """

    def set_network(self, guest: GuestState, network: Network, /, *, up: bool) -> None:
        """Plug the guest's network in or pull it; its drives have another wire."""

    def provenance(self) -> dict[str, str | float]:
        """Return what a reader of results must know of it."""
