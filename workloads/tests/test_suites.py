"""Every suite names workloads and parameters that exist, and its document tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workloads import registry

SUITES = Path(__file__).parents[1] / "suites"
# Those of Fujimoto et al., and rest. The drift check comes by itself.
WORKLOADS = ["file_io", "kernel_tree", "kernel_grep", "sql", "video", "idle"]
MORE = {"overnight": ["package_upgrade"]}
KEYS = {"summary", "blocks", "workloads", "rapl_hz", "settle_s", "tail_s"}
OPTIONAL = {"configurations", "contrasts", "drift_check", "run_limit_s", "scales"} | {
    *("extra", "comparisons", "attempts", "watermark", "margin", "one_disk"),
    *("discard_first", "precondition", "disks"),
}
ENTRY = {"name", "workload", "parameters", "repeat", "configurations", "overall"}


def suite(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((SUITES / f"{name}.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yml")), ids=lambda path: path.stem)
def test_every_suite_follows_the_schema(path: Path) -> None:
    content = suite(path.stem)
    assert KEYS <= set(content) <= KEYS | OPTIONAL
    assert isinstance(content["summary"], str)
    assert type(content["blocks"]) is int and content["blocks"] >= 1
    assert content["rapl_hz"] > 0 and content["settle_s"] >= 0 and content["tail_s"] >= 0
    for entry in content["workloads"]:
        assert set(entry) <= ENTRY
        registry.complete(entry.get("workload", entry["name"]), entry.get("parameters", {}))
    if isinstance(content.get("drift_check"), dict):
        parameters = {k: v for k, v in content["drift_check"].items() if k != "every"}
        registry.complete("drift_check", parameters)


@pytest.mark.parametrize("name", ["smoke", "micro", "paper", "overnight"])
def test_the_standard_suites_hold_every_workload_of_the_paper(name: str) -> None:
    content = suite(name)
    assert content["configurations"] == ["plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256"]
    names = [entry["name"] for entry in content["workloads"] if "workload" not in entry]
    assert names == [*WORKLOADS, *MORE.get(name, [])]


def test_the_paper_suite_has_the_sizes_of_the_paper() -> None:
    sizes = {entry["name"]: entry["parameters"] for entry in suite("paper")["workloads"]}
    assert suite("paper")["blocks"] == 20
    assert sizes["file_io"]["small_mib"] == 10 and sizes["file_io"]["large_mib"] == 1024
    assert sizes["file_io"]["source"] == "zero"
    assert sizes["kernel_grep"]["copies"] == 10
    repeats = {entry["name"]: entry.get("repeat", 1) for entry in suite("paper")["workloads"]}
    assert repeats["video"] * suite("paper")["blocks"] == 60


def test_the_figure_over_all_workloads_is_of_the_papers_five_alone() -> None:
    entries = suite("paper")["workloads"]
    assert [entry["name"] for entry in entries if entry.get("overall", True)] == WORKLOADS
