"""`fde prove`: every configuration of a target entered, proven and left; a table of it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from contract import strict_json
from contract.command_results import ConfigurationProof, HostProofs
from contract.errors import ControllerError
from contract.files import write_json
from controller.planning.known_names import require_known
from controller.target import connection, secrets
from controller.target import inventory as stacks
from controller.target.survey import record_file

FORMAT = "fde-proofs/1"
HEAD = ("configuration", "disk", "enter s", "of it mkfs", "proven", "stack", "cipher driver")

Say = Callable[[str], None]


def run(target: Mapping[str, Any], names: Sequence[str], say: Say) -> HostProofs:
    """Have the agent prove the named configurations, or all.

    A line of the table is said as soon as its configuration is through; all of it is kept below the
    build folder. Raises ControllerError where the target cannot be asked.
    """
    known = {entry["name"]: entry for entry in target["configurations"]}
    require_known("configuration", names, known)
    wanted = list(names) or list(known)
    secrets.place(target)
    width = max(len(name) for name in [*wanted, HEAD[0]])
    say(_row(HEAD, width))
    collected: list[dict[str, Any]] = []
    with tempfile.TemporaryFile() as errors:
        argv = connection.python(target, "-m", "agent", "storage", "prove", *wanted)
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                collected.append(strict_json.loads(line))
                _say_one(collected[-1], known, width, say)
        errors.seek(0)
        words = errors.read()
    proven = len(collected) == len(wanted) and all(entry["proof"]["ok"] for entry in collected)
    place = _save(target, collected, proven)
    say(f"{sum(e['proof']['ok'] for e in collected)} of {len(wanted)} proven; the proofs: {place}")
    if len(collected) < len(wanted):
        done = subprocess.CompletedProcess(argv, process.returncode, b"", words)
        raise ControllerError(f"{wanted[len(collected)]} was not reached. {_why(target, done)}")
    proofs = [
        ConfigurationProof(
            each["configuration"], each["proof"]["ok"], each.get("took_s"), each.get("mkfs_s")
        )
        for each in collected
    ]
    return HostProofs(target["host"], proven, str(place), tuple(proofs))


def _why(target: Mapping[str, Any], done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if lines and lines[-1].startswith("fde: "):
        return lines[-1].removeprefix("fde: ")
    if any("No module named agent" in line for line in lines):
        return "The agent is not on the target: run fde provision."
    return connection.why(target, done)


def _say_one(
    entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], width: int, say: Say
) -> None:
    proof, configuration = entry["proof"], known[entry["configuration"]]
    cells = (
        entry["configuration"],
        configuration["disk"],
        _seconds(entry.get("took_s")),
        _seconds(entry.get("mkfs_s")),
        "yes" if proof["ok"] else "NO",
        stacks.words(configuration),
        _drivers(proof),
    )
    say(_row(cells, width))
    for mismatch in proof["mismatches"]:
        say(f"    {mismatch['sentence']}")


def _row(cells: Sequence[str], width: int) -> str:
    name, disk, enter, mkfs, proven, stack, driver = cells
    return f"{name:<{width}}  {disk:<5}  {enter:>7}  {mkfs:>10}  {proven:<6}  {stack:<71}  {driver}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _drivers(proof: Mapping[str, Any]) -> str:
    """The kernel's cipher drivers, from the file system down; a drive's own has no name."""
    drivers = [layer.get("cipher_driver") for layer in proof.get("layers", [])]
    return ", ".join(name for name in drivers if name) or str(proof.get("cipher_driver") or "-")


def _save(target: Mapping[str, Any], proofs: list[dict[str, Any]], proven: bool) -> Path:
    place = record_file("proofs", target)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        place,
        {
            "format": FORMAT,
            "host": target["host"],
            "proven_wall": datetime.now(UTC).isoformat(timespec="seconds"),
            "all_proven": proven,
            "configurations": target["configurations"],
            "proofs": proofs,
        },
    )
    return place
