"""Questions to a target on which nothing is installed.

One connection unpacks the agent below /run, runs it and removes it. /run is in the target's memory,
so no disk of it is written.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from agent.preflight import Facts
from contract import schema, strict_json
from contract.disks import DiskAnswer
from contract.files import short_digest, write_json
from contract.places import build_folder
from contract.plan import Plan, TargetDocument
from contract.problem import Problem, wordings_of
from controller.targets import connection
from controller.targets.agent_bundle import HOME, collect, pack
from controller.targets.answers import CheckRecord, DisksAnswer, Examination, MachineAnswer, Survey

NOT_TMPFS, NO_FOLDER, NO_PYTHON, NOT_UNPACKED, NO_ANSWER, OLD_PYTHON = range(94, 100)
# The traps remove the folder even if the connection is lost. BEGIN separates the script's output
# from anything that the login shell prints before.
BEGIN = b"fde-look-begins\n"
SCRIPT = f"""
printf '{BEGIN.decode()[:-1]}\\n'
[ "$(stat -f -c %T /run)" = tmpfs ] || exit {NOT_TMPFS}
command -v python3 >/dev/null || exit {NO_PYTHON}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  {{ python3 --version >&2; exit {OLD_PYTHON}; }}
d=$(mktemp -d /run/fde-check.XXXXXX) || exit {NO_FOLDER}
trap 'cd /; rm -rf "$d"' EXIT
trap 'exit 130' HUP INT TERM PIPE
tar -xf - -C "$d" || exit {NOT_UNPACKED}
cd "$d/{HOME}" || exit {NOT_UNPACKED}
export PYTHONPATH="$PWD:$PWD/lib" PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1
case "$1" in survey | load | joules) python3 -m agent.examine "--$@"; exit ;; esac
if [ "$1" = writes ]; then python3 -m agent.needs "$d/plan.json"; exit; fi
python3 -m agent.preflight --target "$d/target.json" || exit {NO_ANSWER}
case "$1" in *examine*) python3 -m agent.examine --target "$d/target.json" || echo '{{}}' ;; esac
case "$1" in *disks*) python3 -m agent check --target "$d/target.json" ;; esac
"""


class SurveyError(connection.TargetError):
    """A target that was reached but cannot run the agent from /run."""

    WORDINGS = wordings_of("controller/targets", "SurveyError")


_CODES = {
    OLD_PYTHON: "old-python",
    NOT_TMPFS: "no-tmpfs",
    NO_FOLDER: "no-run-folder",
    NO_PYTHON: "no-python",
    NOT_UNPACKED: "not-unpacked",
}


@dataclass(frozen=True)
class TargetAnswer:
    """The facts of a target, its disks and its examination.

    `disks` are empty if they could not be examined; `error` is then the reason. `examined` has no
    part unless an examination was requested. `disturbers` are units that may start work on their
    schedule, by group (`agent.system.quiet`).
    """

    facts: Facts
    refusals: tuple[Problem, ...] = ()
    disks: tuple[DiskAnswer, ...] = ()
    error: str | None = None
    examined: Examination = field(default_factory=Examination)
    disturbers: Mapping[str, tuple[str, ...]] | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprints of the disks by role, as `agent prepare --checked` expects them."""
        return {disk.role: disk.fingerprint for disk in self.disks if disk.fingerprint}

    @property
    def refused(self) -> tuple[Problem, ...]:
        """All problems that prevent the next step."""
        unseen = (Problem("disks-unseen", {}, self.error),) if self.error else ()
        return (*self.refusals, *(p for disk in self.disks for p in disk.refusals), *unseen)


def look(
    target: TargetDocument,
    *,
    disks: bool = True,
    examine: bool = False,
    run: connection.Run = connection.run,
) -> TargetAnswer:
    """Ask the target for its facts, disks and examination; raises TargetError."""
    topics = "".join(["machine", " disks" * disks, " examine" * examine])
    result = _run_script(target, topics, run=run)
    lines = result.stdout.decode(errors="replace").splitlines()
    try:
        machine = strict_json.parse(MachineAnswer, lines[0])
        examined = strict_json.parse(Examination, lines[1] if examine else "{}")
    except (IndexError, ValueError):
        raise _unanswered(target, result) from None
    answer = TargetAnswer(machine.facts, machine.refusals, examined=examined)
    if not disks:
        return answer
    last = lines[1 + examine :]
    if result.returncode or not last:
        words = result.stderr.decode(errors="replace").strip().splitlines()
        error = words[-1].removeprefix("fde: ") if words else f"status {result.returncode}"
        return replace(answer, error=f"its disks could not be looked at: {error}")
    try:
        disks_answer = strict_json.parse(DisksAnswer, last[0])
    except ValueError:
        raise _unanswered(target, result) from None
    return replace(answer, disks=disks_answer.disks, disturbers=disks_answer.disturbers)


