"""Facts that `fde check` and `fde init` ask of a target, as JSON on standard output.

    python3 -m agent.examine --target FILE      all that a diagnosis rests on
    python3 -m agent.examine --survey           every whole disk of the machine
    python3 -m agent.examine --load SECONDS     keep all processors busy
    python3 -m agent.examine --joules SECONDS   RAPL's counters, ten times a second

Reads only. A part that is not available has its sentence in `errors`; the others are still printed.
"""

from __future__ import annotations

import argparse
import gzip
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent import assets, checks
from agent.checks import disks as disk_checks
from agent.checks import processor
from agent.checks.context import CheckContext, number, text
from agent.storage import devices, inspect
from agent.storage import facts as disk_facts
from agent.system import lock, quiet, sleep
from agent.system.command import CommandError
from agent.system.virtual_lab import SIMULATED_RAPL
from contract.disks import SurveyedDisk
from contract.errors import AgentError
from contract.examination import (
    AssetState,
    DiskReport,
    IdleStates,
    KernelOptions,
    PowerSupply,
    RaplCounts,
)
from contract.files import json_text
from contract.names import sentence
from contract.plan import Asset, Disk, TargetDocument, read_target
from contract.strict_json import Document, Json
from instrumentation.sources.registry import SourceError

# Of agent.checks those that say something of a machine on which no suite runs.
CHECKS = ("load", "governor", "turbo", "memory", "swap", "preloaded", "disk-health", "powercap")
SUITES = Path("/var/lib/fde-testbed")
JOULES_PAUSE_S = 0.1
RAPL_S = 0.5
LEAST_RISE = 0.02  # of a package's power when all processors become busy


def examine(target: TargetDocument, sys: Path = Path("/sys")) -> Document:
    """Collect every part by its name; `errors` gives the reason for each missing one."""
    disks = target.storage.disks
    names = {role: devices.kernel_name(disk.by_id) for role, disk in disks.items()}
    present = {role: name for role, name in names.items() if name}
    context = CheckContext(Path("/"), disks=tuple(present.values()), sys=sys)
    # Of the results: the folder itself, or the nearest above it that exists.
    existing = next(path for path in (SUITES, *SUITES.parents) if path.exists())
    parts: dict[str, Callable[[], Any]] = {
        "checks": lambda: [finding.document() for finding in checks.glance(CHECKS, context)],
        "rapl": lambda: asdict(rapl()),
        "disks": lambda: {role: asdict(disk(context, name)) for role, name in present.items()},
        "assets": lambda: {n: asdict(asset_state(n, asset)) for n, asset in target.assets.items()},
        "sleep": lambda: asdict(sleep.read_state()),
        "power": lambda: asdict(power(sys)),
        "disturbers": quiet.disturbers,
        "kernel": lambda: asdict(kernel()),
        "idle_states": lambda: asdict(idle_states(context)),
        "room_bytes": lambda: shutil.disk_usage(existing).free,
        "simulated_rapl": SIMULATED_RAPL.exists,
    }
    answers: dict[str, Json] = {}
    errors: dict[str, str] = {}
    for name, part in parts.items():
        try:
            answers[name] = part()
        except (AgentError, CommandError, SourceError, OSError, ValueError) as error:
            errors[name] = str(error)
    return {**answers, "errors": errors}


def rapl() -> RaplCounts:
    """Read the zones at rest and under load."""
    from instrumentation.sources import powercap
    from instrumentation.sources.counter import total
    from instrumentation.sources.zones import kind_of

    with powercap.PowercapSource.open() as source:
        reads, times_s = [source.read()], [time.monotonic()]
        for spend in (time.sleep, processor.work):
            spend(RAPL_S)
            reads.append(source.read())
            times_s.append(time.monotonic())
        zones = source.zones
    rest_uj, load_uj, used_uj = (
        {
            zone.name: total([read[zone.name] for read in reads[part]], zone.max_range_uj).energy_uj
            or 0
            for zone in zones
        }
        for part in (slice(2), slice(1, None), slice(None))
    )
    moved = tuple(name for name, uj in used_uj.items() if uj)
    times = (times_s[2] - times_s[1]) / (times_s[1] - times_s[0])
    steady = tuple(
        name
        for name in moved
        if kind_of(name) == "package" and load_uj[name] <= times * rest_uj[name] * (1 + LEAST_RISE)
    )
    return RaplCounts(tuple(zone.name for zone in zones), moved, steady)


