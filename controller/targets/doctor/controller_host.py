"""Checks of the controller: its secrets, its room, its sleep, and who else opens the ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from contract.errors import ControllerError
from contract.examination import SleepState
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.targets import secrets
from controller.targets.doctor.diagnosis import (
    Scene,
    failed,
    not_made,
    passed,
    problem_of,
    refused,
    warned,
)

MIB = 2**20
# A night of a fast meter's raw bytes and the results: below this the suite may have to wait.
COMFORTABLE_BYTES = 2048 * MIB


def secrets_file(scene: Scene) -> Iterator[CheckOutcome]:
    """Check rights, completeness and strength."""
    path = Path(scene.target.secrets_file)
    try:
        yield passed("secrets-sound", file=path.name, description=secrets.describe(path))
    except ControllerError as error:
        yield refused(problem_of(error), "Correct fde_secrets_file.")


def psid(scene: Scene) -> Iterator[CheckOutcome]:
    """Check its form alone: a try with a wrong one counts against the drive's limit."""
    if not self_encrypting(scene.target):
        return
    try:
        value = secrets.load(Path(scene.target.secrets_file)).sed_psid
    except ControllerError:
        yield not_made("secrets-unread")
        return
    if not value:
        yield warned("psid-missing")
    elif not secrets.PSID_FORM.fullmatch(value):
        yield failed("psid-form", {"characters": len(value)})
    else:
        yield passed("psid-sound")


def room(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the room where suites go."""
    host, limits = scene.host, (LEAST_FREE_BYTES, COMFORTABLE_BYTES)
    yield judge_room("controller-room", host.free_bytes, *limits, out=host.out)


def judge_room(
    wording: str, free_bytes: int, least_bytes: int, comfortable_bytes: int, **words: object
) -> CheckOutcome:
    """Judge free bytes by what a suite needs at least, and what it needs for certain."""
    facts, words["mib"] = {"free_bytes": free_bytes}, free_bytes / MIB
    if free_bytes >= comfortable_bytes:
        return passed(wording, facts, **words)
    return (failed if free_bytes < least_bytes else warned)(f"{wording}-low", facts, **words)


def sleep(scene: Scene) -> Iterator[CheckOutcome]:
    """Check whether the controller may fall asleep."""
    yield judge_sleep("This controller", scene.host.sleep)


def judge_sleep(who: str, state: SleepState) -> CheckOutcome:
    """Judge what `agent.system.sleep` found on a machine."""
    if state.masked:
        return passed("sleep-masked", who=who)
    if state.idle_action:
        return failed("sleep-idle", {"idle_action": state.idle_action}, who=who)
    if state.able is False:
        return passed("sleep-unable", who=who)
    if state.lid_action:
        return warned("sleep-lid", {"lid_action": state.lid_action}, who=who)
    if state.desktop:
        return warned("sleep-desktop", {"desktop": state.desktop}, who=who)
    return passed("sleep-off", who=who)


# Programs by what they do to USB ids that they claim.
_CLAIMS = {
    "ModemManager": "asks new serial ports whether they are modems, which a meter may answer oddly",
    "brltty": "takes adapters with a CH340 or CP210x for Braille displays",
}


def port_takers(scene: Scene) -> Iterator[CheckOutcome]:
    """Check for programs known to open serial ports that are not theirs."""
    if all("://" in meter.port for meter in scene.target.meters):
        return
    # /proc/PID/comm holds 15 characters at most.
    programs = [name for name in _CLAIMS if name[:15] in scene.host.names]
    for name in programs:
        yield warned("port-taker", {"program": name}, habit=_CLAIMS[name])
    if not programs:
        yield passed("no-port-takers")
