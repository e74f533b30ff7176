"""Names for people of what a plan names for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def configuration_label(name: str, entry: Mapping[str, Any]) -> str:
    """What a configuration of the plan is called for people, from its entry."""
    kind, disk = entry.get("kind"), entry.get("disk")
    trim = ["TRIM"] if entry.get("discard") else []
    if kind == "plain":
        return ", ".join(["plain" if disk != "sed" else "SED, locking off", *trim])
    if kind == "opal":
        return ", ".join(["Opal drive", *trim])
    cipher, bits = str(entry.get("cipher") or ""), entry.get("key_bits")
    if kind not in ("dmcrypt", "tcrypt") or not cipher:
        return name
    # The cipher of dm-crypt is followed by its mode, that of TrueCrypt by the next of its chain.
    ciphers = cipher.split("-")[: 1 if kind == "dmcrypt" else None]
    chain = "–".join(_cipher_label(part) for part in ciphers)
    parts = [f"{'dm-crypt' if kind == 'dmcrypt' else 'TrueCrypt'} {chain}"]
    parts[0] += f"-{bits}" if bits else ""
    if kind == "dmcrypt" and entry.get("header") == "none":
        parts.append("no header")
    if entry.get("sector_size") not in (None, 4096) and kind == "dmcrypt":
        parts.append(f"{entry['sector_size']} B sectors")
    if entry.get("no_read_workqueue") or entry.get("no_write_workqueue"):
        parts.append("no queues")
    parts += trim
    if disk == "sed":
        parts.append("on the SED")
    return ", ".join(parts)


def _cipher_label(cipher: str) -> str:
    return cipher.upper() if cipher == "aes" else cipher.capitalize()
