"""A process that holds secrets: its memory reaches no disk, neither in a core dump nor as swap.

What Python has read cannot be overwritten, for it copies as it likes. A command ends within
seconds, and the kernel clears its memory before anyone else is given it; a suite holds the secrets
until it ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

from contract.errors import AgentError

_PR_SET_DUMPABLE = 4  # linux/prctl.h
# asm-generic/mman.h. Only what is used is kept in memory: a thread's whole stack is not.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_COREDUMP_FILTER = Path("/proc/self/coredump_filter")


class MemoryNotPrivateError(AgentError):
    """The kernel did not agree to it."""


def keep_private() -> None:
    """No core dump and no swap for this process; no memory in the dumps of programs it starts.

    A dump that goes to a program (core_pattern of apport or systemd-coredump) is not kept back by
    its size limit alone: the filter leaves nothing in it. Only root's processes, for nobody else
    can read the secrets. Raises MemoryNotPrivateError.
    """
    if os.geteuid() != 0:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _COREDUMP_FILTER.exists():  # without it the kernel writes no dumps at all
        _COREDUMP_FILTER.write_text("0")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        raise MemoryNotPrivateError(
            f"The agent's memory cannot be kept out of swap ({os.strerror(ctypes.get_errno())}): "
            "give it the capability CAP_IPC_LOCK."
        )
