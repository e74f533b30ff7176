"""Checks of the disks under test: their health, the errors they count, their firmware."""

from __future__ import annotations

import re
from pathlib import Path

from agent.checks.context import CheckContext, Observation, number, text
from agent.checks.smart import possible_c
from agent.storage.devices import controllers

# What `conditions` has of a disk's health.
_TOLD = (
    *("throttled", "written_bytes", "kernel_written_bytes"),
    *("spare_percent", "used_percent", "errors"),
)


def health(context: CheckContext) -> Observation | None:
    """Observe whether the disks report that they are healthy."""
    verdicts = {name: h.passed for name, h in context.health.items() if h.passed is not None}
    if not verdicts:
        return None
    failed = " ".join(sorted(name for name, passed in verdicts.items() if not passed))
    return Observation(failed or "passed", not failed)


def unflushed(context: CheckContext) -> Observation:
    """Observe which disks have a write cache that the kernel does not flush, by its settings."""
    serials = []
    for name in context.disks:
        queue, device = _queue(context, name), _device(context, name)
        # Signs of a write cache: NVMe's have FUA, ATA's usually not.
        signs = {text(queue / "fua"), *map(text, device.glob("scsi_disk/*/cache_type"))}
        if text(queue / "write_cache") == "write through" and signs & {"1", "write back"}:
            serials.append(serial_of(context, name))
    return Observation(" ".join(serials) or "none", not serials)


def medium_errors(context: CheckContext) -> dict[str, int] | None:
    """Count the errors of the media since the disks were made, by serial number.

    A kernel's name may belong to another disk after a boot.
    """
    return {h.serial or name: h.errors for name, h in context.health.items()} or None


def errors_of_suite(context: CheckContext) -> Observation | None:
    """Observe whether errors of the media were added since the suite began."""
    current = medium_errors(context)
    if current is None:
        return None
    first = context.first("medium_errors", current)
    return growth(first, current)


def io_errors(context: CheckContext) -> dict[str, int] | None:
    """Count the commands that failed since boot, by disk (SCSI and ATA)."""
    counts = {name: number(_device(context, name) / "ioerr_cnt") for name in context.disks}
    return {name: count for name, count in counts.items() if count is not None} or None


def firmware(context: CheckContext) -> Observation | None:
    """Observe whether the disks' firmware is the one that the suite began with."""
    current = {}
    for name in context.disks:
        device = _device(context, name)
        revision = text(device / "firmware_rev") or text(device / "rev")
        if revision:
            current[serial_of(context, name)] = revision
    if not current:
        return None
    first = context.first("firmware", current)
    shown = " ".join(sorted(current.values()))
    return Observation(shown, current == first)


def temperatures_c(context: CheckContext) -> dict[str, float]:
    """Read the temperature of each disk by its own sensor (NVMe, drivetemp), by serial number.

    Without such a sensor, SMART's value is used.
    """
    temperatures = {}
    for name in context.disks:
        sensors = [
            sensor
            for device in controllers(_device(context, name))
            for place in ("hwmon*/temp1_input", "hwmon/hwmon*/temp1_input")
            for sensor in device.glob(place)
        ]
        readings = [value / 1000 for sensor in sensors if (value := number(sensor)) is not None]
        values = [reading for reading in readings if possible_c(reading) is not None]
        if values:
            temperatures[serial_of(context, name)] = max(values)
        elif name in context.health and (smart_c := context.health[name].temperature_c) is not None:
            temperatures[serial_of(context, name)] = float(smart_c)
    return temperatures


def temperature(context: CheckContext) -> Observation | None:
    """Observe whether every disk is as warm as at the suite's first run."""
    current = temperatures_c(context)
    if not current:
        return None
    first = context.first("disk_temperatures_c", current)
    off = {
        s: c - first.get(s, c)
        for s, c in current.items()
        if abs(c - first.get(s, c)) > context.disk_c
    }
    shown = ", ".join(
        f"{current[s]:.0f} °C, {first[s]:.0f} °C ± {context.disk_c:g} °C wanted" for s in off
    )
    direction = "warmer" if any(difference > 0 for difference in off.values()) else "colder"
    return Observation(max(current.values()), not off, {"way": direction}, shown)


def throttles(context: CheckContext) -> dict[str, int] | None:
    """Count how often heat slowed the disks since they were made, by serial number."""
    counts = {h.serial or name: h.throttled for name, h in context.health.items()}
    return {serial: count for serial, count in counts.items() if count is not None} or None


def links(context: CheckContext) -> dict[str, str] | None:
    """Read speed, width and queue depth of all links of each disk, by serial number."""
    links_by_serial = {}
    for name in context.disks:
        paths = []
        for device in controllers(_device(context, name)):
            port = next((p for p in device.resolve().parts if re.fullmatch(r"ata\d+", p)), "ata")
            parts = [
                text(device / "device/current_link_speed"),
                (width := text(device / "device/current_link_width")) and f"x{width}",
                text(context.sys / "class/ata_link" / port.replace("ata", "link") / "sata_spd"),
                (depth := text(device / "queue_depth")) and f"queue of {depth}",
            ]
            paths.append(", ".join(filter(None, parts)))
        if any(paths):
            links_by_serial[serial_of(context, name)] = " + ".join(filter(None, paths))
    return links_by_serial or None


def link(context: CheckContext) -> Observation | None:
    """Observe whether the links are those that the suite began with; a disk may report none."""
    if not context.disks:
        return None
    current = {serial_of(context, name): "not reported" for name in context.disks}
    current |= links(context) or {}
    first = context.first("disk_links", current)
    return link_changed(first, current)


def link_changed(before: dict[str, str], current: dict[str, str]) -> Observation:
    """Compare the disks' links with the earlier ones."""
    return Observation("; ".join(sorted(current.values())), before == current)


def conditions(context: CheckContext) -> dict[str, dict[str, float | str | None]]:
    """Return the present state of each disk, by serial number, for the record of a run."""
    warm, linked = temperatures_c(context), links(context) or {}
    states = {}
    for name in context.disks:
        serial, health = serial_of(context, name), context.health.get(name)
        power = controllers(_device(context, name))[0] / "power"
        states[serial] = {
            "temperature_c": warm.get(serial),
            "link": linked.get(serial),
            "write_cache": text(_queue(context, name) / "write_cache"),
            "latency_tolerance_us": text(power / "pm_qos_latency_tolerance_us"),
            **{key: getattr(health, key, None) for key in _TOLD},
        }
    return states


def serial_of(context: CheckContext, name: str) -> str:
    """Return the disk's serial number as sysfs has it, else its name."""
    device = _device(context, name)
    return text(device / "serial") or text(device / "wwid") or name


def _device(context: CheckContext, name: str) -> Path:
    return context.sys / "class/block" / name / "device"


def _queue(context: CheckContext, name: str) -> Path:
    return context.sys / "class/block" / name / "queue"


def growth(before: dict[str, int], current: dict[str, int]) -> Observation:
    """Add up by how much counts have grown; a disk without an earlier count adds nothing."""
    total = sum(max(0, count - before.get(name, count)) for name, count in current.items())
    return Observation(total, total == 0)
