"""Whether KVM can really run the guest's kernel here, found out by trying and remembered.

A /dev/kvm that opens proves nothing: nested and restricted hosts may offer one on which an
ordinary kernel dies before its first line. So the guest's kernel and initrd are started under KVM
once, and must get as far as starting /init.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from contract.files import write_json
from lab.image import Image
from lab.state import read_json

DEVICE = Path("/dev/kvm")
LIMIT_S = 25.0
PROOF = b"Run /init as init process"


def why_not(qemu: str, image: Image, cache: Path, say: Callable[[str], None]) -> str | None:
    """Why KVM cannot serve here, None if it can; probes at most once for a machine and its QEMU."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} cannot be opened"  # not remembered: joining the group kvm mends it
    key = machine_key(qemu)
    memory = cache / "kvm.json"
    known = read_json(memory) or {}
    if key not in known:
        say("lab: trying whether KVM runs the guest's kernel")
        known[key] = boots(qemu, image)
        cache.mkdir(parents=True, exist_ok=True)
        write_json(memory, known)
    return None if known[key] else "KVM does not run the guest's kernel on this machine"


def known_to_work(cache: Path) -> bool:
    """Whether KVM was tried by this machine before, and worked with its latest QEMU."""
    known = list((read_json(cache / "kvm.json") or {}).values())
    return os.access(DEVICE, os.R_OK | os.W_OK) and known[-1:] == [True]


def machine_key(qemu: str) -> str:
    """Name of this machine, its kernel and its QEMU, the same at every boot."""
    version = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=False)
    machine_id = Path("/etc/machine-id")
    parts = (
        machine_id.read_text(encoding="utf-8") if machine_id.exists() else platform.node(),
        platform.release(),
        version.stdout,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def boots(qemu: str, image: Image, limit_s: float = LIMIT_S) -> bool:
    """Start the guest's kernel under KVM; true once it starts /init within the limit."""
    command = [qemu, "-accel", "kvm", "-cpu", "max", "-m", "512", "-nodefaults", "-no-user-config"]
    command += ["-display", "none", "-no-reboot", "-monitor", "none"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
    with tempfile.TemporaryDirectory(prefix="fde-kvm-") as scratch:
        serial = Path(scratch) / "serial"
        command += ["-serial", f"file:{serial}", "-append", "console=ttyS0 panic=-1"]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                return _appears(serial, process, limit_s)
            finally:
                process.kill()


def _appears(serial: Path, process: subprocess.Popen[bytes], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while True:
        ended = process.poll() is not None
        if serial.exists() and PROOF in serial.read_bytes():
            return True
        if ended or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
