"""Create dangerous situations in the guest, and list them.

`python -m agent.tests.dangers` prints the rows; each is a test.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.storage import secrets as pin_tries
from agent.tests.guest import CODE, FOLDER, Guest
from drive.tests.guest_sed import SCRIPTS

_CHUNK_BYTES = 2**20
# Makes a folder a root to live in, read-only, so that nothing is written while it is one.
_ROOT = """cd $1; mkdir usr proc sys dev run etc opt tmp var
for d in usr proc sys dev run etc opt; do mount --rbind /$d $d; mount --make-rslave $d; done
ln -s usr/bin bin; ln -s usr/sbin sbin; ln -s usr/lib lib; [ ! -e /lib64 ] || ln -s usr/lib64 lib64
mount -o remount,ro .
"""


@dataclass(frozen=True)
class Row:
    """One situation, as shell texts.

    They know $D (the disk), $P (its first partition), $O (the other disk), $F (a folder).
    """

    name: str
    situation: str
    says: tuple[str, ...]
    make: str = ""
    late: str = ""
    undo: str = ""
    role: str = "plain"
    disk: Mapping[str, Any] = field(default_factory=dict)
    extent_bytes: int = 64 * 2**20
    kinds: tuple[str, ...] = ("plain",)
    second_look: str = ""
    faults: tuple[Mapping[str, Any], ...] = ()
    vices: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ("prepare",)
    secrets: Mapping[str, str] = field(default_factory=dict)
    medium: str = ""
    chroot: bool = False
    checked: bool = False
    allowed: bool = False


def poke(offset: int | str, data: bytes) -> str:
    """Shell text that writes some bytes to $D; the offset may be an arithmetic expression."""
    text = base64.b64encode(data).decode()
    options = "bs=64k iflag=fullblock oflag=seek_bytes conv=notrunc,fsync status=none"
    return f"echo {text} | base64 -d | dd of=$D seek=$(({offset})) {options}; "


def content_hash(path: Path) -> str:
    """SHA-256 of a sparse file's contents: of its places that are not all zeros, with them."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        place = 0
        while place < size:
            try:
                place = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            place -= place % _CHUNK_BYTES
            chunk = os.pread(file.fileno(), _CHUNK_BYTES, place)
            if chunk.strip(b"\0"):
                digest.update(place.to_bytes(8) + chunk)
            place += _CHUNK_BYTES
    return digest.hexdigest()


