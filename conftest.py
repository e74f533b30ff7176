"""Pytest options, signal checks and the virtual lab: one guest for the whole session."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from analysis import rounding  # noqa: F401 - before any test imports numpy
from controller.tests.command import Fde
from lab import lifecycle, ssh
from lab.power import machine_of
from lab.state import LabState, Layout, SshState

REPOSITORY = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with the name of the tier, such as `unit` or `test`."""
    parser.addoption("--tier", help="what is run; `all-…` tries every case")


def pytest_configure(config: pytest.Config) -> None:
    """Restore signals that background jobs and nohup ignore, because tests send them.

    Examples of a property have no deadline: a busy machine is no fault. `make test-all` draws more.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    draws = 100 if _all(config) else 20
    hypothesis.settings.register_profile("untimed", deadline=None, max_examples=draws)
    hypothesis.settings.load_profile("untimed")
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the environment
        state = tempfile.mkdtemp(prefix="fde-state-")  # tests must not write to the user's home
        os.environ["XDG_STATE_HOME"] = state
        config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))


def _all(config: pytest.Config) -> bool:
    return (config.getoption("tier") or "").startswith("all")


@pytest.fixture
def fde(capfd: pytest.CaptureFixture[str]) -> Fde:
    return Fde(capfd)


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """Return whether to try every case (`make test-all`) rather than a share of them."""
    return _all(pytestconfig)


class _Modules(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A scheduler with a process per module, and one for all modules that use the same suite."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return (
            "suite" if module.endswith(("/test_lab_secrets.py", "/test_lab_suite.py")) else module
        )


@pytest.hookimpl(optionalhook=True)  # not known with -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Choose the scheduler, in the process that the user started; None is xdist's."""
    return _Modules(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _leaves_signals_alone() -> Iterator[None]:
    """Check that a test leaves the signal handlers as they were."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Remove callbacks of the garbage collector, in which a KeyboardInterrupt is lost."""
    callbacks = gc.callbacks.copy()
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


@dataclass(frozen=True)
class LabHandle:
    """A lab that is up; `state` is the content of its state.json."""

    directory: Path
    state: LabState

    def ssh(
        self, command: str, check: bool = True, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest as root; with `check`, a failure fails the test."""
        argv = ssh.command(self._shared, [command])
        result = subprocess.run(argv, input=stdin, capture_output=True, check=False)
        out, err = (text.decode(errors="replace") for text in (result.stdout, result.stderr))
        if check and result.returncode != 0:
            pytest.fail(f"in the guest, `{command}` ended with {result.returncode}:\n{out}{err}")
        return subprocess.CompletedProcess(command, result.returncode, out, err)

    def disconnect(self) -> None:
        """Close the shared connection; it would hang when the guest loses its power."""
        program, *arguments = ssh.command(self._shared)
        subprocess.run([program, "-O", "exit", *arguments], capture_output=True, check=False)

    @property
    def _shared(self) -> SshState:
        """Return the `ssh` of the state, with a shared connection that is closed when idle."""
        options = ["ControlMaster=auto", f"ControlPath={self.state['sockets']}/ssh"]
        options.append("ControlPersist=10")
        return {**self.state["ssh"], "options": [*self.state["ssh"]["options"], *options]}

    def send(self, source: Path, destination: str) -> None:
        """Copy a file or directory into a directory of the guest."""
        packed = subprocess.run(
            ["tar", "-C", str(source.parent), "--exclude=__pycache__", "-cf", "-", source.name],
            capture_output=True,
            check=True,
        )
        self.ssh(f"mkdir -p {destination} && tar -C {destination} -xf -", stdin=packed.stdout)


@pytest.fixture(scope="session")
def lab_directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Yield the directory for this session's labs, below build/lab-test; stop them at the end.

    If a test failed it remains, with the logs, until the next session.
    """
    labs = REPOSITORY / "build" / "lab-test"
    _sweep(labs)
    directory = labs / str(os.getpid())
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        lifecycle.down_all(directory)
        if not request.session.testsfailed:
            shutil.rmtree(directory)


@contextmanager
def _start_lab(directory: Path, **options: Any) -> Iterator[LabHandle]:
    layout = Layout(directory)
    lifecycle.up(layout, print, lifecycle.LabOptions(**options))
    handle = LabHandle(directory, json.loads(layout.state.read_text(encoding="utf-8")))
    try:
        yield handle
    finally:
        handle.disconnect()
        lifecycle.down(layout)


@pytest.fixture(scope="session")
def lab(lab_directory: Path) -> Iterator[LabHandle]:
    """Yield the session's guest."""
    with _start_lab(lab_directory, truth=True) as handle:
        yield handle


@pytest.fixture(scope="session")
def another_lab(lab_directory: Path) -> Callable[..., AbstractContextManager[LabHandle]]:
    """Return a function that starts another lab of a given name."""

    def start(name: str, **options: Any) -> AbstractContextManager[LabHandle]:
        return _start_lab(lab_directory / name, **options)

    return start


@pytest.fixture(autouse=True)
def _abilities(request: pytest.FixtureRequest) -> None:
    """Skip a test that needs an ability that the guest's machine lacks."""
    if marker := request.node.get_closest_marker("needs"):
        machine = machine_of(request.getfixturevalue("lab").state)
        for ability in marker.args:
            if ability not in machine.abilities:
                pytest.skip(f"the guest on {machine.name} has no {ability.removeprefix('a ')}")


def _sweep(labs: Path) -> None:
    """Stop and remove the labs of killed sessions, not those of running ones."""
    for directory in labs.glob("[0-9]*"):
        if not Path(f"/proc/{directory.name}").exists():
            lifecycle.down_all(directory)
            shutil.rmtree(directory, ignore_errors=True)  # another session may remove it, too
