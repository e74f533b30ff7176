"""Looks at a target without installing anything: the agent is unpacked below /run, asked, removed.

One connection does it all; /run is in the target's memory, so that no disk of it is written.
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
from contract.names import sentence
from contract.places import build_folder
from contract.plan import Plan, TargetDocument
from contract.problem import Problem, wordings_of
from controller.targets import connection
from controller.targets.agent_bundle import HOME, collect, pack
from controller.targets.answers import DisksAnswer, Examination, KeptCheck, MachineAnswer, Survey

NOT_TMPFS, NO_FOLDER, NO_PYTHON, NOT_UNPACKED, NO_ANSWER, OLD_PYTHON = range(94, 100)
# The folder goes whatever happens, also where the link is lost and the script is hung up on.
# What the login shell prints by itself comes before it.
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
    """A target that was reached but cannot be looked at."""

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
    """What a target reported of itself.

    `disks` are empty where `error` is why they could not be looked at; `examined` has no part
    where none was asked for; `disturbers` may start work unasked, by group (`agent.system.quiet`).
    """

    facts: Facts
    refusals: tuple[Problem, ...] = ()
    disks: tuple[DiskAnswer, ...] = ()
    error: str | None = None
    examined: Examination = field(default_factory=Examination)
    disturbers: Mapping[str, tuple[str, ...]] | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the disks by role, as `agent prepare --checked` takes them."""
        return {disk.role: disk.fingerprint for disk in self.disks if disk.fingerprint}

    @property
    def refused(self) -> tuple[Problem, ...]:
        """Everything that prevents the next step."""
        unseen = (Problem("disks-unseen", {}, self.error),) if self.error else ()
        return (*self.refusals, *(r for disk in self.disks for r in disk.refusals), *unseen)


def look(
    target: TargetDocument,
    *,
    disks: bool = True,
    examine: bool = False,
    run: connection.Run = connection.run,
) -> TargetAnswer:
    """Ask the target what it is and has; raises TargetError where it cannot be asked."""
    what = "".join(["machine", " disks" * disks, " examine" * examine])
    done = _run_script(target, what, run=run)
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        machine = strict_json.parse(MachineAnswer, lines[0])
        examined = strict_json.parse(Examination, lines[1] if examine else "{}")
    except (IndexError, ValueError):
        raise _unanswered(target, done) from None
    answer = TargetAnswer(machine.facts, machine.refusals, examined=examined)
    if not disks:
        return answer
    last = lines[1 + examine :]
    if done.returncode or not last:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        error = words[-1].removeprefix("fde: ") if words else f"status {done.returncode}"
        return replace(answer, error=f"its disks could not be looked at: {error}")
    try:
        disks_answer = strict_json.parse(DisksAnswer, last[0])
    except ValueError:
        raise _unanswered(target, done) from None
    return replace(answer, disks=disks_answer.disks, disturbers=disks_answer.disturbers)


def list_disks(target: TargetDocument) -> Survey:
    """Ask a target for its name and all its whole disks; raises TargetError."""
    return schema.read(Survey, _ask(target, "survey"))


def load(target: TargetDocument, seconds: float) -> None:
    """Keep all processors of a target busy for so long; raises TargetError."""
    _ask(target, "load", f"{seconds:g}")


def read_joules(target: TargetDocument, seconds: float) -> tuple[tuple[int, float], ...]:
    """Read RAPL of a target for so long: (monotonic ns, J since the first); raises TargetError."""
    return schema.read(tuple[tuple[int, float], ...], _ask(target, "joules", f"{seconds:g}"))


def read_writes(target: TargetDocument, plan: Plan) -> Mapping[str, int]:
    """Read how many bytes a run of each workload writes at least; raises TargetError.

    Workloads are missing whose files the target does not have.
    """
    return schema.read(dict[str, int], _ask(target, "writes", plan=plan))


def _ask(target: TargetDocument, *what: str, plan: Plan | None = None) -> object:
    done = _run_script(target, *what, plan=plan)
    try:
        if not done.returncode:
            document: object = strict_json.loads(done.stdout)
            return document
    except ValueError:
        pass
    raise _unanswered(target, done)


def _run_script(
    target: TargetDocument,
    *what: str,
    plan: Plan | None = None,
    run: connection.Run = connection.run,
) -> subprocess.CompletedProcess[bytes]:
    files = collect()
    if plan:
        files[PurePosixPath("plan.json")] = json.dumps(plan.document()).encode()
    files[PurePosixPath("target.json")] = json.dumps(target.for_target.document()).encode()
    done = run(target, ["sh", "-c", SCRIPT, "sh", *what], pack(files))
    before, begun, printed = done.stdout.partition(BEGIN)
    if not begun:
        return done
    if before.strip():
        words = sentence(before.decode(errors="replace").strip())[:80]
        host = connection.address(target).capitalize()
        raise SurveyError("shell-prints", host=host, output=repr(words))
    return subprocess.CompletedProcess(done.args, done.returncode, printed, done.stderr)


def _unanswered(
    target: TargetDocument, done: subprocess.CompletedProcess[bytes]
) -> connection.TargetError:
    code = _CODES.get(done.returncode)
    if code is None:
        return connection.TargetError(connection.describe_failure(target, done))
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return SurveyError(
        code,
        host=connection.address(target),
        user=target.ssh.user if target.ssh else "root",
        output=lines[-1] if lines else "python3",
    )


def record_file(kind: str, target: TargetDocument) -> Path:
    """Return where the last record of a kind (`checks`, `proofs`) is kept of a target.

    Hosts of several inventories may have one name: those that are reached otherwise, or that name
    other disks, have a file each.
    """
    link = None if target.ssh is None else [target.ssh.host, target.ssh.port]
    disks = sorted((disk.by_id, disk.serial) for disk in target.disks.values())
    digest = short_digest([json.dumps([link, disks])])
    return build_folder() / kind / f"{target.host}-{digest}.json"


def write_record(kind: str, target: TargetDocument, **facts: object) -> Path:
    """Keep a record of a kind of a target, with the time; return where."""
    place = record_file(kind, target)
    place.parent.mkdir(parents=True, exist_ok=True)
    made_wall = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"format": f"fde-{kind}/1", "host": target.host, "made_wall": made_wall}
    write_json(place, {**head, **facts})
    return place


def checks_file(target: TargetDocument) -> Path:
    """Return where the last check of a target is kept, until it is provisioned."""
    return record_file("checks", target)


def expected_fingerprints(target: TargetDocument, answer: TargetAnswer) -> dict[str, str]:
    """Return the fingerprints that provisioning must find again: of the last check, else of now."""
    kept = strict_json.load(KeptCheck, checks_file(target))
    if kept is None:
        return answer.fingerprints
    # Disks may have changed their roles.
    same = {
        disk.role
        for disk in kept.disks
        if disk.role in target.disks and target.disks[disk.role].by_id == disk.by_id
    }
    checked = {role: mark for role, mark in kept.fingerprints.items() if role in same}
    return {**answer.fingerprints, **checked}
