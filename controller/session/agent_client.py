"""The agent on the target: asked by short commands, given its secrets, held back."""

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
# Texts of the shell are fixed: what differs is an argument of theirs.
UNIT_STATE = """systemctl show -p ActiveState,Job "$1"
echo "System=$(systemctl is-system-running)"
journalctl -u "$1" -n 5 -o cat --no-pager"""
CONTENT = 'if [ -e "$1" ]; then cat "$1"; fi'
Done = subprocess.CompletedProcess[bytes]


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
    ) -> Done:
        """Run it to its end; status 255 also where no answer came in time, or one without end."""
        return _run(connection.command(self._target, command), limit_s, most_bytes)

    def agent(self, *arguments: str, limit_s: float = LIMIT_S) -> Done:
        """`python3 -m agent …` there."""
        return _run(connection.python(self._target, "-m", "agent", *arguments), limit_s)

    def reached(self) -> bool:
        """Whether it answers."""
        return self.ask(["true"]).returncode == 0

    def identity(self) -> Identity:
        """Return which machine it is. Raises ControllerError."""
        try:
            return strict_json.parse(
                Identity, self._output(self.agent("identity", "--suites", connection.SUITES))
            )
        except ValueError as error:
            raise ControllerError("target-identity-unread", error=error) from None

    def disturbers(self) -> Mapping[str, tuple[str, ...]]:
        """Return what may start work there unasked, by group; empty where that is unknown."""
        try:
            return strict_json.parse(Disturbers, self.agent("quiet", "list").stdout).by_group
        except ValueError:
            return {}

    def journal(self, most_bytes: int = bounded.MOST_ANSWER_BYTES) -> list[Entry]:
        """Return what its journal holds; empty for a suite that was never started there."""
        content = self._file("journal.jsonl", most_bytes)
        return journal.scan_bytes(content, "the target's journal")[0]

    def plan_sha256(self) -> str | None:
        """Return the hash of the plan there; None without one, empty where it is damaged."""
        content = self._file("plan.json")
        try:
            return strict_json.parse(PlanHead, content).sha256 if content else None
        except ValueError:
            return ""

    def hold(self, reason: str, seconds: float) -> bool:
        """Keep the agent from beginning a run; whether that succeeded."""
        done = self.agent("hold", "--reason", reason, "--for", f"{seconds:g}", limit_s=30)
        return done.returncode == 0

    def let_go(self) -> bool:
        """End the hold; whether that succeeded."""
        return self.agent("hold", "--end", limit_s=30).returncode == 0

    def bound(self, bounds: Bounds) -> bool:
        """Set which runs may still begin; whether that succeeded."""
        arguments = ["--suite-dir", self._suite_dir, json_text(asdict(bounds))]
        return self.agent("bound", *arguments, limit_s=30).returncode == 0

    def repeat(self, entry: Entry, reason: str) -> None:
        """Have a finished run repeated. Raises ControllerError."""
        arguments = ["--suite-dir", self._suite_dir, "--run", entry.run_id, "--seq", str(entry.seq)]
        self._output(self.agent("request-repeat", *arguments, "--reason", reason))

    def unit(self) -> Unit | None:
        """Return the service's state; None where the target does not answer."""
        done = self.ask(["sh", "-c", UNIT_STATE, "sh", self._unit])
        if done.returncode == connection.SSH_FAILED:
            return None
        lines = done.stdout.decode(errors="replace").splitlines()
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
        """Start the service, should it have ended."""
        self.ask(["systemctl", "start", "--no-block", self._unit])

    def stop(self) -> bool:
        """Have the agent end in order, and not start after a boot; whether that succeeded."""
        return self.ask(["systemctl", "disable", "--now", "--quiet", self._unit]).returncode == 0

    def _file(self, name: str, most_bytes: int = bounded.MOST_ANSWER_BYTES) -> bytes:
        argv = ["sh", "-c", CONTENT, "sh", f"{self._suite_dir}/{name}"]
        return self._output(self.ask(argv, most_bytes=most_bytes))

    def _output(self, done: Done) -> bytes:
        return connection.require_output(self._target, done)


def _run(argv: Sequence[str], limit_s: float, most_bytes: int = bounded.MOST_ANSWER_BYTES) -> Done:
    try:
        done = bounded.run(argv, limit_s=limit_s, most_bytes=most_bytes)
    except subprocess.TimeoutExpired:
        words = f"no answer in {limit_s:g} s: timed out".encode()
        done = subprocess.CompletedProcess(argv, connection.SSH_FAILED, b"", words)
    if done.returncode:
        words = done.stderr.strip()
        log.debug("a command ended with %d: %s", done.returncode, words.decode(errors="replace"))
    return done
