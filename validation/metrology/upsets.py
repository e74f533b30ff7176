"""Whether stuck readings, duplicate records and restarted counters are flagged.

Stuck: 5 s of one value within a phase of 30 to 120 s. Twice: one record of a meter that numbers
none; one record in a thousand is lost. Begun again: a RAPL counter, sampled as the agent
does, at any place of a phase. The false alarms are those of the same recordings left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from analysis.energy.energy import SAMPLES_TELL, counter_energy
from analysis.energy.plausibility import STUCK_FLAG
from analysis.energy.windows import DUPLICATE_FLAG
from analysis.suite.records import Counter
from instrumentation.sources.counter import Reading, total
from validation.bench import Figure, at_least, at_most
from validation.metrology.loads import (
    AROUND,
    INSTRUMENTS,
    Instrument,
    integrated,
    realistic,
    records,
)

SEED = 20_261_125
STUCK_S = 5.0
DROPPED = 0.001
COPY_NS = 200_000
RANGE_UJ = 262_143_328_850  # of a unit of 2^-14 J
SAMPLE_S = 0.1
LEAST_FOUND, MOST_ALARMS = 0.99, 1e-5


def measure(quick: bool = False) -> list[Figure]:
    """Return the shares found, and false alarms per record."""
    count = 4 if quick else 300
    figures = []
    for meter in INSTRUMENTS:
        generator = np.random.default_rng(SEED)
        figures += _count_flagged(
            f"stuck for {STUCK_S:g} s", meter, generator, count, (STUCK_FLAG, _stuck)
        )
        if meter.timing == "index":
            figures += _count_flagged(
                "record twice", meter, generator, count, (DUPLICATE_FLAG, _twice)
            )
    detected, alarms, records = _begun_again(np.random.default_rng(SEED), 10 * count)
    return figures + _figures("RAPL counter begun again within a phase", detected, alarms / records)


def _figures(title: str, detected: float, alarms: float) -> list[Figure]:
    return [
        at_least(f"{title}: found", detected, "share", LEAST_FOUND),
        at_most(f"{title}: false alarms per record", alarms, "share", MOST_ALARMS),
    ]


Phase = tuple[float, float]  # its start and end in s
Upset = Callable[[pl.DataFrame, Phase, np.random.Generator], pl.DataFrame]


def _count_flagged(
    title: str,
    meter: Instrument,
    generator: np.random.Generator,
    count: int,
    upset: tuple[str, Upset],
) -> list[Figure]:
    """Count the flags with and without the upset of a recording."""
    flag, damage = upset
    detected = alarms = rows = 0
    for _ in range(count):
        load = realistic(generator, float(generator.uniform(30, 120)), AROUND * meter.period_s)
        table = records(load, meter, generator, dropped=DROPPED)
        phase_s = load.start_s, load.end_s
        broken = damage(table, phase_s, generator)
        detected += flag in _flags(broken, meter, generator, phase_s)
        alarms += flag in _flags(table, meter, generator, phase_s)
        rows += len(table)
    return _figures(f"{title}, {meter.name}", detected / count, alarms / rows)


def _stuck(table: pl.DataFrame, phase_s: Phase, generator: np.random.Generator) -> pl.DataFrame:
    """Return the table with one value for `STUCK_S` within the phase."""
    at_ns = generator.uniform(phase_s[0], phase_s[1] - STUCK_S) * 1e9
    near = pl.col("t_mono_ns").is_between(at_ns, at_ns + STUCK_S * 1e9)
    held_w = table.filter(near)["power_w_system"][0]
    power_w = pl.when(near).then(held_w).otherwise(pl.col("power_w_system"))
    return table.with_columns(power_w.alias("power_w_system"))


def _twice(table: pl.DataFrame, phase_s: Phase, generator: np.random.Generator) -> pl.DataFrame:
    """Return the table with one record of the phase duplicated."""
    inside = np.flatnonzero(
        table["t_mono_ns"].is_between(phase_s[0] * 1e9, phase_s[1] * 1e9).to_numpy()
    )
    place = int(generator.choice(inside[1:-1]))
    copy = table.slice(place, 1).with_columns(pl.col("t_mono_ns") + COPY_NS)
    return pl.concat([table.head(place + 1), copy, table.slice(place + 1)])


def _flags(
    table: pl.DataFrame, meter: Instrument, generator: np.random.Generator, phase_s: Phase
) -> tuple[str, ...]:
    return integrated(table, meter, generator, phase_s, (meter.rest_s, meter.rest_s)).flags


def _begun_again(generator: np.random.Generator, count: int) -> tuple[float, int, int]:
    detected = alarms = records = 0
    for _ in range(count):
        samples = np.arange(0.0, generator.uniform(30, 600), SAMPLE_S)
        power_w = generator.uniform(5, 200) * generator.uniform(0.5, 1.5, len(samples))
        steps_uj = power_w * SAMPLE_S * 1e6
        count_uj = generator.uniform(0, RANGE_UJ) + np.cumsum(steps_uj)
        again = count_uj.copy()
        place = int(generator.integers(1, len(samples)))
        again[place:] -= again[place - 1]
        detected += _is_flagged(samples, again % RANGE_UJ)
        alarms += _is_flagged(samples, count_uj % RANGE_UJ)
        records += len(samples)
    return detected / count, alarms, records


def _is_flagged(samples_s: np.ndarray, count_uj: np.ndarray) -> bool:
    """Return whether a phase's figure is withheld or flagged, by what the agent writes."""
    readings = [
        Reading(round(t * 1e9), round(t * 1e9) + 2_000, int(uj))
        for t, uj in zip(samples_s, count_uj, strict=True)
    ]
    flags = total(readings, RANGE_UJ).flags
    counter = Counter("rapl", "package-0", readings[0], readings[-1], RANGE_UJ, flags)
    energy = counter_energy(counter)
    if SAMPLES_TELL & set(energy.flags):
        energy = counter_energy(counter, readings)
    return energy.energy_j is None or bool({*energy.flags} & SAMPLES_TELL)
