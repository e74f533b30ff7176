"""The table of what each kind of storage protects against: its data, page and documentation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from agent.storage import registry
from analysis.report.protection_section import (
    Threat,
    kind_of,
    markdown,
    protection_section,
    threats,
)
from analysis.report.texts import catalogue
from analysis.report.view import Folded, Table
from analysis.stats.results import Results
from analysis.suite.suite_folder import read
from analysis.tests.pages import pieces
from contract.places import ROOT
from contract.plan import Configuration
from validation.synthetic.suite import Options, write_suite


def test_every_row_has_all_kinds_and_a_source() -> None:
    kinds = set(catalogue().tables["kinds"])
    assert {field.name for field in fields(Threat)} == {"threat", "source", *kinds}
    assert kinds - {"both", "tags"} <= set(registry.names())
    assert all(all(vars(threat).values()) for threat in threats()) and len(threats()) == 7


@pytest.mark.parametrize(
    ("kind", "settings", "column"),
    [
        ("plain", {}, "plain"),
        ("opal", {}, "opal"),
        ("opal_dmcrypt", {}, "both"),
        ("inlinecrypt", {}, "dmcrypt"),
        ("dmcrypt", {"integrity": "none"}, "dmcrypt"),
        ("dmcrypt", {"integrity": "hmac-sha256"}, "tags"),
        ("dmcrypt", {"integrity": "aead"}, "tags"),
        ("tcrypt", {"volume": "veracrypt"}, "tcrypt"),
    ],
)
def test_a_configuration_has_its_column(kind: str, settings: dict[str, Any], column: str) -> None:
    assert kind_of(Configuration("c", kind, "disk", settings)) == column


def test_the_page_has_the_suites_kinds_folded(derived: Results) -> None:
    (fold,) = protection_section(derived.suite)
    assert isinstance(fold, Folded)
    (table,) = pieces(Table, fold)
    names = catalogue().tables["kinds"]
    assert {row[1] for row in table.rows} == {names[kind] for kind in ("plain", "opal", "dmcrypt")}


def test_a_suite_without_encryption_has_no_table(tmp_path: Path) -> None:
    options = Options(blocks=1, interval_ms=500, workloads=("idle",), configurations=("plain",))
    write_suite(tmp_path / "s", options, seal=False)
    assert protection_section(read(tmp_path / "s")) == ()


def test_the_documentation_has_the_same_table() -> None:
    """`python -m analysis.report.protection_section` prints it."""
    assert markdown() in (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
