"""Faults of a machine while `fde here` runs on it: its messages, and what remains."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from contract.places import MOUNT_POINT
from validation.own_machine.machine import PASSWORD, SUDO, SUDOERS, USER, OwnMachine, Sudo
from validation.own_machine.traces import differences

FOLDER = "/srv/folder"
HOME = f"/home/{USER}"
DRIVE = "/dev/nvme0n1"
# What stays: suites, and settings of the programs that the user ran. The trials change sudo.
KEPT = rf"{HOME}/(\.local|\.ansible|fde-suites)/|{SUDO}|{SUDOERS}"
MOMENT_LIMIT_S, END_LIMIT_S = 300.0, 1200.0
LEAST_MINUTES = 2
FULL_S = 90.0  # longer than a run
PREPARING = "preparing the file"
INTERRUPT = b"\x03"

# Moments of the command, as conditions of a shell in the guest. DISK is its file.
WRITING = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q '/#[0-9]* (deleted)'"  # it has no name yet
ATTACHED = "losetup --list --noheadings --output BACK-FILE | grep -q DISK"
MOUNTED = f"mountpoint -q {MOUNT_POINT}"
CRYPT = f"{MOUNTED} && dmsetup table --target crypt | grep -q crypt"

# A separate file system for the folder, on a drive of the guest.
CLEAR = f"umount -q {FOLDER} || true; wipefs --quiet --all {DRIVE}; mkdir -p {FOLDER}\n"
OWN = f"\nchmod 1777 {FOLDER}"
LUKS = (
    f"printf x | cryptsetup luksFormat --batch-mode --pbkdf-force-iterations 4 "
    f"--pbkdf-memory 32 --pbkdf-parallel 1 {DRIVE} -; "
    f"printf x | cryptsetup open --key-file - {DRIVE} home; "
    f"mkfs.ext4 -q /dev/mapper/home; mount /dev/mapper/home {FOLDER}"
)
LVM = (
    f"pvcreate -q {DRIVE}; vgcreate -q vg {DRIVE}; lvcreate -q -l 100%FREE -n lv vg; "
    f"mkfs.ext4 -q /dev/vg/lv; mount /dev/vg/lv {FOLDER}"
)
FILE_SYSTEMS = {
    "ext4": f"mkfs.ext4 -q {DRIVE}; mount {DRIVE} {FOLDER}",
    "xfs": f"mkfs.xfs -q {DRIVE}; mount {DRIVE} {FOLDER}",
    "btrfs": f"mkfs.btrfs -q {DRIVE}; mount {DRIVE} {FOLDER}",
    "luks": LUKS,
    "lvm": LVM,
    "tmpfs": f"mount -t tmpfs tmpfs {FOLDER}",
    # Served by another machine, like NFS: no blocks of its own, no preallocation.
    "hostfs": f"mkdir -p /run/fde-host/shared; mount -t hostfs -o shared none {FOLDER}",
}
UNMOUNT = f"""udevadm settle; umount -q {FOLDER} || true
[ ! -e /dev/mapper/home ] || cryptsetup close home
[ ! -e /dev/vg/lv ] || {{ vgremove -qfy vg; pvremove -q {DRIVE}; }} >/dev/null"""
FILL = "n=$(df --output=avail --block-size=1 /var | tail -1); fallocate -l $n /var/fill || true; "
FILL += "dd if=/dev/zero of=/var/rest bs=64k 2>/dev/null || true"
UNITS = "systemctl list-units --plain --no-legend 'fde-*' | cut -d' ' -f1 | grep -v fde-host"
USE_LOOPS = """for n in 0 1 2 3 4 5 6 7; do
truncate -s 1M /srv/used.$n; losetup --find /srv/used.$n; done"""
FREE_LOOPS = "for f in /srv/used.*; do losetup -d $(losetup -nO NAME -j $f); rm $f; done"
REPLACE = "fallocate -l 8M /srv/other; mv /srv/other DISK"
KILL_ALL = f"for u in $({UNITS}); do systemctl kill -s KILL $u || true; done; "
KILL_ALL += (
    f"pkill -KILL -u {USER} -f 'fde|ansible' || true; pkill -KILL -f '[f]de-testbed' || true"
)


@dataclass(frozen=True)
class Fault:
    """A fault: `strike` happens at `moment`, a condition of a shell in the guest.

    `before`, `relief` (at the command's end) and `after` (when all is compared) are scripts of
    root's. With `stays` the file is then somebody else's and must remain.
    """

    name: str
    strike: Callable[[Attempt], object] = lambda _attempt: None
    moment: str = ""
    before: str = ""
    relief: str = ""
    after: str = ""
    stays: bool = False
    sudo: Sudo = Sudo.FREE
    folder: str = "/var/tmp"
    passwords: tuple[str, ...] = ()  # typed at one prompt after the other


@dataclass
class Attempt:
    """One `fde here` at a terminal, and what came of it."""

    machine: OwnMachine
    fault: Fault
    screen: Path
    process: subprocess.Popen[bytes]
    code: int | None = None
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, machine: OwnMachine, fault: Fault, minutes: float, screen: Path) -> Attempt:
        """Type the command at a terminal."""
        return cls(machine, fault, screen, machine.at_terminal(line(fault, minutes), screen))

    @property
    def file(self) -> str:
        return f"{self.fault.folder}/fde-here.disk"

    def go_through(self) -> None:
        """Press the fault's keys, let it strike at its moment, and wait for the end."""
        started_s = time.monotonic()
        try:
            for count, password in enumerate(self.fault.passwords, 1):
                self.type(password, prompt=count)
            if self.fault.moment and not self.wait_for(self.fault.moment):
                self.notes.append("its moment never came")
            else:
                self.fault.strike(self)
            self.code = self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.notes.append(f"no end within {END_LIMIT_S:.0f} s")
        finally:
            self.process.kill()
            self.process.wait()
            self.took_s = time.monotonic() - started_s

    def type(self, password: str, prompt: int) -> None:
        """Type a password once the screen shows so many prompts; none if the command ends."""
        while self.process.poll() is None:
            if len(re.findall("[Pp]assword.*:", "\n".join(self.screen_lines()))) >= prompt:
                time.sleep(0.3)  # the prompt comes before the terminal's echo is off
                self.press(f"{password}\n".encode())
                return
            time.sleep(0.1)

    def press(self, keys: bytes) -> None:
        """Press keys."""
        assert self.process.stdin is not None
        self.process.stdin.write(keys)

    def wait_for(self, moment: str) -> bool:
        """Wait until a condition holds in the guest; False if the command ended before."""
        deadline_s = time.monotonic() + MOMENT_LIMIT_S
        condition = moment.replace("DISK", self.file)
        while self.process.poll() is None and time.monotonic() < deadline_s:
            # Seldom: the agent waits until nothing else runs on the machine.
            poll = f"for i in $(seq 20); do if {condition}; then echo yes; exit; fi; sleep 0.5"
            if "yes" in self.machine.root(f"{poll}; done"):
                return True
        return False

    def screen_lines(self) -> list[str]:
        """Return the lines of the screen."""
        text = self.screen.read_text(encoding="utf-8", errors="replace")
        return [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n") if line]


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    name: str
    code: int | None
    messages: list[str]
    left: list[str]  # at the end of the command
    left_at_last: list[str]  # after the next `fde here`
    notes: list[str]
    took_s: float


def interrupt(attempt: Attempt) -> None:
    """Press Ctrl-C."""
    attempt.press(INTERRUPT)


def root(script: str) -> Callable[[Attempt], object]:
    """Return a strike that runs a script as root."""
    return lambda attempt: attempt.machine.root(script.replace("DISK", attempt.file))


def fill(attempt: Attempt) -> None:
    """Fill the machine's disk, and interrupt the command, which then waits for room."""
    attempt.machine.root(FILL)
    time.sleep(FULL_S)
    interrupt(attempt)


def cut_power(attempt: Attempt) -> None:
    """Take the power away, and give it back."""
    attempt.machine.cut_power()
    attempt.machine.show_battery()
    attempt.process.kill()


def second(attempt: Attempt) -> None:
    """Type the same command at another terminal, then interrupt this one."""
    other = attempt.machine.typed(line(attempt.fault, LEAST_MINUTES))
    attempt.notes.append(f"the other: {other.returncode} {other.stderr.strip()}")
    interrupt(attempt)


def line(fault: Fault, minutes: float) -> str:
    """Return the command that the user types."""
    return f"fde here --yes --minutes {minutes:g} --folder {fault.folder}"


def own_folder(system: str, name: str, strike: Callable[[Attempt], object], moment: str) -> Fault:
    """Return a fault on a folder with a separate file system."""
    before = f"{CLEAR}{FILE_SYSTEMS[system]}{OWN}"
    return Fault(name, strike, moment, before=before, after=UNMOUNT, folder=FOLDER)


def faults() -> Iterator[Fault]:
    """Yield all faults; where the command can go on, it is interrupted once it has shown that."""
    yield Fault("none")
    moments = {"writing": WRITING, "attached": ATTACHED, "mounted": MOUNTED, "crypt": CRYPT}
    for name, moment in moments.items():
        yield Fault(f"ctrl-c-{name}", interrupt, moment)
        yield Fault(f"kill-{name}", root(KILL_ALL), moment)
    for name in ("attached", "crypt"):
        yield Fault(f"power-{name}", cut_power, moments[name])
    yield Fault("disk-full", fill, MOUNTED, relief="rm -f /var/fill /var/rest")
    yield Fault("file-deleted", root("rm DISK"), MOUNTED)
    remove = "rm -f /var/tmp/fde-here.disk"
    yield Fault("file-replaced", root(REPLACE), MOUNTED, after=remove, stays=True)
    unmounted = own_folder("ext4", "unmounted", root(f"umount -l {FOLDER}"), MOUNTED)
    yield replace(unmounted, relief=f"mount {DRIVE} {FOLDER}")
    yield Fault("loops-used", interrupt, MOUNTED, before=USE_LOOPS, after=FREE_LOOPS)
    yield Fault("second-at-once", second, MOUNTED)
    for name in FILE_SYSTEMS:
        yield own_folder(name, f"folder-{name}", interrupt, MOUNTED)
    yield Fault("sudo-password", interrupt, MOUNTED, sudo=Sudo.PASSWORD, passwords=(PASSWORD,))
    yield Fault("sudo-wrong-password", sudo=Sudo.PASSWORD, passwords=("no", "no", "no"))
    yield Fault("sudo-denied", sudo=Sudo.DENIED, passwords=(PASSWORD,))
    yield Fault("sudo-missing", sudo=Sudo.MISSING)


def suffer(machine: OwnMachine, fault: Fault, minutes: float) -> Result:
    """Run `fde here` under a fault, and once more without; return its messages and what remains."""
    machine.permit(Sudo.FREE)
    machine.root(fault.before or "true")
    machine.permit(fault.sudo)
    before = machine.traces()
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt.start(machine, fault, minutes, Path(folder, "screen"))
        attempt.go_through()
        messages = attempt.screen_lines()
    machine.permit(Sudo.FREE)
    machine.root(fault.relief or "true")
    allowed = f"{KEPT}|{attempt.file}$" if fault.stays else KEPT
    left = differences(before, machine.traces(), allowed=allowed)
    left_at_last = left
    if left:
        attempt.notes.append(f"the next: {_next(machine, fault)}")
        left_at_last = differences(before, machine.traces(), allowed=allowed)
    if fault.stays and "yes" not in machine.root(f"[ ! -e {attempt.file} ] || echo yes"):
        left_at_last = [*left_at_last, f"- files: {attempt.file}, somebody else's"]
    machine.root(fault.after or "true")
    return Result(
        fault.name, attempt.code, messages, left, left_at_last, attempt.notes, attempt.took_s
    )


def _next(machine: OwnMachine, fault: Fault) -> list[str]:
    """Start the command again and interrupt it once it prepares the file; return its lines."""
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt.start(machine, fault, LEAST_MINUTES, Path(folder, "screen"))
        while attempt.process.poll() is None:
            if PREPARING in attempt.screen_lines():
                interrupt(attempt)
                break
            time.sleep(0.2)
        attempt.process.wait(END_LIMIT_S)
        return attempt.screen_lines()[-4:]
