"""Unlocking: the joules and seconds between a passphrase, or a TPM, and an open LUKS2 volume.

The volume is a small file with a LUKS2 header and a throwaway key. A self-encrypting
drive that cryptsetup manages has such a header too, so that deriving its key costs the same. What
the drive or the kernel itself adds shows when the disk under test is suspended and resumed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import lists, programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError, one_of

MIB = 1 << 20
VOLUME_BYTES = 40 * MIB  # a LUKS2 header takes 16 MiB
TPM2, DISK = "tpm2", "disk"
PBKDFS = ("pbkdf2", "argon2id")
WAYS = (*PBKDFS, TPM2, DISK)
ATTACH = Path("/usr/lib/systemd/systemd-cryptsetup")
MAPPING = "fde-unlock"
DEVICE, SIMULATED = "device", "simulated"
START_LIMIT_S = 60


class Unlock(Workload):
    """Phases `open.<way>`, then `suspend.<way>` and `resume.<way>` for the passphrase's ways.

    `pbkdf2` and `argon2id` are real `cryptsetup open`s at what `cryptsetup luksFormat` chooses
    by default: as much as takes `iter_ms` on this machine, of Argon2id with at most
    `memory_mib` and four threads. `tpm2` is a key sealed to a TPM without PCRs by
    systemd-cryptenroll, opened by systemd-cryptsetup. Suspending (`luksSuspend`) wipes the volume's
    key from memory, resuming derives it again, as a laptop does around its sleep. A phase holds
    `times` openings, each but the last closed again within it. The volumes are made once in a
    suite, so that each run has the same costs; they are kept as `<way>.json`. `disk` is the volume
    of the configuration itself, suspended and resumed with its file system mounted: a
    self-encrypting drive locks and unlocks its range, dm-crypt wipes and sets its key. Its header
    has the cheapest derivation that cryptsetup allows, so that little else is in these two phases.
    """

    name = "unlock"
    summary = "opening, suspending and resuming LUKS2 volumes"
    program = "cryptsetup"
    parameters = (
        lists.some_of("ways", "pbkdf2,argon2id", "how", WAYS),
        Parameter("times", 1, "", "openings in a phase", minimum=1),
        Parameter("iter_ms", 2000, "ms", "what a key derivation is to take here", minimum=1),
        Parameter("memory_mib", 1024, "MiB", "most that Argon2id takes", minimum=1),
        one_of(
            "tpm",
            "the machine's TPM, or one of swtpm, whose joules are none of it",
            *(DEVICE, SIMULATED),
        ),
    )
    small: ClassVar = {"ways": ",".join(WAYS), "iter_ms": 10, "memory_mib": 1, "tpm": SIMULATED}
    programs = ("cryptsetup",)

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        reasons = super().requires(parameters, assets)
        if os.geteuid() != 0 or not Path("/dev/mapper/control").exists():
            reasons.append("unlock needs root and the kernel's device mapper: load dm_mod.")
        if TPM2 not in lists.words(parameters["ways"]):
            return reasons
        enroll = shutil.which("systemd-cryptenroll")
        if enroll is None or not ATTACH.exists():
            reasons.append("unlock by tpm2 needs systemd-cryptsetup: install its package.")
        if parameters["tpm"] == SIMULATED and shutil.which("swtpm") is None:
            reasons.append("unlock by a simulated tpm2 needs swtpm: install its package.")
        if parameters["tpm"] == DEVICE and not Path("/dev/tpmrm0").exists():
            reasons.append("unlock by tpm2 needs a TPM 2.0 (/dev/tpmrm0): take tpm2 out of ways.")
        return reasons

    def check(self, parameters: Parameters) -> None:
        if not lists.words(parameters["ways"]):
            raise WorkloadError("no-ways", ways=", ".join(WAYS))

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        ways = _with_a_volume(parameters)
        memory_mib = int(parameters["memory_mib"]) if "argon2id" in ways else 0
        return Needs(
            scratch_bytes=len(ways) * VOLUME_BYTES,
            disk_bytes=len(ways) * VOLUME_BYTES,
            memory_bytes=memory_mib * MIB,
        )

    def prepare(self, context: Context) -> None:
        ways = _with_a_volume(context.parameters)
        with _tpm(context, wanted=TPM2 in ways) as tpm:
            for way in ways:
                made = _made(context, way, tpm)
                shutil.copyfile(made, _volume(context, way))

    def run(self, context: Context) -> None:
        ways = _with_a_volume(context.parameters)
        with _tpm(context, wanted=TPM2 in ways) as tpm:
            for way in ways:
                volume = _volume(context, way)
                dump = programs.run(["cryptsetup", "luksDump", "--dump-json-metadata", volume])
                slots = json.loads(dump)["keyslots"].values()
                costs = [slot["kdf"] | {"salt": None} for slot in slots]
                (context.kept / f"{way}.json").write_text(json.dumps(costs), encoding="utf-8")
                _open(context, way, tpm)
                if way in PBKDFS:  # once: a suspended volume cannot be suspended again
                    suspend = ("cryptsetup", "luksSuspend", MAPPING)
                    resume = ("cryptsetup", "luksResume", "--key-file", _key(context), MAPPING)
                    _measure(context, f"suspend.{way}", [suspend], 1)
                    _measure(context, f"resume.{way}", [resume], 1)
                programs.run(CLOSE)
        if DISK in lists.words(context.parameters["ways"]):
            _suspend_disk(context)

    def cleanup(self, context: Context) -> None:
        if context.volume is not None:
            context.volume.resume()
        if Path(f"/dev/mapper/{MAPPING}").exists():
            programs.run(CLOSE)


CLOSE = ("cryptsetup", "close", MAPPING)


def _open(context: Context, way: str, tpm: str) -> None:
    """Open the volume each way; the last opening stays."""
    volume, times = _volume(context, way), int(context.parameters["times"])
    opening: tuple[str | Path, ...] = (
        *("cryptsetup", "open", "--key-file", _key(context)),
        *(volume, MAPPING),
    )
    if way == TPM2:
        # Headless, so that no passphrase is asked for: without the TPM there is none.
        options = f"tpm2-device={tpm},headless=1"
        opening = (ATTACH, "attach", MAPPING, volume, "-", options)
    _measure(context, f"open.{way}", [opening, *[CLOSE, opening] * (times - 1)], times)


def _suspend_disk(context: Context) -> None:
    if context.volume is None:
        context.leave_out(
            DISK,
            "The disk was not suspended, for the configuration has no LUKS2 volume: take one of "
            "dm-crypt or of a self-encrypting drive.",
        )
        return
    for phase, call in (("suspend", context.volume.suspend), ("resume", context.volume.resume)):
        with context.phase(f"{phase}.{DISK}") as work:
            call()
        work.add(operations=1)


def _measure(context: Context, phase: str, commands: list[programs.Command], times: int) -> None:
    script = programs.script(context.scratch / phase, commands)
    work, _ = programs.measured(context, phase, script, name="cryptsetup")
    work.add(operations=times)


def _made(context: Context, way: str, tpm: str) -> Path:
    """Return the volume that all runs of the suite copy, made by the first that needs it."""
    made = context.shared / f"{MAPPING}-{way}.luks"
    if made.exists():
        return made
    parameters, key = context.parameters, _key(context)
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(32))
    draft = made.with_suffix(".draft")
    with draft.open("wb") as file:
        file.truncate(VOLUME_BYTES)
    cost = ["--pbkdf", way, "--iter-time", str(parameters["iter_ms"])]
    if way == "argon2id":
        cost += ["--pbkdf-memory", str(int(parameters["memory_mib"]) * 1024)]
    if way == TPM2:  # the passphrase only lets the TPM's slot be made
        cost = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"]
    format_ = ["cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", *cost]
    programs.run([*format_, "--key-file", key, draft])
    if way == TPM2:
        enroll = ("systemd-cryptenroll", f"--unlock-key-file={key}", f"--tpm2-device={tpm}")
        programs.run([*enroll, "--tpm2-pcrs=", draft])
    draft.rename(made)
    return made


def _with_a_volume(parameters: Parameters) -> list[str]:
    """Return the ways that open a volume of ours."""
    return [way for way in lists.words(parameters["ways"]) if way != DISK]


def _key(context: Context) -> Path:
    """Of these volumes alone, on which nothing lies."""
    return context.shared / f"{MAPPING}.key"


def _volume(context: Context, way: str) -> Path:
    return context.disk / f"{way}.luks"


@contextmanager
def _tpm(context: Context, *, wanted: bool) -> Iterator[str]:
    """Call the TPM as systemd does; a simulated one runs for as long."""
    if not wanted or context.parameters["tpm"] == DEVICE:
        yield "/dev/tpmrm0"
        return
    state, socket = context.shared / f"{MAPPING}-tpm", context.scratch / "tpm"
    state.mkdir(exist_ok=True)
    command = ["swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}"]
    command += ["--server", f"type=unixio,path={socket}"]
    command += ["--ctrl", f"type=unixio,path={socket}.ctrl"]
    command += ["--flags", "not-need-init,startup-clear"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=programs.environment(),
        start_new_session=True,
    )
    try:
        deadline_s = time.monotonic() + START_LIMIT_S
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise WorkloadError("no-swtpm", command=" ".join(command))
            time.sleep(0.02)
        yield f"swtpm:path={socket}"
    finally:
        programs.kill_group(process)
