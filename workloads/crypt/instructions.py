"""AES with and without the processor's own instructions, and the proof which it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads import programs

CPUINFO = Path("/proc/cpuinfo")
VARIABLE = "OPENSSL_ia32cap"
# The bits of AES-NI (CPUID leaf 1, ECX 25) and VAES (leaf 7, ECX 9), as OpenSSL numbers them; see
# its manual page OPENSSL_ia32cap(3).
AES_NI = 1 << 57
MASK = f"~{AES_NI:#x}:~{1 << 41:#x}"
# Without OpenSSL's own word, how many times slower AES must be to believe that the mask works.
LEAST_RATIO = 1.5


def environment(aes_instructions: bool) -> dict[str, str]:
    """For the child; whatever the caller's own mask is, it does not count."""
    own = {name: value for name, value in programs.environment().items() if name != VARIABLE}
    return own if aes_instructions else {**own, VARIABLE: MASK}


def present() -> bool:
    """Whether the processor has instructions for AES; x86 and ARM name them alike."""
    return "aes" in CPUINFO.read_text().split()


def reason_against(aes_instructions: bool) -> str:
    """Why AES cannot be measured so on this processor; empty if it can."""
    if aes_instructions and not present():
        return "The processor has no instructions for AES: measure it with aes_instructions off."
    if not aes_instructions and present() and os.uname().machine not in ("x86_64", "i686"):
        return "How to keep OpenSSL from the instructions for AES is known for x86 alone."
    return ""


def doubt(without: Mapping[str, Any], with_them: Mapping[str, Any]) -> str:
    """Why not to believe that the mask worked; empty if it did.

    Both are a child's answer to `instructions`, of which the first ran under the mask. OpenSSL's
    own word decides; where it is linked in and cannot be asked, the rates do.
    """
    settings = without["settings"]
    if settings is not None:
        first = str(settings).removeprefix(f"{VARIABLE}=").split(":", 1)[0]
        if int(first, 16) & AES_NI:
            return f"OpenSSL still uses AES-NI ({settings})."
        return ""
    ratio = with_them["aes_mib_per_s"] / without["aes_mib_per_s"]
    if ratio < LEAST_RATIO:
        return (
            f"OpenSSL does not tell whether it uses AES-NI, and is only {ratio:.2f} times faster "
            f"with it, not {LEAST_RATIO}: install Debian's python3-cryptography, which tells."
        )
    return ""
