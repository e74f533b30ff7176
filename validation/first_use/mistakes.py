"""Mistakes that owners make, planted on a guest as a foreign machine and on this controller.

Several are planted at once, where none hides another, and the check looks at all of them; then
all are taken back. It has found one where a diagnosis of the mistake's code fails or warns, names
it, and has a remedy. `how` is what was planted: the thing itself, or what stands in for it (a
file over one of sysfs, a program in another's place). Needs root here, for a mount namespace.

    python -m validation.first_use.mistakes TARGET.json OUT

is one look of the check at a resolved target, in a new process: diagnoses as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract.errors import LabError
from contract.files import write_json
from contract.plan import read_target
from controller.targets import fitness
from instrumentation.simulators.play import SimulatedPort
from instrumentation.tests.simulators import registry
from instrumentation.tests.simulators.player import Player
from lab.state import REPOSITORY
from validation.bench import FOLDER, Figure, at_least, at_most
from validation.first_use.guest import BACK, OVER, Guest, foreign

REAL, STAND_IN = "real", "stand-in"
ASSETS = "/usr/share/fde-testbed"


@dataclass
class Patient:
    """The guest and target that a mistake is planted in.

    `folder` is the bench's, `shell_lines` are for the controller's mount namespace, `undo` what
    undoes it here.
    """

    guest: Guest
    target: dict[str, Any]
    folder: Path
    shell_lines: list[str] = field(default_factory=list)
    undo: ExitStack = field(default_factory=ExitStack)

    @property
    def meter(self) -> dict[str, Any]:
        entry: dict[str, Any] = self.target["meters"][0]
        return entry


@dataclass(frozen=True)
class Mistake:
    """A mistake, with the `code` and a `word` of the check's line about it.

    `guest` is a script that plants it and `back` one that removes it; `plant` does the rest.
    """

    name: str
    code: str
    word: str
    how: str = REAL
    guest: str = ""
    back: str = ""
    plant: Callable[[Patient], object] = lambda _: None


def secrets(**changes: Any) -> Callable[[Patient], None]:
    """Return a function that plants other secrets."""

    def plant(patient: Patient) -> None:
        path = Path(patient.target["secrets_file"])
        changed = json.loads(path.read_text(encoding="utf-8")) | changes
        write_json(path, changed, mode=0o600)

    return plant


def of_target(key: str, value: Any) -> Callable[[Patient], None]:
    """Return a function that plants another value in the target's description."""

    def plant(patient: Patient) -> None:
        patient.target[key] = value

    return plant


def of_disk(role: str, **changes: Any) -> Callable[[Patient], None]:
    """Return a function that plants other values in a disk's entry."""
    return lambda patient: patient.target["disks"][role].update(changes)


def of_ssh(**changes: Any) -> Callable[[Patient], None]:
    """Return a function that plants other values in the target's `ssh`."""
    return lambda patient: patient.target["ssh"].update(changes)


def wrong_role(patient: Patient) -> None:
    """Give the plain disk the role of the self-encrypting one."""
    patient.target["disks"] = {"sed": patient.target["disks"]["plain"]}
    patient.target["configurations"] = patient.target["configurations"][1:]


def played(kind: str, watts: list[float], **settings: Any) -> Callable[[Patient], None]:
    """Return a function that connects another meter, played by a simulator."""

    def plant(patient: Patient) -> None:
        link, ended = patient.folder / "other-meter", threading.Event()
        player = Player(registry.load(kind)(**settings), link, watts)
        thread = threading.Thread(target=player.run, args=(ended.is_set,), daemon=True)
        thread.start()
        patient.undo.callback(player.close)
        patient.undo.callback(thread.join)
        patient.undo.callback(ended.set)
        patient.meter["port"] = str(link)

    return plant


def silent(patient: Patient) -> None:
    """Open the meter's port without a meter that sends."""
    port = SimulatedPort(patient.folder / "silent-meter")
    patient.undo.callback(port.close)
    patient.meter["port"] = str(port.link)


def busy_port(patient: Patient) -> None:
    """Open the meter's port in another program."""
    import serial

    taken = serial.Serial(str(Path(patient.meter["port"]).resolve()), exclusive=True)
    patient.undo.callback(taken.close)


def program(name: str) -> Callable[[Patient], None]:
    """Return a function that plants a process of that name."""

    def plant(patient: Patient) -> None:
        path = patient.folder / name
        shutil.copy(shutil.which("sleep") or "/bin/sleep", path)
        process = subprocess.Popen([str(path), "3600"])
        patient.undo.callback(process.wait)
        patient.undo.callback(process.kill)

    return plant


def on_controller(script: str) -> Callable[[Patient], None]:
    """Return a function that adds shell lines before the command."""
    return lambda patient: patient.shell_lines.append(script.format(folder=patient.folder))


