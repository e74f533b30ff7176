"""Diagnoses of the controller: its secrets, its room, its sleep, and who else opens the ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.preflight import self_encrypting
from contract.errors import ControllerError
from controller.session.suite_folder import LEAST_FREE_BYTES
from controller.target import secrets
from controller.target.doctor.diagnosis import (
    Finding,
    Scene,
    failed,
    not_made,
    passed,
    split,
    warned,
)

MIB = 2**20
# A night of a fast meter's raw bytes and the results: below this the suite may have to wait.
COMFORTABLE_BYTES = 2048 * MIB
PSID = re.compile(r"[A-Z0-9]{32}")


def secrets_file(scene: Scene) -> Iterator[Finding]:
    """Rights, completeness and strength."""
    path = Path(scene.target["secrets_file"])
    try:
        yield passed(f"{path.name}: {secrets.described(path)}.")
    except ControllerError as error:
        yield failed(*split(str(error)))


def psid(scene: Scene) -> Iterator[Finding]:
    """By its form alone: a try with a wrong one counts against the drive's limit."""
    if not self_encrypting(scene.target):
        return
    try:
        value = secrets.load(Path(scene.target["secrets_file"])).get(secrets.PSID)
    except ControllerError:
        yield not_made("The secrets cannot be read.")
        return
    way = "Copy the 32 capitals and digits from the drive's label, without dashes."
    if value is None:
        yield warned("No sed_psid: a lost PIN would lock the drive forever.", way)
    elif not PSID.fullmatch(value):
        sentence = f"The sed_psid is no PSID ({len(value)} characters): the drive will refuse it."
        yield failed(sentence, way, {"characters": len(value)})
    else:
        yield passed("The sed_psid has a PSID's form; it was not tried.")


def room(scene: Scene) -> Iterator[Finding]:
    free = scene.host.free_bytes
    facts = {"free_bytes": free}
    sentence = f"{free / MIB:,.0f} MiB are free here where suites go"
    way = f"Free some where {scene.host.out} lies, or name another folder with --out."
    if free < COMFORTABLE_BYTES:
        judge = failed if free < LEAST_FREE_BYTES else warned
        yield judge(f"Only {sentence}.", way, facts)
    else:
        yield passed(f"{sentence}.", **facts)


def sleep(scene: Scene) -> Iterator[Finding]:
    yield sleeps("This controller", scene.host.sleep)


def sleeps(who: str, facts: Mapping[str, Any]) -> Finding:
    """Of what `agent.system.sleep` found on a machine."""
    way = (
        "systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target, on it "
        "as root."
    )
    if facts["masked"]:
        return passed(f"{who} does not sleep: its sleep targets are masked.", **facts)
    if facts["idle_action"]:
        sentence = f"{who} falls asleep when idle (logind: IdleAction={facts['idle_action']})."
        return failed(sentence, way, facts)
    if facts["able"] is False:
        return passed(f"{who} cannot sleep: its kernel has no sleep state.", **facts)
    if facts["lid_action"]:
        return warned(f"{who} sleeps when its lid is closed ({facts['lid_action']}).", way, facts)
    if facts["desktop"]:
        sentence = f"{who} has a desktop ({facts['desktop']}), which may let it sleep."
        return warned(sentence, way, facts)
    return passed(f"Nothing lets {who[:1].lower()}{who[1:]} sleep.", **facts)


# USB ids that a program takes for something of its own; docs/hardware.md#serial-ports.
_PROBES = {
    "ModemManager": "asks new serial ports whether they are modems, which a meter may answer oddly",
    "brltty": "takes adapters with a CH340 or CP210x for Braille displays",
}


def port_takers(scene: Scene) -> Iterator[Finding]:
    """Programs known to open serial ports that are not theirs."""
    if all("://" in str(meter["port"]) for meter in scene.target["meters"]):
        return
    # /proc/PID/comm holds 15 characters at most.
    programs = [name for name in _PROBES if name[:15] in scene.host.names]
    for name in programs:
        yield warned(
            f"{name} runs here and {_PROBES[name]}.",
            f"Stop it (systemctl stop {name}), or let a udev rule keep it away: fde doctor "
            "--udev-rule prints one.",
            {"program": name},
        )
    if not programs:
        yield passed("No program runs here that opens other people's serial ports.")


def udev_rule(usb_ids: list[str]) -> str:
    """The text of a rule for these `vendor:product`: the user at the machine may open the port, and
    ModemManager leaves it alone (udev(7), ModemManager's documentation of ID_MM_DEVICE_IGNORE)."""
    lines = ["# Power meters of the FDE energy testbed; udevadm control --reload, then replug.\n"]
    for usb_id in usb_ids:
        vendor, product = usb_id.split(":")
        match = f'ATTRS{{idVendor}}=="{vendor}", ATTRS{{idProduct}}=="{product}"'
        rights = (
            f'{match}, MODE="0660", GROUP="dialout", TAG+="uaccess", ENV{{ID_MM_DEVICE_IGNORE}}="1"'
        )
        lines += [f'SUBSYSTEM=="{kind}", {rights}\n' for kind in ("tty", "usbmisc")]
    return "".join(lines)
