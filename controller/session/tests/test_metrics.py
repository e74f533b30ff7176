"""The metrics of a running suite, read by Prometheus's own parser."""

from __future__ import annotations

import urllib.request
from dataclasses import asdict
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from contract.files import write_json
from contract.status import SuiteStatus
from controller.session import status_page
from controller.session.tests.test_status import PLAN, document


def scrape(folder: Path, status: SuiteStatus) -> dict[tuple[str, ...], float]:
    """Serve this status; return the samples by name and labels."""
    write_json(folder / "status.json", asdict(status))
    with (
        status_page.served({PLAN.suite_id: folder}, "0") as url,
        urllib.request.urlopen(f"{url}metrics") as answer,
    ):
        assert "openmetrics-text" in answer.headers["Content-Type"]
        text = answer.read().decode()
        families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_the_status_has_is_scraped(tmp_path: Path) -> None:
    status = document()
    samples = scrape(tmp_path, status)
    suite = "target", PLAN.suite_id
    assert samples["fde_power_watts", "system", *suite] == status.watts["system"]
    assert samples["fde_left_s", *suite] == status.left_s
    assert samples["fde_block", *suite] == samples["fde_repeated", *suite] == 1
    assert samples["fde_gaps", "target", "meter0", PLAN.suite_id] == 1
    phase = status.configuration, "target", "running", PLAN.suite_id, status.workload
    assert samples["fde_phase", *phase] == 1


def test_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    names = {name for name, *_ in scrape(tmp_path, document([]))}
    assert "fde_runs" in names and not names & {"fde_left_s", "fde_block"}
