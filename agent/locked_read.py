"""One direct read of every locked range, once a suite: the host's own look at what a drive says.

A refused read starts the kernel's error handling, after which libata may switch native command
queuing off or slow the link down (drivers/ata/libata-eh.c). So it is tried after the last run, and
the links before and after it are kept with what it gave.
"""

from __future__ import annotations

from typing import Any

from agent.checks import CheckContext
from agent.checks.disks import links
from agent.storage.stack import Stack
from contract.errors import AgentError


def look(stack: Stack, context: CheckContext) -> dict[str, dict[str, Any]]:
    """By serial number `{error, link_before, link_after}`; `error` is the kernel's name for it.

    The storage must be bare. Raises AgentError if a locked range could be read.
    """
    before = links(context.unread()) or {}
    errors = stack.locked_reads()
    after = links(context.unread()) or {}
    if readable := sorted(serial for serial, error in errors.items() if error is None):
        raise AgentError(
            f"The locked range of {' and '.join(readable)} can be read: the drive does not lock, "
            "so what was measured on it is not a self-encrypting disk. Look for newer firmware, or "
            "take another drive."
        )
    return {
        serial: {"error": error, "link_before": before.get(serial), "link_after": after.get(serial)}
        for serial, error in errors.items()
    }
