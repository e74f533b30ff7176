"""Find the ranges to fix at a meter from a recording in which the meter chose them.

    python -m instrumentation.ranging DIR [--current-crest N]

DIR is a recording (`instrumentation.recorder`) under the suite's load, without ranges in the
meter's settings. The command prints the highest readings and the settings for the inventory: the
smallest fixed ranges that hold them with a margin. A meter that changes its range during a run
changes its accuracy with it; MLPerf's power rules, too, require a ranging run first and fixed
ranges afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from contract.names import sentence
from contract.problem import ProblemError
from instrumentation.decode import DecodeError, read_through
from instrumentation.meters.yokogawa import Yokogawa
from instrumentation.meters.yokogawa_ranges import VOLTAGE_RANGES_V

SPARE = 1.1  # margin of a range over the highest reading
PEAK_FACTOR = 3.0  # a range holds peaks of this many times its value
VOLTAGE_CREST = 1.6  # peak by rms value: a sine has 1.41
CURRENT_CREST = 4.0  # a supply without power factor correction at part load


class RangingError(ProblemError):
    """No suitable ranges; the message has the reason and the remedy."""


def smallest_range(ranges: Sequence[float], peak: float, crest: float) -> float:
    """Return the smallest range that holds the rms value `peak` and its peaks with a margin.

    `crest` is the crest factor. Raises RangingError if no range does.
    """
    needed = SPARE * peak * max(1.0, crest / PEAK_FACTOR)
    sufficient = [limit for limit in ranges if limit >= needed]
    if not sufficient:
        raise RangingError("ranges-too-small", largest=max(ranges), peak=peak, spare=SPARE)
    return min(sufficient)


def report(
    name: str,
    meter: Yokogawa,
    voltage_crest: float = VOLTAGE_CREST,
    current_crest: float = CURRENT_CREST,
) -> str:
    """Describe the highest readings and the settings to make. Raises RangingError."""
    most = meter.extremes
    if not most.readings:
        raise RangingError("no-reading")
    currents_a = meter.settings.current_ranges_a
    ranges = {
        "voltage_range_v": smallest_range(VOLTAGE_RANGES_V, most.voltage_v, voltage_crest),
        "current_range_a": smallest_range(currents_a, most.current_a, current_crest),
    }
    accuracy = type(meter)(meter.channels, {**asdict(meter.settings), **ranges}).accuracy
    limit_w = accuracy.relative_limit * most.power_w + accuracy.absolute_limit_w
    lines = [
        f"{name}: in {most.readings} readings, at most: {most.voltage_v:.4g} V, "
        f"{most.current_a:.4g} A, {most.power_w:.4g} W.",
        f"The smallest ranges that hold it with {100 * (SPARE - 1):.3g} % to spare and peaks "
        f"of {voltage_crest:g} (voltage) and {current_crest:g} (current) times the rms "
        "value:",
        f"  settings: {json.dumps(ranges)}",
        f"There the meter may err by ±{limit_w:.3g} W at {most.power_w:.4g} W ({accuracy.source}).",
    ]
    if most.over_range:
        lines.append(
            f"{most.over_range} readings were beyond the range in use then: the true maximum may "
            "be higher. Record again, from a start under load."
        )
    if most.current_range_a > ranges["current_range_a"]:
        lines.append(
            f"The meter itself went up to {most.current_range_a:g} A. If it did so after the "
            "start, the peaks are higher than assumed: give a larger --current-crest."
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.ranging")
    parser.add_argument("recording", type=Path, metavar="DIR", help="a recording of the meter")
    parser.add_argument("--voltage-crest", type=float, default=VOLTAGE_CREST)
    parser.add_argument("--current-crest", type=float, default=CURRENT_CREST)
    options = parser.parse_args(arguments)
    try:
        meter = read_through(options.recording)
        if isinstance(meter, Yokogawa):
            crests = options.voltage_crest, options.current_crest
            print(report(options.recording.name, meter, *crests))
        else:
            print(f"{options.recording}: a {meter.kind} has no ranges; there is nothing to set.")
    except (RangingError, DecodeError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
