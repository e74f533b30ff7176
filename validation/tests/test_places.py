"""Where every table and figure of the papers is: complete, and pointing at what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from analysis.published.claims import Claim, claims
from analysis.published.compared_figures import find_configuration
from analysis.published.conditions import Compared, differences
from analysis.published.reference import citations
from analysis.suite.records import Suite
from contract.places import ROOT
from contract.plan import FORMAT, Configuration, SuitePlan, WorkloadEntry
from validation.paper_places import PAGE, WORDS, page, places, sentences
from workloads import registry

SUITES = Path(__file__).parents[2] / "workloads" / "suites"


def faults(suites: Path) -> Iterator[str]:
    """Places whose suite is no file of `suites`, or whose workload that file does not name."""
    for place in filter(lambda place: place.ours, places()):
        path = suites / f"{place.suite}.yml"
        if not path.is_file():
            yield f"{place.paper}, {place.place}: there is no suite {place.suite}"
        elif not names(path.read_text(encoding="utf-8"), place.workload):
            yield f"{place.paper}, {place.place}: {place.suite} has no workload {place.workload}"


def names(suite: str, workload: str) -> bool:
    """Whether a suite's text names a workload as an entry or as what an entry runs."""
    words = re.split(r"[\s,{}]+", suite)
    return any(
        key in ("name:", "workload:") and value == workload for key, value in pairwise(words)
    )


def test_each_counterpart_names_an_existing_suite_and_workload() -> None:
    assert list(faults(SUITES)) == []


def test_an_unknown_suite_or_workload_is_reported(tmp_path: Path) -> None:
    (tmp_path / "paper.yml").write_text("workloads:\n  - {name: sql}\n", encoding="utf-8")
    messages = list(faults(tmp_path))
    assert "fujimoto, Figure 1: paper has no workload file_io" in messages
    assert "verma, Table II: there is no suite cipher-modes" in messages
    assert not any("workload sql" in message for message in messages)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "docs/papers.md is old: run python -m validation.paper_places"
    )


def test_each_sentence_is_to_the_letter_or_has_its_reason() -> None:
    every = [sentence for citation in citations() for sentence in sentences(citation.paper)]
    assert {sentence.suits for sentence in every} == set(WORDS)
    assert [s.sentence for s in every if s.suits != "letter" and not s.why] == []
    assert sum(sentence.suits == "part" for sentence in every) <= 5
    written = page()
    assert all(f"| {s.place} |" in written and s.ours + s.why for s in every)


def test_a_shared_remark_is_printed_once() -> None:
    text = page()
    assert text.count("BestCrypt is closed") == 1
    assert text.count("; (1) |\n") >= 12


KEYS = ("name", "kind", "disk")
LABS = ROOT / "ansible" / "playbooks" / "group_vars" / "labs.yml"


def on_hard_disks(name: str) -> Suite:
    """Return a suite as planned for hard disks, or for the media that it names."""
    document = yaml.safe_load((SUITES / f"{name}.yml").read_text(encoding="utf-8"))
    stacks = {
        row["name"]: row for row in yaml.safe_load(LABS.read_text("utf-8"))["fde_configurations"]
    }
    for cipher in ("aes", "serpent", "twofish"):
        closed = {"kind": "external", "disk": "plain", "cipher": cipher, "key_bits": 256}
        stacks[f"bestcrypt-{cipher}256"] = {"name": f"bestcrypt-{cipher}256", **closed}
    made = []
    for disk in document.get("disks", [None]):
        for row in (stacks[stack] for stack in document["configurations"]):
            settings = {key: value for key, value in row.items() if key not in KEYS}
            settings |= {"volume": "truecrypt"} if row["kind"] == "tcrypt" else {}
            settings |= {"volume": row["volume"]} if "volume" in row else {}
            stack = f"{row['name']}-on-{disk}" if disk else row["name"]
            made.append(Configuration(stack, row["kind"], disk or row["disk"], settings=settings))
    entries = [
        WorkloadEntry(
            entry["name"],
            workload=entry.get("workload"),
            parameters=registry.complete(
                entry.get("workload", entry["name"]), entry.get("parameters", {})
            ),
        )
        for entry in document["workloads"]
    ]
    disks = {role: {"rotational": "1"} for role in ("plain", "sed")}
    plan = SuitePlan(
        format=FORMAT,
        suite_id=name,
        suite=name,
        host="target",
        origin="measured",
        configurations=tuple(made),
        workloads=tuple(entries),
        sha256="0" * 64,
    )
    return Suite(Path(), plan, (), before={"disks": disks})


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: f"{claim.paper}: {claim.text}")
def test_its_suite_can_decide_each_claim(claim: Claim) -> None:
    suite = on_hard_disks(claim.suite)
    for ratio in claim.ratios:
        for place, group in enumerate(ratio.groups):
            pair = ratio.pairs[place]
            ours = [find_configuration(suite, *side) if side[0] else "plain" for side in pair]
            assert None not in ours, (ratio.configuration, ratio.against, ratio.medium)
            names = {side[0]: str(mine) for side, mine in zip(pair, ours, strict=True) if side[0]}
            media = {str(mine): side[1] for side, mine in zip(pair, ours, strict=True)}
            under = {} if place else dict(ratio.under)
            for workload, *phases in group:
                entries = [e for e in suite.workloads if suite.workload_of(e) == workload]
                differs = [
                    differences(
                        suite, claim.paper, Compared(workload, entry, phases, names, media, under)
                    )
                    for entry in entries
                ]
                assert () in differs, (workload, phases, differs)