def disk(context: CheckContext, name: str) -> DiskReport:
    """Describe a disk by its kernel name."""
    subsystem = context.sys / "class/block" / name / "device"
    device = devices.controllers(subsystem)[0]
    pci = device / "device"
    disk_context = CheckContext(Path("/"), sys=context.sys, disks=(name,))
    host = next((p.name for p in device.resolve().parents if p.name.startswith("host")), "")
    alpm = context.sys / "class/scsi_host" / host / "link_power_management_policy"
    return DiskReport(
        name=name,
        serial=devices.serial(name),
        model=text(subsystem / "model") or "",
        link_speed=text(pci / "current_link_speed"),
        link_speed_max=text(pci / "max_link_speed"),
        link_width=number(pci / "current_link_width"),
        link_width_max=number(pci / "max_link_width"),
        sata_link=disk_checks.links(disk_context) or {},
        apst_tolerance_us=text(device / "power/pm_qos_latency_tolerance_us"),
        alpm_policy=text(alpm) if host else None,
        temperature_c=next(iter(disk_checks.temperatures_c(disk_context).values()), None),
        health=context.health.get(name),
    )


def asset_state(name: str, asset: Asset) -> AssetState:
    """Compare an asset with its checksum."""
    if not Path(asset.path).is_file():
        return AssetState("missing", f"The asset {name} is not at {asset.path}")
    try:
        assets.compared(name, asset)
    except AgentError as error:
        return AssetState("wrong", str(error))
    return AssetState("ok")


def power(sys: Path) -> PowerSupply:
    """Read mains and batteries (kernel, Documentation/ABI/testing/sysfs-class-power)."""
    supplies = sorted((sys / "class/power_supply").glob("*"))
    kinds = {path: text(path / "type") for path in supplies}
    # A battery of a mouse or keyboard has the scope Device.
    batteries = [p for p, k in kinds.items() if k == "Battery" and text(p / "scope") != "Device"]
    mains = [number(p / "online") for p, k in kinds.items() if k in ("Mains", "USB")]
    return PowerSupply(
        tuple(p.name for p in batteries),
        discharging=any(text(p / "status") == "Discharging" for p in batteries),
        mains=any(mains) if mains else None,
    )


def kernel() -> KernelOptions:
    """Read whether the kernel was built with the options that the configurations need."""
    packed, config_file = Path("/proc/config.gz"), Path(f"/boot/config-{platform.release()}")
    if packed.exists():
        config = gzip.decompress(packed.read_bytes()).decode()
    elif config_file.exists():
        config = config_file.read_text(encoding="utf-8")
    else:
        return KernelOptions(sed_opal=None, dm_crypt=None)
    lines = set(config.splitlines())
    return KernelOptions(
        sed_opal="CONFIG_BLK_SED_OPAL=y" in lines,
        dm_crypt=not lines.isdisjoint({"CONFIG_DM_CRYPT=y", "CONFIG_DM_CRYPT=m"}),
    )


def idle_states(context: CheckContext) -> IdleStates:
    """Read the C-states of all CPUs."""
    off = {
        text(path.parent / "name") or path.parent.name
        for path in context.cpus.glob("cpu[0-9]*/cpuidle/state*/disable")
        if text(path) not in ("0", None)
    }
    return IdleStates(processor.idle_states(context), tuple(sorted(off)))


# Not disks to measure: files, optical drives, floppies, the disk of a User Mode Linux.
_OTHERS = ("loop", "sr", "fd", "ubd")


def survey() -> list[SurveyedDisk]:
    """Describe every whole disk; nothing is written."""
    names = sorted(
        entry.name
        for entry in devices.BLOCK.iterdir()
        if not entry.name.startswith(_OTHERS)
        and devices.is_whole_disk(entry.name)
        and devices.size_bytes(entry.name)
    )
    with lock.disks("survey"):
        return [_surveyed(name) for name in names]


