"""Factors of a suite: what they multiply, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.permissions import require_own
from contract.plan import Filesystem, Plan, parse, parse_target
from contract.tests.refusal import Refusal, refuses
from controller.planning.known_names import suite_names
from controller.planning.suites import load_suite
from controller.tests.examples import compiled, suite, target

FACTORS: dict[str, Any] = {
    "filesystem": {"ext4": {}, "xfs": {"type": "xfs", "options": ["-f"]}},
    "atime": {"noatime": {}, "relatime": {"mount_options": "relatime", "options": ["-L", "x"]}},
    "trim": {"off": {}, "on": {"discard": True}},
}


TARGET = {
    **target(),
    "filesystem": {"type": "ext4", "options": ["-b", "4096"], "mount_options": "noatime"},
}


def multiplied(factors: object) -> Plan:
    return compiled(suite(factors=factors, configurations=["plain", "dmcrypt-aes128"]), TARGET)


def test_each_configuration_comes_once_for_every_combination() -> None:
    made = multiplied(FACTORS)
    names = [configuration.name for configuration in made.configurations]
    assert len(set(names)) == len(names) == 2 * 2 * 2 * 2
    assert {"plain", "plain.xfs", "plain.xfs.relatime.on", "dmcrypt-aes128.on"} <= set(names)
    frozen = parse(made.document()).storage.configurations
    assert frozen == made.storage.configurations
    assert frozen["plain"].filesystem == Filesystem("ext4", ("-b", "4096"), "noatime")
    assert frozen["plain.xfs.relatime.on"].filesystem == Filesystem(
        "xfs", ("-f", "-L", "x"), "relatime"
    )
    assert frozen["plain.on"].discard
    assert not frozen["plain.xfs"].discard
    assert frozen["dmcrypt-aes128.xfs"].label == "dm-crypt AES-128, xfs"
    assert {run.configuration for run in made.runs} == set(names)


def test_levels_are_contrasted_with_their_first_and_encryption_within_each() -> None:
    made = multiplied({"filesystem": FACTORS["filesystem"]})
    assert made.analysis.contrasts == (
        ("plain", "dmcrypt-aes128"),
        ("plain.xfs", "dmcrypt-aes128.xfs"),
        ("plain", "plain.xfs"),
        ("dmcrypt-aes128", "dmcrypt-aes128.xfs"),
    )


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ({"a": {"x": {}, "y": {}}, "b": {"x": {}, "z": {}}}, refuses("level-twice", level="x")),
        ({"trim": {"off": {}, "on": {"discrad": True}}}, refuses("factors-invalid")),
        ({"trim": {"off": {}, "on": {"kind": "opal"}}}, refuses("factors-invalid")),
        (
            {"n": {f"l{number}": {} for number in range(40)}},
            refuses("too-many-configurations", most=64),
        ),
        (
            {f"f{n}": {f"l{n}-{m}": {} for m in range(9)} for n in range(99)},
            refuses("too-many-configurations", most=64),
        ),
    ],
    ids=["name-twice", "unknown-setting", "another-kind", "too-many", "far-too-many"],
)
def test_factors_that_cannot_be_are_refused(factors: object, reason: Refusal) -> None:
    with reason:
        multiplied(factors)


def test_the_target_takes_what_factors_make_of_its_inventory() -> None:
    """The factors above, and those of every suite that comes with this."""
    inventory = parse_target(TARGET, Path("target.json"))
    require_own(multiplied(FACTORS), inventory)
    with_factors = [name for name in suite_names() if load_suite(name).factors]
    assert "file-systems" in with_factors
    for name in with_factors:
        chosen = ["plain", "dmcrypt-aes128"]
        require_own(compiled(load_suite(name), TARGET, configurations=chosen), inventory)
    with refuses("plan-foreign"):
        require_own(multiplied({"fs": {"a": {}, "b": {"options": ["-d", "/etc"]}}}), inventory)
