"""What is counted as a counterpart of a published figure, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.published.here import Here, Part
from analysis.published.reference import published, rows
from lab.state import REPOSITORY
from validation import mission


@pytest.fixture(scope="module")
def found() -> list[mission.Counterpart]:
    return list(mission.counterparts())


def test_every_figure_is_counted_once_and_has_a_place_or_a_reason(
    found: list[mission.Counterpart],
) -> None:
    assert len(found) == len(published())
    for one in found:
        assert bool(one.where) == (one.kind != "none")
        assert bool(one.why) == (one.kind == "none")
        assert not (one.counts and (one.kind == "none" or one.spoilt))


def test_the_counts_of_the_page_are_those_of_today(found: list[mission.Counterpart]) -> None:
    assert rows("counterparts") == mission.summary(found), (
        "counterparts.csv is old: make bench-mission, then python -m analysis.published"
    )


def test_nothing_is_told_but_by_a_rule(found: list[mission.Counterpart]) -> None:
    reasons = {one.why for one in found if one.kind == "none"}
    assert "nothing is mapped to it" not in reasons
    assert "no suite has the phases that it is mapped to" not in reasons


def test_every_setting_is_of_a_figure() -> None:
    figures = published()
    for setting in mission.settings():
        assert any(setting.of(figure) for figure in figures), setting


def test_what_is_recorded_is_a_fact_of_the_agents() -> None:
    facts = (REPOSITORY / "agent" / "provenance.py").read_text(encoding="utf-8")
    recorded = [one.ours for one in mission.settings() if one.kind == "recorded"]
    assert recorded
    for name in recorded:
        assert f'"{name.rpartition(".")[2]}": ' in facts, name


def test_a_phase_or_configuration_that_no_suite_has_is_no_counterpart() -> None:
    there = Here("block_sizes", (Part(r"read\.512B", "bytes"),), "AES", "truecrypt-aes256")
    assert mission.place_of(there) == "block-sizes: block_sizes"
    assert not mission.place_of(replace(there, parts=(Part(r"read\.513B", "bytes"),)))
    assert not mission.place_of(replace(there, configuration="truecrypt-serpent256"))
    assert not mission.place_of(replace(there, workload="video"))
    both = replace(there, versus=replace(there, parts=(Part(r"read\.513B", "bytes"),)))
    assert not mission.place_of(both)


def test_a_setting_counts_where_it_is_the_papers(found: list[mission.Counterpart]) -> None:
    by = {(o.paper, o.entry, o.quantity, o.printed): o for o in found}
    assert by["sassani", "method", "repetitions", "10"].counts
    assert by["fujimoto", "battery-range", "battery_energy_min", "50"].counts
    assert not by["fujimoto", "battery-range", "battery_energy_max", "60"].counts
    assert by["verma", "key-length", "key_size", "56"].counts
    assert by["fujimoto", "file-size", "file_size", "1"].counts  # GB, of ours in MiB
    assert by["fujimoto", "runs", "repetitions_min", "10"].counts  # 20 lie in 10 to 20
    assert by["panda", "rsa-keys", "key_size_max", "4096"].counts
    assert by["verma", "table-ii", "processed", "64"].counts


def test_a_setting_outside_the_printed_range_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = ("runs", "repetitions_min")
    (setting,) = (one for one in mission.settings() if (one.entry, one.quantity) == wanted)
    (figure,) = (p for p in published("fujimoto") if setting.of(p))
    for ours, counts in ((9.0, False), (10.0, True), (15.0, True), (20.0, True), (21.0, False)):
        monkeypatch.setattr(mission, "_values", lambda _, ours=ours: [ours])
        assert mission._as_printed(setting, figure) == counts