class Scene(Guest):
    """The guest in which the rows' situations are made."""

    def __init__(self, lab: Any) -> None:
        super().__init__(lab)
        self.sh("modprobe -a loop raid0 raid1 bcache dm-multipath")
        lab.send(SCRIPTS, FOLDER)
        revert = ["PSID_REVERT_TPR", {"lr": 0, "key": self.secrets["sed_psid"]}]
        self.put("revert.json", {"device": self.by_id("sed"), "steps": [revert]})
        self.sh(f"cat >{FOLDER}/root", stdin=_ROOT.encode())

    def sh(self, command: str, *, check: bool = True, stdin: bytes = b"") -> Any:
        """Run a shell command in the guest."""
        return self.lab.ssh(command, check=check, stdin=stdin)

    def words(self, role: str) -> str:
        """Return the shell's words for a row's disk."""
        other = self.by_id("sed" if role == "plain" else "plain")
        return (
            f"export F={FOLDER} D; I={self.by_id(role)}; D=$(readlink -f $I); P=${{D}}p1; "
            f"O=$(readlink -f {other}); "
        )

    def hashes(self, medium: str = "") -> tuple[str, ...]:
        """Of both media, from outside the guest; what the guest had to write, it has synced."""
        command = f"blockdev --flushbufs {medium}; head -c 256M {medium} | sha256sum"
        inside = self.sh(command) if medium else None
        media = (content_hash(Path(drive["backing"])) for drive in self.drives.values())
        return (*media, inside.stdout if inside else "")

    def blank(self, role: str, first: str = "true") -> None:
        """Nothing on the disk, as its edges and headers tell; the whole medium of a plain one."""
        if role == "plain":
            wipe = "blkdiscard -fq $D; "
        else:
            # A revert lets the drive forget its owner, and then reads as random bytes.
            wipe = (
                "cat $F/revert.json | python3 $F/guest/opal_ioctl.py >/dev/null; "
                f"rm -f {pin_tries.PLACE}; "
                "dd if=/dev/zero of=$D bs=1M count=20 conv=fsync status=none; "
                "dd if=/dev/zero of=$D bs=1M seek=$(($(blockdev --getsize64 $D) / 1048576 - 2)) "
                "count=2 conv=fsync status=none; "
            )
        # Held, no udev worker has a partition open: its table could not go then.
        wipe = f"set -e; {wipe}blockdev --flushbufs --rereadpt $D"
        self.sh(
            f"{self.words(role)}{first}; flock $D sh -c {shlex.quote(wipe)}; "
            "rm -f /var/lib/fde-testbed/disks.json; udevadm settle"
        )

    def target(self, row: Row, fingerprint: str = "") -> dict[str, Any]:
        """Return the description of a target with the row's disk alone, as the row wants it.

        `fingerprint`: what `check` printed of its contents.
        """
        drive = self.drives[row.role]
        other = "sed" if row.role == "plain" else "plain"
        names = {"by_id": self.by_id(row.role), "serial": drive["serial"], "print": fingerprint}
        names |= {"other": self.drives[other]["serial"], "other_by_id": self.by_id(other)}
        entry = {key: drive[key] for key in ("serial", "size_bytes")} | {"by_id": names["by_id"]}
        entry |= {k: v.format(**names) if isinstance(v, str) else v for k, v in row.disk.items()}
        return {
            "format": "fde-target/1",
            "disks": {row.role: entry},
            "extent_bytes": row.extent_bytes,
            "filesystem": {"type": "ext4", "options": [], "mount_options": ""},
            "configurations": [{"name": k, "kind": k, "disk": row.role} for k in row.kinds],
        }

    def agent(self, arguments: str, path: str = "", *, chroot: bool = False) -> Any:
        """One command of the agent; its exit code is for the test to judge."""
        within = f"nsenter -m -t $(cat {FOLDER}/pid) chroot /mnt" if chroot else ""
        program = f"{within} python3 -m agent {arguments}; code=$?; sync; exit $code"
        return self.sh(f"cd / && PYTHONPATH={CODE} PATH={path}$PATH {program}", check=False)

    def checked(self, target: str) -> str:
        """Return the option that hands on what `check` says now."""
        return f"--checked '{json.dumps(self.prints(target))}'"

    def prints(self, target: str) -> dict[str, str]:
        """Fingerprint of each disk, by role, as `check` prints it."""
        output = self.agent(f"check --target {target}")
        return {d["role"]: d["fingerprint"] for d in json.loads(output.stdout)["disks"]}

    def put_second_look(self, script: str) -> str:
        """Return a wipefs in front of the real one that runs a script when it is called again."""
        text = (
            f"#!/bin/sh\nn=$(cat {FOLDER}/looks 2>/dev/null || echo 0)\n"
            f"echo $((n + 1)) >{FOLDER}/looks\n"
            f'if [ $n = 1 ]; then {script}\nfi\nexec /usr/sbin/wipefs "$@"\n'
        )
        place = f"{CODE}/bin"  # nothing can be executed below /run
        self.sh(
            f"mkdir -p {place}; rm -f {FOLDER}/looks; cat >{place}/wipefs; chmod +x {place}/wipefs",
            stdin=text.encode(),
        )
        return f"{place}:"

    def clear_faults(self, role: str) -> None:
        """Make the drive sound again; its power cycle ends what firmware and tries blocked."""
        self.ask(role, "vices")
        self.ask(role, "clear-faults")
        if role == "sed":
            self.ask(role, "power-cycle")
            self.sh(f"{self.words(role)}dd if=$D of=/dev/null bs=4096 count=1", check=False)


def plain_words(text: str) -> str:
    """Return the tool's words with the names of this run's devices and processes made general."""
    text = re.sub(r"/dev/disk/by-id/nvme-fde-lab-(plain|sed)_FDELAB\w+?(?=[,;:) ])", "BY-ID", text)
    text = re.sub(r"/dev/nvme\dn1|nvme\dn1", "DISK", text)
    text = re.sub(r"\bnvme\dn2", "nvme0n2", text)
    text = re.sub(r"\bng\dn1", "ng0n1", text)
    # Every load of scsi_debug may give its disk another serial number.
    text = re.sub(r"Disk \w+ \(/dev/sda, /dev/sda\) has serial '\d+', the [^.]+\. ", "", text)
    text = re.sub(r"\[\d+\]", "[PID]", text)
    text = re.sub(r'(erase: "\S+) [0-9a-f]{12}"', r'\1 PRINT"', text)
    text = re.sub(r"\bmd12\d\b", "md127", text)
    return text.strip()


if __name__ == "__main__":
    from agent.tests.danger_rows import ROWS

    for row in ROWS:
        print(f"{row.name}: {'allowed: ' * row.allowed}{row.situation}")
