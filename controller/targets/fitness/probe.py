"""A short recording of a meter: its mean watts and its interval of records."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from contract import strict_json
from contract.documents import RecorderStatus
from contract.plan import MeterEntry

# The minimum of records and of seconds after the first record.
RECORDS, LEAST_S = 5, 3.0
LIMIT_S = 90.0


@dataclass(frozen=True)
class Probe:
    """The result of probing a meter.

    `stage` is `settings` (an invalid entry), `port` (not opened), `heard` (no record of this kind)
    or `done`. `watts` are means by channel. `period_s` is the mean time between records, `due_s`
    the expected one. `over_range` counts records.
    """

    stage: str
    error: str = ""
    errno: int = 0
    device: str = ""
    records: int = 0
    period_s: float = 0.0
    due_s: float = 0.0
    watts: Mapping[str, float] = field(default_factory=dict)
    over_range: int = 0
    gaps: int = 0


def probe(meter: MeterEntry) -> Probe:
    """Record a meter for a few seconds; its faults are returned, not raised."""
    from instrumentation.ports import Lookup, is_network
    from instrumentation.recorder import Recorder
    from instrumentation.recorder_port import RecorderError, cannot_open, check_meter, driver_of

    try:
        driver = driver_of(meter := check_meter(meter))
    except RecorderError as error:
        return Probe("settings", str(error))
    try:
        device = Lookup(meter.port, driver.usb_ids).device()
        if not is_network(device):
            os.close(os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return Probe("port", str(cannot_open(meter, error, "")), error.errno or 0)
    heard_s = max(LEAST_S, RECORDS * driver.period_s)
    with tempfile.TemporaryDirectory(prefix="fde-probe-") as folder:
        out = Path(folder)
        enough = _end_condition(out / "status.json", heard_s, driver.period_s)
        try:
            Recorder(meter, out, out / "status.json").run(enough)
        except RecorderError as error:
            return Probe("heard", str(error), device=device)
        return _evaluate(out, device, driver.period_s)


def probe_all(meters: Sequence[MeterEntry]) -> dict[str, Probe]:
    """Probe all meters of a target at the same time; return the results by name."""
    if not meters:
        return {}
    with ThreadPoolExecutor(len(meters)) as pool:
        return dict(zip([meter.name for meter in meters], pool.map(probe, meters), strict=True))


def _end_condition(status: Path, heard_s: float, period_s: float) -> Callable[[], bool]:
    """Return a function that is true once a recording is long enough, or the limit has passed."""
    limit_at_s = time.monotonic() + LIMIT_S + 10 * period_s
    first_ns = 0

    def stopped() -> bool:
        nonlocal first_ns
        heard = False
        if state := strict_json.load(RecorderStatus, status):
            first_ns = first_ns or (state.t_mono_ns if state.records else 0)
            heard = bool(first_ns) and state.t_mono_ns - first_ns > heard_s * 1e9
        return heard or time.monotonic() > limit_at_s

    return stopped


def _evaluate(folder: Path, device: str, due_s: float) -> Probe:
    """Compute the result of a recording."""
    from instrumentation.decode import decode

    decoded = decode(folder)
    rows = decoded.samples
    if len(rows) < 2:
        return Probe("heard", "Fewer than two records came.", device=device, due_s=due_s)
    times = rows["t_mono_ns"]
    powers = [c for c in rows.columns if c.startswith("power_w_")]
    shown = {c.removeprefix("power_w_"): rows[c] for c in powers}
    return Probe(
        "done",
        device=device,
        records=len(rows),
        period_s=(times[-1] - times[0]) / (len(rows) - 1) / 1e9,
        due_s=due_s,
        watts={channel: float(power.to_numpy().mean()) for channel, power in shown.items()},
        over_range=sum("over-range" in flags for flags in rows["flags"]),
        gaps=sum(fault.kind == "gap" for fault in decoded.faults),
    )
