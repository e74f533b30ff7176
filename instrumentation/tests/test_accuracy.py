from __future__ import annotations

import math
from typing import Any

import pytest

from contract.strict_json import Document
from contract.tests.refusal import refuses
from instrumentation.accuracy import Accuracy, ErrorTerm, read_terms
from instrumentation.meters.smartpower3 import SmartPower3
from instrumentation.meters.wt310 import WT310

CERTIFICATE: Document = {
    "source": "certificate 7 of 2026",
    "terms": {"gain": 0.002, "linearity": 0.001},
}


NO_TEXT = {"name": "gain", "limit": 0.1, "source": {}}


def terms(meter: Any) -> dict[str, ErrorTerm]:
    return {term.name: term for term in read_terms(meter.description()["accuracy"])}


def test_a_calibration_replaces_the_makers_figures() -> None:
    stated = terms(SmartPower3({"0": "system"}, {"calibration": CERTIFICATE}))
    assert (stated["gain"].limit, stated["linearity"].limit) == (0.002, 0.001)
    assert stated["gain"].source == "certificate 7 of 2026"
    assert stated["resolution"].limit == 0.0005
    maker = terms(SmartPower3({"0": "system"}))
    assert (maker["gain"].limit, maker["linearity"].limit) == (0.03, None)
    assert maker["linearity"].within == "gain"


def test_a_calibration_may_state_how_two_readings_share_an_error() -> None:
    calibration: Document = {
        "source": "-",
        "terms": {"linearity": {"limit": 0.001, "correlation": 0.5}},
    }
    stated = terms(SmartPower3({"0": "system"}, {"calibration": calibration}))
    assert stated["linearity"].shared == 0.5
    assert (stated["gain"].shared, stated["resolution"].shared) == (1, 0)


@pytest.mark.parametrize(
    ("calibration", "why"),
    [
        ({"terms": {"gain": 0.1}}, "source"),
        ({"source": " ", "terms": {"gain": 0.1}}, "source"),
        ({"source": "-", "terms": {}}, "terms"),
        ({"source": "-", "terms": {"zeal": 0.1}}, "'zeal'"),
        ({"source": "-", "terms": {"gain": "much"}}, "terms.gain"),
        ({"source": "-", "terms": {"gain": -0.1}}, "terms.gain"),
        ({"source": "-", "terms": {"gain": {"limit": 0.1, "correlation": 2}}}, "correlation"),
        ({"source": "-", "terms": {"gain": {"limit": 0.1, "kinship": 1}}}, "kinship"),
    ],
)
def test_an_invalid_calibration_is_refused(calibration: Any, why: str) -> None:
    with refuses("invalid-settings") as refusal:
        SmartPower3({"0": "system"}, {"calibration": calibration})
    assert why in str(refusal.value.facts["reason"])


def test_the_power_factor_term_grows_with_its_tangent() -> None:
    """At 0.6 the tangent is 4/3: of 0.2 % of the apparent power, or 0.1 % with E."""
    for model, part in (("WT310", 0.002), ("WT310E", 0.001)):
        stated = terms(WT310({"1": "system"}, {"model": model, "power_factor": 0.6}))
        assert stated["power_factor"].limit == pytest.approx(part * 4 / 3)
    assert terms(WT310({"1": "system"}))["power_factor"].limit is None
    with refuses("invalid-settings"):
        WT310({"1": "system"}, {"power_factor": 1.2})


def test_files_without_terms_and_damaged_ones_give_two_limits() -> None:
    old = {"relative_limit": 0.01, "absolute_limit_w": 0.1, "source": "-"}
    for damaged in ({}, *({"terms": terms} for terms in (3, [{"name": "zeal"}], [7], [NO_TEXT]))):
        limits = {term.name: term.limit for term in read_terms({**old, **damaged})}
        assert limits == {"gain": 0.01, "range": 0.1, "linearity": None, "power_factor": None}
    assert {t.limit for t in read_terms({"relative_limit": math.nan})} == {None}


def test_written_terms_are_read_back() -> None:
    accuracy = Accuracy(0.01, 0.2, "its manual", absolute="offset")
    assert read_terms(accuracy.description()) == accuracy.terms
