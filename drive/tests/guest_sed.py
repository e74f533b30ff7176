"""The lab's self-encrypting drive as the guest's own programs see it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drive.control import ask

DISK = "/dev/disk/by-id/nvme-fde-lab-sed_FDELABSED0001"
PLAIN_DISK = "/dev/disk/by-id/nvme-fde-lab-plain_FDELABPLAIN01"
BLOCK_BYTES = 4096
SUCCESS, NOT_AUTHORIZED, INVALID_PARAMETER, FAIL = 0, 1, 0x0C, 0x3F
SCRIPTS = Path(__file__).parent / "guest"
_IN_GUEST = "/run/fde-drive"

Step = tuple[str, Mapping[str, Any], int]


@dataclass(frozen=True)
class GuestSed:
    """Acts in the guest of `lab`, a handle of the fixture of that name."""

    lab: Any

    @property
    def psid(self) -> str:
        """What a real drive has on its label."""
        secrets = json.loads(Path(self.lab.state["secrets"]).read_text(encoding="utf-8"))
        return str(secrets["sed_psid"])

    @property
    def backing(self) -> Path:
        return Path(self.lab.state["drives"]["sed"]["backing"])

    def ask(self, command: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the drive's control socket; it must succeed."""
        control = Path(self.lab.state["drives"]["sed"]["control"])
        answer = ask(control, command, **parameters)
        assert answer["ok"], answer
        return answer

    def power_cycle(self) -> None:
        """Cuts the drive's power; returns once the guest has it back."""
        self.ask("power-cycle")
        self.run(f"udevadm settle; dd if={DISK} of=/dev/null bs=4096 count=1", check=False)

    def run(
        self, command: str, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest, as root; with `check`, a failure fails the test."""
        result: subprocess.CompletedProcess[str] = self.lab.ssh(command, check, stdin.encode())
        return result

    def refuses(self, command: str, stdin: str = "") -> str:
        """Run a shell command that must fail; returns all that it prints."""
        result = self.run(command, stdin, check=False)
        assert result.returncode != 0, f"`{command}` did not fail:\n{result.stdout}{result.stderr}"
        return str(result.stdout + result.stderr)

    def ioctls(self, *steps: Step, device: str = DISK) -> list[dict[str, Any]]:
        """Opal calls of the kernel in turn; each step says what ioctl(2) must return."""
        answers = self._script(
            "opal_ioctl.py", {"device": device, "steps": [step[:2] for step in steps]}
        )
        __tracebackhide__ = True  # it would show whole tables
        for (name, values, expected), answer in zip(steps, answers, strict=True):
            assert answer.get("code") == expected, _shortened(f"{name} {values}: {answer}")
        return list(answers)

    def ioctl(self, name: str, values: Mapping[str, Any], device: str = DISK) -> dict[str, Any]:
        """One Opal call; the answer has "code", or "errno" where the kernel itself refuses."""
        (answer,) = self._script("opal_ioctl.py", {"device": device, "steps": [[name, values]]})
        return dict(answer)

    def at_terminal(self, command: Sequence[str], *answers: tuple[str, str]) -> dict[str, Any]:
        """Run a program at a terminal; each answer follows the end of the prompt that asks."""
        return dict(
            self._script("at_terminal.py", {"command": list(command), "answers": list(answers)})
        )

    def send_scripts(self) -> None:
        """Put what `ioctl` and `at_terminal` need into the guest."""
        self.lab.send(SCRIPTS, _IN_GUEST)

    def _script(self, name: str, request: Mapping[str, Any]) -> Any:
        result = self.run(f"python3 {_IN_GUEST}/{SCRIPTS.name}/{name}", json.dumps(request))
        return json.loads(result.stdout)

    def write(self, block: int, text: str, device: str = DISK) -> None:
        """Fill one block of 4096 bytes with a text, past every cache."""
        contents = (text * (BLOCK_BYTES // len(text) + 1))[:BLOCK_BYTES]
        self.run(_dd(f"of={device} seek={block} oflag=direct iflag=fullblock"), contents)

    def read(self, block: int, device: str = DISK) -> str:
        """Return the printable text of one block, read past every cache."""
        return str(self.run(_dd(f"if={device} skip={block} iflag=direct") + " | strings").stdout)

    def assert_denied(self, block: int, device: str = DISK, ways: str = "rw") -> None:
        """Assert that reading or writing the block fails (or one of them) with its reason."""
        options = {
            "r": f"if={device} skip={block} iflag=direct of=/dev/null",
            "w": f"if=/dev/zero of={device} seek={block} oflag=direct",
        }
        for way in ways:
            assert "No data available" in self.refuses(_dd(options[way]))

    def medium_holds(self, text: str) -> bool:
        """Whether the file behind the drive holds `text` anywhere; its holes are passed over."""
        needle, chunk_bytes = text.encode(), 1 << 20
        with self.backing.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            place = 0
            while place < size:
                try:
                    place = os.lseek(file.fileno(), place, os.SEEK_DATA)
                except OSError:  # nothing but a hole is left
                    return False
                if needle in os.pread(file.fileno(), chunk_bytes + len(needle), place):
                    return True
                place += chunk_bytes
        return False

    def factory_reset(self) -> None:
        """Reset the drive as it left the factory, without a partition table."""
        self.run(
            f"cryptsetup luksErase -q --hw-opal-factory-reset {DISK}"
            f" && dd if=/dev/zero of={DISK} bs=1M count=2 oflag=direct"
            f" && blockdev --rereadpt {DISK} && udevadm settle",
            self.psid,
        )


def _dd(options: str) -> str:
    return f"dd bs={BLOCK_BYTES} count=1 {options}"


def _shortened(text: str) -> str:
    """Return a text without the middles of long words."""
    return re.sub(r"(\S{24})\S+(\S{8})", r"\1…\2", text)
