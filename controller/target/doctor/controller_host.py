"""Checks of the controller: its secrets, its room, its sleep, and who else opens the ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from contract.errors import ControllerError
from contract.examination import SleepState
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.target import secrets
from controller.target.doctor.diagnosis import (
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
        yield passed(f"{path.name}: {secrets.describe(path)}.")
    except ControllerError as error:
        yield refused(problem_of(error), "Correct fde_secrets_file.")


def psid(scene: Scene) -> Iterator[CheckOutcome]:
    """Check its form alone: a try with a wrong one counts against the drive's limit."""
    if not self_encrypting(scene.target):
        return
    try:
        value = secrets.load(Path(scene.target.secrets_file)).sed_psid
    except ControllerError:
        yield not_made("The secrets cannot be read.")
        return
    remedy = "Copy the 32 capitals and digits from the drive's label, without dashes."
    if not value:
        yield warned("No sed_psid: a lost PIN would lock the drive forever.", remedy)
    elif not secrets.PSID_FORM.fullmatch(value):
        sentence = f"The sed_psid is no PSID ({len(value)} characters): the drive will refuse it."
        yield failed(sentence, remedy, characters=len(value))
    else:
        yield passed("The sed_psid has a PSID's form; it was not tried.")


def room(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the room where suites go."""
    free = scene.host.free_bytes
    sentence = f"{free / MIB:,.0f} MiB are free here where suites go"
    remedy = f"Free some at {scene.host.out}, or name another folder with --out."
    if free < COMFORTABLE_BYTES:
        outcome = failed if free < LEAST_FREE_BYTES else warned
        yield outcome(f"Only {sentence}.", remedy, free_bytes=free)
    else:
        yield passed(f"{sentence}.", free_bytes=free)


def sleep(scene: Scene) -> Iterator[CheckOutcome]:
    """Check whether the controller may fall asleep."""
    yield judge_sleep("This controller", scene.host.sleep)


def judge_sleep(who: str, state: SleepState) -> CheckOutcome:
    """Judge what `agent.system.sleep` found on a machine."""
    remedy = (
        "systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target, on it "
        "as root."
    )
    if state.masked:
        return passed(f"{who} does not sleep: its sleep targets are masked.")
    if state.idle_action:
        sentence = f"{who} falls asleep when idle (logind: IdleAction={state.idle_action})."
        return failed(sentence, remedy, idle_action=state.idle_action)
    if state.able is False:
        return passed(f"{who} cannot sleep: its kernel has no sleep state.")
    if state.lid_action:
        sentence = f"{who} sleeps when its lid is closed ({state.lid_action})."
        return warned(sentence, remedy, lid_action=state.lid_action)
    if state.desktop:
        sentence = f"{who} has a desktop ({state.desktop}), which may let it sleep."
        return warned(sentence, remedy, desktop=state.desktop)
    return passed(f"{who} has no setting that lets it sleep.")


# Programs by what they do to USB ids that they claim; docs/hardware.md#serial-ports.
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
        yield warned(
            f"{name} runs here and {_CLAIMS[name]}.",
            f"Stop it (systemctl stop {name}), or install the udev rule that fde doctor "
            "--udev-rule prints.",
            program=name,
        )
    if not programs:
        yield passed("No program that opens foreign serial ports runs here.")


def udev_rule(usb_ids: list[str]) -> str:
    """Write a udev rule for these `vendor:product`.

    The user at the machine may open the port, and ModemManager leaves it alone (udev(7),
    ModemManager's documentation of ID_MM_DEVICE_IGNORE).
    """
    lines = ["# Power meters of the FDE energy testbed; udevadm control --reload, then replug.\n"]
    for usb_id in usb_ids:
        vendor, product = usb_id.split(":")
        match = f'ATTRS{{idVendor}}=="{vendor}", ATTRS{{idProduct}}=="{product}"'
        rights = (
            f'{match}, MODE="0660", GROUP="dialout", TAG+="uaccess", ENV{{ID_MM_DEVICE_IGNORE}}="1"'
        )
        lines += [f'SUBSYSTEM=="{kind}", {rights}\n' for kind in ("tty", "usbmisc")]
    return "".join(lines)
