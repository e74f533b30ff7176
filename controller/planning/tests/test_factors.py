"""Factors of a suite: what they multiply, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.permissions import require_own
from contract.errors import ControllerError
from contract.plan import Filesystem, PlanError, parse, parse_target
from controller.planning.compiler import compile_plan
from controller.planning.known_names import suite_names
from controller.planning.suites import load_suite
from controller.tests.examples import NOW, suite, target

FACTORS: dict[str, Any] = {
    "filesystem": {"ext4": {}, "xfs": {"type": "xfs", "options": ["-f"]}},
    "atime": {"noatime": {}, "relatime": {"mount_options": "relatime"}},
    "trim": {"off": {}, "on": {"discard": True}},
}


def compiled(factors: object, **changes: Any) -> dict[str, Any]:
    changed = suite(factors=factors, configurations=["plain", "dmcrypt-aes128"], **changes)
    return compile_plan("smoke", changed, target(), seed=7, now=NOW)


def test_each_configuration_comes_once_for_every_combination() -> None:
    made = compiled(FACTORS)
    names = [stack["name"] for stack in made["configurations"]]
    assert len(set(names)) == len(names) == 2 * 2 * 2 * 2
    assert {"plain", "plain.xfs", "plain.xfs.relatime.on", "dmcrypt-aes128.on"} <= set(names)
    frozen = parse(made).storage.configurations
    assert frozen["plain"].filesystem == Filesystem("ext4", (), "noatime")
    assert frozen["plain.xfs.relatime.on"].filesystem == Filesystem("xfs", ("-f",), "relatime")
    assert frozen["plain.on"].discard
    assert not frozen["plain.xfs"].discard
    labels = {stack["name"]: stack["label"] for stack in made["configurations"]}
    assert labels["dmcrypt-aes128.xfs"] == "dm-crypt AES-128, xfs"
    assert {run["configuration"] for run in made["runs"]} == set(names)


def test_levels_are_contrasted_with_their_first_and_encryption_within_each() -> None:
    made = compiled({"filesystem": FACTORS["filesystem"]})
    assert made["analysis"]["contrasts"] == [
        ["plain", "dmcrypt-aes128"],
        ["plain.xfs", "dmcrypt-aes128.xfs"],
        ["plain", "plain.xfs"],
        ["dmcrypt-aes128", "dmcrypt-aes128.xfs"],
    ]


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ([], "give factors by their names"),
        ({"trim": {"on": {}}}, "two levels or more"),
        ({"trim": {True: {}, False: {"discard": True}}}, "in quotes if YAML"),
        ({"a": {"x": {}, "y": {}}, "b": {"x": {}, "z": {}}}, "no name twice"),
        ({"trim": {"off": {}, "on": None}}, "say what differs"),
        ({"fs": {"a": {}, "b": {"options": "-f"}}}, "give a list of words"),
        ({"trim": {"off": {}, "on": {"discrad": True}}}, "discrad means nothing"),
        ({"n": {f"l{number}": {} for number in range(40)}}, "64 are the most"),
    ],
)
def test_factors_that_cannot_be_are_refused_with_the_way_out(factors: object, reason: str) -> None:
    with pytest.raises(ControllerError, match=reason):
        compiled(factors)


def test_the_target_takes_what_factors_make_of_its_inventory() -> None:
    """The factors above, and those of every suite that comes with this."""
    own = parse_target(target(), Path("target.json"))
    require_own(parse(compiled(FACTORS)), own)
    with_factors = [name for name in suite_names() if "factors" in load_suite(name)]
    assert "file-systems" in with_factors
    for name in with_factors:
        chosen = ["plain", "dmcrypt-aes128"]
        made = compile_plan(
            name, load_suite(name), target(), seed=7, now=NOW, configurations=chosen
        )
        require_own(parse(made), own)
    evil = {"fs": {"a": {}, "b": {"options": ["-d", "/etc"]}}}
    with pytest.raises(PlanError, match="is refused"):
        require_own(parse(compiled(evil)), own)
