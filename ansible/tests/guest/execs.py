"""Programs as they are started, from the kernel's own account of it (the process connector).

Asking /proc again and again would miss whatever lives shortly; an event comes for each `execve`.
Needs root and Linux's CONFIG_PROC_EVENTS. Layouts: linux/cn_proc.h, linux/connector.h.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_CONNECTOR = 11  # NETLINK_CONNECTOR
_PROCESSES = 1  # CN_IDX_PROC, its CN_VAL_PROC, and PROC_CN_MCAST_LISTEN
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_MESSAGE = struct.Struct("=IIIIHH")  # cn_msg
_EVENT = struct.Struct("=IIQII")  # what, cpu, time, process, thread group
_EXEC = 2
_BUFFER_BYTES = 16 * 2**20


class Execs:
    """A stream of process ids that have just become another program."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _CONNECTOR)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
        self.socket.bind((0, _PROCESSES))
        listen = struct.pack("=I", _PROCESSES)
        message = _MESSAGE.pack(_PROCESSES, _PROCESSES, 0, 0, len(listen), 0) + listen
        head = _HEADER.pack(_HEADER.size + len(message), 3, 0, 0, os.getpid())
        self.socket.send(head + message)
        # Before whoever ends at once, or the short-lived would be gone when we look.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))

    def next(self) -> int | None:
        """Return the process of the next event, which is waited for; None if it was no execve.

        Raises OSError (ENOBUFS) where events were lost.
        """
        data = self.socket.recv(4096)
        event_kind, _, _, _, group = _EVENT.unpack_from(data, _HEADER.size + _MESSAGE.size)
        return group if event_kind == _EXEC else None


def words(pid: int, name: str = "cmdline") -> bytes | None:
    """Return the argv or the `environ` of a process, each word ended by a zero.

    None if it is gone.
    """
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return None
