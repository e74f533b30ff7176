"""External meters recorded beside the command, and their joules over its runs.

Their records are read with numpy and Polars, which are imported only where there is a meter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from contract import schema
from contract.errors import ControllerError
from contract.measured_command import Component
from contract.plan import MeterEntry
from controller.measured_command.evaluate import RawTrial, Span
from controller.session.recorders import Recorders
from instrumentation.clock import monotonic_ns
from instrumentation.sources.local import Used

if TYPE_CHECKING:
    from instrumentation.accuracy import ErrorTerm

SETTLE_PERIODS = 3
AT_ONCE_NS = 50_000_000  # between a run and the next rest, while counters are read


@contextmanager
def recorded(
    entries: Sequence[MeterEntry | Mapping[str, object]], keep: Path | None
) -> Iterator[Meters]:
    """Record the meters of an inventory, into `keep` or a folder that goes with the context.

    Raises ControllerError where one is silent or wrongly described. Entries may be mappings, as an
    inventory has them.
    """
    with TemporaryDirectory(prefix="fde-measure-") as temporary:
        meters = Meters(entries, keep or Path(temporary))
        with meters.recorders:
            yield meters


class Meters:
    """Meters that are recorded into a folder."""

    def __init__(self, entries: Sequence[MeterEntry | Mapping[str, object]], folder: Path) -> None:
        if any(folder.glob("meters/*")):
            raise ControllerError("folder-recorded", folder=folder)
        self._entries = [schema.read(MeterEntry, schema.write(entry)) for entry in entries]
        self._folder = folder
        self.incidents: list[str] = []  # clauses on recorders that ended
        self.recorders = Recorders(self._entries, folder, self.incidents.append)
        self.only_w: dict[str, float] = {}  # by component that showed one power alone, that power
        self.terms: dict[str, Sequence[ErrorTerm]] = {}  # by component, the stated errors
        self.components: dict[str, Component] = {}  # of two of one name the second has its meter's
        for entry in self._entries:
            for channel in entry.channels.values():
                label = f"{channel} (meter {entry.name})"
                name = f"{entry.name}/{channel}" if channel in self.components else channel
                self.components[name] = Component(f"meter {entry.name}", label, entry.origin)

    def energies(self, done: Sequence[RawTrial]) -> dict[Span, dict[str, Used]]:
        """Return the joules by span (runs, and the rests before them) and component.

        Waits until the meters have reported the last one.
        """
        if not self._entries:
            return {}
        spans = {raw.span: raw.command for raw in done}
        rests = [raw.rest for raw in done if raw.rest]
        from analysis.energy.curve import Edge
        from analysis.energy.metered import UNSURE_FLAG, Metered
        from analysis.energy.plausibility import STEP_FLAG
        from analysis.energy.windows import Remarks
        from analysis.suite import recordings
        from instrumentation.recorder_port import driver_of

        drivers = [driver_of(entry) for entry in self._entries]  # each has an instant after so long
        settle_s = max(d.arrival_delay_limit_s + SETTLE_PERIODS * d.period_s for d in drivers)
        last_ns = max(end for _, end in spans)
        time.sleep(max(0.0, settle_s - (monotonic_ns() - last_ns) * 1e-9))
        problems: list[str] = []
        meters = list(
            recordings.meters(recordings.read(self._folder, True, problems), {}, problems)
        )
        if len(meters) < len(self._entries):
            raise ControllerError("recording-unread", problems=" ".join(problems))
        begun = {end: start for start, end in rests}
        edges = set()
        for start, end in spans:
            rest_ns = start - begun.get(start, start)
            edges.add(Edge(start, "before" if rest_ns else None, rest_ns))
            behind_ns = _rest_behind_ns(end, rests)
            edges.add(Edge(end, "after" if behind_ns else None, behind_ns))
        energies: dict[Span, dict[str, Used]] = {span: {} for span in (*spans, *rests)}
        for meter in meters:
            late_s = meter.arrival_delay_limit_s
            quiet = {rest: _quiet(rest, late_s) for rest in rests}
            metered = Metered.from_samples(
                *(meter.samples, meter.timing, late_s, meter.channels),
                edges | {Edge(start) for start, _ in quiet.values()},
                terms=meter.terms,
            )
            remarks = Remarks.from_samples(meter.samples)
            for own_name, channel in zip(meter.own_names, meter.channels, strict=True):
                name = f"{meter.name}/{channel}"
                name = name if name in self.components else channel
                self.terms[name] = meter.terms
                if (power_w := metered.only_w.get(channel)) is not None:
                    self.only_w[name] = power_w
                phases = ((command, *span) for span, command in spans.items())
                stepped = [STEP_FLAG] * metered.is_stepped(channel, phases)
                for span, used in energies.items():
                    start, end = quiet.get(span, span)
                    energy = metered.energy(channel, [(start, end)], refuse_short=True)
                    flags = [*energy.flags, *remarks.during(start, end, own_name, meter.own_names)]
                    flags += [UNSURE_FLAG] * (energy.unsure and span in spans) + stepped
                    seconds, once = (end - start) * 1e-9, tuple(dict.fromkeys(flags))
                    used[name] = Used(energy.energy_j, seconds, once, energy.coverage)
        return energies


def _quiet(rest: Span, late_s: float) -> Span:
    """Return a rest without what a meter still reports of the run before it, at least a half."""
    start, end = rest
    return start + min(round(late_s * 1e9), (end - start) // 2), end


def _rest_behind_ns(end_ns: int, rests: Sequence[Span]) -> int:
    """Return the length of the next run's rest, where that follows at once; else 0."""
    behind = (until - end_ns for start, until in rests if 0 <= start - end_ns <= AT_ONCE_NS)
    return next(behind, 0)
