"""Short commands to the agent on the target: read its journal, hold it back, bound it, stop it."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from agent.system.admission import Bounds
from agent.system.quiet import Disturbers
from contract import bounded, journal, strict_json
from contract.errors import ControllerError
from contract.files import json_text
from contract.identity import Identity
from contract.journal import Entry
from contract.plan import PlanHead, TargetDocument
from controller.targets import connection

log = logging.getLogger(__name__)

LIMIT_S = 60.0
# Shell scripts are constant; what varies is passed to them as an argument.
UNIT_STATE = """systemctl show -p ActiveState,Job "$1"
echo "System=$(systemctl is-system-running)"
journalctl -u "$1" -n 5 -o cat --no-pager"""
CONTENT = 'if [ -e "$1" ]; then cat "$1"; fi'
Completed = subprocess.CompletedProcess[bytes]


@dataclass(frozen=True)
class Unit:
    """The agent's service as systemd sees it; `starting` also while the machine itself boots."""

    active: bool
    starting: bool
    failed: bool
    last_words: str


class AgentClient:
    """Commands for one suite on one target."""

    def __init__(self, target: TargetDocument, suite_id: str) -> None:
        self._target = target
        self._suite_dir = connection.suite_dir(suite_id)
        self._unit = f"fde-agent@{suite_id}.service"

    def ask(
        self,
        command: Sequence[str],
        limit_s: float = LIMIT_S,
        most_bytes: int = bounded.MOST_ANSWER_BYTES,
    ) -> Completed:
        """Run a command on the target; status 255 also if its answer is too late or too long."""
        return _run(connection.command(self._target, command), limit_s, most_bytes)

    def agent(self, *arguments: str, limit_s: float = LIMIT_S) -> Completed:
        """Run `python3 -m agent …` on the target."""
        return _run(connection.python(self._target, "-m", "agent", *arguments), limit_s)

    def reached(self) -> bool:
        """Return whether the target answers."""
        return self.ask(["true"]).returncode == 0

    def identity(self) -> Identity:
        """Return the machine's identity. Raises ControllerError."""
        completed = self.agent("identity", "--suites", connection.SUITES)
        try:
            return strict_json.parse(Identity, connection.require_output(self._target, completed))
        except ValueError as error:
            raise ControllerError("target-identity-unread", error=error) from None

    def disturbers(self) -> Mapping[str, tuple[str, ...]]:
        """Return the target's services that may start work unasked, by group; empty if unknown."""
        try:
            return strict_json.parse(Disturbers, self.agent("quiet", "list").stdout).by_group
        except ValueError:
            return {}

    def journal(self, most_bytes: int = bounded.MOST_ANSWER_BYTES) -> list[Entry]:
        """Return the target's journal; empty for a suite that was never started there."""
        content = self._read_file("journal.jsonl", most_bytes)
        return journal.scan_bytes(content, "the target's journal")[0]

    def plan_sha256(self) -> str | None:
        """Return the hash of the target's plan; None without a plan, empty if it is damaged."""
        content = self._read_file("plan.json")
        try:
            return strict_json.parse(PlanHead, content).sha256 if content else None
        except ValueError:
            return ""

    def hold(self, reason: str, seconds: float) -> bool:
        """Keep the agent from beginning a run; return whether that succeeded."""
        arguments = ["--reason", reason, "--for", f"{seconds:g}"]
        return self.agent("hold", *arguments, limit_s=30).returncode == 0

    def let_go(self) -> bool:
        """End the hold; return whether that succeeded."""
        return self.agent("hold", "--end", limit_s=30).returncode == 0

    def bound(self, bounds: Bounds) -> bool:
        """Set which runs may still begin; return whether that succeeded."""
        arguments = ["--suite-dir", self._suite_dir, json_text(asdict(bounds))]
        return self.agent("bound", *arguments, limit_s=30).returncode == 0

    def repeat(self, entry: Entry, reason: str) -> None:
        """Request that a finished run is repeated. Raises ControllerError."""
        arguments = ["--suite-dir", self._suite_dir, "--run", entry.run_id, "--seq", str(entry.seq)]
        completed = self.agent("request-repeat", *arguments, "--reason", reason)
        connection.require_output(self._target, completed)

    def unit(self) -> Unit | None:
        """Return the service's state; None if the target does not answer."""
        completed = self.ask(["sh", "-c", UNIT_STATE, "sh", self._unit])
        if completed.returncode == connection.SSH_FAILED:
            return None
        lines = completed.stdout.decode(errors="replace").splitlines()
        properties = dict(line.split("=", 1) for line in lines[:3] if "=" in line)
        state = properties.get("ActiveState", "")
        booting = properties.get("System") in ("initializing", "starting")
        queued = properties.get("Job", "0") not in ("", "0")
        return Unit(
            active=state in ("active", "reloading"),
            starting=state in ("activating", "deactivating") or queued or booting,
            failed=state == "failed",
            last_words=" ".join(lines[3:]).strip(),
        )

    def start(self) -> None:
        """Start the service if it has ended."""
        self.ask(["systemctl", "start", "--no-block", self._unit])

    def stop(self) -> bool:
        """Stop the agent in order and disable it after a boot; return whether that succeeded."""
        return self.ask(["systemctl", "disable", "--now", "--quiet", self._unit]).returncode == 0

    def _read_file(self, name: str, most_bytes: int = bounded.MOST_ANSWER_BYTES) -> bytes:
        argv = ["sh", "-c", CONTENT, "sh", f"{self._suite_dir}/{name}"]
        completed = self.ask(argv, most_bytes=most_bytes)
        return connection.require_output(self._target, completed)


def _run(
    argv: Sequence[str], limit_s: float, most_bytes: int = bounded.MOST_ANSWER_BYTES
) -> Completed:
    try:
        completed = bounded.run(argv, limit_s=limit_s, most_bytes=most_bytes)
    except subprocess.TimeoutExpired:
        reason = f"no answer in {limit_s:g} s: timed out".encode()
        completed = subprocess.CompletedProcess(argv, connection.SSH_FAILED, b"", reason)
    if completed.returncode:
        output = completed.stderr.strip().decode(errors="replace")
        log.debug("a command ended with %d: %s", completed.returncode, output)
    return completed