def _surveyed(name: str) -> SurveyedDisk:
    by_id = _by_id(name)
    serial, size_bytes = devices.serial(name), devices.size_bytes(name)
    facts = disk_facts.gather(Disk("", by_id or f"/dev/{name}", serial, size_bytes))
    model, transport = inspect.kind_of_disk(f"/dev/{name}")
    return SurveyedDisk(
        name=name,
        by_id=by_id,
        serial=serial,
        size_bytes=size_bytes,
        model=model,
        transport=transport,
        uses=tuple(f"{use.device} {use.how}" for use in facts.uses),
        ours=facts.partition is not None,
        blank=facts.blank and facts.read_error is None,
        known=bool(facts.table or facts.signatures or facts.partitions),
        contents=_contents(facts),
        print=facts.print,
        opal=inspect.opal_state(facts),
        opal_words=inspect.opal_in_words(facts),
    )


def _contents(facts: disk_facts.DiskFacts) -> str:
    if facts.read_error:
        return f"it cannot be read ({facts.read_error})"
    if facts.partition is not None:
        return "the testbed's own layout"
    inside = [s for p in facts.partitions for s in p.signatures]
    words = [f"a {facts.table} partition table"] if facts.table else []
    words += [f"{len(facts.partitions)} partitions"] if facts.partitions else []
    words += sorted({s.type for s in (*facts.signatures, *inside)})
    words += [facts.unknown] if facts.unknown else []
    return ", ".join(words) or "blank"


def _by_id(name: str) -> str:
    """Return the most informative path in /dev/disk/by-id: maker and serial, not a bare number."""
    folder = Path("/dev/disk/by-id")
    paths = [p for p in folder.glob("*") if p.resolve() == Path(f"/dev/{name}")]
    rank = ("nvme-", "ata-", "scsi-", "usb-", "mmc-", "virtio-")

    def order(path: Path) -> tuple[bool, bool, int, str]:
        bare = path.name.startswith(("nvme-eui.", "nvme-nvme.", "nvme-uuid.", "scsi-3", "wwn-"))
        return bare, not path.name.startswith(rank), len(path.name), path.name

    return str(min(paths, key=order)) if paths else ""


def joules(seconds: float) -> Iterator[tuple[int, float]]:
    """Yield monotonic ns and the joules of packages and memory in one sum, wraps included."""
    from instrumentation.sources.counter import Reading
    from instrumentation.sources.powercap import PowercapSource
    from instrumentation.sources.zones import summands

    source = PowercapSource.open()
    ranges = {z.name: z.max_range_uj or 0 for z in source.zones if not z.mirror_of}
    counted = [name for group in summands(ranges).values() for name in group]
    sum_uj = 0
    last: dict[str, int] = {}
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        reads = source.read()
        readings = {n: r for n in counted if isinstance(r := reads[n], Reading)}
        for name, reading in readings.items():
            step_uj = reading.energy_uj - last.get(name, reading.energy_uj)
            sum_uj += step_uj if step_uj >= 0 else step_uj + ranges[name]
            last[name] = reading.energy_uj
        if len(readings) == len(counted):  # a sum without one of them would be a step that is none
            yield max(r.t_after_ns for r in readings.values()), sum_uj / 1e6
        time.sleep(JOULES_PAUSE_S)


def main() -> int:
    """Run one request; return 0 with JSON, or 1 with one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="python3 -m agent.examine", description=__doc__)
    request = parser.add_mutually_exclusive_group(required=True)
    request.add_argument("--target", type=Path)
    request.add_argument("--survey", action="store_true")
    request.add_argument("--load", type=float, metavar="SECONDS")
    request.add_argument("--joules", type=float, metavar="SECONDS")
    options = parser.parse_args()
    answer: object = None
    try:
        if options.target:
            answer = examine(read_target(options.target))
        elif options.survey:
            answer = {"name": platform.node(), "disks": [asdict(surveyed) for surveyed in survey()]}
        elif options.load is not None:
            answer = processor.work(options.load)
        else:
            answer = list(joules(options.joules))
    except (AgentError, SourceError, OSError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    print(json_text(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
