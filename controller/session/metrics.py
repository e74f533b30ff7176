"""Running suites as OpenMetrics, for Prometheus and whatever reads its format."""

from __future__ import annotations

from collections.abc import Iterable

from contract.status import SuiteStatus

# What of a status is one number, in words.
FIGURES = {
    "block": "Block that is measured, from 1",
    "blocks": "Blocks of the plan",
    "run_index": "Run that is measured, from 1",
    "runs": "Runs of the plan",
    "finished": "Runs that are finished",
    "void": "Runs that are void now",
    "skipped": "Runs whose workload cannot run there",
    "repeated": "Attempts that were repeated",
    "interrupted": "Attempts that were cut short",
    "void_in_a_row": "Runs that were void since one was finished",
    "left_s": "Seconds left, by what the runs took so far",
    "since_s": "Seconds since the journal's last line",
}


def exposition(statuses: Iterable[SuiteStatus]) -> tuple[bytes, str]:
    """Return the text of these suites and its media type; a figure that is unknown is left out."""
    from prometheus_client import CollectorRegistry, Gauge
    from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry()
    suite = ("suite", "host")
    gauges = {
        name: Gauge(f"fde_{name}", words, suite, registry=registry)
        for name, words in FIGURES.items()
    }
    power = Gauge("fde_power_watts", "Power now", (*suite, "channel"), registry=registry)
    gaps = Gauge("fde_gaps", "Gaps so far", (*suite, "meter"), registry=registry)
    names = ("state", "configuration", "workload")
    phase = Gauge("fde_phase", "What is done now", (*suite, *names), registry=registry)
    for status in statuses:
        labels = status.suite_id, status.host
        for name, gauge in gauges.items():
            if (figure := getattr(status, name)) is not None:
                gauge.labels(*labels).set(figure)
        for channel, power_w in status.watts.items():
            power.labels(*labels, channel).set(power_w)
        for meter, count in status.gaps.items():
            gaps.labels(*labels, meter).set(count)
        phase.labels(*labels, status.state, status.configuration, status.workload).set(1)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text, CONTENT_TYPE_LATEST
