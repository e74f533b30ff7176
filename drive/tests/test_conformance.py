"""The conformance table: what tests claim, what proves it, and that the document says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from drive.tests import conformance
from drive.tests.conformance import BEGIN, END, Claim, claims_of, count, render, unproven
from drive.tests.guest.opal_ioctl import CALLS
from drive.tests.marked import insert
from drive.tests.opal_host import OpalSession, RefusedError
from drive.tests.process import Drive

MODULE = """
import pytest

@pytest.mark.conformance("nvme", "Get C_PIN", "Set Locking refused")
@pytest.mark.parametrize("x", [1])
def test_one(x): ...

@pytest.mark.slow
def test_none(): ...
"""
ONE = [
    Claim("nvme", "Get C_PIN", "test_x::test_one"),
    Claim("nvme", "Set Locking refused", "test_x::test_one"),
]


def test_the_document_holds_the_table_of_today() -> None:
    document = conformance.DOCUMENT.read_text(encoding="utf-8")
    assert document == insert(document, BEGIN, END, render(conformance.collect())), (
        "drive/README.md is old: run python -m drive.tests.conformance"
    )


def test_claims_are_read_from_markers_alone(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(MODULE)
    assert conformance.collect(tmp_path) == ONE


@pytest.mark.parametrize(
    "arguments",
    [("nvme",), ("an unknown host", "Get C_PIN"), ("nvme", "Get"), ("nvme", 7), ()],
)
def test_a_claim_that_says_nothing_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="test_x"):
        claims_of("test_x", arguments)


def test_only_calls_of_this_very_test_prove_a_claim() -> None:
    got = {"method": "Get", "table": "C_PIN", "status": "SUCCESS"}
    denied = {"method": "Set", "table": "Locking", "status": "NOT_AUTHORIZED", "count": 1}
    before = count([{**got, "count": 4}])
    assert unproven(ONE, before, count([{**got, "count": 5}, denied])) == []
    assert unproven(ONE, before, count([{**got, "count": 4}, denied])) == ["Get C_PIN"]
    granted = {**denied, "status": "SUCCESS"}
    after = count([{**got, "count": 5}, granted])
    assert unproven(ONE, before, after) == ["Set Locking refused"]


@pytest.mark.conformance("initiator", "StartSession SessionManager refused")
def test_the_drive_keeps_the_record_that_proves_claims(sed: Drive) -> None:
    assert sed.ask("calls")["calls"] == []
    with pytest.raises(RefusedError):
        OpalSession(sed.connect(), bytes(8))  # there is no such security provider
    (row,) = sed.ask("calls")["calls"]
    assert (row["method"], row["table"], row["count"]) == ("StartSession", "SessionManager", 1)
    assert row["status"] == "INVALID_PARAMETER"


def test_a_cell_names_its_tests_and_marks_refusals() -> None:
    table = render([*ONE, Claim("sedutil", "Get C_PIN", "test_y::test_two")])
    assert "| Get | C_PIN | – | – | – | 1 | 2 |" in table
    assert "| Set | Locking | – | – | – | (1) | – |" in table
    assert "1. `test_x::test_one`\n2. `test_y::test_two`" in table


def test_every_opal_call_of_the_kernel_is_tried() -> None:
    assert sorted(number for _, number, _ in CALLS.values()) == [*range(220, 241)]
    text = (conformance.TESTS / "test_guest_ioctls.py").read_text(encoding="utf-8")
    assert [name for name in CALLS if f'"{name}"' not in text] == []


def test_a_document_without_the_marker_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        insert("# The drive\n", BEGIN, END, "| a | b |")
