"""The user at the other end of a local connection: the owner of the peer's socket.

The kernel is asked for that socket (sock_diag(7)). If it cannot answer, as without its module
tcp_diag, the tables /proc/net/tcp and tcp6 are read (proc_net_tcp in the kernel's documentation);
that takes longer with more sockets and may miss one while others are opened and closed. A socket
that its process has closed already has root as owner and no inode: it has no user.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Set as AbstractSet
from pathlib import Path

_TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_REQUEST = struct.Struct("=BBBxI")  # struct inet_diag_req_v2 up to its id
_PORTS, _ANY_COOKIE = struct.Struct("!HH"), b"\xff" * 8
_ID_AT, _ID_BYTES = 16 + 4, 4 + 16 + 16  # ports and addresses in struct inet_diag_msg
_OWNER_AT, _OWNER = _ID_AT + 48 + 12, struct.Struct("=II")  # its uid and inode


def refusal(sock: socket.socket, users: AbstractSet[int] | None) -> str | None:
    """Return why to refuse the connection, None if its user is in `users` (None: everybody).

    The user of a host on another machine is unknown. It reaches the drive only if that listens on
    more than the loopback, and is accepted then.
    """
    if users is None:
        return None
    try:
        peer, local = sock.getpeername(), sock.getsockname()
        if not _is_local(sock.family, peer[0]):
            return None
        user = owner(sock.family, peer[:2], local[:2])
    except (OSError, ValueError) as error:
        return f"its user is unknown: {error}"
    if user is None:
        return "its user is unknown: the socket at its other end is gone"
    return None if user in users else f"user {user} may not use this drive"


def unknown_hosts(address: str, users: AbstractSet[int] | None) -> str | None:
    """Return the warning about hosts whose users are not checked, if there are any."""
    if users is None:
        return "every user of this machine can use this drive"
    if not ipaddress.ip_address(socket.gethostbyname(address)).is_loopback:
        return f"whoever reaches {address} from another machine can use this drive"
    return None


def _is_local(family: int, host: str) -> bool:
    """Return whether the address belongs to this machine (to this network namespace)."""
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return True
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def owner(family: int, peer: tuple[str, int], local: tuple[str, int]) -> int | None:
    """Return the user id of the socket at `peer` that is connected to `local`; None without one.

    Raises OSError if neither way of asking the kernel works.
    """
    try:
        socket_owner = _query_kernel(family, peer, local)
    except OSError:
        socket_owner = None
    user, inode = socket_owner or _read_table(family, peer, local)
    return user if inode else None


def _query_kernel(
    family: int, peer: tuple[str, int], local: tuple[str, int]
) -> tuple[int, int] | None:
    """Ask the kernel for user id and inode; None if it finds none or has no tcp_diag."""
    addresses = (_packed(family, at).ljust(16, b"\0") for at in (peer, local))
    socket_id = _PORTS.pack(peer[1], local[1]) + b"".join(addresses) + bytes(4) + _ANY_COOKIE
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + socket_id
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + body)
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    if not socket_id.startswith(answer[_ID_AT : _ID_AT + _ID_BYTES]):
        return None  # the kernel falls back to a listener at that port
    user, inode = _OWNER.unpack_from(answer, _OWNER_AT)
    return user, inode


def _read_table(family: int, peer: tuple[str, int], local: tuple[str, int]) -> tuple[int, int]:
    """Read user id and inode from the kernel's table; an inode of 0 if no process has it."""
    addresses = [_entry(family, peer), _entry(family, local)]
    with _TABLES[socket.AddressFamily(family)].open() as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == addresses and fields[9] != "0":
                return int(fields[7]), int(fields[9])
    return 0, 0


def _packed(family: int, address: tuple[str, int]) -> bytes:
    return socket.inet_pton(family, address[0].partition("%")[0])


def _entry(family: int, address: tuple[str, int]) -> str:
    """Format an address as in the table: 32-bit words in the machine's order, and the port."""
    packed = _packed(family, address)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
