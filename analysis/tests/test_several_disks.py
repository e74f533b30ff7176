"""Several disks in one suite: ratios within each, disks with each other, and what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.report import tables
from analysis.report.build import build
from analysis.report.view import Matrix
from analysis.stats.results import Results
from analysis.tests.known import analysed

DISKS = ("hdd", "sshd", "ssd")
PLAIN_S = {"hdd": 1.4, "sshd": 1.2, "ssd": 1.0}
COST = {"hdd": 1.05, "sshd": 1.05, "ssd": 1.4}


def made(folder: Path) -> Results:
    slower = {f"plain-on-{disk}": PLAIN_S[disk] for disk in DISKS}
    slower |= {f"dmcrypt-aes256-on-{disk}": PLAIN_S[disk] * COST[disk] for disk in DISKS}
    slower["opal-on-ssd"] = 1.0
    return analysed(
        folder,
        blocks=4,
        interval_ms=100,
        workloads=("kernel_tree",),
        configurations=tuple(slower),
        slower=slower,
        disks_c=dict.fromkeys(DISKS, 35.0),
    )


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return made(tmp_path_factory.mktemp("media") / "s")


def test_a_configuration_is_compared_with_its_own_disk(derived: Results) -> None:
    bases = {name: derived.suite.base_of(name) for name in derived.suite.configurations}
    assert bases["dmcrypt-aes256-on-ssd"] == "plain-on-ssd"
    assert bases["plain-on-ssd"] == "plain-on-hdd" == bases["plain-on-hdd"]
    for disk in DISKS:
        row = derived.summary.filter(configuration=f"dmcrypt-aes256-on-{disk}", component="system")
        assert row["ratio"][0] == pytest.approx(COST[disk], rel=0.02)


def test_contrasts_within_and_between_disks_and_none_across_both(derived: Results) -> None:
    pairs = {frozenset((c.base, c.other)) for c in derived.contrasts}
    for disk in DISKS:
        assert frozenset((f"plain-on-{disk}", f"dmcrypt-aes256-on-{disk}")) in pairs
    for disk, other in (("hdd", "sshd"), ("hdd", "ssd"), ("sshd", "ssd")):
        assert frozenset((f"plain-on-{disk}", f"plain-on-{other}")) in pairs
    assert frozenset(("plain-on-hdd", "dmcrypt-aes256-on-ssd")) not in pairs


def test_one_page_has_every_disk(derived: Results) -> None:
    shown = next(block for block in tables.matrix(derived) if isinstance(block, Matrix))
    assert [group.name for group in shown.groups] == [f"Disk {disk}" for disk in DISKS]
    assert [row[0] for row in shown.groups[2].rows][-1] == "Opal drive, on ssd"
    build(derived.suite.folder)
    page = (derived.suite.folder / "report.html").read_text(encoding="utf-8")
    assert "Opal drive, on ssd" in page
