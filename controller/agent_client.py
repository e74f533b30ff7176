"""The agent on the target: asked by short commands, given its secrets, held back."""

from __future__ import annotations

import logging
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from contract import journal, strict_json
from contract.errors import ControllerError
from contract.journal import Entry
from controller import remote, secrets_file

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

    def __init__(self, target: Mapping[str, Any], suite_id: str) -> None:
        self._target = target
        self._suite_dir = remote.suite_dir(suite_id)
        self._unit = f"fde-agent@{suite_id}.service"

    def ask(self, command: Sequence[str], limit_s: float = LIMIT_S) -> Done:
        """Run it to its end; status 255 also where no answer came in time."""
        return _run(remote.command(self._target, command), limit_s)

    def agent(self, *arguments: str, limit_s: float = LIMIT_S) -> Done:
        """`python3 -m agent …` there."""
        return _run(remote.python(self._target, "-m", "agent", *arguments), limit_s)

    def reached(self) -> bool:
        """Whether it answers."""
        return self.ask(["true"]).returncode == 0

    def identity(self) -> dict[str, Any]:
        """Which machine it is (`contract.identity`). Raises ControllerError."""
        said = self._told(self.agent("identity", "--suites", remote.SUITES)).decode(
            errors="replace"
        )
        try:
            found = strict_json.loads(said)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "machine_id" not in found:
            raise ControllerError(
                "The target does not say which machine it is: provision it again."
            )
        return found

    def disturbers(self) -> dict[str, list[str]]:
        """What may start work by itself there, by group (`agent.quiet`); empty where that is not
        known."""
        try:
            found = strict_json.loads(self.agent("quiet", "list").stdout)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def journal(self) -> list[Entry]:
        """What its journal holds; empty for a suite that was never started there."""
        content = self._file("journal.jsonl")
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(content)
            copy.flush()
            return journal.read(Path(copy.name))

    def plan_sha256(self) -> str | None:
        """The hash of the plan that lies there; None where none does."""
        content = self._file("plan.json")
        if not content:
            return None
        try:
            return str(strict_json.loads(content)["sha256"])
        except (ValueError, KeyError, TypeError):
            return ""

    def hold(self, reason: str, seconds: float) -> bool:
        """Keep the agent from beginning a run; whether it was told."""
        done = self.agent("hold", "--reason", reason, "--for", f"{seconds:g}", limit_s=30)
        return done.returncode == 0

    def let_go(self) -> bool:
        """End the hold; whether it was told."""
        return self.agent("hold", "--end", limit_s=30).returncode == 0

    def repeat(self, entry: Entry, reason: str) -> None:
        """Have a finished run repeated. Raises ControllerError."""
        arguments = ["--suite-dir", self._suite_dir, "--run", entry.run_id, "--seq", str(entry.seq)]
        self._told(self.agent("request-repeat", *arguments, "--reason", reason))

    def unit(self) -> Unit | None:
        """The service's state; None where the target does not answer."""
        done = self.ask(["sh", "-c", UNIT_STATE, "sh", self._unit])
        if done.returncode == remote.SSH_FAILED:
            return None
        lines = done.stdout.decode(errors="replace").splitlines()
        found = dict(line.split("=", 1) for line in lines[:3] if "=" in line)
        state = found.get("ActiveState", "")
        booting = found.get("System") in ("initializing", "starting")
        queued = found.get("Job", "0") not in ("", "0")
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
        """Have the agent end in order, and not start after a boot; whether it was told."""
        return self.ask(["systemctl", "disable", "--now", "--quiet", self._unit]).returncode == 0

    def _file(self, name: str) -> bytes:
        return self._told(self.ask(["sh", "-c", CONTENT, "sh", f"{self._suite_dir}/{name}"]))

    def _told(self, done: Done) -> bytes:
        return remote.told(self._target, done)


def _run(argv: Sequence[str], limit_s: float) -> Done:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            start_new_session=True,  # Ctrl-C is for the session, which tidies up with these
        )
    except subprocess.TimeoutExpired:
        said = f"no answer in {limit_s:g} s: timed out".encode()
        done = subprocess.CompletedProcess(argv, remote.SSH_FAILED, b"", said)
    if done.returncode:
        said = done.stderr.strip()
        log.debug("a command ended with %d: %s", done.returncode, said.decode(errors="replace"))
    return done


SECRETS = "secrets"
RETRY_S = 2.0
# The agent looks several times a second: if it still waits so long after, they are gone again.
AGAIN_S = 20.0


class SecretsDelivery:
    """Looks at the journal's last line, and places the secrets when the agent waits for them."""

    def __init__(self, target: dict[str, Any], note: Callable[[str], None]) -> None:
        self._target = target
        self._note = note
        self._due_s = 0.0
        self._failed = ""

    def look(self, last: Entry | None) -> None:
        """Place them if they are waited for; a failure is told once and tried again."""
        if last is None or last.state != "waiting" or last.cause != SECRETS:
            self._due_s = 0.0
            return
        if time.monotonic() < self._due_s:
            return
        try:
            changed = secrets_file.place(self._target)
        except ControllerError as error:
            if str(error) != self._failed:
                self._note(f"the secrets could not be placed: {error}")
            self._failed = str(error)
            self._due_s = time.monotonic() + RETRY_S
        else:
            self._failed = ""
            if changed:
                self._note("the target asked for the secrets, and has them again")
            self._due_s = time.monotonic() + AGAIN_S


LEASE_S = 90.0
RENEW_S = 30.0
POLL_S = 1.0
# A reason is one when it has stood so long (a recorder is started again sooner), and gone when it
# has been gone so long.
SETTLE_S = 3.0


class Lease(Protocol):
    """Who holds the agent; each says whether the target was told."""

    def hold(self, reason: str, seconds: float) -> bool: ...
    def let_go(self) -> bool: ...


class Hold:
    """A context in which the agent is held as long as `reason()` gives a sentence.

    It works in a thread of its own: asking the target may take long.
    """

    def __init__(
        self, lease: Lease, reason: Callable[[], str], note: Callable[[str], None]
    ) -> None:
        self._lease = lease
        self._reason = reason
        self._note = note
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._told = ""
        self._held = False
        self._due_s = 0.0
        self._since_s: float | None = None  # the reason has come, or gone

    def __enter__(self) -> Hold:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._held:
            self._lease.let_go()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            reason = self._reason()
            if bool(reason) == bool(self._told):
                self._since_s = None
            elif not self._stands():
                continue
            if reason:
                self._keep(reason)
            elif self._told:
                self._end()

    def _stands(self) -> bool:
        """Whether the change has lasted."""
        now_s = time.monotonic()
        self._since_s = self._since_s or now_s
        return now_s - self._since_s >= SETTLE_S

    def _keep(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._note(f"{reason}: no run is begun until that is fixed")
            self._due_s = 0.0
        if time.monotonic() >= self._due_s:
            held = self._lease.hold(reason, LEASE_S)
            self._held = self._held or held
            self._due_s = time.monotonic() + (RENEW_S if held else RETRY_S)

    def _end(self) -> None:
        if self._held and not self._lease.let_go():
            return  # it runs out by itself, should the target not answer
        self._note("fixed: runs start again")
        self._held, self._told = False, ""