def list_disks(target: TargetDocument) -> Survey:
    """Ask a target for its name and all its whole disks; raises TargetError."""
    return schema.read(Survey, _ask(target, "survey"))


def load(target: TargetDocument, seconds: float) -> float:
    """Keep all processors of a target busy for `seconds`; raises TargetError.

    Return the share of their time that they received.
    """
    return schema.read(float, _ask(target, "load", f"{seconds:g}"))


def read_joules(target: TargetDocument, seconds: float) -> tuple[tuple[int, float], ...]:
    """Read RAPL for `seconds`: pairs of monotonic ns and J since the first; raises TargetError."""
    return schema.read(tuple[tuple[int, float], ...], _ask(target, "joules", f"{seconds:g}"))


def read_writes(target: TargetDocument, plan: Plan) -> Mapping[str, int]:
    """Read the minimum of bytes that a run of each workload writes; raises TargetError.

    Workloads whose files the target does not have are missing.
    """
    return schema.read(dict[str, int], _ask(target, "writes", plan=plan))


def _ask(target: TargetDocument, *arguments: str, plan: Plan | None = None) -> object:
    """Run the script with `arguments` and parse its answer; raises TargetError."""
    result = _run_script(target, *arguments, plan=plan)
    try:
        if not result.returncode:
            document: object = strict_json.loads(result.stdout)
            return document
    except ValueError:
        pass
    raise _unanswered(target, result)


def _run_script(
    target: TargetDocument,
    *arguments: str,
    plan: Plan | None = None,
    run: connection.Run = connection.run,
) -> subprocess.CompletedProcess[bytes]:
    """Run the script on the target and cut off what its login shell prints before.

    Raises TargetError if the shell prints any text.
    """
    files = collect()
    if plan:
        files[PurePosixPath("plan.json")] = json.dumps(plan.document()).encode()
    files[PurePosixPath("target.json")] = json.dumps(target.for_target.document()).encode()
    result = run(target, ["sh", "-c", SCRIPT, "sh", *arguments], pack(files))
    before, begun, printed = result.stdout.partition(BEGIN)
    if not begun:
        return result
    if before.strip():
        noise = subprocess.CompletedProcess(result.args, 1, before, b"")
        raise connection.TargetError(connection.describe_failure(target, noise))
    return subprocess.CompletedProcess(result.args, result.returncode, printed, result.stderr)


def _unanswered(
    target: TargetDocument, result: subprocess.CompletedProcess[bytes]
) -> connection.TargetError:
    """Build the error of a script that gave no valid answer."""
    code = _CODES.get(result.returncode)
    if code in (None, "not-unpacked"):
        problem = connection.describe_failure(target, result)
        if code is None or problem.code == "login-shell":
            return connection.TargetError(problem)
    lines = result.stderr.decode(errors="replace").strip().splitlines()
    return SurveyError(
        code,
        host=connection.address(target),
        user=target.ssh.user if target.ssh else "root",
        output=lines[-1] if lines else "python3",
    )


def record_file(kind: str, target: TargetDocument) -> Path:
    """Return the path of a target's last record of a kind (`checks`, `proofs`).

    Hosts of several inventories may share a name: the path also depends on link and disks.
    """
    link = None if target.ssh is None else [target.ssh.host, target.ssh.port]
    disks = sorted((disk.by_id, disk.serial) for disk in target.disks.values())
    digest = short_digest([json.dumps([link, disks])])
    return build_folder() / kind / f"{target.host}-{digest}.json"


def write_record(kind: str, target: TargetDocument, **facts: object) -> Path:
    """Save a record of a target with the time; return its path."""
    path = record_file(kind, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    made_wall = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"format": f"fde-{kind}/1", "host": target.host, "made_wall": made_wall}
    write_json(path, {**head, **facts})
    return path


def checks_file(target: TargetDocument) -> Path:
    """Return the path of a target's last check, which exists until it is provisioned."""
    return record_file("checks", target)


def expected_fingerprints(target: TargetDocument, answer: TargetAnswer) -> dict[str, str]:
    """Return the fingerprints that provisioning requires: those of the last check, if any."""
    record = strict_json.load(CheckRecord, checks_file(target))
    if record is None:
        return answer.fingerprints
    # Only of roles that still name the same disk.
    same = {
        disk.role
        for disk in record.disks
        if disk.role in target.disks and target.disks[disk.role].by_id == disk.by_id
    }
    checked = {role: mark for role, mark in record.fingerprints.items() if role in same}
    return {**answer.fingerprints, **checked}
