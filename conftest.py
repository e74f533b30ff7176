"""The virtual lab for tests marked `lab`: one guest for the whole session."""

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
    """Return the name of the tier that is run, such as `unit` or `test`."""
    parser.addoption("--tier", help="what is run; `all-…` tries every case")


def pytest_configure(config: pytest.Config) -> None:
    """Hear a terminal's signals, which background jobs and nohup ignore: tests send them.

    No example of a property fails by how long it took: a busy machine is no fault. `make test-all`
    draws more of them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    draws = 100 if _all(config) else 20
    hypothesis.settings.register_profile("untimed", deadline=None, max_examples=draws)
    hypothesis.settings.load_profile("untimed")
    if not hasattr(config, "workerinput"):  # the workers of xdist report to the process above
        state = tempfile.mkdtemp(prefix="fde-state-")  # a test writes nothing into anybody's home
        os.environ["XDG_STATE_HOME"] = state
        config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))


def _all(config: pytest.Config) -> bool:
    return (config.getoption("tier") or "").startswith("all")


@pytest.fixture
def fde(capfd: pytest.CaptureFixture[str]) -> Fde:
    return Fde(capfd)


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """Whether every case is tried (`make test-all`), rather than a share of them."""
    return _all(pytestconfig)


class _Modules(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A module for each process, and those that look at one suite for the same."""

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
    """Check that a test leaves the signals' handlers as they were, for the next one."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def interruptible() -> Iterator[None]:
    """No KeyboardInterrupt is lost in a callback of the garbage collector: Hypothesis has one."""
    kept = gc.callbacks.copy()
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@dataclass(frozen=True)
class LabHandle:
    """A lab that is up. `state` is the content of its state.json."""

    directory: Path
    state: LabState

    def ssh(
        self, command: str, check: bool = True, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest as root; with `check`, a failure fails the test."""
        argv = ssh.command(self._shared, [command])
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if check and done.returncode != 0:
            pytest.fail(f"in the guest, `{command}` ended with {done.returncode}:\n{out}{err}")
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    def disconnect(self) -> None:
        """Before the guest loses its power: the shared connection would wait for an answer."""
        program, *rest = ssh.command(self._shared)
        subprocess.run([program, "-O", "exit", *rest], capture_output=True, check=False)

    @property
    def _shared(self) -> SshState:
        """The `ssh` of the state, over one connection that ends soon after its last command."""
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
    """For labs of this session's own, below build/lab-test; they are taken down at the end.

    It is kept, with the logs, if a test failed, until the next session.
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


@pytest.fixture(scope="session")
def lab(lab_directory: Path) -> Iterator[LabHandle]:
    """Yield the session's guest."""
    layout = Layout(lab_directory)
    lifecycle.up(layout, print, lifecycle.LabOptions(truth=True))
    handle = LabHandle(lab_directory, json.loads(layout.state.read_text(encoding="utf-8")))
    yield handle
    handle.disconnect()


@pytest.fixture(scope="session")
def another_lab(lab_directory: Path) -> Callable[..., AbstractContextManager[LabHandle]]:
    """Provide what starts a lab of a name beside the session's."""

    @contextmanager
    def started(name: str, **options: Any) -> Iterator[LabHandle]:
        layout = Layout(lab_directory / name)
        lifecycle.up(layout, print, lifecycle.LabOptions(**options))
        state = json.loads(layout.state.read_text(encoding="utf-8"))
        handle = LabHandle(layout.directory, state)
        try:
            yield handle
        finally:
            handle.disconnect()
            lifecycle.down(layout)

    return started


@pytest.fixture(autouse=True)
def _abilities(request: pytest.FixtureRequest) -> None:
    """Skip a test that needs what the machine that runs the guest does not have."""
    if marker := request.node.get_closest_marker("needs"):
        machine = machine_of(request.getfixturevalue("lab").state)
        for ability in marker.args:
            if ability not in machine.abilities:
                pytest.skip(f"the guest on {machine.name} has no {ability.removeprefix('a ')}")


def _sweep(labs: Path) -> None:
    """Take down and remove what killed sessions left; a session that still runs keeps its lab."""
    for directory in labs.glob("[0-9]*"):
        if not Path(f"/proc/{directory.name}").exists():
            lifecycle.down_all(directory)
            shutil.rmtree(directory, ignore_errors=True)  # others may be at it
