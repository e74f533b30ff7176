"""External meters recorded beside the command, and their joules over its runs.

Their records are read with numpy and Polars, which are imported only where there is a meter.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from contract import schema
from contract.errors import ControllerError
from contract.measured_command import Component
from controller.measured_command.sources import Used
from instrumentation.clock import monotonic_ns

if TYPE_CHECKING:
    from analysis.suite.records import Meter as Records
    from contract.plan import MeterEntry
    from controller.session.recorders import Recorders
    from instrumentation.accuracy import ErrorTerm

Span = tuple[int, int]  # start and end in ns of the monotonic clock, which recorder and we share
SETTLE_PERIODS = 3
AT_ONCE_NS = 50_000_000  # between a run and the next rest, while counters are read


class Meters:
    """The meters of an inventory, recorded while the context lasts.

    The records go into `keep`, or into a folder that goes with the context. Raises ControllerError
    where one is silent or wrongly described. Entries may be mappings, as an inventory has them.
    """

    def __init__(
        self, entries: Sequence[MeterEntry | Mapping[str, object]], keep: Path | None
    ) -> None:
        self._entries: list[MeterEntry] = []
        if entries:
            from contract.plan import MeterEntry

            self._entries = [schema.read(MeterEntry, schema.write(entry)) for entry in entries]
        self._keep = keep
        self._stack = ExitStack()
        self._folder = Path()
        self._recorders: Recorders | None = None
        self.incidents: list[str] = []  # clauses on recorders that ended
        self.only_w: dict[str, float] = {}  # by component that showed one power alone, that power

    def __enter__(self) -> Meters:
        with ExitStack() as stack:
            if self._entries:
                self._folder = self._keep or Path(
                    stack.enter_context(TemporaryDirectory(prefix="fde-run-"))
                )
                if any(self._folder.glob("meters/*")):
                    raise ControllerError("folder-recorded", folder=self._folder)
                from controller.session.recorders import Recorders

                recorders = Recorders(self._entries, self._folder, self.incidents.append)
                self._recorders = stack.enter_context(recorders)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tend(self) -> None:
        """Start recorders again that have ended, which `incidents` has."""
        if self._recorders is not None:
            self._recorders.tend()

    @property
    def components(self) -> dict[str, Component]:
        """Channels by name; the second of two with the same name is led by its meter's."""
        components: dict[str, Component] = {}
        for entry in self._entries:
            for channel in entry.channels.values():
                label = f"{channel} (meter {entry.name})"
                name = f"{entry.name}/{channel}" if channel in components else channel
                components[name] = Component(f"meter {entry.name}", label, entry.origin)
        return components

    def terms(self, component: str) -> tuple[ErrorTerm, ...]:
        """Return the stated errors of a component's meter; none for a counter."""
        if component not in self.components:
            return ()
        from instrumentation.recorder_port import driver_of

        entries = {f"meter {entry.name}": entry for entry in self._entries}
        return driver_of(entries[self.components[component].source]).accuracy.terms

    def energies(
        self, spans: Mapping[Span, int], rests: Sequence[Span]
    ) -> dict[Span, dict[str, Used]]:
        """Return the joules by span (runs, and the rests before them) and component.

        `spans` are the runs with the number of their command. Waits until the meters have reported
        the last one.
        """
        if not self._entries or not spans:
            return {}
        from analysis.energy.curve import Edge
        from analysis.energy.gain_steps import STEP_FLAG
        from analysis.energy.metered import UNSURE_FLAG, Metered
        from analysis.energy.windows import Remarks

        meters = self._read(spans)
        resting = {end: start for start, end in rests}
        resting_spans = set(rests)
        edges = set()
        for start, end in spans:
            rest_ns = start - resting.get(start, start)
            edges.add(Edge(start, "before" if rest_ns else None, rest_ns))
            behind_ns = _rest_behind_ns(end, rests)
            edges.add(Edge(end, "after" if behind_ns else None, behind_ns))
        energies: dict[Span, dict[str, Used]] = {span: {} for span in (*spans, *rests)}
        for meter in meters:
            quiet = {rest: _quiet(rest, meter.arrival_delay_limit_s) for rest in rests}
            every = edges | {Edge(start) for start, _ in quiet.values()}
            metered = Metered.of(
                *(meter.samples, meter.timing, meter.arrival_delay_limit_s, meter.channels, every),
                terms=meter.terms,
            )
            remarks = Remarks.of(meter.samples)
            for meter_channel, channel in zip(meter.own_names, meter.channels, strict=True):
                name = f"{meter.name}/{channel}"
                name = name if name in self.components else channel
                if (power_w := metered.only_w.get(channel)) is not None:
                    self.only_w[name] = power_w
                phases = ((command, *span) for span, command in spans.items())
                step_flags = [STEP_FLAG] if metered.is_stepped(channel, phases) else []
                for span, used in energies.items():
                    start, end = quiet.get(span, span)
                    energy = metered.energy(channel, [(start, end)], refuse_short=True)
                    remark_flags = remarks.during(start, end, meter_channel, meter.own_names)
                    unsure = [UNSURE_FLAG] if energy.unsure and span not in resting_spans else []
                    flags = tuple(
                        dict.fromkeys((*energy.flags, *remark_flags, *unsure, *step_flags))
                    )
                    seconds = (end - start) * 1e-9
                    used[name] = Used(energy.energy_j, seconds, flags, energy.coverage)
        return energies

    def _read(self, spans: Iterable[Span]) -> list[Records]:
        from analysis.suite import recordings
        from instrumentation.recorder_port import driver_of

        problems: list[str] = []
        last_ns = max(end for _, end in spans)
        drivers = [driver_of(entry) for entry in self._entries]  # each has an instant after so long
        settle_s = max(d.arrival_delay_limit_s + SETTLE_PERIODS * d.period_s for d in drivers)
        time.sleep(max(0.0, settle_s - (monotonic_ns() - last_ns) * 1e-9))
        parts = recordings.read(self._folder, True, problems)
        meters = list(recordings.meters(parts, {}, problems))
        if len(meters) < len(self._entries):
            raise ControllerError("recording-unread", problems=" ".join(problems))
        return meters


def _quiet(rest: Span, late_s: float) -> Span:
    """Return a rest without what a meter still reports of the run before it, at least a half."""
    start, end = rest
    return start + min(round(late_s * 1e9), (end - start) // 2), end


def _rest_behind_ns(end_ns: int, rests: Sequence[Span]) -> int:
    """Return the length of the next run's rest, where that follows at once; else 0."""
    for start_ns, until_ns in rests:
        if 0 <= start_ns - end_ns <= AT_ONCE_NS:
            return until_ns - end_ns
    return 0
