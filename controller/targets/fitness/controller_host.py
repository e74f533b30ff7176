"""Checks of the controller: secrets, free space, sleep, ports and messages.

They only read files and look for programs; no message is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from contract.errors import ControllerError
from contract.examination import SleepState
from controller.session import delivery
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.targets import secrets
from controller.targets.fitness.diagnosis import (
    Scene,
    failed,
    not_made,
    passed,
    problem_of,
    refused,
    warned,
)
from controller.targets.inventory import SECRETS_FILE

MIB = 2**20
# A night of a fast meter's raw bytes and the results: below this the suite may have to wait.
COMFORTABLE_BYTES = 2048 * MIB
PSID_REMEDY = "Copy the 32 capitals and digits from the drive's label, without dashes."
SLEEP_REMEDY = (
    "systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target, on it as "
    "root."
)


def secrets_file(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the secrets file: permissions, completeness and length of the secrets."""
    path = Path(scene.target.secrets_file)
    try:
        yield passed(f"{path.name}: {secrets.describe(path)}.")
    except ControllerError as error:
        yield refused(problem_of(error), "Correct fde_secrets_file.")
    if not path.name.startswith(".") and any(path.parent.glob("hosts*")):
        sentence = f"{path.name} is next to the hosts, where Ansible takes it for an inventory."
        yield warned(sentence, f"Rename it to {SECRETS_FILE}, and set fde_secrets_file to that.")


def psid(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the form of the PSID; a failed attempt would count against the drive's limit."""
    if not self_encrypting(scene.target):
        return
    try:
        value = secrets.load(Path(scene.target.secrets_file)).sed_psid
    except ControllerError:
        yield not_made("The secrets cannot be read.")
        return
    if not value:
        yield warned("No sed_psid: a lost PIN would lock the drive forever.", PSID_REMEDY)
    elif not secrets.PSID_FORM.fullmatch(value):
        sentence = f"The sed_psid is no PSID ({len(value)} characters): the drive will refuse it."
        yield failed(sentence, PSID_REMEDY, characters=len(value))
    else:
        yield passed("The sed_psid has a PSID's form; it was not tried.")


def room(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the free space for suites."""
    host, limits = scene.host, (LEAST_FREE_BYTES, COMFORTABLE_BYTES)
    remedy = f"Free some at {host.out}, or name another folder with --out."
    yield judge_room("here where suites go", host.free_bytes, *limits, remedy)


def judge_room(
    where: str, free_bytes: int, least_bytes: int, comfortable_bytes: int, remedy: str
) -> CheckOutcome:
    """Judge free bytes: below `least_bytes` they fail, below `comfortable_bytes` they warn."""
    sentence = f"{free_bytes / MIB:,.0f} MiB are free {where}."
    if free_bytes >= comfortable_bytes:
        return passed(sentence, free_bytes=free_bytes)
    judge = failed if free_bytes < least_bytes else warned
    return judge(f"Only {sentence}", remedy, free_bytes=free_bytes)


def sleep(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the controller does not fall asleep."""
    yield judge_sleep("This controller", scene.host.sleep)


def judge_sleep(who: str, state: SleepState) -> CheckOutcome:
    """Judge the state of sleep of a machine, as `agent.system.sleep` reads it."""
    if state.masked:
        return passed(f"{who} does not sleep: its sleep targets are masked.")
    if action := state.idle_action:
        sentence = f"{who} falls asleep when idle (logind: IdleAction={action})."
        return failed(sentence, SLEEP_REMEDY, idle_action=action)
    if state.able is False:
        return passed(f"{who} cannot sleep: its kernel has no sleep state.")
    if action := state.lid_action:
        sentence = f"{who} sleeps when its lid is closed ({action})."
        return warned(sentence, SLEEP_REMEDY, lid_action=action)
    if desktop := state.desktop:
        sentence = f"{who} has a desktop ({desktop}), which may let it sleep."
        return warned(sentence, SLEEP_REMEDY, desktop=desktop)
    return passed(f"{who} has no setting that lets it sleep.")


# Effects of programs that open serial ports, by program.
_CLAIMS = {
    "ModemManager": "asks new serial ports whether they are modems, which a meter may answer oddly",
    "brltty": "takes adapters with a CH340 or CP210x for Braille displays",
}


def port_takers(scene: Scene) -> Iterator[CheckOutcome]:
    """Check for running programs that open serial ports of other devices."""
    if all("://" in meter.port for meter in scene.target.meters):
        return
    # /proc/PID/comm holds 15 characters at most.
    programs = [name for name in _CLAIMS if name[:15] in scene.host.names]
    for name in programs:
        yield warned(
            f"{name} runs here and {_CLAIMS[name]}.",
            f"Stop it (systemctl stop {name}), or keep it from the port by a udev rule.",
            program=name,
        )
    if not programs:
        yield passed("No program that opens foreign serial ports runs here.")


def receivers(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the program of each receiver of messages can be started."""
    if not scene.target.notify.receivers:
        yield passed("No fde_notify: no message is sent while a suite runs.")
    for receiver in scene.target.notify.receivers:
        name = f"fde_notify, {receiver.name}"
        if problem := delivery.unusable(receiver):
            yield failed(f"{name}: {problem}.", "Install it, or write its whole path.")
        else:
            yield passed(f"{name}: its program is here; it was not tried.")
