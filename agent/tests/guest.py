"""The lab's guest with this checkout's agent on it, for tests that need the real kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contract import plan
from contract.tests.test_plan import DOCUMENT
from controller.targets.agent_bundle import PACKAGES
from drive.control import ask

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = "/opt/fde-agent-test"
FOLDER = "/run/fde-agent-test"
AES: dict[str, Any] = {"cipher": "aes-xts-plain64", "key_bits": 256, "sector_size": 4096}
PLAIN = {"name": "plain", "kind": "plain", "disk": "plain"}
OPAL = {"name": "opal", "kind": "opal", "disk": "sed"}


class Guest:
    """The guest with this checkout's code on it, beside whatever else is installed there."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.drives: dict[str, dict[str, Any]] = lab.state["drives"]
        self.secrets: dict[str, str] = json.loads(Path(lab.state["secrets"]).read_text())
        for part in PACKAGES:
            lab.send(REPOSITORY / part, CODE)
        lab.ssh(f"umask 077; mkdir -p {FOLDER}; udevadm settle")
        self.put("secrets.json", self.secrets)

    def by_id(self, role: str) -> str:
        drive = self.drives[role]
        return f"/dev/disk/by-id/nvme-{drive['model']}_{drive['serial']}"

    def put(self, name: str, document: Mapping[str, Any]) -> str:
        """Write a JSON file in the guest's folder, or elsewhere; return its path."""
        path = str(Path(FOLDER, name))
        self.lab.ssh(f"umask 077; cat > {path}", stdin=json.dumps(document).encode())
        return path

    def ask(self, role: str, command: str, **parameters: Any) -> dict[str, Any]:
        """Return a drive's answer to a command on its control socket, which must be done."""
        answer = ask(Path(self.drives[role]["control"]), command, **parameters)
        assert answer["ok"], answer
        return answer

    def python(self, script: str) -> str:
        """Return what a Python script prints in the guest, with the agent's code on its path."""
        command = f"cd / && PYTHONPATH={CODE}:{CODE}/lib python3 -"
        text: str = self.lab.ssh(command, stdin=script.encode()).stdout
        return text.strip()


class Target(Guest):
    """A guest that has a description of its disks and their configurations."""

    def __init__(
        self, lab: Any, configurations: Sequence[Mapping[str, Any]], extent_bytes: int
    ) -> None:
        super().__init__(lab)
        self.configurations = configurations
        self.extent_bytes = extent_bytes
        self.disks = {
            role: {
                **{"by_id": self.by_id(role), "serial": drive["serial"]},
                "size_bytes": drive["size_bytes"],
                # A new virtual drive reads as random bytes, which might be someone's volume.
                **({"erase": drive["serial"]} if role == "sed" else {}),
            }
            for role, drive in self.drives.items()
        }
        spec = find_spec("pyRAPL")
        assert spec is not None and spec.origin is not None
        lab.send(Path(spec.origin).parent, f"{CODE}/lib")
        self.put("target.json", self.description())
        # Another module's tests may have left the drive owned, and locked.
        self.agent("teardown")

    def description(self) -> dict[str, Any]:
        fast = ["-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        return {
            "format": plan.TARGET_FORMAT,
            "disks": self.disks,
            "extent_bytes": self.extent_bytes,
            "filesystem": {"type": "ext4", "options": fast, "mount_options": "noatime"},
            "configurations": list(self.configurations),
        }

    def frozen_plan(self, **keys: Any) -> dict[str, Any]:
        """Return a plan of this target's disks and configurations."""
        extent = {"offset_bytes": plan.DATA_OFFSET_BYTES, "size_bytes": self.extent_bytes}
        ours = {**self.description(), "format": plan.FORMAT, "extent": extent, "assets": {}}
        return plan.freeze({**DOCUMENT, **ours, **keys})

    def agent(self, arguments: str, *, check: bool = True) -> Any:
        paths = f"PATH={CODE}/bin:$PATH PYTHONPATH={CODE}:{CODE}/lib"
        files = f"--target {FOLDER}/target.json --secrets {FOLDER}/secrets.json"
        return self.lab.ssh(f"cd / && {paths} python3 -m agent {arguments} {files}", check=check)

    def output_lines(self, arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.agent(arguments).stdout.splitlines()]

    def refusal(self, arguments: str) -> str:
        output = self.agent(arguments, check=False)
        assert output.returncode == 1
        text: str = output.stderr
        assert text.startswith("fde: ") and "Traceback" not in text
        return text

    def mappings(self) -> list[str]:
        """Return the names of our mappings that the kernel has."""
        listed: str = self.lab.ssh("dmsetup ls").stdout
        return [line.split()[0] for line in listed.splitlines() if line.startswith("fde-data")]

    def medium(self, role: str) -> str:
        """SHA-256 of a disk's start, where table, headers and the first data lie."""
        by_id = self.by_id(role)
        command = f"blockdev --flushbufs {by_id}; head -c 16M {by_id} | sha256sum"
        return str(self.lab.ssh(command).stdout)

    def reads(self, role: str) -> bool:
        """Whether the first block of the extent can be read past the page cache."""
        read = f"dd if=$(readlink -f {self.by_id(role)})p1 of=/dev/null bs=4096 skip=4096 count=1"
        return bool(self.lab.ssh(f"{read} iflag=direct", check=False).returncode == 0)
