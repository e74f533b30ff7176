"""Names for people, from the plan's entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.suite import records
from analysis.tests.known import replanned
from validation.synthetic.tables import suite_of


@pytest.mark.parametrize(
    ("label", "called"),
    [
        ("TrueCrypt AES–Twofish–Serpent-256, on the SED", True),
        ("", False),
        ("$x_1$", False),
        ("<b>", False),
        ("two\nlines", False),
        ("x" * 61, False),
    ],
)
def test_a_configuration_is_called_by_its_label_where_that_is_one(label: str, called: bool) -> None:
    suite = suite_of({"c1": "plain"}, ())
    (stack,) = suite.plan.configurations
    suite = replanned(suite, configurations=(replace(stack, label=label),))
    assert suite.label("c1") == (label if called else "c1")


def test_two_configurations_of_one_label_are_told_apart() -> None:
    suite = suite_of({"plain": "plain", "again": "plain", "opal": "opal"}, ())
    labels = {"plain": "plain", "again": "plain", "opal": "Opal drive"}
    stacks = (replace(stack, label=labels[stack.name]) for stack in suite.plan.configurations)
    suite = replanned(suite, configurations=tuple(stacks))
    assert [suite.label(name) for name in ("plain", "again", "opal")] == [
        "plain",
        "plain (again)",
        "Opal drive",
    ]


@pytest.mark.parametrize(
    ("parts", "worst"),
    [
        (["measured", "measured"], "measured"),
        (["measured", "modelled"], "modelled"),
        (["modelled", "synthetic", "measured"], "synthetic"),
        (["measured", "who knows"], "modelled"),
        ([], "measured"),
    ],
)
def test_what_rests_on_several_origins_is_the_worst_of_them(parts: list[str], worst: str) -> None:
    assert records.joint(parts) == worst
