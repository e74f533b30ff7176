"""A guest of the lab as a foreign machine: shell commands there, files over those of sysfs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.targets.init import ASSETS
from lab import lifecycle, ssh
from lab.state import REPOSITORY, Layout

LAB = REPOSITORY / "build" / "lab-first-use"
# A folder of sysfs with more in it: what is there is bound into a tmpfs, which is put in its place.
OVER = """
over() { d=$(readlink -f "$1"); t=$(mktemp -d /run/over.XXXXXX); mount -t tmpfs over "$t"
  for e in "$d"/*; do n=${e##*/}
    if [ -L "$e" ]; then cp -P "$e" "$t/$n"
    elif [ -d "$e" ]; then mkdir "$t/$n"; mount --rbind "$e" "$t/$n"
    elif [ -e "$e" ]; then : >"$t/$n"; mount --bind "$e" "$t/$n"; fi
  done
  mount --rbind "$t" "$d"; echo "$d" >>/run/overs; }
"""
BACK = "[ ! -e /run/overs ] || tac /run/overs | xargs -n1 umount -R -l; rm -f /run/overs"


@dataclass(frozen=True)
class Guest:
    """A lab's guest; `state` is the content of the lab's state.json."""

    state: dict[str, Any]

    @classmethod
    def from_folder(cls, folder: Path) -> Guest:
        return cls(json.loads(Layout(folder).state.read_text(encoding="utf-8")))

    def sh(self, script: str, data: bytes | None = None) -> str:
        """Run a script, which may read `data`, and return its output. Raises RuntimeError."""
        remote, stdin = ["sh", "-eu"], script.encode()
        if data is not None:
            remote, stdin = [f"set -eu\n{script}"], data
        argv = ssh.command(self.state["ssh"], remote, connect_s=120)
        result = subprocess.run(argv, input=stdin, capture_output=True, check=False)
        out, err = (text.decode(errors="replace") for text in (result.stdout, result.stderr))
        if result.returncode:
            raise RuntimeError(f"{script.strip()[:200]}: {err.strip()[-400:]}")
        return out

    def target(self) -> dict[str, Any]:
        """Return a resolved target as `fde init` describes it, without the lab's inventory."""
        drives, link = self.state["drives"], self.state["ssh"]
        place = "/usr/share/fde-testbed"
        return {
            "format": "fde-target/1",
            "host": "foreign",
            "origin": "modelled",
            "lab": False,
            "ssh": {**link, "port": int(link["port"])},
            "disks": {
                role: {
                    "by_id": f"/dev/disk/by-id/nvme-{d['model']}_{d['serial']}",
                    "serial": d["serial"],
                    "size_bytes": d["size_bytes"],
                    # A new virtual drive reads as random bytes.
                    "erase": d["serial"] if role == "sed" else None,
                }
                for role, d in drives.items()
            },
            "extent_bytes": 2**30,
            "filesystem": {"type": "ext4", "options": [], "mount_options": "noatime"},
            "configurations": [
                {"name": "plain", "kind": "plain", "disk": "plain"},
                {"name": "opal", "kind": "opal", "disk": "sed"},
            ],
            "database": "any",
            "packages": [],
            "meters": [
                {
                    "name": "meter0",
                    "kind": "smartpower3",
                    "port": self.state["meter"]["port"],
                    "origin": "modelled",
                    "channels": {"0": "system", "1": "drive"},
                }
            ],
            "assets": {
                name: {"path": f"{place}/{file}", "sums": f"{place}/SHA256SUMS", "sha256": None}
                for name, file in ASSETS.items()
            },
            "assumptions": {"currency": "USD"},
        }


@contextmanager
def foreign() -> Iterator[Guest]:
    """Yield a guest of this benchmark, or the one whose folder FDE_FIRST_USE_LAB names."""
    if lab_folder := os.environ.get("FDE_FIRST_USE_LAB"):
        yield Guest.from_folder(Path(lab_folder))
        return
    layout = Layout(LAB)
    lifecycle.up(layout, lambda line: print(line, file=sys.stderr), lifecycle.LabOptions())
    try:
        yield Guest.from_folder(LAB)
    finally:
        lifecycle.down(layout)
