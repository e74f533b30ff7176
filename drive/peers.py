"""Who stands behind a connection from this machine: the owner of the socket at its other end.

The kernel lists TCP sockets with their owners in /proc/net/tcp and tcp6 (proc_net_tcp in the
kernel's documentation). A socket that its process has closed already is listed as root's, without
an inode: that one is nobody's.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Set as AbstractSet
from pathlib import Path

_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}


def refusal(sock: socket.socket, users: AbstractSet[int] | None) -> str | None:
    """Why the connection is not taken, None if it is: its host is one of `users`, or of everybody.

    A host on another machine cannot be told by its user; it reaches the drive only where that
    listens on more than the loopback, and is let in then.
    """
    if users is None:
        return None
    try:
        peer, own = sock.getpeername(), sock.getsockname()
        if not _is_local(sock.family, peer[0]):
            return None
        user = owner(sock.family, peer[:2], own[:2])
    except (OSError, ValueError) as error:
        return f"its user cannot be told: {error}"
    if user is None:
        return "its user cannot be told: the socket at its other end is gone"
    return None if user in users else f"user {user} may not use this drive"


def unknown_hosts(address: str, users: AbstractSet[int] | None) -> str | None:
    """What is to be said at start of hosts whose users nobody checks; None if there are none."""
    if users is None:
        return "every user of this machine can use this drive"
    if not ipaddress.ip_address(socket.gethostbyname(address)).is_loopback:
        return f"whoever reaches {address} from another machine can use this drive"
    return None


def _is_local(family: int, host: str) -> bool:
    """Whether the address is one of this machine's (of this network namespace's)."""
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return True
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def owner(family: int, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user id that owns the socket at `peer` which is connected to `own`; None if none does.

    Raises OSError if the kernel's table cannot be read.
    """
    wanted = [_entry(family, peer), _entry(family, own)]
    with _TABLES[socket.AddressFamily(family)].open() as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == wanted and fields[9] != "0":
                return int(fields[7])
    return None


def _entry(family: int, address: tuple[str, int]) -> str:
    """An address as the table has it: words of 32 bits in the machine's order, and the port."""
    packed = socket.inet_pton(family, address[0].partition("%")[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
