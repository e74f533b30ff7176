"""The conformance table: what tests claim, and what proves it."""

from __future__ import annotations

import pytest

from drive.tests import conformance
from drive.tests.conformance import Claim, claims_of, count, render, unproven
from drive.tests.guest.opal_ioctl import CALLS
from drive.tests.opal_host import OpalSession, RefusedError
from drive.tests.process import Drive

ONE = [
    Claim("nvme", "Get C_PIN", "test_x::test_one"),
    Claim("nvme", "Set Locking refused", "test_x::test_one"),
]


def test_the_markers_of_all_tests_give_one_table() -> None:
    table = render(conformance.collect())
    assert table.count("| StartSession | SessionManager |") == 1
    assert "`test_conformance::test_a_refused_session_is_in_the_drives_record`" in table


@pytest.mark.parametrize(
    "arguments", [("nvme",), ("an unknown host", "Get C_PIN"), ("nvme", "Get"), ("nvme", 7), ()]
)
def test_a_malformed_claim_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="test_x"):
        claims_of("test_x", arguments)


def test_only_calls_during_the_test_prove_a_claim() -> None:
    got = {"method": "Get", "table": "C_PIN", "status": "SUCCESS"}
    denied = {"method": "Set", "table": "Locking", "status": "NOT_AUTHORIZED", "count": 1}
    before = count([{**got, "count": 4}])
    assert unproven(ONE, before, count([{**got, "count": 5}, denied])) == []
    assert unproven(ONE, before, count([{**got, "count": 4}, denied])) == ["Get C_PIN"]
    granted = {**denied, "status": "SUCCESS"}
    after = count([{**got, "count": 5}, granted])
    assert unproven(ONE, before, after) == ["Set Locking refused"]


@pytest.mark.conformance("initiator", "StartSession SessionManager refused")
def test_a_refused_session_is_in_the_drives_record(sed: Drive) -> None:
    assert sed.ask("calls")["calls"] == []
    with pytest.raises(RefusedError):
        OpalSession(sed.connect(), bytes(8))  # there is no such security provider
    (row,) = sed.ask("calls")["calls"]
    assert (row["method"], row["table"], row["count"]) == ("StartSession", "SessionManager", 1)
    assert row["status"] == "INVALID_PARAMETER"


def test_every_opal_call_of_the_kernel_has_a_test() -> None:
    assert sorted(number for _, number, _ in CALLS.values()) == [*range(220, 241)]
    text = (conformance.TESTS / "test_guest_ioctls.py").read_text(encoding="utf-8")
    assert [name for name in CALLS if f'"{name}"' not in text] == []
