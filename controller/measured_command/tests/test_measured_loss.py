"""No figure of `fde measure` is lost: signals, terminals, pipes and disks, as processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.interrupts import ENDING
from contract.places import ROOT
from controller.measured_command import execute
from controller.measured_command.tests.benches import Bench, adding
from instrumentation.tests.trees import TREES

MEASURE = """
import json, os, sys
from pathlib import Path
from contract.interrupts import term_interrupts
from controller.cli.app import guarded
from controller.measured_command.measure import run
from controller.measured_command.options import MeasureOptions, shell_commands
from instrumentation.sources import standing
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import PowercapSource

given = json.loads(sys.argv[1])
standing.PATIENCE_S = {"RAPL": 3600.0}
for key in ("export_json", "export_markdown"):
    given["options"][key] = Path(given["options"][key]) if key in given["options"] else None
given["options"]["prepare"] = shell_commands(given["options"].get("prepare", []))
options = MeasureOptions(**{"rest_s": 0.0, "seed": 1, **given["options"]})
sources = {"powercap": lambda: PowercapSource.open(Path(given["tree"]))}
opener = lambda: LocalSources.open(sources)
sys.exit(guarded(lambda: run(shell_commands([given["line"]]), options, opener)))
"""
HANGS = "echo $$ >> pids; (sleep 777 & echo $! >> pids); sleep 777 & echo $! >> pids; wait"


class Started(Bench):
    """A command in a process of its own that takes 2 J a run."""

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def line(self) -> str:
        """A command that takes 2 J and adds a line to `runs`."""
        return f"{adding(self.package, 2_000_000).argv[-1]}; echo >> runs"

    def start(self, line: str, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Return the measuring process; options of subprocess and of the measurement."""
        streams = {key: options.pop(key) for key in ("stdin", "stdout", "stderr") if key in options}
        arguments = {"line": line, "tree": str(self.tree), "options": {"runs": 3, **options}}
        return subprocess.Popen(
            [*before, sys.executable, "-c", MEASURE, json.dumps(arguments)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FDE_BUILD": str(self.folder / "build")},
            text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams},
        )

    def wait_for(self, condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        while not condition():
            assert process.poll() is None
            time.sleep(0.02)

    def hangs(self) -> bool:
        """Return whether all three processes of a hanging command run."""
        pids = self.folder / "pids"
        return pids.exists() and len(pids.read_text().split()) == 3

    def require_ended(self) -> None:
        """Require that no process of the command runs."""
        for pid in (self.folder / "pids").read_text().split():
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                continue
            assert stat.rpartition(")")[2].split()[0] == "Z", stat

    def blocks(self) -> int:
        document = json.loads(self.result.read_text(encoding="utf-8"))
        energies = [trial["energy_j"]["package-0"] for trial in document["commands"][0]["trials"]]
        assert energies == [2.0] * document["blocks"]
        return int(document["blocks"])


@pytest.fixture
def bench(tmp_path: Path) -> Started:
    TREES["one socket"].lay_out(tmp_path / "powercap")
    return Started(tmp_path)


def test_ending_a_command_that_has_ended_raises_nothing() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED)
        execute._end(process)
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("stage", "number"), [*(("run", number) for number in ENDING), ("prepare", ENDING[1])]
)
def test_a_signal_ends_the_command_with_its_children_and_keeps_figures(
    stage: str, number: signal.Signals, bench: Started
) -> None:
    hanging = f"[ $(wc -l < runs) -lt 3 ] || {{ {HANGS}; }}"
    line = f"{bench.line}; {hanging}" if stage == "run" else bench.line
    options: dict[str, Any] = {"export_json": str(bench.result)}
    if stage == "prepare":
        options["prepare"] = [f"echo >> prepared; [ $(wc -l < prepared) -lt 3 ] || {{ {HANGS}; }}"]
    with bench.start(line, **options) as process:
        bench.wait_for(bench.hangs, process)
        process.send_signal(number)
        shown, _ = process.communicate()
    assert process.returncode == 130
    assert bench.blocks() == 2
    assert "Not complete: interrupted" in shown
    bench.require_ended()


