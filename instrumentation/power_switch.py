"""Switches that take a target's power away and give it back: plugs, outlets, BMCs, a program.

Shelly: shelly-api-docs.shelly.cloud, gen1 `/relay/0`, gen2 Switch.Set. Tasmota: tasmota.github.io/
docs/Commands, `Power`. SNMP: by default an outlet of APC's PowerNet-MIB,
rPDU2OutletSwitchedControlCommand; any other by its `oid`, with the same values. IPMI: ipmitool(1).
Wake-on-LAN switches nothing off: it starts a target that is off.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contract import schema
from contract.plan import WAKE_ADDRESS, PowerSwitch
from contract.private import expanded, read_secret
from contract.problem import ProblemError
from instrumentation.endpoints import endpoint, missing_explained
from instrumentation.meters.answers import Answer, Answers
from instrumentation.transports import Transport

ANSWER_S, PROGRAM_S = 10.0, 300.0
TRIES, PAUSE_S = 10, 5.0  # to give power back
_APC_OUTLET = "1.3.6.1.4.1.318.1.1.26.9.2.4.1.5"
_APC_ON, _APC_OFF = 1, 2


class PowerError(ProblemError):
    """A switch that did not do what was asked."""


@dataclass(frozen=True)
class Plug:
    """What a switch is asked by HTTP, and patterns of its answers."""

    off: str
    on: str
    is_off: str
    is_on: str
    login: str = "password"


PLUGS = {
    name: schema.read(Plug, plug)
    for name, plug in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}


def cycle(switch: PowerSwitch) -> None:
    """Take the power away for `off_s` and give it back. Raises PowerError or OSError.

    Giving it back is tried again and again, also where the answer to taking it away was lost.
    """
    if switch.kind == "program":
        _run(switch.argv)
    elif switch.kind == "wake-on-lan":
        _wake(switch.address)
    elif switch.kind == "ipmi":
        _cycle_by_ipmi(switch)
    else:
        secret = read_secret(Path(switch.secret_file)) if switch.secret_file else ""
        turn = partial(_turn, switch, secret)
        try:
            turn(False)
        finally:
            time.sleep(switch.off_s)
            _repeat(partial(turn, True))


def _repeat(turn_on: Callable[[], None]) -> None:
    for tries_left in reversed(range(TRIES)):
        try:
            turn_on()
            break
        except (PowerError, OSError):
            if not tries_left:
                raise
            time.sleep(PAUSE_S)


def _turn(switch: PowerSwitch, secret: str, on: bool) -> None:
    """Ask a plug or an outlet once. Raises PowerError or OSError where it did not do it."""
    with missing_explained("plugs"):
        from instrumentation.http_transport import HttpTransport
        from instrumentation.network import SnmpTransport

    wire: HttpTransport | SnmpTransport
    if switch.kind == "snmp":
        host, port, _ = endpoint(switch.address)
        oid = switch.oid or f"{_APC_OUTLET}.{switch.outlet}"
        question, wanted = f"SET {oid} {_APC_ON if on else _APC_OFF}", ""
        wire = SnmpTransport(host, port, community=secret or "private", limit_s=ANSWER_S)
    else:
        plug = PLUGS[switch.kind]
        question = f"GET {(plug.on if on else plug.off).format(outlet=switch.outlet)}"
        wanted = plug.is_on if on else plug.is_off
        wire = HttpTransport(switch.address, login=plug.login, secret=secret, limit_s=ANSWER_S)
    with closing(wire):
        wire.write(f"{question}\n".encode("ascii"))
        answer = _wait_for_answer(wire)
    body = answer.body.decode("latin-1")
    if answer.label[:3] not in ("ok", "200") or not re.search(wanted, body):
        raise PowerError("switch-refuses", address=switch.address, answer=answer.label)


def _wait_for_answer(wire: Transport) -> Answer:
    answers, end_s = Answers(), time.monotonic() + ANSWER_S
    while time.monotonic() < end_s:
        for answer in answers.add(wire.read(1.0)[1], 0):
            if isinstance(answer, Answer):
                return answer
    raise PowerError("switch-silent", limit_s=ANSWER_S)


def _cycle_by_ipmi(switch: PowerSwitch) -> None:
    read_secret(Path(switch.secret_file))  # of mode 0600; the program reads it itself
    argv = ["ipmitool", "-I", "lanplus", "-H", switch.address, "-U", switch.user]
    argv += ["-f", str(expanded(switch.secret_file)), "chassis", "power"]
    try:
        _run((*argv, "cycle"))
    except PowerError:  # a machine that is off cannot be cycled
        _run((*argv, "on"))


def _run(argv: tuple[str, ...]) -> None:
    """Run a program to its end; what it prints may hold a secret and is not kept."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PROGRAM_S,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise PowerError("switch-silent", limit_s=PROGRAM_S) from None
    if done.returncode:
        raise PowerError("switch-program", program=argv[0], status=done.returncode)


def _wake(address: str) -> None:
    """Send AMD's magic packet: six bytes of ones, and the MAC address sixteen times."""
    match = re.fullmatch(WAKE_ADDRESS, address)
    assert match is not None  # as the inventory was checked
    mac = bytes.fromhex(re.sub("[:-]", "", match[1]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        out.sendto(b"\xff" * 6 + mac * 16, (match[2], int(match[3])))
