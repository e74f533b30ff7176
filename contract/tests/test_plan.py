"""The plan's hash and its checks."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import plan
from contract.tests.refusal import Refusal, refuses
from validation import schemas

RUN = {"run_id": "0000-b00-plain-idle", "index": 0, "block": 0}
DOCUMENT: dict[str, Any] = {
    **{"format": "fde-plan/3", "suite_id": "micro-target-20250101T000000Z", "suite": "micro"},
    **{"scale": "", "host": "target", "seed": 7, "blocks": 1, "origin": "modelled"},
    **{"created_wall": "2025-01-01T00:00:00Z", "rapl_hz": 10, "settle_s": 1, "tail_s": 1},
    "disks": {"plain": {"by_id": "/dev/disk/by-id/x", "serial": "S1", "size_bytes": 2**31}},
    "extent": {"offset_bytes": 2**24, "size_bytes": 2**30},
    "filesystem": {"type": "ext4", "options": ["-m", "0"], "mount_options": "noatime"},
    "configurations": [
        {"name": "plain", "kind": "plain", "disk": "plain"}
        | dict.fromkeys(("cipher", "key_bits", "sector_size"))
    ],
    "workloads": [{"name": "idle", "parameters": {"duration_s": 1}}],
    "runs": [{**RUN, "configuration": "plain", "workload": "idle"}],
    "assets": {"clip": {"path": "/srv/clip.mp4"}},
    "analysis": {"contrasts": [], "margin": 0.02},
    "assumptions": {},
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def test_a_frozen_plan_loads(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.freeze(DOCUMENT), indent=2))
    loaded = plan.load(path)
    assert loaded.runs[0].workload == "idle"
    assert loaded.storage.configurations["plain"].kind == "plain"
    assert loaded.asset_paths == {"clip": Path("/srv/clip.mp4")}


# Numbers that cost a target neither time nor room nor wear, or that must be its inventory's.
HARMLESS = {
    *("seed", "index", "block", "repeat", "hours", "margin", "limit", "every"),
    *("size_bytes", "offset_bytes", "endurance_bytes", "max_written_bytes"),
    *("block_s", "block_bound_s", "ends_s", "ends_bound_s", "expected_s"),
    *("settings", "parameters"),  # bounded by their declarations (contract/parameters.py)
}


def numbers(shape: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every number that a schema has, with the name of its field."""
    if isinstance(shape, list):
        for each in shape:
            yield from numbers(each, name)
    elif isinstance(shape, dict) and shape.get("type") in ("integer", "number"):
        yield name, shape
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            # What a configuration has besides its keys are settings.
            is_settings = key == "additionalProperties" and "properties" in shape
            at = "settings" if is_settings else name
            for field, each in inner.items() if key == "properties" else [(at, inner)]:
                yield from numbers(each, field)


def test_every_number_that_costs_time_room_or_wear_is_bounded() -> None:
    bounds = {
        name: shape.get("maximum", float("inf"))
        for name, shape in numbers(schemas.schema(plan.Plan), "")
        if name not in HARMLESS
    }
    assert {"settle_s", "pad_s", "chip_s", "round_s", "attempts", "run_limit_s"} < set(bounds)
    assert {name: most for name, most in bounds.items() if most > 10**6} == {}
    assert schemas.schema(plan.Plan)["properties"]["runs"]["maxItems"] == plan.MOST_RUNS


def test_an_older_plan_has_no_watermark_and_pads_nothing() -> None:
    before = copy.deepcopy(DOCUMENT)
    older = plan.parse(plan.freeze(DOCUMENT))
    assert "watermark" not in DOCUMENT and older.watermark is None and older.pad_s == 0
    assert before == DOCUMENT, "freezing does not touch its argument"
    frozen = plan.freeze({**DOCUMENT, "watermark": {"chip_s": 0.25, "pad_s": 0.5}})
    assert plan.parse(frozen).watermark == plan.Watermark(0.25, 0.5)


def test_settings_of_a_configuration_are_words_or_numbers() -> None:
    entry = {
        "name": "plain",
        "kind": "mine",
        "disk": "plain",
        "label": "Mine",
        "size": 3,
        "x": None,
    }
    document = {**DOCUMENT, "configurations": [entry]}
    configuration = plan.parse(plan.freeze(document)).storage.configurations["plain"]
    assert configuration == plan.Configuration("plain", "mine", "plain", {"size": 3}, label="Mine")


@given(value=JSON)
def test_the_hash_survives_a_trip_through_json(value: object) -> None:
    document = {**DOCUMENT, "assumptions": {"anything": value}}
    frozen = plan.freeze(document)
    assert plan.digest(json.loads(json.dumps(frozen))) == frozen["sha256"]


@pytest.mark.parametrize("key", sorted(set(DOCUMENT) - {"format"}))
def test_any_change_after_freezing_is_refused(key: str) -> None:
    frozen = plan.freeze(DOCUMENT)
    frozen[key] = "changed"
    with refuses("plan-changed"):
        plan.parse(frozen)


RUN_OF_NOTHING = {**RUN, "configuration": "plain", "workload": "nothing"}
CONFIGURATION = DOCUMENT["configurations"][0]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"format": "fde-plan/9"}, refuses("plan-format", format="fde-plan/9")),
        ({"runs": [RUN_OF_NOTHING]}, refuses("unknown-workload")),
        (
            {"configurations": [{**CONFIGURATION, "disk": "sed"}]},
            refuses("unknown-disk", disk="sed"),
        ),
        *(
            ({"configurations": [wrong]}, refuses("plan-incomplete"))
            for wrong in ({**CONFIGURATION, "size": {}}, {**CONFIGURATION, "size": [1]}, ["x"], "x")
        ),
    ],
)
def test_an_invalid_plan_is_refused(changes: dict[str, Any], refusal: Refusal) -> None:
    with refusal:
        plan.freeze({**DOCUMENT, **changes})