FALL_ASLEEP = (
    "printf '[Login]\\nIdleAction=suspend\\n' >{folder}/logind; echo mem >{folder}/state\n"
    "mount --bind {folder}/logind /etc/systemd/logind.conf\n"
    "mount --bind {folder}/state /sys/power/state"
)
CPU = "/sys/devices/system/cpu"
STOP = "systemctl stop fde-{0} 2>/dev/null || true"
RUN = "systemd-run --quiet --collect --unit=fde-{0} "


def overlaid(folder: str, files: dict[str, str]) -> str:
    """Return a script for the guest that puts files over a folder of sysfs."""
    lines = [OVER, f'd=$(readlink -f "{folder}"); over "$d"']
    for path, text in files.items():
        place = f"$d/{Path(path).parent}"
        lines.append(f'[ ! -L "{place}" ] || rm "{place}"; mkdir -p "{place}"')
        lines.append(f'echo "{text}" >"$d/{path}"')
    return "\n".join(lines)


SMART = json.dumps({"serial_number": "S", "smart_status": {"passed": False}})
OLD = "cryptsetup 2.3.7 flags: UDEV BLKID KEYRING"
# A round each: what one of its mistakes does must not keep another from being seen.
ROUNDS: tuple[tuple[Mistake, ...], ...] = (
    (
        Mistake(
            *("missing asset", "assets", "clip"),
            guest=f"mv {ASSETS}/clip.mpg {ASSETS}/away",
            back=f"mv {ASSETS}/away {ASSETS}/clip.mpg",
        ),
        Mistake(
            *("asset that was changed", "assets", "kernel_tree"),
            guest=f"cd {ASSETS}; cp -a kernel_tree.tar.gz /run/kept; echo >>kernel_tree.tar.gz",
            back=f"cp -a /run/kept {ASSETS}/kernel_tree.tar.gz; rm /run/kept",
        ),
        Mistake(
            *("full disk on the target", "target-room", "MiB"),
            guest="mkdir -p /var/lib/fde-testbed; mount -t tmpfs -o size=4m t /var/lib/fde-testbed",
            back="umount /var/lib/fde-testbed",
        ),
        Mistake(
            *("target that falls asleep", "target-sleep", "IdleAction"),
            guest="mkdir -p /run/systemd/logind.conf.d; "
            "printf '[Login]\\nIdleAction=suspend\\n' >/run/systemd/logind.conf.d/90.conf",
            back="rm /run/systemd/logind.conf.d/90.conf",
        ),
        Mistake(
            *("database server that runs", "services", "postgresql", STAND_IN),
            # Not by systemd-run: a transient unit could not be started again, and is left alone.
            guest="printf '[Service]\\nExecStart=sleep 3600\\n' "
            ">/run/systemd/system/postgresql.service; systemctl daemon-reload; "
            "systemctl start postgresql",
            back="systemctl stop postgresql; rm /run/systemd/system/postgresql.service; "
            "systemctl daemon-reload",
        ),
        Mistake(
            *("busy machine", "load", "runs on the target"),
            guest=RUN.format("hog") + "sh -c 'while :; do :; done'",
            back=STOP.format("hog"),
        ),
        Mistake(
            *("disk in use", "disks", "open in python3"),
            guest=RUN.format("hold")
            + 'python3 -c \'import os,time; os.open("/dev/nvme0n1", os.O_RDONLY|os.O_EXCL); '
            "time.sleep(3600)'",
            back=STOP.format("hold"),
        ),
        Mistake(
            "wrong size",
            "disks",
            "bytes, the inventory has",
            plant=of_disk("sed", size_bytes=10**12),
        ),
        Mistake(
            *("governor", "governor", "powersave", STAND_IN),
            guest=overlaid(f"{CPU}/cpu0", {"cpufreq/scaling_governor": "powersave"}),
        ),
        Mistake(
            *("battery", "power", "battery", STAND_IN),
            guest=overlaid(
                "/sys/class",
                {"power_supply/BAT0/type": "Battery", "power_supply/BAT0/status": "Discharging"},
            ),
        ),
        Mistake(
            *("throttled link", "disk-link", "2.5 GT/s", STAND_IN),
            guest=overlaid(
                "/sys/class/block/nvme0n1/device",
                {
                    "device/current_link_speed": "2.5 GT/s PCIe",
                    "device/max_link_speed": "8.0 GT/s PCIe",
                    "device/current_link_width": "1",
                    "device/max_link_width": "4",
                },
            ),
        ),
        Mistake(
            *("failing disk", "smart", "failing", STAND_IN),
            guest="cat >/run/smartctl <<'END'\n#!/bin/sh\necho '" + SMART + "'\nEND\n"
            "chmod +x /run/smartctl; mount --bind /run/smartctl $(command -v smartctl)",
            back="umount $(command -v smartctl)",
        ),
        Mistake(
            *("secrets that others can read", "secrets", "chmod"),
            plant=lambda patient: Path(patient.target["secrets_file"]).chmod(0o644),
        ),
        Mistake(
            *("controller that falls asleep", "controller-sleep", "IdleAction", STAND_IN),
            plant=on_controller(FALL_ASLEEP),
        ),
        Mistake(
            *("wrong rate of the meter", "meter-rate", "its settings state each 10 ms"),
            plant=played("smartpower3", [20.0, 2.0], interval_ms=100),
        ),
        Mistake(
            *("ModemManager", "port-takers", "ModemManager", STAND_IN),
            plant=program("ModemManager"),
        ),
    ),
    (
        Mistake(
            *("no RAPL", "rapl", "RAPL"),
            guest="mount -t tmpfs none /sys/class/powercap",
            back="umount /sys/class/powercap",
        ),
        Mistake(
            *("disk with somebody's data", "disks", "swap"),
            guest="mkswap -q /dev/nvme0n1",
            back="dd if=/dev/zero of=/dev/nvme0n1 bs=4096 count=1 conv=fsync status=none",
        ),
        Mistake(
            *("turbo", "turbo", "Turbo", STAND_IN),
            guest=overlaid(CPU, {"intel_pstate/no_turbo": "0"}),
        ),
        Mistake(
            *("C-states switched off", "c-states", "C6", STAND_IN),
            guest=overlaid(
                f"{CPU}/cpu0", {"cpuidle/state1/name": "C6", "cpuidle/state1/disable": "1"}
            ),
        ),
        Mistake(
            *("cryptsetup without Opal", "cryptsetup", "2.3", STAND_IN),
            guest=f"printf '#!/bin/sh\\necho {OLD}\\n' >/run/cs; chmod +x /run/cs; "
            "mount --bind /run/cs $(command -v cryptsetup)",
            back="umount $(command -v cryptsetup)",
        ),
        Mistake(
            *("modelled figures called measured", "origin", "modelled"),
            plant=of_target("origin", "measured"),
        ),
        Mistake(
            "PIN of four digits", "secrets", "opal_admin_pin", plant=secrets(opal_admin_pin="1234")
        ),
        Mistake(
            *("swapped channels", "meter-channels", "Swap"),
            plant=played("smartpower3", [2.0, 20.0]),
        ),
        Mistake(
            *("full disk on the controller", "controller-room", "MiB"),
            plant=on_controller(
                "mkdir -p {folder}/out; mount -t tmpfs -o size=64m out {folder}/out"
            ),
        ),
        Mistake("no assets named", "assets", "No assets", plant=of_target("assets", {})),
    ),
    (
        Mistake("Opal asked of a plain disk", "opal", "no Opal", plant=wrong_role),
        Mistake("silent meter", "meter-heard", "silent", plant=silent),
        Mistake("mistyped PSID", "psid", "characters", plant=secrets(sed_psid="ABCD-EFGH")),
    ),
    (
        Mistake(
            *("ordinary user", "ssh", "ansible_user: root"),
            guest="useradd -m -p '*' owner; mkdir -p ~owner/.ssh; "
            'cat "${CREDENTIALS_DIRECTORY:-/root/.ssh}"/authorized_keys /root/.ssh/authorized_keys '
            "2>/dev/null >~owner/.ssh/authorized_keys || true; chown -R owner: ~owner/.ssh",
            back="userdel -r owner 2>/dev/null || true",
            plant=of_ssh(user="owner"),
        ),
        Mistake(
            *("meter that is not there", "meter-port", "not there"),
            plant=lambda patient: patient.meter.update(port="/dev/serial/by-id/none"),
        ),
        Mistake(
            *("no secrets", "secrets", "cannot be read"),
            plant=lambda patient: Path(patient.target["secrets_file"]).unlink(),
        ),
    ),
    (
        Mistake(
            "nothing listens", "ssh", "sshd", plant=of_ssh(options=[], host="127.0.0.1", port=9)
        ),
        Mistake(
            *("another kind of meter", "meter-heard", "smartpower3"),
            # The lab's own, which is a smartpower3.
            plant=lambda patient: patient.meter.update(kind="mcp39f511n", channels={"1": "system"}),
        ),
    ),
    (
        Mistake(
            *("incomplete entry of a meter", "meter-settings", "pattern"),
            plant=lambda patient: patient.meter.update(kind="line", channels={"0": "system"}),
        ),
        Mistake(
            *("unknown host key", "ssh", "host key"),
            plant=lambda patient: of_ssh(known_hosts=str(patient.folder / "none"))(patient),
        ),
    ),
    (
        Mistake("port that is taken", "meter-heard", "in use", plant=busy_port),
        Mistake(
            *("name that is not known", "ssh", "ansible_host"),
            plant=of_ssh(options=[], host="bench.invalid", port=22),
        ),
    ),
)


