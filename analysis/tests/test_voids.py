"""Tries that one configuration makes void, and the ratio if they counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from analysis.stats.results import results
from analysis.stats.voids import fisher, void_tries, with_void_tries
from analysis.tests.known import known
from contract.journal import REPEAT, TARGET_DOWN
from validation.synthetic.folder import write_manifest

VOIDED = "opal"
TRIES = 2  # that are void, before each of its runs is accepted


def void_before_each(folder: Path, like: str) -> None:
    """Give each run of `VOIDED` void tries before it, which took what a run of `like` did."""
    path = folder / "journal.jsonl"
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["state"] == "switching" and f"-{VOIDED}-" in line["run_id"]:
            void = {"state": "void", "cause": "failed", "detail": "The processor throttled."}
            lines += [{**line, "state": "running"}, {**line, **void}] * TRIES
        elif line["state"] == "switching" and "-plain-" in line["run_id"]:
            # What the controller or a power cut ended says nothing of the configuration.
            lines += [{**line, "state": "void", "cause": c} for c in (REPEAT, TARGET_DOWN)]
        lines.append(line)
    numbered = (json.dumps({**line, "seq": seq}) for seq, line in enumerate(lines))
    path.write_text("".join(f"{text}\n" for text in numbered), encoding="utf-8")
    runs = {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("runs/*/run.json")
    }
    cells = {(r["block"], r["configuration"], r["workload"]): r for r in runs.values()}
    for run_id, run in runs.items():
        if run["configuration"] == VOIDED:
            other = cells[run["block"], like, run["workload"]]
            took = {key: other[key] for key in ("phases", "t_start_ns", "t_end_ns")}
            document = {**run, **took, "status": "void", "void_reason": "throttled"}
            for number in range(TRIES):
                aside = folder / "runs" / f"{run_id}.void-{number + 1}"
                aside.mkdir()
                (aside / "run.json").write_text(json.dumps(document), encoding="utf-8")
    write_manifest(folder)


def test_tries_that_one_configuration_makes_void_are_told_and_withhold_equivalence(
    small_suite: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(small_suite, tmp_path / "s")
    void_before_each(folder, "dmcrypt-aes256")
    derived = results(folder)
    tries = {voids.configuration: voids for voids in void_tries(derived.suite)}
    assert (tries[VOIDED].void, tries[VOIDED].tries, tries[VOIDED].others_void) == (8, 12, 0)
    assert tries[VOIDED].p_adjusted < 0.05 < tries["plain"].p_adjusted
    for contrast in derived.contrasts:
        concerned = VOIDED in (contrast.base, contrast.other)
        c = known(contrast.comparison)
        assert c.withheld == ("voids" in c.doubts) == concerned
    (sentence,) = (text for text in derived.reservations if text.startswith("8 of 12 tries"))
    accepted = known(next(c for c in derived.contrasts if c.other == VOIDED).comparison)
    both = known(with_void_tries(derived.suite, derived.all_energy, "plain", VOIDED))
    other = next(c for c in derived.contrasts if c.other == "dmcrypt-aes256" and c.base == "plain")
    # The tries that were void took as much as the other configuration's runs.
    assert accepted.ratio < both.ratio < known(other.comparison).ratio
    assert f"{100 * (both.ratio - 1):+.1f} %".replace("-", "−") in sentence


def test_a_suite_without_void_tries_has_no_ratio_with_them(small_suite: Path) -> None:
    derived = results(small_suite)
    assert with_void_tries(derived.suite, derived.all_energy, "plain", VOIDED) is None
    assert {voids.p_adjusted for voids in void_tries(derived.suite)} == {1.0}


@pytest.mark.parametrize(
    ("hits", "tries", "all_hits", "all_tries", "p_value"),
    [(4, 8, 4, 20, 2 * 70 / 4845), (0, 5, 0, 20, 1.0), (1, 1, 20, 20, 1.0)],
)
def test_the_exact_test_counts_the_ways(
    hits: int, tries: int, all_hits: int, all_tries: int, p_value: float
) -> None:
    assert fisher(hits, tries, all_hits, all_tries) == pytest.approx(p_value)
