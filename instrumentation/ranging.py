"""Finds the ranges to fix at a meter before a suite, from a run in which the meter chooses them.

    python -m instrumentation.ranging --meter '<entry of meters, JSON>' [--seconds 60]

Load the machine meanwhile as the suite will. Printed is what was seen, and the settings to put
into the inventory: the smallest fixed ranges that hold it with something to spare. A meter that
changes its range in mid-run changes its accuracy with it, so that MLPerf's power rules, too, ask
for a ranging run first and fixed ranges afterwards.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from contract.interrupts import noted_signals
from contract.names import sentence
from contract.problem import ProblemError
from instrumentation.clock import monotonic_ns
from instrumentation.meters.base import Meter
from instrumentation.meters.yokogawa import Yokogawa
from instrumentation.meters.yokogawa_ranges import VOLTAGE_RANGES_V, Extremes
from instrumentation.ports import Lookup
from instrumentation.recorder_port import MeterConfig, RecorderError, cannot_open, foreign, silent
from instrumentation.transports import Transport, heard, open_meter

SPARE = 1.1  # a range holds so much more than was seen
PEAK_FACTOR = 3.0  # a range takes peaks up to so many times itself
VOLTAGE_CREST = 1.6  # peak by rms value: a sine has 1.41
CURRENT_CREST = 4.0  # a supply without power factor correction at part load
_AUTO = {"voltage_range_v": None, "current_range_a": None}


class RangingError(ProblemError):
    """No ranges can be named; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Needs:
    """Crest factors of voltage and current: a range must hold more than the rms value."""

    voltage_crest: float = VOLTAGE_CREST
    current_crest: float = CURRENT_CREST


def smallest(
    ranges: Sequence[float], peak: float, crest: float, peak_factor: float, spare: float
) -> float:
    """Return the smallest range that holds `spare` times the rms value `peak`, and its peaks.

    A range takes peaks of `peak_factor` times itself. Raises RangingError where none does.
    """
    needed = spare * peak * max(1.0, crest / peak_factor)
    for each in sorted(ranges):
        if each >= needed:
            return each
    raise RangingError("ranges-too-small", largest=max(ranges), peak=peak, spare=spare)


def advised(meter: Yokogawa, extremes: Extremes, needs: Needs) -> dict[str, float]:
    """Return the settings to fix.

    Raises RangingError.
    """
    if not extremes.readings:
        raise RangingError("no-reading")
    volts = VOLTAGE_RANGES_V, extremes.voltage_v, needs.voltage_crest
    amperes = meter.settings.current_ranges_a, extremes.current_a, needs.current_crest
    return {
        "voltage_range_v": smallest(*volts, PEAK_FACTOR, SPARE),
        "current_range_a": smallest(*amperes, PEAK_FACTOR, SPARE),
    }


def report(config: MeterConfig, meter: Yokogawa, needs: Needs) -> str:
    """Return what was seen and what to set, for people.

    Raises RangingError.
    """
    most = meter.extremes
    ranges = advised(meter, most, needs)
    settings = {**config.settings, **ranges}
    accuracy = replace(config, settings=settings).driver().accuracy
    limit_w = accuracy.relative_limit * most.power_w + accuracy.absolute_limit_w
    lines = [
        f"{config.name}: seen in {most.readings} readings, at most: {most.voltage_v:.4g} V, "
        f"{most.current_a:.4g} A, {most.power_w:.4g} W.",
        f"The smallest ranges that hold it with {100 * (SPARE - 1):.3g} % to spare and peaks "
        f"of {needs.voltage_crest:g} (voltage) and {needs.current_crest:g} (current) times the rms "
        "value:",
        f"  settings: {json.dumps(settings)}",
        f"There the meter may err by ±{limit_w:.3g} W at {most.power_w:.4g} W ({accuracy.source}).",
    ]
    if most.over_range:
        lines.append(
            f"{most.over_range} readings were beyond the range in use then: the true maximum may "
            "be higher. Run this again, from a start under load."
        )
    if most.current_range_a > ranges["current_range_a"]:
        lines.append(
            f"The meter itself went up to {most.current_range_a:g} A. If it did so after the "
            "start, the peaks are higher than assumed: give a larger --current-crest."
        )
    return "\n".join(lines)


def listen(meter: Meter, transport: Transport, stopped: Callable[[], bool]) -> bytes:
    """Ask the meter and hear it until `stopped()`; the first bytes that came.

    Raises OSError when the port is lost.
    """
    first = b""
    meter.opened()
    while not stopped():
        t_ns = monotonic_ns()
        if request := meter.request(t_ns):
            transport.write(request)
            meter.on_request_sent(request, t_ns)
        came_ns, data = heard(transport, meter)
        if data:
            meter.feed(data, came_ns)
            first = first or data
    return first


def ranging(config: MeterConfig, needs: Needs, stopped: Callable[[], bool]) -> str:
    """Return a ranging run, for people.

    Raises RangingError and RecorderError.
    """
    if not isinstance(config.driver(), Yokogawa):
        return f"{config.name}: a {config.kind} has no ranges; there is nothing to set."
    meter = replace(config, settings={**config.settings, **_AUTO}).driver()
    assert isinstance(meter, Yokogawa)
    start_ns, device = monotonic_ns(), ""
    try:
        device = Lookup(config.port, meter.usb_ids).device()
        transport = open_meter(device, config.baud, meter)
    except OSError as error:
        raise cannot_open(config, error, device) from None
    try:
        first = listen(meter, transport, stopped)
        if stop_command := meter.stop_command():
            transport.write(stop_command)
    except OSError as error:
        raise RangingError("port-lost", meter=config.name, error=error) from None
    finally:
        transport.close()
    if not first:
        raise silent(config, (monotonic_ns() - start_ns) / 1e9, device)
    if not meter.extremes.readings:
        raise foreign(config, first, device)
    return report(config, meter, needs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m instrumentation.ranging")
    parser.add_argument("--meter", required=True, help="one entry of meters, as JSON")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--voltage-crest", type=float, default=VOLTAGE_CREST)
    parser.add_argument("--current-crest", type=float, default=CURRENT_CREST)
    options = parser.parse_args(arguments)
    end_ns = monotonic_ns() + round(options.seconds * 1e9)
    needs = Needs(options.voltage_crest, options.current_crest)
    try:
        config = MeterConfig.from_json(options.meter)
        print(f"Load the machine now, for {options.seconds:g} s.", file=sys.stderr)
        with noted_signals(signal.SIGTERM, signal.SIGINT) as ended:
            print(ranging(config, needs, lambda: bool(ended) or monotonic_ns() >= end_ns))
    except (RangingError, RecorderError) as error:
        print(f"fde: {sentence(str(error))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
