"""Prepare a file disk on this machine, measure the suite `here` on it, and remove everything."""

from __future__ import annotations

import fcntl
import io
import json
import os
import secrets as random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from agent.storage.file_disk import SPARE_BYTES
from contract import schema
from contract.errors import ControllerError
from contract.files import write, write_json
from contract.interrupts import uninterrupted
from contract.places import MOUNT_POINT, state_folder
from contract.plan import (
    DATA_OFFSET_BYTES,
    HERE,
    TARGET_FORMAT,
    Filesystem,
    MeterEntry,
    TargetDocument,
)
from contract.strict_json import Document
from controller.here import source_tree
from controller.here.survey import HereError, Machine
from controller.planning import plan_folders
from controller.session import session
from controller.session.agent_client import AgentClient
from controller.targets import connection, fitness, init, playbook

MIB = 2**20
# Minutes below which the workloads are smaller, and the fewest blocks that can give an answer.
SHORT_MINUTES, LEAST_BLOCKS = 6.0, 4
EXTENT_BYTES = {None: 2048 * MIB, "lab": 640 * MIB}
HEADROOM_BYTES = DATA_OFFSET_BYTES + 2 * MIB
ASSETS = "/usr/share/fde-testbed"

THIS_MACHINE = TargetDocument(TARGET_FORMAT, {}, 0, Filesystem("ext4", (), ""), ())

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of `fde here`: `hours` of such work are declared a day, suites go to `out`."""

    minutes: float
    out: Path
    meters: Sequence[MeterEntry] = ()
    hours: float = 1.0

    @property
    def scale(self) -> str | None:
        """The scale of the suite: `lab` for a few minutes."""
        return "lab" if self.minutes < SHORT_MINUTES else None

    @property
    def size_bytes(self) -> int:
        """The size of the disk's file."""
        return EXTENT_BYTES[self.scale] + HEADROOM_BYTES


