"""Start and stop the virtual lab by hand, and simulate faults in it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from contract.errors import LabError
from lab import image, lifecycle, machines, power, ssh
from lab.machines import kernel
from lab.state import Layout, cache_dir, read_started


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


def _up(arguments: argparse.Namespace, layout: Layout) -> None:
    options = lifecycle.LabOptions(
        drives=not arguments.no_drives,
        meter=not arguments.no_meter,
        truth=arguments.truth,
        packages=arguments.packages,
        disks=arguments.disks,
    )
    if not lifecycle.up(layout, say, options):
        say(f"lab: up already ({layout.state})")


def _status(layout: Layout) -> int:
    for process in read_started(layout).processes:
        say(f"{process.name:12} {process.pid:8} {'running' if process.alive() else 'gone'}")
    up = lifecycle.running(layout)
    say(f"lab: {'up' if up else 'not up'} ({layout.directory})")
    return 0 if up else 1


def _power_on(layout: Layout) -> None:
    power.power_on(layout)
    power.wait_until_up(layout, say)


# Events of a lab that is up, by command: help and function.
EVENTS: dict[str, tuple[str, Callable[[Layout], None]]] = {
    "power-cut": ("take the target's and its drives' power away", power.power_cut),
    "power-on": ("give it back, and wait until the target is up", _power_on),
    "reset": ("press the target's reset button", power.reset),
    "unplug-net": ("take the target's network away", lambda at: power.network(at, plugged=False)),
    "plug-net": ("give it back", lambda at: power.network(at, plugged=True)),
    "unplug-meter": ("pull the meter's cable", lambda at: power.meter(at, plugged=False)),
    "plug-meter": ("put it back", lambda at: power.meter(at, plugged=True)),
}
COMMANDS = {
    "image": "build the guest's image and kernel if the cache has none",
    "cached": "print where they are in the cache",
    "kernel": "build the kernel of lab/kernel/ again and compare its bytes",
    "up": "start drives, guest and meter",
    "down": "stop them, and labs in directories below",
    "status": "show what runs; exit 1 if the lab is not up",
    "ssh": "run a command in the guest, or a shell",
    **{name: text for name, (text, _) in EVENTS.items()},
}


def _run(arguments: argparse.Namespace) -> int:
    """Run a command; return its exit status."""
    if arguments.name == "kernel":
        identical = kernel.rebuild(say, keep=arguments.keep)
        say(f"kernel: {'identical' if identical else 'differs from that of lab/kernel/'}")
        return 0 if identical else 1
    if arguments.name in ("image", "cached"):
        if arguments.name == "image":
            machines.ready(lifecycle.LabOptions().machine, say)
        folders = {
            "image": image.location().directory,
            "kernel": kernel.location(cache_dir()).directory,
        }
        for name, folder in folders.items():
            if folder.exists():
                say(f"{name} {folder}")
        return 0
    layout = Layout(arguments.dir.absolute())
    match arguments.name:
        case "up":
            _up(arguments, layout)
        case "down":
            names = lifecycle.down_all(layout.directory)
            say(f"lab: stopped {', '.join(names)}" if names else "lab: nothing was running")
        case "status":
            return _status(layout)
        case "ssh":
            command = ssh.command(power.require_state(layout)["ssh"], arguments.command)
            os.execvp(command[0], command)
        case event:
            EVENTS[event][1](layout)
            say(f"lab: {event} done")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="command")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name not in ("image", "cached", "kernel"):
            place = Path("build/lab")
            command.add_argument("--dir", type=Path, default=place, help=f"default {place}")
    keep = commands.choices["kernel"]
    keep.add_argument("--keep", action="store_true", help="save the build in lab/kernel/")
    up = commands.choices["up"]
    up.add_argument("--no-drives", action="store_true", help="the guest and the meter only")
    up.add_argument("--no-meter", action="store_true", help="the drives and the guest only")
    up.add_argument("--truth", action="store_true", help="write the meter's input to a file")
    up.add_argument("--packages", type=int, choices=(1, 2), default=1, help="processor packages")
    up.add_argument(
        "--disks", default="", metavar="MODEL", help="of the disks' behaviour (lab/disk_models.yml)"
    )
    commands.choices["ssh"].add_argument("command", nargs="*", metavar="-- command")
    return parser


def main() -> int:
    """Return the exit status: 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C."""
    arguments = _parser().parse_args()
    try:
        return _run(arguments)
    except LabError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fde: interrupted; nothing of the lab is left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
