from __future__ import annotations

import re
from dataclasses import replace

import polars as pl
import pytest

from analysis.published.compared_figures import compare_figures, find_configuration
from analysis.published.reference import citations, published
from analysis.report.published_section import published_section
from analysis.report.view import Table
from analysis.stats.results import Results
from analysis.suite.records import Suite
from analysis.tests.known import known, replanned
from analysis.tests.pages import pieces, text_of

OWN_NAMES = {
    "plain": "bare",
    "opal": "the-drive",
    "dmcrypt-aes128": "luks-small",
    "dmcrypt-aes256": "luks-large",
}


def renamed(derived: Results) -> Results:
    """Return the same suite with names of its own for its configurations."""
    stacks = derived.suite.plan.configurations
    renamed = tuple(replace(stack, name=OWN_NAMES[stack.name]) for stack in stacks)
    suite = replanned(derived.suite, configurations=renamed)
    energy = derived.energy.with_columns(pl.col("configuration").replace(OWN_NAMES))
    return replace(derived, suite=suite, all_energy=energy)


def without(suite: Suite, kind: str) -> Suite:
    others = tuple(stack for stack in suite.plan.configurations if stack.kind != kind)
    return replanned(suite, configurations=others)


def test_published_stands_beside_measured(derived: Results) -> None:
    rows = compare_figures(derived.suite, derived.energy, published())
    entries = [row.published.entry for row in rows]
    assert list(dict.fromkeys(entries)) == ["read-10mb", "write-1gb", "untar", "grep"]
    assert len(rows) == 20
    by = {(r.published.entry, r.published.quantity, r.configuration): r for r in rows}
    base, drive = by["untar", "energy", "plain"], by["untar", "energy", "opal"]
    assert base.is_baseline
    assert base.published_ratio is None
    assert base.measured_ratio is None
    assert drive.published_ratio == pytest.approx(2455.955 / 2414.687)
    untar = derived.energy.filter(phase="untar", component="system", configuration="opal")
    assert known(drive.measured).mean == pytest.approx(untar["energy_j"].mean())
    assert known(drive.measured_ratio).ratio == pytest.approx(1.012, abs=0.02)
    assert drive.origin == "modelled"
    assert by["grep", "time", "opal"].origin == "measured"


def test_durations_of_what_never_ran_are_synthetic(derived: Results) -> None:
    energy = derived.energy.with_columns(origin=pl.lit("synthetic"))
    rows = compare_figures(derived.suite, energy, published())
    assert {row.origin for row in rows} == {"synthetic"}


def test_configurations_are_matched_by_what_they_are(derived: Results) -> None:
    other = renamed(derived)
    names = {name: find_configuration(other.suite, name) for name in OWN_NAMES}
    assert names == OWN_NAMES
    same = compare_figures(derived.suite, derived.energy, published())
    again = compare_figures(other.suite, other.energy, published())
    assert [r.measured_ratio for r in again] == [r.measured_ratio for r in same]
    assert [r.published_ratio for r in again] == [r.published_ratio for r in same]
    assert find_configuration(derived.suite, "") is None
    assert find_configuration(without(derived.suite, "opal"), "opal") is None


def test_a_configuration_of_the_same_name_goes_first(derived: Results) -> None:
    twin = replace(derived.suite.stacks["dmcrypt-aes128"], name="first")
    suite = replanned(derived.suite, configurations=(twin, *derived.suite.plan.configurations))
    assert find_configuration(suite, "dmcrypt-aes128") == "dmcrypt-aes128"


def test_what_a_drive_says_of_its_cipher_does_not_matter(derived: Results) -> None:
    stacks = tuple(
        replace(stack, settings={**stack.settings, "key_bits": 256})
        if stack.kind == "opal"
        else stack
        for stack in derived.suite.plan.configurations
    )
    suite = replanned(derived.suite, configurations=stacks)
    assert find_configuration(suite, "opal") == "opal"


def test_without_a_baseline_there_is_no_ratio(derived: Results) -> None:
    suite = without(derived.suite, "plain")
    rows = compare_figures(suite, derived.energy, published())
    assert len(rows) == 15
    assert all(row.measured is not None and row.measured_ratio is None for row in rows)


def test_any_paper_stands_beside_once_it_names_a_workload(derived: Results) -> None:
    """Units are turned into the paper's: its times are in milliseconds."""
    first = published("panda")[10:20]
    figures = [
        replace(p, workload="sql", phase="query", configuration="plain")
        for p in first
        if p.unit == "ms"
    ]
    rows = compare_figures(derived.suite, derived.energy, figures)
    assert len(rows) == len(figures) > 0
    seconds = derived.energy.filter(phase="query", configuration="plain")["duration_s"].mean()
    assert isinstance(seconds, float)
    assert known(rows[0].measured).mean == pytest.approx(seconds * 1000)
    assert not compare_figures(derived.suite, derived.energy, published("panda"))


def test_a_paper_of_which_nothing_was_measured_is_named_and_has_no_table(derived: Results) -> None:
    """Fujimoto's is touched by this suite, the four others by none of its workloads."""
    page = text_of(published_section(derived))
    untouched = [c for c in citations() if c.paper != "fujimoto"]
    assert all(c.short in page for c in citations())
    assert not any(c.title in page for c in untouched)
    assert not re.search(r"\b(None|nan|NaN)\b", page)
    idle = derived.energy.filter(workload="idle")
    none = published_section(replace(derived, all_energy=idle))
    assert not pieces(Table, none) and pieces(Table, published_section(derived))
