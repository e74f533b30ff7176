"""The archive for the target: the same bytes every time, and nothing that stays at home."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath

import pytest

from contract.tests.refusal import refuses
from controller.targets import agent_bundle


def test_the_archive_is_independent_of_times_and_order(tmp_path: Path) -> None:
    def sources(names: list[str], when: int) -> bytes:
        root = tmp_path / f"at-{when}"
        for package in agent_bundle.PACKAGES:
            (root / package).mkdir(parents=True)
        for name in names:
            (root / "agent" / name).write_text(name, encoding="utf-8")
            os.utime(root / "agent" / name, (when, when))
        return agent_bundle.pack(agent_bundle.collect(root))

    assert sources(["a.py", "b.py"], 1000) == sources(["b.py", "a.py"], 2000)


def test_a_changed_file_of_equal_size_gets_another_time() -> None:
    """A .pyc is taken for fresh by time and size of its source."""

    def time_of(content: bytes) -> float:
        packed = agent_bundle.pack({PurePosixPath("a.py"): content})
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            return tar.getmember("a.py").mtime

    assert time_of(b"x = 1") != time_of(b"x = 2")
    assert time_of(b"x = 1") == time_of(b"x = 1")


def test_the_archive_excludes_tests_meters_and_the_controller() -> None:
    names = {str(path) for path in agent_bundle.collect()}
    assert "opt/fde-testbed/agent/cli.py" in names
    assert "opt/fde-testbed/workloads/registry.py" in names
    assert "opt/fde-testbed/lib/pyRAPL/__init__.py" in names
    for part in ("/tests/", "__pycache__", "/controller/", "/meters/", "/simulators/"):
        assert not [name for name in names if part in name]


def test_the_agent_imports_with_only_the_standard_library(tmp_path: Path) -> None:
    """In an interpreter without site-packages: what the archive lacks would fail here."""
    with tarfile.open(fileobj=io.BytesIO(agent_bundle.pack(agent_bundle.collect()))) as tar:
        for member in tar:
            place = tmp_path / member.name
            place.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            place.write_bytes(content.read())
    home = tmp_path / "opt" / "fde-testbed"
    code = (
        "import agent.cli, agent.runner, agent.storage.commands, instrumentation.clock, pyRAPL\n"
        "from workloads import registry\n"
        "for name in registry.names(): registry.load(name)\n"
        "from instrumentation.sources import registry\n"
        "for name in registry.names(): registry.load(name)\n"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", code],
        env={"PYTHONPATH": f"{home}:{home / 'lib'}", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_a_plugin_without_its_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = EntryPoint("mine", "not_there.mine:Mine", "fde.workloads")
    monkeypatch.setattr(
        agent_bundle, "installed", lambda group: (gone,) if group == gone.group else ()
    )
    facts = {"class_path": gone.value, "group": gone.group, "top": "not_there"}
    with refuses("package-without-module", **facts):
        agent_bundle.collect()
