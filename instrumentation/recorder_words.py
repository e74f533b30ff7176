"""What the recorder says when a meter cannot be recorded: each a sentence with the way out."""

from __future__ import annotations

import errno
from pathlib import Path

from instrumentation.probe import looks_like, what_is_here
from instrumentation.recorder_port import MeterConfig

SHOWN_BYTES = 40


def cannot_open(config: MeterConfig, error: OSError, device: str) -> str:
    """Why the port could not be opened. `device` is its path, empty if none was found."""
    where = f"{config.name}: {config.port}"
    if error.errno == errno.ENOENT:
        known = f" ({error.strerror})" if config.port.startswith("usb") else ""
        return f"{where} is not there{known}: is the meter plugged in? {what_is_here()}"
    if error.errno == errno.ENOTUNIQ:
        return f"{where} is not one port: {error.strerror}."
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"{where} may not be opened by this user: `sudo usermod -aG dialout $USER`, "
            "then log in again."
        )
    if error.errno in (errno.EAGAIN, errno.EBUSY):
        return (
            f"{where} is in use by another program: `fuser -v {device}` names it; end that, or "
            f"name another port. {what_is_here(device)}"
        )
    if error.errno == errno.ETIMEDOUT:
        return f"{where} does not open ({error.strerror}): unplug the meter and plug it in again."
    return f"{where} cannot be opened ({error}). {what_is_here(device)}"


def silent(config: MeterConfig, limit_s: float, device: str) -> str:
    """Not a byte came."""
    return (
        f"{config.name} at {config.port} is silent: not a byte in {limit_s:.3g} s at {config.baud} "
        f"baud. Is it switched on, and its logging? {what_is_here(device)}"
    )


def foreign(config: MeterConfig, data: bytes, device: str) -> str:
    """What came was no record of this kind of meter."""
    other = looks_like(data, config.kind)
    hint = f"That is a {other}: set its kind." if other else "Check kind and baud."
    return (
        f"{config.name} at {config.port} sends no records of a {config.kind} at {config.baud} "
        f"baud: what came starts with {data[:SHOWN_BYTES]!r}. {hint} {what_is_here(device)}"
    )


def cannot_write(config: MeterConfig, out: Path, error: OSError, summary: str) -> str:
    """The recording cannot be kept."""
    return (
        f"{config.name}: the recording ended, {out} cannot be written ({error.strerror}). All that "
        f"came before is kept; make room and start again. {summary.partition(': ')[2]}"
    )


def full(config: MeterConfig, out: Path) -> str:
    """The disk takes nothing more."""
    return f"{config.name}: the disk of {out} is full; the recording goes on when there is room"


def recorded_already(config: MeterConfig, out: Path) -> str:
    """Another recorder is at work there."""
    return (
        f"{config.name}: another process records into {out} already: `fuser -v {out}` names it; "
        "end it, then start again."
    )


def another_stream(path: Path, what: str) -> str:
    """There is a recording already, and this would not continue it."""
    return f"{path} was recorded with another {what}: move it away, or set {what} back."
