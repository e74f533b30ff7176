"""What preconditioning costs a disk is said before it begins, and asked for where it is much."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent import needs
from contract.disks import DiskAnswer, Lifetime
from contract.plan import Plan
from contract.tests.refusal import refuses
from controller.cli.app import main
from controller.planning import plan_folders, wear
from controller.planning.suites import SuitePrecondition
from controller.planning.wear import Cost
from controller.targets import check, fitness, playbook, survey
from controller.targets.playbook import Inventory
from controller.targets.survey import TargetAnswer
from controller.tests.examples import compiled, facts, resolved, suite

TB = 10**12
COST = Cost("sed", "S1", TB, TB // 10, passes=2, rounds=8)


def limits_hold(plan: Plan, answers: list[DiskAnswer], run_bytes: dict[str, int]) -> None:
    needs.require_within_limits(plan, plan.disks, wear.written(answers), run_bytes)


def disk(role: str, **lifetime: int) -> DiskAnswer:
    """Return a disk as the agent reports it."""
    life = Lifetime(**lifetime) if lifetime else None
    return DiskAnswer(role, role, (), lifetime=life, found="ours", ours=True)


def worn(written_bytes: int | None, used_percent: int | None) -> Cost:
    return replace(COST, written_bytes=written_bytes, used_percent=used_percent)


def test_the_bytes_are_those_of_all_passes_and_rounds() -> None:
    assert COST.most_bytes == TB
    assert "at most 1.0 TB to disk sed (serial S1)" in COST.sentences
    assert "100.0 GB 2 times" in COST.sentences and "at most 8 rounds" in COST.sentences


@pytest.mark.parametrize(
    ("cost", "printed"),
    [
        (worn(50 * TB, 10), "2 % of the 50.0 TB that it has written so far, and 0.2 % of its life"),
        (worn(50 * TB, 0), "it does not report yet how much of its life is used"),
        (worn(2000 * TB, None), "less than 0.1 % of the 2000.0 TB"),
        (worn(None, None), "does not report what it has written so far"),
    ],
)
def test_the_share_of_life_is_described_if_smart_reports_it(cost: Cost, printed: str) -> None:
    assert printed in cost.sentences


def test_more_than_a_hundredth_of_a_life_needs_consent() -> None:
    assert worn(10 * TB, 10).reason == "", "1 TB of 100 TB"
    assert "more than 1 % of its life" in worn(10 * TB, 11).reason


def test_with_unknown_life_the_size_decides_about_consent() -> None:
    assert replace(COST, rounds=28).reason == "", "three times its size"
    assert "more than 3 times its size" in replace(COST, rounds=29).reason
    assert "life is not known" in replace(worn(TB, 0), rounds=29).reason
    assert worn(1000 * TB, 1).reason == ""


def test_only_disks_of_the_plan_have_a_cost() -> None:
    assert wear.costs(compiled(suite()), [disk("plain")]) == []
    frozen = compiled(suite(precondition={"rounds": 5}, configurations=["plain"], contrasts=[]))
    (cost,) = wear.costs(frozen, [disk("plain", written_bytes=5, used_percent=1), disk("sed")])
    assert cost == Cost("plain", "plain", 2**31, 2**30, 2, 5, 5, 1)


def test_consent_is_given_by_serial_or_refused_with_a_remedy() -> None:
    much = worn(TB, 10)
    wear.require_allowed([COST], [], None)
    wear.require_allowed([much], ["S2", "S1"], None)
    wear.require_allowed([much], [], lambda question: " S1\n" if "S1" in question else "")
    with refuses("wear-needs-consent", command="fde run --confirm S1"):
        wear.require_allowed([COST, much], ["S2"], None)


@pytest.mark.parametrize("typed", ["y\n", "", "S11\n"])
def test_another_text_than_the_serial_is_refused(typed: str) -> None:
    with refuses("serial-not-typed", role="sed"):
        wear.require_allowed([worn(TB, 10)], [], lambda _question: typed)


def test_smart_data_is_described_in_one_line() -> None:
    assert wear.lifetime(None, None) == ""
    assert wear.lifetime(0, 0) == "by SMART 0.0 MB written in its life, 0 % of its life used"


def test_a_suite_beyond_a_disks_limit_is_refused_with_the_numbers() -> None:
    limited = resolved(
        disks={
            role: {"by_id": role, "serial": role, "size_bytes": 2**31, "max_written_bytes": TB}
            for role in ("plain", "sed")
        }
    )
    frozen = compiled(suite(configurations=["plain"], contrasts=[]), limited.document())
    written = {"file_io": TB // 100}  # three runs
    for unknown in ([disk("plain")], [disk("plain", used_percent=3)], []):
        with refuses("writes-unknown", role="plain"):
            limits_hold(frozen, unknown, written)
    limits_hold(frozen, [disk("plain", written_bytes=97 * TB // 100)], written)
    numbers = {"role": "plain", "count": "30.0 GB", "before": "971.0 GB", "limit": "1.0 TB"}
    with refuses("writes-beyond-limit", **numbers):
        limits_hold(frozen, [disk("plain", written_bytes=971 * TB // 1000)], written)
    filled = replace(frozen, precondition=SuitePrecondition(passes=1000))
    with refuses("writes-beyond-limit"):
        limits_hold(filled, [disk("plain", written_bytes=0)], {})


def test_a_rated_endurance_overrides_smarts_extrapolation() -> None:
    assert worn(10 * TB, 11).life_bytes == pytest.approx(90.9 * TB, rel=1e-3)
    assert replace(worn(10 * TB, 11), endurance_bytes=600 * TB).reason == ""
    assert "more than 1 % of its life" in replace(COST, endurance_bytes=99 * TB).reason


Given = Callable[..., Path]


@pytest.fixture
def worn_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """Make a target whose disks are worn so much, and a suite that preconditions them."""

    def make(lab: bool = False, **lifetime: int) -> Path:
        target = resolved(lab=lab, secrets_file="s")
        answer = TargetAnswer(facts(), disks=(disk("plain", **lifetime), disk("sed")))
        preconditioned = suite(precondition={"rounds": 5})
        for module in (plan_folders, check):
            monkeypatch.setattr(
                module, "load_suite", lambda name: replace(preconditioned, configurations=(name,))
            )
        monkeypatch.setattr(survey, "look", lambda _target, **_: answer)
        monkeypatch.setattr(survey, "read_writes", lambda *_: {"file_io": TB // 10})
        monkeypatch.setattr(fitness, "look", lambda _target, **_: answer)
        monkeypatch.setattr(fitness, "judge", lambda _scene: [])
        monkeypatch.setattr(playbook, "resolve", lambda _path: Inventory([target]))
        monkeypatch.setattr(check, "has_one_disk", lambda _target: False)
        monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
        path = tmp_path / "target.json"
        path.write_text(json.dumps(target.document()))
        return path

    return make


def planned(path: Path, *arguments: str) -> list[str]:
    return [
        "plan",
        "--suite",
        "plain",
        "--target",
        str(path),
        "--out",
        str(path.parent),
        *arguments,
    ]


def test_planning_prints_the_wear(worn_target: Given, capsys: pytest.CaptureFixture[str]) -> None:
    path = worn_target(written_bytes=100 * TB, used_percent=1)
    assert main(planned(path)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("Preconditioning writes at most 7.5 GB to disk plain")
    assert len(printed) == 2 and Path(printed[1], "plan.json").exists()


def test_a_plan_with_much_wear_needs_confirmation(
    worn_target: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    path = worn_target(written_bytes=TB // 1000, used_percent=5)
    assert main(planned(path)) == 1
    assert "--confirm plain" in capsys.readouterr().err
    assert not list(path.parent.glob("*/plan.json"))
    assert main(planned(path, "--confirm", "other plain")) == 0
    lab = worn_target(lab=True, written_bytes=TB // 1000, used_percent=5)
    for frozen in path.parent.glob("*/plan.json"):
        shutil.rmtree(frozen.parent)
    assert main(planned(lab)) == 0


def test_unreadable_disks_make_planning_fail(
    worn_target: Given, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = worn_target()
    answer = TargetAnswer(facts(), error="sfdisk is missing")
    monkeypatch.setattr(survey, "look", lambda _target, **_: answer)
    assert main(planned(path)) == 1
    assert "is unknown: sfdisk is missing" in capsys.readouterr().err


def test_a_check_with_a_suite_prints_the_wear(worn_target: Given) -> None:
    worn_target(written_bytes=TB // 1000, used_percent=5)
    lines: list[str] = []
    assert check.run(Path("x"), lines.append, suite="plain").ok
    page = " ".join(" ".join(lines).split())
    assert "by SMART 1.0 GB written in its life, 5 % of its life used" in page
    assert "wear Preconditioning writes at most 7.5 GB to disk plain" in page
    assert "will ask fde run --confirm plain, as that is more than 1 % of its life" in page
    assert "on disk plain write at least 300.0 GB and what idle write" in page
    lines.clear()
    worn_target(written_bytes=100 * TB, used_percent=1)
    assert check.run(Path("x"), lines.append, suite="plain").ok
    assert "Preconditioning" in " ".join(lines) and "will ask" not in " ".join(lines)
    (host,) = check.run(Path("x"), lines.append, suite="nothing").hosts
    assert [outcome.code for outcome in host.checks if outcome.state == "fail"] == ["suite"]
    assert not host.ok
    lines.clear()
    assert check.run(Path("x"), lines.append).ok
    assert "Preconditioning" not in " ".join(lines)
