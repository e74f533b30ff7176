"""Looks at a target without installing anything: the agent is unpacked below /run, asked, removed.

One connection does it all; /run is in the target's memory, so that no disk of it is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from contract import strict_json
from contract.errors import ControllerError
from contract.files import short_digest
from contract.names import sentence
from contract.places import build_folder
from controller.target import connection
from controller.target.agent_bundle import HOME, collect, pack

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
if [ "$1" = survey ]; then python3 -m agent.examine --survey; exit; fi
if [ "$1" = load ] || [ "$1" = joules ]; then python3 -m agent.examine "--$1" "$2"; exit; fi
python3 -m agent.preflight --target "$d/target.json" || exit {NO_ANSWER}
case "$1" in *examine*) python3 -m agent.examine --target "$d/target.json" || echo '{{}}' ;; esac
case "$1" in *disks*) python3 -m agent check --target "$d/target.json" ;; esac
"""


@dataclass(frozen=True)
class Look:
    """What a target said of itself.

    `facts` and `refusals` (each the fields of a Problem, as those of a disk) are of
    `agent.preflight`; `disks` of `agent check`, empty where `error` says why the disks could not be
    looked at; `examined` of `agent.examine`, where that was asked for; `disturbers` what may start
    work by itself, by group (`agent.system.quiet`).
    """

    facts: dict[str, Any]
    refusals: list[dict[str, Any]]
    disks: list[dict[str, Any]]
    error: str | None = None
    examined: dict[str, Any] = field(default_factory=dict)
    disturbers: dict[str, list[str]] | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """What each disk looked like, by role, as `agent prepare --checked` takes it."""
        by_role = {disk["role"]: disk["fingerprint"] for disk in self.disks}
        return {role: fingerprint for role, fingerprint in by_role.items() if fingerprint}

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Everything that prevents the next step."""
        refusals = [*self.refusals, *(r for disk in self.disks for r in disk["refusals"])]
        if self.error:
            refusals.append(
                {"code": "disks-unseen", "facts": {}, "sentence": self.error, "remedy": ""}
            )
        return refusals


def look(target: Mapping[str, Any], *, disks: bool = True, examine: bool = False) -> Look:
    """Ask the target; raises ControllerError, one sentence, where it cannot be asked."""
    what = "".join(["machine", " disks" * disks, " examine" * examine])
    done = _asked(target, what)
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        document = strict_json.loads(lines[0])
        facts, refusals = dict(document["facts"]), list(document["refusals"])
        examined = dict(strict_json.loads(lines[1])) if examine else {}
    except (IndexError, KeyError, TypeError, ValueError):
        raise ControllerError(_unanswered(target, done)) from None
    if not disks:
        return Look(facts, refusals, [], examined=examined)
    last = lines[1 + examine :]
    if done.returncode or not last:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        error = words[-1].removeprefix("fde: ") if words else f"status {done.returncode}"
        error = f"its disks could not be looked at: {error}"
        return Look(facts, refusals, [], error, examined)
    document = strict_json.loads(last[0])
    return Look(
        facts, refusals, document["disks"], examined=examined, disturbers=document["disturbers"]
    )


def ask(target: Mapping[str, Any], *what: str) -> Any:
    """What one command of `agent.examine` prints: `survey`, or `load` or `joules` and seconds.

    Raises ControllerError, one sentence.
    """
    done = _asked(target, *what)
    try:
        if not done.returncode:
            return strict_json.loads(done.stdout)
    except ValueError:
        pass
    raise ControllerError(_unanswered(target, done))


def _asked(target: Mapping[str, Any], *what: str) -> subprocess.CompletedProcess[bytes]:
    files = collect()
    files[PurePosixPath("target.json")] = json.dumps(target).encode()
    done = connection.run(target, ["sh", "-c", SCRIPT, "sh", *what], stdin=pack(files))
    before, begun, printed = done.stdout.partition(BEGIN)
    if not begun:
        return done
    if before.strip():
        words = sentence(before.decode(errors="replace").strip())[:80]
        raise ControllerError(
            f"{connection.address(target).capitalize()} prints {words!r} ahead of what a command "
            "prints: have the start-up files of its login shell (as ~/.bashrc) print in "
            "interactive shells alone."
        )
    return subprocess.CompletedProcess(done.args, done.returncode, printed, done.stderr)


def record_file(kind: str, target: Mapping[str, Any]) -> Path:
    """Where the last record of a kind (`checks`, `proofs`) is kept of a target.

    Hosts of several inventories may have one name: those that are reached otherwise, or that name
    other disks, have a file each.
    """
    link = None if connection.is_local(target) else [target["ssh"]["host"], target["ssh"]["port"]]
    disks = sorted((disk["by_id"], disk["serial"]) for disk in target["disks"].values())
    digest = short_digest([json.dumps([link, disks])])
    return build_folder() / kind / f"{target['host']}-{digest}.json"


def checks_file(target: Mapping[str, Any]) -> Path:
    """Where the last check of a target is kept, until it is provisioned."""
    return record_file("checks", target)


def checked(target: Mapping[str, Any], now: Look) -> dict[str, str]:
    """Fingerprints that provisioning must find again: those of the last check, else of now."""
    try:
        before = strict_json.loads(checks_file(target).read_text(encoding="utf-8"))
        names = {disk["role"]: disk["by_id"] for disk in before["disks"]}
        kept: dict[str, str] = before["fingerprints"]
    except (OSError, ValueError, KeyError, TypeError):
        return now.fingerprints
    # Disks may have changed their roles.
    same = {role for role, disk in target["disks"].items() if names.get(role) == disk["by_id"]}
    return {**now.fingerprints, **{role: kept[role] for role in same & set(kept)}}


def _unanswered(target: Mapping[str, Any], done: subprocess.CompletedProcess[bytes]) -> str:
    name = connection.address(target)
    user = "root" if connection.is_local(target) else target["ssh"]["user"]
    words = done.stderr.decode(errors="replace").strip().splitlines()
    reasons = {
        OLD_PYTHON: f"{words[-1] if words else 'python3'} of {name} is too old: Python 3.11 or "
        "newer must be its python3, as on Debian 12 or Ubuntu 24.04.",
        NOT_TMPFS: f"There is no tmpfs at /run of {name}, so nothing can be looked at without "
        "writing a disk: boot it with systemd.",
        NO_FOLDER: f"{user} may not write below /run of {name}: set ansible_user: root.",
        NO_PYTHON: f"There is no python3 on {name}: install it there (apt-get install python3).",
        NOT_UNPACKED: f"The agent could not be unpacked below /run of {name}: see that tar is "
        "there and some MiB of /run are free.",
    }
    return reasons.get(done.returncode) or connection.why(target, done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found as JSON; 1 with one sentence where the target cannot be asked."""
    parser = ArgumentParser(prog="python -m controller.target.survey", description=__doc__)
    parser.add_argument("--target", type=Path, required=True, help="the resolved target")
    parser.add_argument("--confirmed", default="[]", help="serials, as a JSON list")
    parser.add_argument("--machine-only", action="store_true", help="leave the disks out")
    parser.add_argument("--forget", action="store_true", help="remove the last check, and no more")
    options = parser.parse_args(arguments)
    try:
        target = connection.read_target(options.target)
        if options.forget:
            checks_file(target).unlink(missing_ok=True)
            return 0
        answer = look(target, disks=not options.machine_only)
    except ControllerError as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    from controller.target.first_writes import unconfirmed  # which looks, too

    verdicts = {
        "checked": checked(target, answer),
        "unconfirmed": unconfirmed(target, answer.disks, json.loads(options.confirmed)),
    }
    print(json.dumps({**asdict(answer), **verdicts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
