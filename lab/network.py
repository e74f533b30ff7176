"""The lab's network: a user and a network namespace, unreachable for all other users.

    unshare --user --map-root-user --net python -m lab.network [--wires] --ready-file FILE

With `--wires` it has two tap devices: `net` carries SSH to the guest, `drives` its NVMe/TCP. Both
sides have the addresses of QEMU's user network, so that a guest sees the same on every machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.files import write_json

WIRES = {"net": "10.0.2.2/24", "drives": "10.0.3.2/24"}
GUEST_ADDRESS = "10.0.2.15"
NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
CONNECT = Path(__file__).with_name("connect.py")
PROBE_LIMIT_S = 10.0


@dataclass(frozen=True)
class Network:
    """Network of the lab's processes: the namespaces of process `pid`, or the host's loopback."""

    pid: int | None = None

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return `command`, run in this network with the same process id."""
        if self.pid is None:
            return list(command)
        namespace = ["nsenter", f"--target={self.pid}", "--user", "--net", "--preserve-credentials"]
        return [*namespace, "--", *command]

    def connector(self, address: tuple[str, int]) -> list[str]:
        """Return the command that connects to an address here and passes on the socket."""
        host, port = address
        return self.enter([sys.executable, "-ISs", str(CONNECT), host, str(port)])

    def connect(self, address: tuple[str, int], limit_s: float) -> socket.socket:
        """Return a TCP connection to an address in this network. Raises OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(limit_s)
            with subprocess.Popen(
                self.connector(address), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
            ) as process:
                theirs.close()
                try:
                    _, handles, _, _ = socket.recv_fds(ours, 1, 1)
                finally:
                    process.kill()
        if not handles:
            raise ConnectionError(f"nothing listens on {address[0]}:{address[1]}")
        connection = socket.socket(fileno=handles[0])
        connection.settimeout(limit_s)
        return connection


def why_not() -> str | None:
    """Return why this user cannot create such a network here, found by trying; None if it works."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"the program {program} is missing: run `make packages`"
    try:
        tried = subprocess.run(
            [*NAMESPACE, "ip", "link", "set", "lo", "up"],
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"unshare did not make a network namespace within {PROBE_LIMIT_S:.0f} s"
    if tried.returncode == 0:
        return None
    errors = tried.stderr.strip().splitlines()
    return (
        "this system does not let its users make network namespaces "
        f"({errors[-1] if errors else 'no reason given'}); an administrator allows it with: "
        "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
        "user.max_user_namespaces=10000 (those of the three that exist here)"
    )


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def set_wire(network: Network, wire: str, *, up: bool) -> None:
    """Plug in or unplug a wire; packets of an unplugged one are lost, not refused.

    This adds or removes the host's address. If the tap were down, User Mode Linux's driver would
    get an error and give its device up for good.
    """
    change = ["replace", WIRES[wire], "dev", wire] if up else ["flush", "dev", wire]
    command = ["ip", "address", *change]
    subprocess.run(network.enter(command), check=True, capture_output=True)


def main() -> None:
    """Create the devices, report it, and hold the namespaces until a signal ends the process."""
    parser = argparse.ArgumentParser(prog="python -m lab.network")
    parser.add_argument("--wires", action="store_true")
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    commands = ["ip link set dev lo up"]
    for wire, address in WIRES.items() if options.wires else ():
        commands.append(f"ip tuntap add dev {wire} mode tap")
        commands.append(f"ip address add {address} dev {wire}")
        commands.append(f"ip link set dev {wire} up")
    for command in commands:
        subprocess.run(command.split(), check=True)
    write_json(options.ready_file, {"pid": os.getpid()})
    os.execvp("sleep", ["sleep", "infinity"])


if __name__ == "__main__":
    main()
