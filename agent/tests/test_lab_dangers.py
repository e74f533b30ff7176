"""No disk is written that must not be: real situations on the real kernel, media hashed outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.tests.danger_rows import ROWS
from agent.tests.dangers import Row, Scene, plain_words
from agent.tests.guest import CODE, FOLDER

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def guest(lab: Any) -> Iterator[Scene]:
    guest = Scene(lab)
    for role in guest.drives:
        guest.blank(role)
    yield guest
    for role in guest.drives:
        guest.blank(role)
    guest.sh(f"rm -rf {FOLDER} {CODE}; modprobe -ra bcache raid0 raid1 dm-multipath || true")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_danger_leaves_the_medium_unchanged(guest: Scene, row: Row) -> None:
    words = guest.words(row.role)
    target = f"{FOLDER}/target.json"
    secrets = f"{FOLDER}/{'row-' if row.secrets else ''}secrets.json"
    second = guest.put_second_look(f"{words}{row.second_look}") if row.second_look else ""
    before: tuple[str, ...] = ()
    try:
        guest.put("target.json", guest.target(row))
        guest.put("row-secrets.json", {**guest.secrets, **row.secrets})
        guest.sh(f"set -e; {words}{row.make} sync")
        if "{print}" in str(row.disk):
            guest.put("target.json", guest.target(row, guest.prints(target)[row.role][:12]))
        before = guest.hashes(row.medium)
        checked = guest.checked(target) if row.checked else ""
        if row.late:
            guest.sh(f"set -e; {words}{row.late} sync")
            before = guest.hashes(row.medium) if not row.second_look else before
        for fault in row.faults:
            guest.ask(row.role, "fault", **fault)
        if row.vices:
            guest.ask(row.role, "vices", **row.vices)
        options = f"--target {target} --secrets {secrets} {checked}"
        runs = [guest.agent(f"{c} {options}", second, chroot=row.chroot) for c in row.commands]
        unchanged = guest.hashes(row.medium) == before
    finally:
        if row.faults or row.vices:
            guest.clear_faults(row.role)
        guest.blank(row.role, row.undo or "true")
    sentences = [plain_words(output.stdout if row.allowed else output.stderr) for output in runs]
    for output, text in zip(runs, sentences, strict=True):
        assert output.returncode == (0 if row.allowed else 1), output
        assert row.allowed or (text.startswith("fde: ") and "Traceback" not in text)
        assert [part for part in row.says if part not in text] == [], text
    assert unchanged != row.allowed
