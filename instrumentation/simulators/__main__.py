"""Plays a meter for people who have none: a port or a server that behaves like the real thing.

    python -m instrumentation.simulators --kind smartpower3 --link PATH
        [--watts 20,0.06] [--fault drop=0.001]… [--seed N]
    python -m instrumentation.simulators --kind http --at 127.0.0.1:8080
        [--profile tasmota] [--watts 60]

PATH becomes a link to its port, a pseudo-terminal; a meter on a network is served at HOST:PORT, or
publishes to the broker there. Ends with Ctrl-C or SIGTERM and then prints what it did. The faults
are those of `instrumentation.simulators.faults`: chances, and `skew` in ppm.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.extensions import ExtensionError
from contract.interrupts import noted_signals
from contract.names import sentence
from instrumentation.simulators import registry
from instrumentation.simulators.faults import Faults
from instrumentation.simulators.networked import Live, NetworkSimulator
from instrumentation.simulators.play import Player

_LOOK_S = 0.1


def _watts(words: str | None, channels: Sequence[str]) -> list[float]:
    if words is None:
        return [10.0 / (number + 1) for number in range(len(channels))]
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise ValueError(f"{words} are not powers: give numbers with commas in between.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.simulators")
    parser.add_argument("--kind", required=True, help=", ".join(registry.kinds()))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--link", type=Path, help="becomes a link to the port")
    where.add_argument("--at", metavar="HOST:PORT", help="where to serve, or the broker")
    parser.add_argument("--profile", help="the sort of device, of a meter on a network")
    parser.add_argument("--watts", help="power of each channel, with commas in between")
    parser.add_argument("--fault", action="append", default=[], help="such as drop=0.001")
    parser.add_argument("--seed", type=int, default=0, help="makes the same faults again")
    options = parser.parse_args(arguments)
    with noted_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as ended:
        serves = options.at is not None
        return (_serve if serves else _play)(options, lambda: bool(ended))


def _serve(options: argparse.Namespace, ended: Callable[[], bool]) -> int:
    try:
        make = registry.load(options.kind)
        if not issubclass(make, NetworkSimulator):
            raise ValueError(f"A {options.kind} has a serial port: use --link PATH.")
        meter = make(options.profile) if options.profile else make()
        watts = _watts(options.watts, meter.channels)
        if len(watts) != len(meter.channels):
            raise ValueError(f"This meter has {len(meter.channels)} channels: give as many watts.")
        host, _, port = options.at.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{options.at} is not HOST:PORT.")
        server = meter.serve(host, int(port))
    except (ExtensionError, ValueError, TypeError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"fde: {options.at} cannot be used: {error.strerror or error}.", file=sys.stderr)
        return 1
    live = Live(meter, watts)
    settings = dict(meter.settings)
    print(f"A {options.kind} at {server.address}, settings {settings}, {watts} W; Ctrl-C ends it.")
    sys.stdout.flush()
    try:
        while not ended():
            time.sleep(_LOOK_S)
    finally:
        live.close()
        server.close()
    print(f"{options.kind}: {meter.refreshes} readings")
    return 0


def _play(options: argparse.Namespace, ended: Callable[[], bool]) -> int:
    try:
        make = registry.load(options.kind)
        if issubclass(make, NetworkSimulator):
            raise ValueError(f"A {options.kind} is on a network: use --at HOST:PORT.")
        watts = _watts(options.watts, make().channels)
        player = Player(make, options.link, watts, Faults.parse(options.fault), options.seed)
    except (ExtensionError, ValueError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"fde: {options.link} cannot become a link: {error.strerror}.", file=sys.stderr)
        return 1
    settings = dict(make().settings)
    print(f"A {options.kind} at {options.link}, settings {settings}, {watts} W; Ctrl-C ends it.")
    sys.stdout.flush()
    try:
        player.run(ended)
    finally:
        player.close()
    print(f"{options.kind}: {player.hit} faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
