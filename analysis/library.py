"""A suite for programs and notebooks: its runs, joules, power, contrasts and payback.

A façade: every figure is that of the report, computed by the same functions. Tables are Polars
data frames; `to_pandas` converts them. Names outside `analysis.__all__` may change.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from analysis.columns import schema
from analysis.energy.energy import RAPL, run_edges
from analysis.energy.windows import Windows, fit, windows
from analysis.money import costs
from analysis.published.tables import claim_table, figure_table
from analysis.report import first_page, render
from analysis.stats.contrasts import contrast_table
from analysis.stats.results import Results, results
from analysis.suite import bundle, records
from analysis.suite.records import Meter, Run, SuiteError
from analysis.suite.suite_folder import rapl_samples
from contract.assumptions import Assumptions
from contract.estimates import ends
from contract.names import unknown_name
from instrumentation.sources.counter import difference
from instrumentation.sources.zones import default_max_power_w

if TYPE_CHECKING:
    import pandas as pd

_fit = lru_cache(maxsize=8)(fit)  # one pass over a whole recording
SPANS = [
    "runs",
    "years",
    "kwh_per_year",
    "saving_per_year",
    "net_present_value",
    "break_even_price",
    "break_even_electricity",
]
RUNS = schema("run_id block:i workload configuration state reason started duration_s:f origin")
PHASES = schema("phase start_ns:i end_ns:i start_s:f end_s:f")
POWER = schema("source component start_ns:i end_ns:i start_s:f end_s:f power_w:f")
_SPAN_COLUMNS = " ".join(
    f"{name}{end}:f" for name in ("saving_j", *SPANS) for end in ("", "_low", "_high")
)
PAYBACK = schema(
    "workload against drive assumed:b component n:i runs_per_day:f demonstrated:b "
    f"{_SPAN_COLUMNS} probability:f after_work origin"
)
WORKS = schema(
    "workload phase configuration unit runs:i planned:f reported:f counted:f disk_read_bytes:f "
    "disk_written_bytes:f disk_discarded_bytes:f mapping_read_bytes:f mapping_written_bytes:f "
    "codes:l"
)
BATTERY = schema("workload configuration energy_j:f runs:f runs_low:f runs_high:f origin")
BATTERY_HOURS = schema(
    "configuration hours:f hours_low:f hours_high:f lost_min:f lost_min_low:f lost_min_high:f "
    "idle_share:f n:i origin"
)


@dataclass(frozen=True, eq=False, repr=False)
class Suite:
    """One suite, as the report sees it.

    >>> suite = Suite.open(folder)
    >>> suite.origin, suite.baseline, suite.component
    ('modelled', 'plain', 'system')
    >>> suite.runs.height, suite.configurations
    (16, ['plain', 'opal', 'dmcrypt-aes128', 'dmcrypt-aes256'])

    All figures are from `results`, whose types are not part of the library.
    """

    results: Results

    @classmethod
    def open(cls, path: str | Path) -> Suite:
        """Read a suite's folder or bundle and compute its figures; nothing is written.

        A bundle is unpacked among temporary files while the suite is in use. Raises SuiteError
        if it is not a suite; the message names the remedy.

        >>> Suite.open("nowhere")
        Traceback (most recent call last):
        analysis.suite.records.SuiteError: There is no suite folder or bundle nowhere: ...
        """
        if not Path(path).is_file():
            return cls(results(Path(path)))
        place = tempfile.mkdtemp(prefix="fde-bundle-")
        try:
            suite = cls(results(bundle.unpack(Path(path), Path(place))[0]))
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        weakref.finalize(suite, shutil.rmtree, place, ignore_errors=True)
        return suite

    def __repr__(self) -> str:
        return f"<Suite {self.id}: {self.origin}, {self.runs.height} runs>"

    @property
    def id(self) -> str:
        """The suite's name, as in its plan."""
        return self.results.suite.suite_id

    @property
    def origin(self) -> str:
        """The worst origin of any of its figures: `measured`, `modelled` or `synthetic`."""
        return self.results.origin

    @property
    def problems(self) -> Sequence[str]:
        """Sentences on what is missing or cannot be trusted; the report shows them too."""
        return (*self.results.suite.problems, *self.results.reservations)

    @property
    def answer(self) -> str:
        """The report's first lines as text: cost, payback, battery, trust and the next step."""
        lines = first_page.lines(self.results, self.results.suite.folder)
        return render.text((*first_page.origin_note(self.origin), *first_page.blocks(lines)))

    @property
    def workloads(self) -> list[str]:
        """Names in the plan's order, without the drift check."""
        return self.results.suite.workloads

    @property
    def configurations(self) -> list[str]:
        """Names in the plan's order."""
        return self.results.suite.configurations

    @property
    def baseline(self) -> str | None:
        """The configuration that ratios are to; None if the plan has none that qualifies."""
        return self.results.suite.baseline

    @property
    def assumptions(self) -> Assumptions | None:
        """The assumptions of the payback; None if the plan declares none."""
        return self.results.suite.assumptions

    @property
    def component(self) -> str:
        """The component of the verdicts: the whole system if a meter saw it, else the next."""
        return self.results.family.component

    @cached_property
    def runs(self) -> pl.DataFrame:
        """A row for each run; `state` is `finished`, `void` or `skipped`, with the `reason`.

        >>> Suite.open(folder).runs.columns[:5]
        ['run_id', 'block', 'workload', 'configuration', 'state']
        """
        suite = self.results.suite
        rows: list[tuple[object, ...]] = [
            (*_PLACE(run), "finished", None, run.started_wall, seconds, run.origin)
            for run in suite.runs
            for seconds in [(run.t_end_ns - run.t_start_ns) / 1e9]
        ]
        for state, runs in (("void", suite.void), ("skipped", suite.skipped)):
            rows += [(*_PLACE(run), state, run.reason, None, None, None) for run in runs]
        return pl.DataFrame(rows, schema=RUNS, orient="row").sort("run_id")

    @property
    def energy(self) -> pl.DataFrame:
        """A row a run × phase × component, as measured (columns: data/README.md, energy.parquet).

        If several meters saw a component, only the one that is compared.

        >>> energy = Suite.open(folder).energy
        >>> energy.filter(phase="all", component="system").height
        16
        """
        return self.results.measured_energy

    @property
    def compared_energy(self) -> pl.DataFrame:
        """Return `energy` for equal work, from which summary, contrasts and payback are computed.

        It is `energy` itself unless phases end by time or configurations did unequal work; then
        these phases have the joules, seconds and counts of the baseline's mean amount of work.

        >>> suite = Suite.open(folder)
        >>> suite.compared_energy.equals(suite.energy)
        True
        """
        return self.results.energy

    def work(self) -> pl.DataFrame:
        """Return the account of work: planned, reported by the program, counted, seen by the disk.

        A row for each workload × phase × configuration × unit, medians over the finished runs;
        `codes` name differences. Empty if the runs have no such account.

        >>> Suite.open(folder).work().height
        0
        """
        rows = [asdict(work) for work in self.results.works]
        return pl.DataFrame(rows, schema=WORKS, orient="row")

    @property
    def summary(self) -> pl.DataFrame:
        """Return mean joules, ratio to the baseline and verdict, by workload and configuration.

        A row for each workload × configuration × component (columns: data/README.md,
        summary.parquet).

        >>> Suite.open(folder).summary.filter(component="system", workload="sql")["n"].to_list()
        [2, 2, 2, 2]
        """
        return self.results.summary

    def phases(self, run: str) -> pl.DataFrame:
        """Return the phases of a finished run.

        `start_ns` and `end_ns` are on the controller's monotonic clock (null if no clock reading
        places them), `start_s` is since the run's start.

        >>> suite = Suite.open(folder)
        >>> suite.phases(suite.runs["run_id"][0]).columns
        ['phase', 'start_ns', 'end_ns', 'start_s', 'end_s']
        """
        finished = self._run(run)
        edges = run_edges(finished, self.results.suite.plan, self.results.clock)
        placed = {t: edge.t_ns for t, edge in edges.items()}
        edges_of = ((phase.name, (phase.t_start_ns, phase.t_end_ns)) for phase in finished.phases)
        rows = [
            (name, *map(placed.get, at), *((t - finished.t_start_ns) / 1e9 for t in at))
            for name, at in edges_of
        ]
        return pl.DataFrame(rows, schema=PHASES, orient="row")

    def power(self, run: str, around_s: float = 0.0) -> pl.DataFrame:
        """Return raw power over time of a finished run and `around_s` seconds around it.

        A row for each window: the mean power from `start_s` to `end_s` since the run's start.
        Meters' windows are those that the joules are computed from, on the controller's clock
        (`start_ns`, `end_ns`), gaps included; RAPL's are between two samples of its counter.
        Raises SuiteError if there is no such run.

        >>> suite = Suite.open(folder)
        >>> power = suite.power(suite.runs["run_id"][0])
        >>> sorted(power["component"].unique())
        ['dram', 'drive', 'package-0', 'system']
        """
        finished, clock = self._run(run), self.results.clock
        around_ns = round(around_s * 1e9)
        start, end = (
            clock.to_controller_ns(finished.boot_id, t)
            for t in (finished.t_start_ns, finished.t_end_ns)
        )
        frames = [pl.DataFrame(schema=POWER)]
        if start is not None and end is not None:
            for meter in self.results.suite.meters:
                timing = _fit(meter.samples, meter.timing, meter.arrival_delay_limit_s)
                for part in windows(meter.samples, timing, meter.channels):
                    frames += _meter_rows(meter, part, start, (start - around_ns, end + around_ns))
        frames.append(pl.DataFrame(list(self._rapl_rows(finished)), schema=POWER, orient="row"))
        return pl.concat(frames)

    def contrasts(self) -> pl.DataFrame:
        """Return contrasts of two configurations over all working workloads, declared ones first.

        `ratio` is of the joules; it is the product of `time` and `power`, the ratios of time and of
        mean power, which have no verdict.

        >>> contrasts = Suite.open(folder).contrasts()
        >>> contrasts.select("base", "other", "n").rows()[0]
        ('plain', 'opal', 2)
        """
        return contrast_table(self.results.contrasts)

    def claims(self) -> pl.DataFrame:
        """Return the ratios of the papers' claims that the suite has, each claim with its verdict.

        A row for each ratio (columns: data/README.md, claims.csv). Under other conditions than the
        paper's it is `not comparable`, and they stand in `differs`; modelled figures agree or
        disagree with their model alone.

        >>> set(Suite.open(folder).claims()["paper"])
        {'fujimoto'}
        """
        return claim_table(self.results)

    def published(self) -> pl.DataFrame:
        """Return the papers' figures with a counterpart in the suite, and its own, in their units.

        A row for each figure: `published` as printed, `ours` with its interval, both ratios to the
        same base, `verdict` on their agreement, and the conditions that differ.

        >>> Suite.open(folder).published().columns[:4]
        ['paper', 'place', 'subject', 'operation']
        """
        return figure_table(self.results)

    def payback(self, **assumptions: object) -> pl.DataFrame:
        """Compare the self-encrypting disk with each software, by workload and duty profile.

        Figures have 95 % intervals (`…_low`, `…_high`); `break_even_price` is the most that the
        `drive` may cost more. If it is `assumed`, none was measured, and the disk without
        encryption stands for it. Arguments replace the assumptions of the
        plan (`assumptions` has their names). Figures divided by the saving are null unless the
        saving's whole interval is above 0. Empty if nothing can be compared. Raises SuiteError
        for an unknown assumption or an invalid value.

        >>> suite = Suite.open(folder)
        >>> plan, dear = suite.payback(), suite.payback(sed_extra_price=50.0)
        >>> (dear["runs"] / plan["runs"]).round(9).to_list()
        [2.0, 2.0]
        >>> suite.payback(price=1)
        Traceback (most recent call last):
        analysis.suite.records.SuiteError: There is no assumption called 'price'; ...
        """
        suite = self._assuming(assumptions)
        paybacks = costs.paybacks(suite, self.results.energy)
        a = suite.assumptions
        if a is not None and (a.duty or a.hours_per_day):
            paybacks = [*costs.profiles(suite, self.results.energy), *paybacks]
        rows: list[tuple[object, ...]] = []
        for p in paybacks:
            spans = (p.saving_j, *(getattr(p, name) for name in SPANS))
            figures = (end for span in spans for end in ends(span))
            pair = p.workload, p.against, p.drive, p.assumed, p.component
            work = p.saving_j.n, p.runs_per_day, p.demonstrated
            rows.append((*pair, *work, *figures, p.probability, p.after_work, p.origin))
        return pl.DataFrame(rows, schema=PAYBACK, orient="row")

    def battery(self, **assumptions: object) -> pl.DataFrame:
        """Return the runs that a full battery supports, by workload and configuration.

        Assumptions are replaced as in `payback`.

        >>> Suite.open(folder).battery(battery_wh=50.0)["workload"].unique().to_list()
        ['sql']
        """
        rows = [
            (b.workload, b.configuration, b.energy_j.mean, *ends(b.runs), b.origin)
            for b in costs.batteries(self._assuming(assumptions), self.results.energy)
        ]
        return pl.DataFrame(rows, schema=BATTERY, orient="row")

    def battery_hours(self, **assumptions: object) -> pl.DataFrame:
        """Return hours on a battery at the declared `battery_hour`, and minutes lost to the base.

        A row for each configuration; assumptions are replaced as in `payback`.
        """
        rows = [
            (b.configuration, *ends(b.hours), *ends(b.lost_min), b.idle_share, b.n, b.origin)
            for b in costs.battery_hours(self._assuming(assumptions), self.results.energy)
        ]
        return pl.DataFrame(rows, schema=BATTERY_HOURS, orient="row")

    def _assuming(self, changes: Mapping[str, object]) -> records.Suite:
        """Return the suite with some of its assumptions replaced."""
        return costs.assuming(self.results.suite, changes)

    def _run(self, run_id: str) -> Run:
        finished = {run.run_id: run for run in self.results.suite.runs}
        if run_id not in finished:
            raise SuiteError(unknown_name("finished run", run_id, finished))
        return finished[run_id]

    def _rapl_rows(self, run: Run) -> Iterator[tuple[object, ...]]:
        ranges = {c.zone: c.max_range_uj for phase in run.phases for c in phase.counters}
        clock = self.results.clock
        for zone, readings in rapl_samples(self.results.suite, run.run_id).items():
            for a, b in pairwise(readings):
                step = difference(a, b, ranges.get(zone), default_max_power_w(zone))
                t_a, t_b = ((r.t_before_ns + r.t_after_ns) // 2 for r in (a, b))
                if step.energy_uj is None or t_b <= t_a:
                    continue
                placed = (clock.to_controller_ns(run.boot_id, t) for t in (t_a, t_b))
                since = ((t - run.t_start_ns) / 1e9 for t in (t_a, t_b))
                yield RAPL, zone, *placed, *since, step.energy_uj * 1e3 / (t_b - t_a)


def to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    """Convert a table of this library to a pandas data frame; needs pandas.

    Polars's own `table.to_pandas()` does the same if pyarrow is installed too.

    >>> to_pandas(Suite.open(folder).contrasts())["other"].to_list()[:2]
    ['opal', 'dmcrypt-aes128']
    """
    import pandas as pd

    return pd.DataFrame({name: table[name].to_numpy() for name in table.columns})


def _meter_rows(
    meter: Meter, part: Windows, start_ns: int, stretch_ns: tuple[int, int]
) -> Iterator[pl.DataFrame]:
    """Yield the windows that overlap a stretch by channel; seconds count from `start_ns`."""
    inside = (part.end_ns > stretch_ns[0]) & (part.start_ns < stretch_ns[1])
    if not inside.any():
        return
    begin, end = part.start_ns[inside], part.end_ns[inside]
    for channel in meter.channels:
        frame = pl.DataFrame(
            {
                "source": meter.name,
                "component": channel,
                "start_ns": begin,
                "end_ns": end,
                "start_s": (begin - start_ns) / 1e9,
                "end_s": (end - start_ns) / 1e9,
                "power_w": part.power_w[channel][inside],
            }
        )
        yield frame.cast(POWER)  # type: ignore[arg-type]


_PLACE = attrgetter("run_id", "block", "workload", "configuration")  # of a run
