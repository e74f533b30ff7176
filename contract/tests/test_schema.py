"""The published schemas are current, and our readers refuse what they refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract import documents, journal, plan, schema
from contract.places import ANSIBLE, SCHEMAS
from contract.tests.test_plan import DOCUMENT
from validation import schemas

SUM = "0" * 64
EDGE = {"t_before_ns": 1, "t_after_ns": 2, "energy_uj": 3}
PHASE = {
    **{"name": "read", "t_start_ns": 1, "t_end_ns": 2, "work": {"bytes": 1}, "own_cpu_s": None},
    "counters": [
        {"source": "powercap", "zone": "package-0", "start": EDGE, "end": None, "flags": ["x"]}
    ],
}
STACKS = {key: DOCUMENT[key] for key in ("disks", "filesystem", "configurations")}
EXAMPLES: dict[str, dict[str, Any]] = {
    "plan": plan.freeze(
        {
            **DOCUMENT,
            "watermark": {"chip_s": 0.25, "pad_s": 0},
            "run_limit_s": 60,
            "precondition": {"passes": 2, "rounds": 25, "round_s": 60, "access": "random"},
        }
    ),
    "target": {
        **{"format": "fde-target/1", "extent_bytes": 2**30, "host": "alder", **STACKS},
        "meters": [{"name": "m", "kind": "k", "port": "p", "origin": "measured"}],
        "ssh": {"host": "alder", "port": 22, "known_hosts": None},
    },
    "journal-line": {
        **{"seq": 0, "t_mono_ns": 1, "boot_id": "b", "state": "finished", "run_id": "r"},
        **{"cause": "", "detail": "", "facts": {"sha256": SUM, "seconds": 1.5}},
    },
    "run": {
        **{"format": "fde-run/1", "run_id": "r", "plan_sha256": SUM, "boot_id": "b", "block": 0},
        **{"configuration": "plain", "workload": "idle", "status": "finished"},
        **{"t_start_ns": 1, "t_end_ns": 2, "phases": [PHASE], "proof": {"ok": True}, "cpus": 4},
        **{"origin": "modelled", "left_out": [{"what": "a", "reason": "b"}]},
    },
    "meter": {
        **{"format": "fde-meter/2", "name": "m", "kind": "k", "port": "p", "baud": 9600},
        **{"origin": "measured", "channels": {"0": "system"}, "settings": {}, "timing": "poll"},
        **{"arrival_delay_limit_s": 0.02, "accuracy": {"source": "its manual"}},
    },
    "recorder-status": {
        **{"format": "fde-recorder-status/1", "name": "m", "kind": "k", "origin": "measured"},
        **{"port": "p", "state": "recording", "message": "", "pid": 1, "t_mono_ns": 1, "epoch": 1},
        **{"t_record_ns": 0, "records": 0, "bytes": 0, "rate_hz": 0.0, "due_hz": 0.5, "watts": {}},
        **{"gaps": 0, "faults": 0, "last_fault": {"kind": "gap", "detail": "a record is missing"}},
    },
    "message": {
        **{"format": "fde-message/1", "event": "sealed", "suite_id": "s", "host": "alder"},
        **{"sentence": "sealed", "wall": "2026-01-01T00:00:00+00:00", "status": None},
    },
    "manifest": {"format": "fde-manifest/1", "files": {"plan.json": SUM}},
    "identity": {"format": "fde-identity/1", "machine_id": SUM, "boot_id": None},
    "bundle": {
        **{"format": "fde-bundle/1", "suite_id": "smoke-alder-20260101T000000Z"},
        **{"testbed": "0.1.0", "code": SUM},
    },
}


def _plan(document: Any) -> None:
    """Parse a plan with a corrected sum, which would hide every other fault."""
    if document.get("sha256") == EXAMPLES["plan"]["sha256"]:
        document = {**document, "sha256": plan.digest(document)}
    plan.parse(document)


VALIDATORS = {
    name: jsonschema.Draft202012Validator(json.loads(text))
    for name, text in ((name.removesuffix(".json"), t) for name, t in schemas.texts().items())
}
READERS: dict[str, Callable[[Any], object]] = {
    "plan": _plan,
    "journal-line": lambda document: journal.parse(json.dumps(document)),
}


def test_the_files_are_current() -> None:
    published = {path.name: path.read_text("utf-8") for path in SCHEMAS.glob("*.json")}
    assert published == schemas.texts(), "run: python -m validation.schemas"


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_a_schema_is_valid_and_accepts_its_example(name: str) -> None:
    published = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(EXAMPLES[name], published)
    schema.read(documents.DOCUMENTS[name][1], EXAMPLES[name])


def _places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*at, key))


ODD = st.none() | st.sampled_from([-1, 0, 2**63, 0.5, True, "", "../x", [], {}, [[]], {"": None}])


@given(st.data())
@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_schema_and_reader_refuse_the_same(name: str, data: st.DataObject) -> None:
    """Any part of a sound document is taken away, or is something else.

    And the other way round, but for a whole number that is written as a fraction, which the schemas
    take.
    """
    changed = copy.deepcopy(EXAMPLES[name])
    *way, last = data.draw(st.sampled_from(list(_places(changed))))
    inside: Any = changed
    for key in way:
        inside = inside[key]
    if data.draw(st.booleans()):
        inside[last] = data.draw(ODD)
    else:
        del inside[last]
    sound = VALIDATORS[name].is_valid(changed)
    try:
        schema.read(documents.DOCUMENTS[name][1], changed)
    except ValueError:
        assert not sound or any(type(n) is float and n == int(n) for n in _numbers(changed))
    else:
        assert sound
    if not sound and name in READERS:
        with pytest.raises((ValueError, plan.PlanError)):
            READERS[name](changed)


def _numbers(document: Any) -> Iterator[Any]:
    if isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _numbers(value)
    elif isinstance(document, int | float):
        yield document


def test_argument_specs_have_the_keys_of_a_target() -> None:
    """The variables of the inventory have rules of their own beside; their keys are the same."""
    role = ANSIBLE / "roles" / "target_spec"
    specified = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text("utf-8"))
    options = specified["argument_specs"]["main"]["options"]
    described = schemas.schema(plan.TargetDocument)["properties"]
    # Disks have any names, which a specification of arguments cannot say: it names their keys.
    disk = described["disks"]["additionalProperties"]["properties"]
    assert [key for key in disk if f"`{key}`" not in options["fde_disks"]["description"]] == []
    asked, filesystem = options["fde_filesystem"]["options"], described["filesystem"]
    assert set(asked) == set(filesystem["properties"])
    assert set(filesystem["required"]) <= {n for n, o in asked.items() if o.get("required")}


@dataclass(frozen=True)
class Part(schema.Closed):
    role: str = field(metadata=schema.KEY)
    size: Annotated[int | float, schema.Range(above=0)] = 1
    label: str = field(default="", metadata=schema.OMITTED)
    settings: Annotated[Mapping[str, int], schema.REST] = field(default_factory=dict)


@dataclass(frozen=True)
class Whole(schema.Closed):
    parts: Mapping[str, Part]
    access: Literal["sequential", "random"] = "random"
    check: bool | Part = True
    order: tuple[Annotated[int, schema.Range(least=1)], ...] = ()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"parts": {}, "acess": "random"}, r"^unknown key 'acess'; did you mean access\?$"),
        ({"parts": {}, "access": "sequentail"}, r"^access is .*; did you mean sequential\?$"),
        ({}, r"^'parts' is missing$"),
        ({"parts": {}, "order": [1, 0]}, r"^order\[1\] is 0, must be a whole number at least 1$"),
        ({"parts": {"a": {"size": 0}}}, r"^parts\.a\.size is 0, must be a number above 0$"),
        ({"parts": {"a": {"size": -(2**9999)}}}, r"^parts\.a\.size is too large, must be a number"),
        ({"parts": {"a": {"size": "x"}}}, r"^parts\.a\.size is 'x', must be a number above 0$"),
        ({"parts": {"a": {"colour": "x"}}}, r"^parts\.a\.colour is 'x', must be a whole number$"),
        ({"parts": {3: {}}}, r"^a key of parts is 3, must be text \(quote it\)$"),
        ({"parts": {}, "check": "x"}, r"^check is 'x', must be true or false or a mapping$"),
        ({"parts": {}, "check": {"size": -1}}, r"^check\.size is -1, must be a number above 0$"),
        ({"parts": None}, r"^parts is None, must be a mapping$"),
        ([], r"^the document is empty, must be a mapping$"),
    ],
)
def test_a_fault_is_reported_with_its_place(document: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        schema.read(Whole, document)


def test_a_written_document_equals_the_one_read() -> None:
    document = {
        "parts": {"a": {"size": 2, "depth": 4}, "b": {"size": 1.5, "label": "B"}},
        "access": "random",
        "check": False,
        "order": [2],
    }
    read_back = schema.read(Whole, {**document, "access": None})
    assert read_back.parts == {"a": Part("a", 2, settings={"depth": 4}), "b": Part("b", 1.5, "B")}
    assert schema.write(read_back) == document