@contextmanager
def exclusive() -> Iterator[Path]:
    """Yield the folder of one `fde here`; raises HereError if another one is running."""
    base = state_folder() / "here"
    base.parent.mkdir(parents=True, exist_ok=True)
    with (base.parent / "here.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise HereError("running", pid=lock.read().strip() or "unknown") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield base


def require_root(become: Callable[[], None] | None) -> None:
    """Require that sudo works without further questions; `become` asks for its password.

    Raises TargetError.
    """
    result = connection.run(THIS_MACHINE, ["true"])
    if result.returncode and become is not None:
        become()
        result = connection.run(THIS_MACHINE, ["true"])
    connection.require_output(THIS_MACHINE, result)


def require_room(machine: Machine, options: Options) -> None:
    """Raise HereError if the file and a reserve do not fit into the folder."""
    needed_bytes = options.size_bytes + SPARE_BYTES
    if machine.free_bytes < needed_bytes:
        sizes = {"free_mib": machine.free_bytes // MIB, "needed_mib": needed_bytes // MIB}
        raise HereError("no-room", folder=machine.folder, **sizes)


def require_consent(at_terminal: bool) -> None:
    """Ask at the terminal whether to measure; raises HereError without a yes."""
    if not at_terminal:
        raise HereError("not-asked")
    if input("Measure now? [Y/n] ").strip().lower() not in ("", "y", "yes"):
        raise HereError("declined")


def measure(base: Path, machine: Machine, options: Options, say: Say) -> Path:
    """Measure and return the folder of the sealed suite; nothing else stays, however it ends.

    Raises HereError, ControllerError.
    """
    end_s = time.monotonic() + options.minutes * 60
    remove_remains(base, say)
    say("preparing the file")
    inventory = _write_inventory(base, machine, options)
    try:
        with _temporary_files_in(base):
            _play("site.yml", base, {"assets_kernel": f"{base}/tree.tar.gz", "assets_clip_s": 0})
            (target,) = playbook.resolve(inventory).targets
            return _run(base, target, machine, options, say, end_s=end_s)
    except ControllerError as error:
        if error.code == "agent-gave-up":  # its remedy is to resume, which `here` does not
            raise HereError("gave-up", reason=error.facts["reason"]) from error
        raise
    finally:
        with uninterrupted():
            remove_remains(base, say)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Have temporary files of Ansible and ours in a folder, unless its path is long for a socket.

    After a kill they are removed with it.
    """
    earlier = os.environ.get("TMPDIR")
    if len(os.fsencode(folder)) <= playbook.MOST_FOLDER_BYTES:
        os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it is read again
    try:
        yield
    finally:
        os.environ.pop("TMPDIR", None)
        os.environ |= {"TMPDIR": earlier} if earlier else {}
        tempfile.tempdir = None


def _write_inventory(base: Path, machine: Machine, options: Options) -> Path:
    """Write the inventory of this machine, its secrets, and the source tree."""
    base.mkdir(mode=0o700)
    host = init.host_name(machine.name, None)
    configurations = [
        {"name": "plain", "kind": "plain", "disk": "plain"},
        *(_dmcrypt(f"dmcrypt-aes{bits}", "aes-xts-plain64", bits) for bits in (128, 256)),
    ]
    if machine.default_cipher is not None:
        configurations.append(_dmcrypt("dmcrypt-default", *machine.default_cipher))
    assets = {name: f"{name}.tar.gz" for name in ("kernel_tree", "kernel_grep")}
    sums = f"{ASSETS}/SHA256SUMS"
    defaults = yaml.safe_load(playbook.ROLE_DEFAULTS.read_text(encoding="utf-8"))
    variables = {
        "ansible_connection": "local",
        "ansible_become": bool(os.geteuid()),
        "fde_origin": machine.origin,
        "fde_disks": {
            "plain": {
                "file": str(machine.folder / "fde-here.disk"),
                "size_bytes": options.size_bytes,
            }
        },
        "fde_extent_bytes": options.size_bytes - HEADROOM_BYTES,
        "fde_configurations": configurations,
        "fde_secrets_file": str(base / "secrets.json"),
        "fde_meters": schema.write(tuple(options.meters)),
        "fde_assets": {n: {"path": f"{ASSETS}/{file}", "sums": sums} for n, file in assets.items()},
        "fde_assumptions": {**defaults["fde_assumptions"], "hours_per_day": options.hours},
    }
    secrets = {name: random.token_hex(16) for name in ("luks_passphrase", "opal_admin_pin")}
    write(base / "secrets.json", [json.dumps(secrets).encode()], 0o600)
    source_tree.write(base / "tree.tar.gz")
    # Last: what an interrupted command leaves is recognised by it.
    write_json(base / "hosts.yml", {"targets": {"hosts": {host: variables}}})
    return base / "hosts.yml"


def _dmcrypt(name: str, cipher: str, key_bits: int) -> dict[str, str | int]:
    sizes = {"key_bits": key_bits, "sector_size": 4096}
    return {"name": name, "kind": "dmcrypt", "disk": "plain", "cipher": cipher, **sizes}


def _run(
    base: Path,
    target: TargetDocument,
    machine: Machine,
    options: Options,
    say: Say,
    *,
    end_s: float,
) -> Path:
    """Run as many blocks as end by `end_s` of the monotonic clock; return the suite's folder."""
    fitness.require_ready([target], options.out, say, allowed=["power"])
    plans = plan_folders.Options(
        suite=HERE,
        inventory=base / "hosts.yml",
        out=base / "trial",
        scale=options.scale,
        left_out=tuple(machine.left_out),
        targets=[target],
    )
    say("a trial block, to see how long one takes here")
    begun_s = time.monotonic()
    with redirect_stdout(io.StringIO()):  # no second view of progress
        _session(base, replace(plans, blocks=1), target, _quiet)
    block_min = (time.monotonic() - begun_s) / 60
    hours = (end_s - time.monotonic()) / 3600
    blocks = LEAST_BLOCKS
    with suppress(ControllerError):  # not one fits
        blocks = max(
            blocks, plan_folders.freeze(replace(plans, hours=max(hours, 1e-3)), _quiet).blocks
        )
    say(f"measuring {blocks} blocks, for {blocks * block_min:.0f} minutes at most")
    return _session(base, replace(plans, blocks=blocks, out=options.out), target, say)


def _quiet(_line: str) -> None:
    """Print nothing."""


def _session(base: Path, plans: plan_folders.Options, target: TargetDocument, say: Say) -> Path:
    """Write a plan, note it for the removal, and run it; return the suite's folder."""
    folder = plan_folders.write(plans, _quiet)
    with (base / "suites").open("a", encoding="utf-8") as names:
        names.write(f"{folder.name}\n")
    assert plans.inventory is not None
    session.run(folder, target, plans.inventory, say, report=plans.out.parent != base)
    return folder


def remove_remains(base: Path, say: Say) -> None:
    """Remove everything that `fde here` made on this machine, even if it was killed.

    Raises HereError if that fails; what is needed for the next attempt stays.
    """
    inventory = base / "hosts.yml"
    if inventory.exists():
        say("removing the file, its keys, and what was installed")
        names = base / "suites"
        suites = names.read_text(encoding="utf-8").split() if names.exists() else []
        try:
            for target in playbook.resolve(inventory).targets:
                for suite in suites:
                    AgentClient(target, suite).stop()
            _play("teardown.yml", base, {})
            for target in playbook.resolve(inventory).targets:
                places = [connection.suite_dir(suite) for suite in suites]
                places += [f"{place}.tar" for place in places]  # as which they were fetched
                connection.run(target, ["sh", "-c", REMOVE, "sh", *places])
        except ControllerError as error:
            log = _kept_log(base)
            raise HereError("not-removed", reason=str(error), log=log) from error
    shutil.rmtree(base, ignore_errors=True)


# Other suites, notes, locks that are held and checks that still run stay.
REMOVE = f"""rm -rf -- "$@"
for d in /run/fde-check.*; do readlink /proc/[0-9]*/cwd | grep -q "^$d/" || rm -rf "$d"; done
for d; do systemctl reset-failed "fde-agent@${{d##*/}}.service" 2>/dev/null; done
lock=/run/fde-testbed/agent.lock; [ ! -e $lock ] || flock --nonblock $lock rm $lock
for d in {connection.SUITES} {Path(connection.SUITES).parent} /run/fde-testbed/secrets \\
  {MOUNT_POINT} /run/fde-testbed
do rmdir $d 2>/dev/null; done; true"""


def _kept_log(base: Path) -> Path:
    """Move the log of Ansible to where it outlives the folder; return its path."""
    log = base.parent / "here.log"
    with suppress(FileNotFoundError):
        shutil.copy(base / "ansible.log", log)
    return log


def _play(name: str, base: Path, variables: Document) -> None:
    """Run a playbook on this machine, its output in a file; raises HereError."""
    try:
        playbook.into_log(name, base / "hosts.yml", variables, base / "ansible.log")
    except ControllerError as error:
        raise HereError("not-prepared", reason=str(error), log=_kept_log(base)) from error
