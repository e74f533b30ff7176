"""The lab's guest with this checkout's agent on it, for tests that need the real kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contract import plan
from controller.targets.agent_bundle import PACKAGES
from drive.control import ask

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = "/opt/fde-agent-test"
FOLDER = "/run/fde-agent-test"


class Target:
    """The guest with this checkout's agent on it, beside whatever else is installed there."""

    def __init__(
        self, lab: Any, configurations: Sequence[Mapping[str, Any]], extent_bytes: int
    ) -> None:
        self.lab = lab
        self.configurations = configurations
        self.extent_bytes = extent_bytes
        self.disks = {
            role: {
                "by_id": f"/dev/disk/by-id/nvme-{drive['model']}_{drive['serial']}",
                "serial": drive["serial"],
                "size_bytes": drive["size_bytes"],
                # A new virtual drive reads as random bytes, which might be someone's volume.
                **({"erase": drive["serial"]} if role == "sed" else {}),
            }
            for role, drive in lab.state["drives"].items()
        }
        self.secrets = json.loads(Path(lab.state["secrets"]).read_text())
        for part in PACKAGES:
            lab.send(REPOSITORY / part, CODE)
        spec = find_spec("pyRAPL")
        assert spec is not None
        assert spec.origin is not None
        lab.send(Path(spec.origin).parent, f"{CODE}/lib")
        lab.ssh(f"mkdir -p {FOLDER}; udevadm settle")
        self.put(f"{FOLDER}/target.json", self.description())
        self.put(f"{FOLDER}/secrets.json", self.secrets)
        # Another module's tests may have left the drive owned, and locked.
        self.agent("teardown")

    def description(self) -> dict[str, Any]:
        return {
            "format": plan.TARGET_FORMAT,
            "disks": self.disks,
            "extent_bytes": self.extent_bytes,
            "filesystem": {
                "type": "ext4",
                "options": ["-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
                "mount_options": "noatime",
            },
            "configurations": list(self.configurations),
        }

    def put(self, path: str, document: Mapping[str, Any]) -> None:
        self.lab.ssh(f"umask 077; cat > {path}", stdin=json.dumps(document).encode())

    def ask(self, role: str, command: str, **parameters: Any) -> dict[str, Any]:
        """Return a command to a drive's control socket, which must be done."""
        answer = ask(Path(self.lab.state["drives"][role]["control"]), command, **parameters)
        assert answer["ok"], answer
        return answer

    def agent(self, arguments: str, *, check: bool = True) -> Any:
        arguments += f" --target {FOLDER}/target.json"
        command = (
            f"cd / && PATH={CODE}/bin:$PATH PYTHONPATH={CODE}:{CODE}/lib "
            f"python3 -m agent {arguments} "
            f"--secrets {FOLDER}/secrets.json"
        )
        return self.lab.ssh(command, check=check)

    def said(self, arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.agent(arguments).stdout.splitlines()]

    def refusal(self, arguments: str) -> str:
        done = self.agent(arguments, check=False)
        assert done.returncode == 1
        text: str = done.stderr
        assert text.startswith("fde: ")
        assert "Traceback" not in text
        return text

    def medium(self, role: str) -> str:
        """SHA-256 of a disk's start, where table, headers and the first data lie."""
        by_id = self.disks[role]["by_id"]
        self.lab.ssh(f"blockdev --flushbufs {by_id}")
        text: str = self.lab.ssh(f"head -c 16M {by_id} | sha256sum").stdout
        return text

    def reads(self, role: str) -> bool:
        """Whether the first block of the extent can be read past the page cache."""
        by_id = self.disks[role]["by_id"]
        return bool(
            self.lab.ssh(
                f"dd if=$(readlink -f {by_id})p1 of=/dev/null bs=4096 skip=4096 count=1 "
                "iflag=direct",
                check=False,
            ).returncode
            == 0
        )

    def python(self, script: str) -> str:
        """Return what a Python script prints in the guest, with the agent's code on its path."""
        command = f"cd / && PYTHONPATH={CODE}:{CODE}/lib python3 -"
        text: str = self.lab.ssh(command, stdin=script.encode()).stdout
        return text.strip()
