"""Programs run without output, fail with one sentence, and leave no process running."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from contract.tests.programs import wait_until
from contract.tests.refusal import refuses
from workloads import programs
from workloads.tests.contract import processes_using


def test_output_passes_through_pipes() -> None:
    assert programs.run(["printf", "b\\na\\n"], ["sort"], ["head", "-n1"]) == "a\n"


def test_programs_run_in_the_c_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert programs.run(["sh", "-c", "echo $LC_ALL"]) == "C\n"


def test_a_failure_in_a_pipe_has_its_last_message() -> None:
    with refuses("program-failed", program="sh", status="(status 4)", reason="second"):
        programs.run(["sh", "-c", "echo first >&2; echo second >&2; exit 4"], ["cat"])


def test_standard_output_is_the_reason_without_standard_error() -> None:
    with refuses("program-failed", program="sh", status="(status 1)", reason="FATAL: no"):
        programs.run(["sh", "-c", "echo FATAL: no; exit 1"])
    with refuses("program-failed", reason="it printed no reason"):
        programs.run(["false"])


def test_a_killed_and_a_missing_program_differ() -> None:
    with refuses("program-failed", status="(signal 9)"):
        programs.run(["sh", "-c", "kill -9 $$"])
    with refuses("not-started", program="nonesuch"):
        programs.run(["nonesuch"])


def test_much_on_standard_error_does_not_block() -> None:
    talk = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo done"
    assert programs.run(["sh", "-c", talk]) == "done\n"


def test_a_program_that_prints_does_not_wake_us() -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    talk = "n=0; while [ $n -lt 400 ]; do echo $n; sleep 0.001; n=$((n+1)); done"
    assert programs.run(["sh", "-c", talk], timeout_s=60).endswith("399\n")
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 40


def test_a_reader_that_stops_early_ends_the_writer() -> None:
    with refuses("program-failed", program="yes", status="(signal 13)"):
        programs.run(["yes"], ["head", "-n1"])


def test_a_timeout_kills_the_program_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "followed"
    file.touch()
    with refuses("not-done", program="sh", timeout_s=0.5):
        programs.run(["sh", "-c", f"tail -f {file} | cat; true"], timeout_s=0.5)
    # They are killed, but the kernel takes its time to end them.
    wait_until(lambda: not processes_using(tmp_path))


def test_settings_go_to_the_given_home(tmp_path: Path) -> None:
    programs.run(["sh", "-c", "touch ~/settings"], home=tmp_path)
    assert (tmp_path / "settings").exists()


def test_a_script_runs_all_rounds_until_one_fails(tmp_path: Path) -> None:
    out = tmp_path / "a file"
    say = ["sh", "-c", 'echo "$1" >>"$0"', str(out)]
    programs.run(programs.script(tmp_path / "twice", [[*say, "one"], [*say, "$(two)"]], rounds=2))
    assert out.read_text() == "one\n$(two)\n" * 2
    out.unlink()
    fails = ["sh", "-c", "echo broken >&2; exit 9"]
    failing = programs.script(tmp_path / "failing", [[*say, "one"], fails, [*say, "two"]], rounds=2)
    with refuses("program-failed", program="dd", status="(status 9)", reason="broken"):
        programs.run(failing, name="dd")
    assert out.read_text() == "one\n"


def test_a_held_program_begins_at_go(tmp_path: Path) -> None:
    with programs.held(["sh", "-c", f"touch {tmp_path}/begun; echo b; echo a"], ["sort"]) as go:
        time.sleep(0.1)
        assert list(tmp_path.iterdir()) == []
        assert go() == "a\nb\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "begun"]


def test_a_held_program_reads_nothing_and_reports_failures(tmp_path: Path) -> None:
    with programs.held(["cat"]) as go:
        assert go() == ""
    fails = "echo why >&2; exit 3"
    why = {"program": "sh", "status": "(status 3)", "reason": "why"}
    with programs.held(["sh", "-c", fails]) as go, refuses("program-failed", **why):
        go()
    with (
        programs.held(["printf", "x"], ["sh", "-c", fails]) as go,
        refuses("program-failed", **why),
    ):
        go()
    absent = refuses("program-failed", program="reader", status="(status 1)")
    with programs.held(["cat", tmp_path / "absent"], name="reader") as go, absent:
        go()
    unknown = refuses("not-started", program="nonesuch")
    with unknown, programs.held(["nonesuch"]):
        pass


def test_a_held_program_without_go_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    with programs.held(["touch", mark]), programs.held(["tail", "-f", tmp_path]):
        pass
    assert not mark.exists()
    assert processes_using(tmp_path) == []


def test_a_held_program_killed_before_go_is_an_error() -> None:
    with programs.held(["true"]) as go:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
        os.kill(int(children.split()[-1]), signal.SIGKILL)
        with refuses("program-failed", program="true", status="(signal 9)"):
            go()


def test_a_held_program_ends_with_its_parent(tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    code = f"""
import os
from workloads import programs
with programs.held(["touch", {str(mark)!r}]):
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    time.sleep(0.2)
    assert not mark.exists()
