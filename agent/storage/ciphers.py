"""Ciphers by dm-crypt's names, and their support in this kernel."""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

from contract import system_text
from contract.plan import Configuration

# From Linux 7.3 on: 0 permits programs all ciphers, 1 those on a list, 2 none; others give ENOENT.
RESTRICTION = Path("/proc/sys/crypto/af_alg_restrict")


def algorithm(cipher: str) -> str:
    """Return the kernel's name of a dm-crypt cipher.

    aes-xts-plain64 is xts(aes), aegis128-random is aegis128. Behind `capi:` a table has the name
    itself, such as gcm(aes), or a driver's, such as xts-aes-lib.
    """
    if cipher.startswith("capi:"):
        return cipher.removeprefix("capi:").rpartition("-")[0]
    words = cipher.removesuffix("-random").split("-")
    return f"{words[1]}({words[0]})" if len(words) > 1 else words[0]


def key_factor(cipher: str) -> int:
    """Return the keys of the cipher's size in one volume key: two for XTS, else one."""
    return 2 if "xts" in re.split(r"\W", cipher) else 1


def authenticates(cipher: str) -> bool:
    """Whether the cipher itself makes tags (AEAD); its nonces are random then."""
    return cipher.endswith("-random")


def missing(cipher: str, configuration: Configuration) -> str | None:
    """Return a sentence if this kernel lacks the cipher; its module is loaded if it has one."""
    name = algorithm(cipher)
    try:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as asked:
            asked.bind(("aead" if authenticates(cipher) else "skcipher", name))
    except OSError as error:
        # Without the interface, or where the kernel keeps ciphers from it, nobody can tell;
        # cryptsetup will.
        if error.errno == errno.ENOENT and system_text.read_line_or_empty(RESTRICTION) in ("", "0"):
            return (
                f"This kernel has no {name}, which configuration {configuration.name} needs: "
                "install the kernel's module for it, or leave the configuration out."
            )
    return None
