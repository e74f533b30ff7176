"""Recording of external meters during a measurement, and their joules over runs and rests.

NumPy, Polars and the recorders are imported only if there is a meter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from contract import schema
from contract.errors import ControllerError
from contract.measured_command import Component
from controller.measured_command.evaluate import RawTrial, Span
from instrumentation.clock import monotonic_ns
from instrumentation.sources.local import Used

if TYPE_CHECKING:
    from contract.plan import MeterEntry
    from controller.session.recorders import Recorders
    from instrumentation.accuracy import ErrorTerm

SETTLE_PERIODS = 3
GAP_NS = 50_000_000  # most between a run and the next rest, while counters are read


@contextmanager
def record_meters(
    entries: Sequence[MeterEntry | Mapping[str, object]], keep: Path | None
) -> Iterator[Meters]:
    """Record meters while the context is open, into `keep` or a temporary folder.

    The entries are those of an inventory, also as mappings. Raises ControllerError if one is
    invalid or its meter silent.
    """
    with TemporaryDirectory(prefix="fde-measure-") as temporary:
        meters = Meters(entries, keep or Path(temporary))
        with meters.recorders or nullcontext():
            yield meters


class Meters:
    """Meters that are recorded into a folder."""

    def __init__(self, entries: Sequence[MeterEntry | Mapping[str, object]], folder: Path) -> None:
        if any(folder.glob("meters/*")):
            raise ControllerError("folder-recorded", folder=folder)
        self._entries: list[MeterEntry] = []
        self._folder = folder
        self.incidents: list[str] = []  # messages about recorders that ended
        self.recorders: Recorders | None = None
        if entries:
            from contract.plan import MeterEntry
            from controller.session.recorders import Recorders
            from instrumentation import decode  # noqa: F401 - refused now, not after the last run

            self._entries = [schema.read(MeterEntry, schema.write(entry)) for entry in entries]
            self.recorders = Recorders(self._entries, folder, self.incidents.append)
        self.only_w: dict[str, float] = {}  # the power of components that showed only one
        self.late_s: dict[str, float] = {}  # stated most delays by component
        self.terms: dict[str, Sequence[ErrorTerm]] = {}  # stated errors by component
        # A second one of a name has its meter's name, too.
        self.components: dict[str, Component] = {}
        for entry in self._entries:
            for channel in entry.channels.values():
                label = f"{channel} (meter {entry.name})"
                name = f"{entry.name}/{channel}" if channel in self.components else channel
                self.components[name] = Component(f"meter {entry.name}", label, entry.origin)

    def energies(self, trials: Sequence[RawTrial]) -> dict[Span, dict[str, Used]]:
        """Return the joules by span (of runs and the rests before them) and component.

        Waits until the meters have reported the end of the last run.
        """
        if not self._entries:
            return {}
        spans = {raw.span: raw.command for raw in trials}
        rests = [raw.rest_span for raw in trials if raw.rest_span]
        from analysis.energy.curve import Edge
        from analysis.energy.metered import UNSURE_FLAG, Metered
        from analysis.energy.plausibility import STEP_FLAG
        from analysis.energy.windows import Remarks
        from analysis.suite import recordings
        from instrumentation.recorder_port import driver_of

        drivers = [driver_of(entry) for entry in self._entries]
        settle_s = max(d.arrival_delay_limit_s + SETTLE_PERIODS * d.period_s for d in drivers)
        last_ns = max(end for _, end in spans)
        time.sleep(max(0.0, settle_s - (monotonic_ns() - last_ns) * 1e-9))
        problems: list[str] = []
        meters = list(
            recordings.meters(recordings.read(self._folder, True, problems), {}, problems)
        )
        if len(meters) < len(self._entries):
            raise ControllerError("recording-unread", problems=" ".join(problems))
        rest_starts = {end: start for start, end in rests}
        edges = set()
        for start, end in spans:
            rest_ns = start - rest_starts.get(start, start)
            edges.add(Edge(start, "before" if rest_ns else None, rest_ns))
            following_ns = following_rest_ns(end, rests)
            edges.add(Edge(end, "after" if following_ns else None, following_ns))
        energies: dict[Span, dict[str, Used]] = {span: {} for span in (*spans, *rests)}
        for meter in meters:
            late_s = meter.arrival_delay_limit_s
            quiet = {rest: quiet_span(rest, late_s) for rest in rests}
            metered = Metered.from_samples(
                *(meter.samples, meter.timing, late_s, meter.channels),
                edges | {Edge(start) for start, _ in quiet.values()},
                terms=meter.terms,
                begun_ns=[end for _, end in rests],
            )
            remarks = Remarks.from_samples(meter.samples)
            for own_name, channel in zip(meter.own_names, meter.channels, strict=True):
                name = f"{meter.name}/{channel}"
                name = name if name in self.components else channel
                self.terms[name], self.late_s[name] = meter.terms, late_s
                if (power_w := metered.only_w.get(channel)) is not None:
                    self.only_w[name] = power_w
                phases = ((command, *span) for span, command in spans.items())
                stepped = [STEP_FLAG] * metered.is_stepped(channel, phases)
                for span, readings in energies.items():
                    start, end = quiet.get(span, span)
                    energy = metered.energy(channel, [(start, end)], refuse_short=True)
                    flags = [*energy.flags, *remarks.during(start, end, own_name, meter.own_names)]
                    flags += [UNSURE_FLAG] * (energy.unsure and span in spans) + stepped
                    seconds, unique = (end - start) * 1e-9, tuple(dict.fromkeys(flags))
                    readings[name] = Used(energy.energy_j, seconds, unique, energy.coverage)
        return energies


def quiet_span(rest: Span, late_s: float) -> Span:
    """Cut the begin off a rest, where a meter may still report the run before; at most a half."""
    start, end = rest
    return start + min(round(late_s * 1e9), (end - start) // 2), end


def following_rest_ns(end_ns: int, rests: Sequence[Span]) -> int:
    """Return how long a rest that directly follows a run lasts, or 0 without one."""
    following = (until - end_ns for start, until in rests if 0 <= start - end_ns <= GAP_NS)
    return next(following, 0)
