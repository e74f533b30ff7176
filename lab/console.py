"""What a guest's console and the logs of the lab's processes say at their end."""

from __future__ import annotations

from pathlib import Path

BOOT_WORDS = b"Loading, please wait..."  # the initrd's first, at every boot
LAST_WORDS = (b"Kernel panic - not syncing", b"Rebooting automatically due to panic=")


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, without control characters; empty if there is none."""
    if not path.exists():
        return ""
    text = path.read_bytes()[-65536:].decode("utf-8", "replace")
    clean = (_printable(line) for line in text.replace("\r", "\n").split("\n"))
    return "\n".join([line for line in clean if line.strip()][-lines:])


def gave_up(console: Path) -> bool:
    """Whether the guest's kernel or initrd gave up, and has not booted since."""
    if not console.exists():
        return False
    since_boot = console.read_bytes().rpartition(BOOT_WORDS)[2]
    return any(words in since_boot for words in LAST_WORDS)


def _printable(line: str) -> str:
    return "".join(c for c in line if c.isprintable() or c == "\t").rstrip()