def measure(quick: bool = False) -> list[Figure]:
    """Count the mistakes that are found, and false findings on the sound machine.

    Details are beside the figures, in first-use-mistakes.json.
    """
    if os.geteuid():
        raise LabError("The bench of first use needs root, for a mount namespace: run it as root.")
    rounds = ROUNDS[-2:] if quick else ROUNDS
    with foreign() as guest, tempfile.TemporaryDirectory(prefix="fde-first-") as name:
        false = [
            finding
            for finding in _looked(_patient(guest, Path(name)))
            if finding["state"] in ("fail", "warn") and finding["code"] != "load"
        ]
        rows = [row for mistakes in rounds for row in _round(guest, Path(name), mistakes)]
    for row in rows:
        print(f"{'found ' if row['found'] else 'MISSED'} {row['name']}: {row['said']}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_json(FOLDER / "first-use-mistakes.json", {"mistakes": rows, "false_alarms": false})
    count = sum(row["found"] for row in rows)
    real = [row for row in rows if row["how"] == REAL]
    share = 28 / 30
    return [
        Figure("mistakes planted", len(rows), ""),
        at_least("of them found, with a remedy", count / len(rows), "", round(share, 4)),
        Figure(
            "planted as themselves, found of them", sum(r["found"] for r in real), f"/{len(real)}"
        ),
        at_most("false alarms on the sound machine", len(false), "", 0),
    ]


def _patient(guest: Guest, folder: Path) -> Patient:
    """Return the sound machine: its description, and complete secrets."""
    target = deepcopy(guest.target())
    path = folder / "secrets.json"
    write_json(
        path, json.loads(Path(guest.state["secrets"]).read_text(encoding="utf-8")), mode=0o600
    )
    return Patient(guest, {**target, "secrets_file": str(path)}, folder)


def _round(guest: Guest, folder: Path, mistakes: tuple[Mistake, ...]) -> list[dict[str, Any]]:
    patient = _patient(guest, folder)
    # Each by itself: one that cannot be planted on this guest must not keep the others away.
    scripts = [
        f"(\n{mistake.guest}\n) >&2 || echo {mistake.name!r}"
        for mistake in mistakes
        if mistake.guest
    ]
    backs = [f"(\n{mistake.back}\n)" for mistake in mistakes if mistake.back]
    unplanted: list[str] = []
    try:
        if scripts:
            unplanted = guest.sh("\n".join(scripts)).splitlines()
        with patient.undo:
            for mistake in mistakes:
                mistake.plant(patient)
            findings = _looked(patient)
    finally:
        if scripts:
            guest.sh("set +e\n" + "\n".join([*backs, BACK, "true"]))
    for name in unplanted:
        print(f"not planted, this guest does not allow it: {name}", file=sys.stderr)
    return [_judged(mistake, findings) for mistake in mistakes if mistake.name not in unplanted]


def _judged(mistake: Mistake, findings: list[dict[str, Any]]) -> dict[str, Any]:
    matching = [
        finding
        for finding in findings
        if finding["code"] == mistake.code
        and finding["state"] in ("fail", "warn")
        and finding["remedy"]
        and mistake.word in finding["sentence"] + finding["remedy"]
    ]
    others = [finding for finding in findings if finding["code"] == mistake.code]
    return {
        "name": mistake.name,
        "how": mistake.how,
        "code": mistake.code,
        "found": bool(matching),
        "said": " | ".join(
            f"{o['state']}: {o['sentence']} {o['remedy']}" for o in matching or others
        ),
    }


def _looked(patient: Patient) -> list[dict[str, Any]]:
    """Return the check's lines, run in a new mount namespace."""
    write_json(patient.folder / "target.json", patient.target, mode=0o600)
    script = "\n".join(
        [
            "set -eu",
            *patient.shell_lines,
            f"exec {sys.executable} -m validation.first_use.mistakes "
            f"{patient.folder}/target.json {patient.folder}/out",
        ]
    )
    check = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    if check.returncode:
        raise RuntimeError(f"the check failed: {check.stderr[-2000:]}")
    findings: list[dict[str, Any]] = json.loads(check.stdout)
    return findings


if __name__ == "__main__":
    scene = fitness.examine(read_target(Path(sys.argv[1])), Path(sys.argv[2]))
    print(json.dumps([asdict(outcome) for outcome in fitness.judge(scene)]))
