"""Packages built the same each time, and dpkg that syncs whatever the machine configures."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract import account
from contract.tests import programs as stand_ins
from contract.tests.refusal import refuses
from workloads import package_upgrade, programs, registry
from workloads.tests import contract
from workloads.tests.test_details import digests

NAME = "package_upgrade"
SMALL: dict[str, Any] = {**registry.load(NAME).small}
# Options of the configuration are read before those of the command.
CONFIGURED = "--force-unsafe-io --path-exclude=*/0001"

pytestmark = pytest.mark.skipif(not programs.find("dpkg"), reason="dpkg is not installed")


def put_first(root: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a script before dpkg; `real` in it is dpkg's path."""
    text = script.replace("real", str(programs.find("dpkg")))
    shadow = stand_ins.program(root / "bin" / "dpkg", text)
    monkeypatch.setenv("PATH", str(shadow.parent), prepend=":")


def traced(notes: Path) -> bool:
    """Return whether strace is installed and permitted here."""
    command = ["strace", "-o", str(notes), "true"]
    return bool(programs.find("strace")) and subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize("compression", ["zstd", "xz", "gzip", "none"])
def test_packages_are_the_same_each_time_at_any_umask(compression: str, root: Path) -> None:
    built = []
    for mask in (0o022, 0o077):
        sizes = {**SMALL, "compression": compression}
        context, _ = contract.new_run(NAME, root / str(mask), **sizes)
        before = os.umask(mask)
        try:
            registry.load(NAME).prepare(context)
        finally:
            os.umask(before)
        built.append(digests(context.shared))
    assert built[0] == built[1]
    assert len(built[0]) == len(set(built[0].values())) == 6


def test_packages_are_shared_only_within_a_block(root: Path) -> None:
    context, _ = contract.new_run(NAME, root / "a", **SMALL)
    registry.load(NAME).prepare(context)
    (folder,) = context.shared.iterdir()
    (folder / "mark").touch()
    registry.load(NAME).prepare(context)
    assert (folder / "mark").exists()
    registry.load(NAME).prepare(replace(context, seed=context.seed + 1))
    (other,) = context.shared.iterdir()
    assert other != folder


def test_contents_compress_to_a_third(root: Path) -> None:
    context, _ = contract.new_run(NAME, root / "a", packages=1, files=1, total_mib=3)
    registry.load(NAME).prepare(context)
    (archive,) = context.shared.glob("*/1/*.deb")
    assert 1 << 20 <= archive.stat().st_size <= 1.1 * (1 << 20)


def test_an_upgrade_leaves_the_second_version_and_nothing_else(root: Path) -> None:
    context, phases = contract.performed(NAME, root / "a", **SMALL)
    assert phases.names == ["install", "upgrade"]
    amounts = {"files": 15.0, "operations": 3.0}
    assert all(amounts.items() <= work.amounts.items() for work in phases.works)
    tree = context.disk / "root" / "usr"
    packages = package_upgrade.seeded_packages(context)
    contents = {path for package in packages for path in package.sizes}
    assert {f"usr/{path}" for path in digests(tree)} == contents
    assert "2" in (context.disk / "root/var/lib/dpkg/status").read_text()


def test_the_machines_configuration_of_dpkg_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first(root, monkeypatch, f'exec real {CONFIGURED} "$@"')
    monkeypatch.setenv("DPKG_FORCE", "unsafe-io")
    context, phases = contract.performed(NAME, root / "a", **SMALL)
    assert account.judge(phases.documents())[0].ok
    version, _, enabled = (context.kept / "dpkg.txt").read_text().partition("\n")
    assert "dpkg" in version and "not-root" in enabled and "unsafe-io" not in enabled


def test_every_file_is_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = root / "notes"
    if not traced(notes):
        pytest.skip("strace is not installed or not permitted")
    strace = f"strace -f -qq -A -o {notes} -e trace=fsync,fdatasync,syncfs"
    put_first(root, monkeypatch, f'exec {strace} real {CONFIGURED} "$@"')
    contract.performed(NAME, root / "a", packages=2, files=100, total_mib=1)
    calls = [line for line in notes.read_text().splitlines() if "sync" in line]
    # Both versions; one of a whole file system serves all files of a package.
    assert len(calls) >= 2 * 2 * 100 or any("syncfs" in line for line in calls)


def test_dpkg_that_would_not_sync_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    force = '[ "$1" = --version ] || set -- --force-unsafe-io --force-help'
    put_first(root, monkeypatch, f'{force}; exec real "$@"')
    with refuses("unsafe-dpkg"):
        contract.performed(NAME, root / "a", **SMALL)


def test_a_failure_of_dpkg_has_its_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = 'for a; do last=$a; done; case "$*" in *--install*) : > "$last";; esac; exec real "$@"'
    put_first(root, monkeypatch, broken)
    with refuses("program-failed", program="dpkg") as caught:
        contract.performed(NAME, root / "a", **SMALL)
    assert "subprocess" in str(caught.value.problems[0].facts["reason"])