def test_a_second_signal_waits_for_nothing_and_loses_nothing(bench: Started) -> None:
    stubborn = f"trap '' TERM INT HUP; {HANGS}"
    line = f"{bench.line}; [ $(wc -l < runs) -lt 2 ] || {{ {stubborn}; }}"
    with bench.start(line, export_json=str(bench.result)) as process:
        bench.wait_for(bench.hangs, process)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
    # A signal after the result was shown ends the exiting interpreter.
    assert process.returncode in (130, -signal.SIGINT) and bench.blocks() == 1
    bench.require_ended()


def test_a_closed_terminal_leaves_the_result_in_the_file(bench: Started) -> None:
    line = f"{bench.line}; [ $(wc -l < runs) -lt 3 ] || {{ {HANGS}; }}"
    ours, theirs = pty.openpty()
    options: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with bench.start(line, **options, export_json=str(bench.result)) as process:
        os.close(theirs)
        bench.wait_for(bench.hangs, process)
        os.close(ours)
        process.send_signal(signal.SIGHUP)  # as the kernel does to who has this terminal
    assert process.returncode and bench.blocks() == 2
    bench.require_ended()


def test_a_measurement_under_nohup_outlives_the_terminal(bench: Started) -> None:
    line = f"{bench.line}; until [ -e go ]; do sleep 0.02; done"
    ignoring = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    with bench.start(line, ignoring, export_json=str(bench.result)) as process:
        bench.wait_for((bench.folder / "runs").exists, process)
        process.send_signal(signal.SIGHUP)
        (bench.folder / "go").touch()
        process.communicate()
    assert process.returncode == 0 and bench.blocks() == 3


@pytest.mark.parametrize("where", ["full", "closed pipe"])
def test_a_result_is_shown_on_standard_error_if_output_fails(where: str, bench: Started) -> None:
    reader, writer = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    out = writer if where == "closed pipe" else full
    with bench.start(bench.line, stdout=out, stderr=subprocess.PIPE) as process:
        for descriptor in (reader, writer, full):
            os.close(descriptor)
        _, printed = process.communicate()
    assert process.returncode == (141 if where == "closed pipe" else 1)
    assert "  energy      2" in printed
    assert ("standard output: No space" in printed) == (where == "full")


def test_a_failed_export_still_shows_the_result(bench: Started) -> None:
    """It could when the measurement began."""
    folder = bench.folder / "gone"
    folder.mkdir()
    line = f"{bench.line}; rm -rf gone"
    with bench.start(line, stderr=subprocess.PIPE, export_json=str(folder / "x")) as process:
        shown, printed = process.communicate()
    assert process.returncode == 1 and "  energy      2" in shown
    assert printed.count("\n") == 1 and str(folder / "x") in printed


def test_an_unwritable_export_is_refused_before_the_first_run(bench: Started) -> None:
    with bench.start(bench.line, stderr=subprocess.PIPE, export_json="/proc/x") as process:
        shown, printed = process.communicate()
    assert process.returncode == 1 and not shown and printed.count("\n") == 1
    assert not (bench.folder / "runs").exists()


def test_an_export_to_standard_output_contains_only_the_document(bench: Started) -> None:
    with bench.start(bench.line, stderr=subprocess.PIPE, export_json="/dev/stdout") as process:
        shown, printed = process.communicate()
    assert process.returncode == 0
    assert json.loads(shown)["blocks"] == 3 and "  energy      2" in printed


def test_an_argument_that_is_no_utf8_is_shown_escaped(bench: Started) -> None:
    odd = os.fsdecode(b"caf\xe9")
    table = bench.folder / "table.md"
    line = f"{bench.line}; : {odd}"
    options = {"export_json": str(bench.result), "export_markdown": str(table)}
    with bench.start(line, **options) as process:
        shown, _ = process.communicate()
    assert process.returncode == 0 and bench.blocks() == 3
    document = json.loads(bench.result.read_text(encoding="utf-8"))["commands"][0]
    for text in (
        shown,
        table.read_text(encoding="utf-8"),
        document["command"],
        document["argv"][2],
    ):
        assert r"caf\xe9" in text


def test_files_never_replace_closed_standard_streams(tmp_path: Path) -> None:
    """Else a recording gets the number of standard output, and sentences go into it."""
    program = (
        "import os, sys; from pathlib import Path; from controller.cli.app import main; "
        "main(['--version']); opened = os.open(os.devnull, os.O_RDONLY); "
        "Path(sys.argv[1]).write_text(f'{opened > 2} {sys.stderr.isatty()}')"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "told")]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    subprocess.run([*closed, *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (tmp_path / "told").read_text() == "True False"
