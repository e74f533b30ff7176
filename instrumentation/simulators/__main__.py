"""Plays a meter for people who have none: a pseudo-terminal that behaves like the real thing.

    python -m instrumentation.simulators --kind smartpower3 --link PATH
        [--watts 20,0.06] [--fault drop=0.001]… [--seed N]

PATH becomes a link to its port. Ends with Ctrl-C or SIGTERM and then says what it did. The faults
are those of `instrumentation.simulators.faults`: chances, and `skew` in ppm.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from contract.extensions import ExtensionError
from contract.interrupts import noted_signals
from instrumentation.simulators import registry
from instrumentation.simulators.faults import Faults
from instrumentation.simulators.play import Player


def _watts(words: str | None, channels: Sequence[str]) -> list[float]:
    if words is None:
        return [10.0 / (number + 1) for number in range(len(channels))]
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise ValueError(f"{words} are not powers: give numbers with commas in between.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m instrumentation.simulators")
    parser.add_argument("--kind", required=True, help=", ".join(registry.kinds()))
    parser.add_argument("--link", required=True, type=Path, help="becomes a link to the port")
    parser.add_argument("--watts", help="power of each channel, with commas in between")
    parser.add_argument("--fault", action="append", default=[], help="such as drop=0.001")
    parser.add_argument("--seed", type=int, default=0, help="makes the same faults again")
    options = parser.parse_args(arguments)
    with noted_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as ended:
        return _play(options, lambda: bool(ended))


def _play(options: argparse.Namespace, ended: Callable[[], bool]) -> int:
    try:
        make = registry.load(options.kind)
        watts = _watts(options.watts, make().channels)
        player = Player(make, options.link, watts, Faults.parse(options.fault), options.seed)
    except (ExtensionError, ValueError) as error:
        print(f"fde: {error}", file=sys.stderr)
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
