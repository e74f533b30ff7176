"""`make testbed` in small: a Makefile of our own whose steps fail or hang on request."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.tests.programs import program, wait_until
from validation import host_load, testbed, testbed_figures

pytestmark = pytest.mark.usefixtures("interruptible")
ROOT = Path(testbed.__file__).parents[1]
COMMAND = ("python3", "-S", "-m", "validation.testbed")
MAKEFILE = """
packages venv image:
\t@echo did $@ >> done
lab:
\t@echo did $@ >> done; {lab}
lab-down:
\t@echo did $@ >> done
"""


FDE = """
echo did $1 >> done; echo "$@" >> commands
"""


def _start(folder: Path, lab: str, labs: Sequence[str] = ("build/lab",)) -> subprocess.Popen[str]:
    (folder / "Makefile").write_text(MAKEFILE.format(lab=lab), encoding="utf-8")
    program(folder / "fde", FDE)
    return subprocess.Popen(
        ["/usr/bin/env", *COMMAND, "--target", "lab", "--labs", *labs, "--", "--blocks", "2"],
        cwd=folder,
        env={**os.environ, "FDE_BUILD": "build", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(folder: Path, lab: str, code: int = 0, labs: Sequence[str] = ("build/lab",)) -> str:
    """Return what it printed once it has ended with this code."""
    process = _start(folder, lab, labs)
    out, err = process.communicate()
    assert process.returncode == code
    return out + err


def _steps_done(folder: Path) -> list[str]:
    return (folder / "done").read_text(encoding="utf-8").split()[1::2]


def test_all_steps_run_in_order_and_are_timed(tmp_path: Path) -> None:
    out = _run(tmp_path, "true")
    steps = ["packages", "venv", "image", "lab", "provision", "run", "report", "verify", "lab-down"]
    assert _steps_done(tmp_path) == steps
    commands = (tmp_path / "commands").read_text(encoding="utf-8").splitlines()
    assert "run --suite smoke --no-report --blocks 2" in commands
    printed = re.findall(r"^ 0:\d\d  (\d)/(\d)  [a-z]+ .*", out, re.MULTILINE)
    assert printed == [(str(number), "9") for number in range(1, 10)]
    lines = [line for line in out.splitlines() if not line.startswith("Report:")]
    assert max(map(len, lines)) <= 80
    assert "did" not in out


def test_without_a_lab_its_steps_are_not_counted(tmp_path: Path) -> None:
    out = _run(tmp_path, "false", labs=())
    steps = ["packages", "venv", "provision", "run", "report", "verify"]
    assert _steps_done(tmp_path) == steps
    assert len(re.findall(r"^ 0:\d\d  \d/6  ", out, re.MULTILINE)) == 6


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--suite", "smok"], "did you mean smoke?"),
        (["--inventory", "ansible/inventory/labb"], "did you mean ansible/inventory/lab?"),
    ],
)
def test_a_misspelt_name_is_refused_before_the_first_step(
    tmp_path: Path, options: list[str], printed: str
) -> None:
    inventory = tmp_path / "ansible" / "inventory" / "lab"
    inventory.mkdir(parents=True)
    (inventory / "hosts.yml").touch()
    result = subprocess.run(
        [sys.executable, *COMMAND[1:], *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("fde: ") and printed in result.stderr
    assert result.stdout == ""


def test_several_hosts_have_one_report(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/true")
    folders = [
        tmp_path / "data" / "suites" / f"smoke-{name}1" for name in ("", "first-", "second-")
    ]
    files = f"{folders[0]}/group.json {folders[0]}/hosts.csv"
    out = _run(tmp_path, f"mkdir -p {' '.join(map(str, folders))}; touch {files}")
    assert _steps_done(tmp_path)[-2:] == ["lab-down", "summary"]
    assert out.splitlines()[-1] == f"Report: {folders[0].as_uri()}/report.html"
    beside = json.loads((tmp_path / "build/bench/testbed.machine.json").read_text(encoding="utf-8"))
    assert beside["host_busy_cpus"] >= 0


def test_a_failed_step_ends_the_line_but_takes_the_lab_down(tmp_path: Path) -> None:
    assert "step lab failed" in _run(tmp_path, "exit 3", code=1)
    assert _steps_done(tmp_path) == ["packages", "venv", "image", "lab", "lab-down"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_takes_the_lab_down(tmp_path: Path, how: signal.Signals) -> None:
    process = _start(tmp_path, "exec sleep 600")
    wait_until(lambda: (tmp_path / "done").exists() and "lab" in _steps_done(tmp_path))
    process.send_signal(how)
    process.communicate()
    assert process.returncode == 130
    assert _steps_done(tmp_path)[-1] == "lab-down"


def test_a_step_that_has_just_started_is_ended_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal that comes before `run_step` knows the process it has started."""
    started = []

    def interrupted_start(_command: list[str], **_: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"]))
        os.kill(os.getpid(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(testbed, "subprocess", SimpleNamespace(Popen=interrupted_start))
    with pytest.raises(KeyboardInterrupt):
        testbed.run_step("lab", [], testbed.Log())
    assert started[0].poll() == -signal.SIGTERM


def test_figures_judge_against_the_right_limit() -> None:
    image = testbed_figures.Build(120.0, 2_500_000_000)

    def total(new: bool) -> testbed_figures.Row:
        rows = testbed_figures.figures(
            steps_s={"lab": 8 * 60, "provision": 20},
            image=replace(image, new=new),
            lab_memory_gb=7.0,
            measuring_share=0.5,
        )
        of_build = [True] * new  # of an image that is cached, its build is another machine's
        assert [row.meets for row in rows[1:]] == [*of_build, True, True, False, False]
        return rows[0]

    assert total(True).meets
    assert not total(False).meets


def test_the_labs_processes_are_found_and_weighed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        state = {"guest": {"pid": process.pid}, "drives": {"plain": {"pid": 0}}, "meter": None}
        (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
        assert testbed_figures.LabState.from_file(tmp_path / "state.json").pids == [process.pid]
        assert testbed_figures.resident_bytes(process.pid) > 0
    assert testbed_figures.resident_bytes(process.pid) == 0


def test_figures_are_stored_with_commit_and_machine(tmp_path: Path) -> None:
    outcome = testbed_figures.figures(steps_s={"run": 60.0})
    where = {**testbed_figures.machine("tcg"), "host_busy_cpus": 1.5}
    path = testbed_figures.write(tmp_path / "bench" / "testbed.json", outcome, where)
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert [set(row) for row in rows] == [{"figure", "value", "unit", "target", "meets"}]
    beside = json.loads((path.parent / "testbed.machine.json").read_text(encoding="utf-8"))
    assert beside["machine"]["cores"] >= 1 and len(beside["commit"]) == 40
    assert beside["host_busy_cpus"] == 1.5


@pytest.mark.parametrize(
    ("host", "labs", "disturbed"),
    [
        ((2, 0.0), 1, False),
        ((2, 0.2), 1, False),
        ((2, 1.9), 1, True),
        ((8, 5.9), 1, False),  # two processors are free
        ((8, 5.9), 2, True),  # which is too little for two labs
        ((1, 0.05), 1, False),  # what a host does not have nobody takes from it
        ((1, 0.9), 1, True),
        ((2, 1.9), 0, False),  # the target is another machine
        ((2, None), 1, True),
    ],
)
def test_a_load_that_disturbs_the_labs_is_reported(
    host: tuple[int, float | None], labs: int, disturbed: bool
) -> None:
    assert bool(host_load.Host(*host).busy_sentence(labs)) == disturbed


@pytest.mark.parametrize(
    ("factor", "suite", "minutes"),
    [(1.0, "smoke", "about 6 min left"), (1.5, "smoke", "about 9 min left"), (1.0, "paper", "")],
)
def test_the_minutes_left_are_those_of_the_steps_to_come(
    factor: float, suite: str, minutes: str
) -> None:
    seconds = {"lab": 60, "run": 290, "report": 9}
    steps = {name: testbed.Step("", each) for name, each in seconds.items()}
    forecast = testbed.Forecast(steps, factor, is_known=suite == "smoke")
    assert forecast.minutes_left("lab") == minutes
    last = "less than a minute left" if minutes else ""
    assert forecast.minutes_left("report") == last


def test_the_load_is_that_of_the_processors_that_this_process_may_use() -> None:
    """Run two loops on one processor, which is then busy whatever else goes on.

    No second is quiet here, so that less is tried on ticks.
    """
    cpu = min(os.sched_getaffinity(0))
    loop = ["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(loop) for _ in range(2)]
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
        outcome = host_load.Host.measure(0.5)
    finally:
        os.sched_setaffinity(0, allowed)
        for process in loops:
            process.kill()
            process.wait()
    assert outcome.cpus == 1
    assert outcome.busy_cpus is not None and outcome.busy_cpus > 0.9
    assert host_load.busy((100, 1000), (150, 1200), 4) == 1.0
    assert host_load.busy((100, 1000), (100, 1200), 4) == 0.0
    assert host_load.busy(None, (1, 2), 4) is None and host_load.busy((1, 2), (1, 2), 4) is None
    assert host_load.cpu_ticks({4095}) is None


def test_measuring_processes_avoid_the_guests_processors(tmp_path: Path) -> None:
    usable = os.sched_getaffinity(0)
    states = [tmp_path / f"{cpu}.json" for cpu in usable]
    for cpu, state in zip(usable, states, strict=True):
        state.write_text(json.dumps({"processor": cpu}), encoding="utf-8")
    with testbed.beside_guests(states[:1]):
        assert os.sched_getaffinity(0) == (usable - {min(usable)} or usable)
    with testbed.beside_guests([*states, tmp_path / "none.json"]):
        assert os.sched_getaffinity(0) == usable, "none would be left"
    assert os.sched_getaffinity(0) == usable
