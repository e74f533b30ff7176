"""`fde measure`: real commands that move real counter files, so that their joules are known.

A counter file stands for a zone of RAPL; a command adds to it what it is to have used.
"""

from __future__ import annotations

import contextlib
import json
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contract import schema
from contract.command_results import Failure
from contract.errors import ControllerError
from contract.measured_command import CommandDocument, Trial
from contract.places import ROOT
from contract.tests.refusal import refuses
from controller.cli import app
from controller.cli.options import Request
from controller.measured_command import evaluate, execute
from controller.measured_command.execute import describe_failure
from controller.measured_command.measure import run
from controller.measured_command.options import (
    Command,
    MeasureOptions,
    command_from_words,
    shell_commands,
)
from controller.measured_command.show import MODELLED_WORDS, code_cell
from controller.measured_command.tests.benches import OPTIONS, Bench, adding, counting_w
from controller.session.tests.test_recorders import meter, speaking
from instrumentation.accuracy import Accuracy
from instrumentation.simulators.smartpower3 import SmartPower3Simulator, encode_line
from instrumentation.sources import standing
from instrumentation.sources.local import LocalSources
from instrumentation.tests.trees import MAX_UJ, TREES, P

NOWHERE = Path("/dev/null/none")  # which no machine can have
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Counters have all the time they need: they move by commands alone here."""
    monkeypatch.setattr(standing, "PATIENCE_S", {"RAPL": 3600.0})
    TREES["one socket"].lay_out(tmp_path / "powercap")
    return Bench(tmp_path)


def without_counters() -> LocalSources:
    return LocalSources.open({})


def test_joules_of_two_commands_and_their_verdict(bench: Bench, capsys: Captured) -> None:
    two = adding(bench.package, 2_000_000, "two")
    three = adding(bench.dram, 3_000_000, "three")
    outcome = bench.measure([two, three])
    assert outcome.component == "cpu+memory"
    energies = {
        command.command: command.components["cpu+memory"].energy_j for command in outcome.commands
    }
    assert {name: (e.n, e.mean) for name, e in energies.items() if e} == {
        "two": (3, 2.0),
        "three": (3, 3.0),
    }
    package = outcome.commands[1].components["package-0"].energy_j
    assert package is not None and package.mean == 0.0
    for trial in outcome.commands[0].trials:
        power = trial.energy_j["cpu+memory"] or 0.0
        assert 0 < trial.seconds <= trial.window_s["package-0"]
        assert power == 2.0
    (compared,) = outcome.comparisons
    assert (compared.base, compared.other, compared.blocks) == ("two", "three", 3)
    assert compared.ratio == pytest.approx(1.5)
    assert compared.verdict == "significant increase"
    assert compared.time is not None and compared.power is not None
    assert compared.time.mean * compared.power.mean == pytest.approx(1.5)
    assert (compared.time.n, compared.power.n) == (3, 3)
    shown = capsys.readouterr().out
    assert "three against two: +50" in shown and "Seed of the order: 1." in shown
    assert "of the mean of 3 runs" in shown
    assert "none of their joules holds disks" in shown


def test_blocks_hold_every_command_once_in_an_order_of_the_seed(bench: Bench) -> None:
    commands = [adding(bench.package, n, str(n)) for n in (1, 2, 3)]

    def order(seed: int) -> list[list[str]]:
        outcome = bench.measure(commands, runs=2, seed=seed)
        trials = sorted((t.block, t.place, c.command) for c in outcome.commands for t in c.trials)
        return [[name for block, _, name in trials if block == n] for n in range(2)]

    first = order(7)
    assert all(sorted(block) == ["1", "2", "3"] for block in first)
    assert order(7) == first
    assert order(8) != first


def test_rest_is_the_baseline(bench: Bench) -> None:
    prepare = [adding(bench.package, 50_000_000)]
    outcome = bench.measure([adding(bench.package, 2_000_000)], rest_s=0.02, prepare=prepare)
    main = outcome.commands[0].components["cpu+memory"]
    assert main.energy_j and main.above_rest_j and main.rest_power_w
    assert (main.energy_j.mean, main.above_rest_j.mean, main.rest_power_w.mean) == (2.0, 2.0, 0.0)

    # A load of a known rate that also runs in the rest is taken off.
    with counting_w(bench.tree, {f"{P}:0/energy_uj": 1.0}):
        outcome = bench.measure([command_from_words(["sleep", "0.2"])], rest_s=0.2)
    for trial in outcome.commands[0].trials:
        assert (trial.rest_power_w["package-0"] or 0) > 0
    main = outcome.commands[0].components["package-0"]
    assert main.energy_j and main.above_rest_j and main.rest_power_w
    rest_j = [
        (trial.rest_power_w["package-0"] or 0) * trial.window_s["package-0"]
        for trial in outcome.commands[0].trials
    ]
    assert main.above_rest_j.mean == pytest.approx(main.energy_j.mean - sum(rest_j) / 3)


def test_a_wrap_within_a_run_is_corrected(bench: Bench) -> None:
    (bench.package).write_text(f"{MAX_UJ - 500_000}\n")
    file = bench.package
    wrapping = Command("wrap", ("sh", "-c", f"echo 500000 > {file}; sleep 0.1"))
    outcome = bench.measure([wrapping], runs=1)
    energy_j = outcome.commands[0].trials[0].energy_j["package-0"]
    assert energy_j == pytest.approx(1.0, abs=1e-3)
    interval = outcome.commands[0].seconds
    assert interval is not None and (interval.n, interval.low, interval.high) == (1, None, None)


def test_a_read_that_fails_leaves_its_run_without_joules(bench: Bench, capsys: Captured) -> None:
    file = bench.package
    # The second run finds its counter broken, the third sound again.
    log = bench.folder / "log"
    line = (
        f"echo x >> {log}; if [ $(wc -l < {log}) = 2 ]; then cp {file} {file}.old; : > {file}; "
        f"else [ -s {file} ] || cp {file}.old {file}; n=$(cat {file}); "
        f"echo $((n + 1000000)) > {file}; fi"
    )
    outcome = bench.measure([Command("flaky", ("sh", "-c", line))], runs=4)
    (command,) = outcome.commands
    assert [t.energy_j["package-0"] for t in command.trials] == [1.0, None, None, 1.0]
    flags, errors = command.trials[1].flags["cpu+memory"], command.trials[1].errors["cpu+memory"]
    assert "read-failed" in flags and not any(" " in flag for flag in flags)
    assert any("in place of a number" in error for error in errors)
    notes = {note.code: note.facts for note in outcome.notes}
    lost = {"command": "flaky", "component": "cpu+memory", "runs": 2, "of": 4}
    assert notes["no-joules"] == lost
    assert (notes["read-failed"]["flagged"], notes["read-failed"]["of"]) == (2, 4)
    energy = command.components["cpu+memory"].energy_j
    assert energy is not None and (energy.n, energy.mean) == (2, 1.0)
    assert "flaky: 2 of 4 runs have no joules." in capsys.readouterr().out


def test_a_failing_command_ends_the_measurement_after_complete_blocks(
    bench: Bench, capsys: Captured
) -> None:
    log, path = bench.folder / "log", bench.folder / "out.json"
    failing = Command("third time", ("sh", "-c", f"echo x >> {log}; [ $(wc -l < {log}) -lt 3 ]"))
    ended, run = "failed with exit code 1", "block 3/5, run 1"
    with refuses("command-failed", command="third time", ended=ended, run=run):
        bench.run([failing], export_json=path, runs=5)
    outcome = schema.read(CommandDocument, json.loads(path.read_text()))
    assert (outcome.ok, outcome.blocks) == (False, 2)
    assert "Not complete: The command third time failed" in capsys.readouterr().out

    log.unlink()
    assert bench.run([failing], export_json=path, runs=5, ignore_failure=True) == 0
    outcome = schema.read(CommandDocument, json.loads(path.read_text()))
    assert [t.exit_code for t in outcome.commands[0].trials] == [0, 0, 1, 1, 1]
    (failed,) = [note for note in outcome.notes if note.code == "failed-runs"]
    assert failed.facts == {"command": "third time", "runs": 3, "of": 5}


@pytest.mark.parametrize(
    ("lines", "options", "refusal"),
    [
        (["true", "true"], {}, refuses("command-twice", command="true")),
        (["true"], {"prepare": shell_commands(["exit 3"])}, refuses("prepare-failed")),
        ([], {"prepare": shell_commands(["true", "true"])}, refuses("option-count")),
        (
            ["true"],
            {"export_json": Path("x"), "export_markdown": Path("./x")},
            refuses("exports-alike"),
        ),
        ([], {"component": "psyss"}, refuses("unknown-name", name="psyss")),
        ([], {"export_json": NOWHERE / "x"}, pytest.raises(OSError, match="Not a directory")),
        ([], {"export_json": Path("/")}, pytest.raises(OSError, match="Is a directory")),
        ([], {"output": f"{NOWHERE}/x"}, pytest.raises(OSError, match="Not a directory")),
        ([], {"output": "/"}, pytest.raises(OSError, match="Is a directory")),
    ],
)
def test_invalid_commands_and_options_are_refused_before_the_first_run(
    bench: Bench,
    lines: Sequence[str],
    options: dict[str, Any],
    refusal: contextlib.AbstractContextManager[Any],
) -> None:
    log = bench.folder / "log"
    with refusal as refused:
        bench.run(shell_commands(lines or [f"touch {log}"]), **options)
    assert "\n" not in str(refused.value) and not log.exists()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([""], 127),
        ([" "], 127),
        (["no-such-program"], 127),
        (["no-such-program a"], 127),
        (["./folder"], 126),
        (["./plain"], 126),
        (["./plain a"], 126),
        (["./no-first-line"], 126),
        (["./no-interpreter"], 126),
    ],
)
def test_a_command_that_cannot_run_has_the_exit_status_of_a_shell(
    bench: Bench, words: list[str], status: int, capsys: Captured
) -> None:
    (bench.folder / "folder").mkdir()
    for name, text, mode in (
        ("plain", "", 0o644),
        ("no-first-line", "true\n", 0o755),
        ("no-interpreter", f"#!{NOWHERE}/sh\n", 0o755),
    ):
        (bench.folder / name).write_text(text)
        (bench.folder / name).chmod(mode)
    lines = " " in words[0]
    commands = shell_commands(words) if lines else [command_from_words(words)]
    with contextlib.chdir(bench.folder):
        assert app.guarded(lambda: bench.run(commands)) == status
    assert capsys.readouterr().err.count("fde: ") == 1


@pytest.mark.parametrize(("failing_run", "shape"), [(1, Failure), (2, CommandDocument)])
@pytest.mark.parametrize("end", ["exit 3", "kill -INT $PPID; sleep 9"])
def test_a_measurement_that_fails_prints_one_document(
    failing_run: int, shape: type[Any], end: str, bench: Bench, capsys: Captured
) -> None:
    log = bench.folder / "log"
    line = f"echo x >> {log}; [ $(wc -l < {log}) -lt {failing_run} ] || {{ {end}; }}"
    failing = Command("c", ("sh", "-c", line))
    status = app.guarded(lambda: bench.run([failing], json=True, runs=5), Request(json=True))
    printed = capsys.readouterr()
    assert status == (1 if "exit" in end else 130)
    assert schema.read(shape, json.loads(printed.out)).ok is False
    assert printed.err.count("fde: ") == 1


def test_signals_with_and_without_a_name_are_described() -> None:
    assert describe_failure(-signal.SIGSEGV).endswith("SIGSEGV")
    assert describe_failure(-35).endswith("signal 35")


@pytest.mark.parametrize("line", ["./fde-none/program", "env ./fde-none", ". / ; /"])
def test_a_command_without_joules_is_not_compared(
    bench: Bench, line: str, capsys: Captured
) -> None:
    path = bench.folder / "result.json"
    with refuses("command-did-not-run", command=line):
        bench.run(shell_commands(["false", line]), ignore_failure=True, export_json=path)
    assert not path.exists()
    assert "against" not in capsys.readouterr().out


def test_prepare_and_warmup_in_their_order(bench: Bench) -> None:
    log = bench.folder / "log"
    prepare = shell_commands([f"echo prepare >> {log}"])
    bench.measure(shell_commands([f"echo run >> {log}"]), runs=2, warmup=1, prepare=prepare)
    assert log.read_text().split() == ["prepare", "run"] * 3


READABLE_BY_ROOT = "x may be read by root only: sudo chmod a+r x."


@pytest.mark.parametrize(
    ("machine", "refused", "words", "absent"),
    [
        ("x86_64", {}, ["powercap", "battery", "fde-instruments", "--meter", "modprobe"], "chmod"),
        ("aarch64", {}, ["powercap", "make lab"], "modprobe"),
        ("x86_64", {"powercap": READABLE_BY_ROOT}, ["sudo chmod a+r"], "modprobe"),
    ],
)
def test_no_source_is_an_error_with_a_remedy(
    machine: str,
    refused: dict[str, str],
    words: Sequence[str],
    absent: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(ControllerError) as raised:
        run([command_from_words(["true"])], OPTIONS, lambda: LocalSources({}, refused))
    printed = str(raised.value)
    assert all(word in printed for word in words) and absent not in printed


def test_a_meter_of_an_inventory(bench: Bench, capsys: Captured) -> None:
    entry = meter(bench.folder / "port")
    with speaking(bench.folder / "port"):
        options = {"runs": 2, "rest_s": 0.3, "meters": [entry], "keep": bench.folder / "kept"}
        outcome = bench.measure([command_from_words(["sleep", "0.5"])], without_counters, **options)
    assert (outcome.component, outcome.origin) == ("system", "modelled")
    for trial in outcome.commands[0].trials:  # the simulator gives 20 W
        assert trial.energy_j["system"] == pytest.approx(20 * trial.seconds, rel=0.05)
        assert trial.rest_power_w["system"] == pytest.approx(20, rel=0.05)
    assert (bench.folder / "kept/meters/meter0/stream.raw").stat().st_size > 0
    assert MODELLED_WORDS in capsys.readouterr().out
    with refuses("folder-recorded"):
        bench.run([command_from_words(["true"])], **options)


def test_a_recorder_that_ends_is_started_again_and_noted(bench: Bench) -> None:
    recording_folder, ended = bench.folder / "kept", bench.folder / "ended"
    code = f"""
import os, pathlib, time
from agent.system import lock
if not os.path.exists({str(ended)!r}):
    os.kill(lock.holder(pathlib.Path({str(recording_folder / "meters/meter0")!r})), 9)
    pathlib.Path({str(ended)!r}).touch()
time.sleep(0.5)
"""
    commands = [command_from_words(["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", code])]
    with speaking(bench.folder / "port"):
        options = {
            "runs": 4,
            "rest_s": 2,
            "meters": [meter(bench.folder / "port")],
            "keep": recording_folder,
        }
        outcome = bench.measure(commands, without_counters, **options)
    assert "remark" in {note.code for note in outcome.notes}
    assert outcome.commands[0].trials[-1].energy_j["system"] is not None


class Troubled(SmartPower3Simulator):
    """Its output is switched off, and no line comes while `silent` is there."""

    def __init__(self, silent: Path) -> None:
        super().__init__()
        self._silent = silent

    def _line(self, energy_j: Sequence[float]) -> bytes:
        line = super()._line(energy_j)
        if self._silent.exists():
            return b""
        power_mw = [20_000, 1_000]
        return encode_line(self.t_ms, power_mw, on=(False, True)) if line else line


def test_flags_of_a_meter_reach_text_document_and_table(bench: Bench, capsys: Captured) -> None:
    silent, table = bench.folder / "silent", bench.folder / "table.md"
    halves = Command("halves", ("sh", "-c", f"sleep 0.8; : > {silent}; sleep 0.3; rm {silent}"))
    entry = meter(bench.folder / "port")
    with speaking(bench.folder / "port", Troubled(silent)):
        options = {"runs": 2, "rest_s": 0.3, "meters": [entry], "export_markdown": table}
        outcome = bench.measure([halves], without_counters, **options)
    for trial in outcome.commands[0].trials:
        assert set(trial.flags["system"]) >= {"off", "gap-filled"}
        assert 0 < trial.coverage["system"] < 1
    facts = {note.code: note.facts for note in outcome.notes}
    assert facts["off"]["flagged"] == 2
    assert 0 < facts["gap-filled"]["coverage"] < 1
    shown, written = capsys.readouterr().out, table.read_text()
    for note in outcome.notes:
        assert note.sentence in shown and note.sentence in written
    assert "flagged: " in shown and "(flagged)" in written


# Of a command that does its work only where its output is not /dev/null, as GNU grep and tar do.
NOTICING = "[ /proc/$$/fd/1 -ef /dev/null ] || {{ n=$(cat {0}); echo $((n + 2000000)) > {0}; }}"


@pytest.mark.parametrize("output", ["pipe", "file", "inherit", "null"])
def test_where_the_output_goes(bench: Bench, output: str, capfd: Captured) -> None:
    file = bench.folder / "output"
    line = f"{NOTICING.format(bench.package)}; echo said; echo wrong >&2"
    where = str(file) if output == "file" else output
    outcome = bench.measure(shell_commands([line]), output=where)
    energy = outcome.commands[0].components["package-0"].energy_j
    assert (energy and energy.mean) == (None if output == "null" else 2.0)
    still = [note.facts["components"] for note in outcome.notes if note.code == "did-not-move"]
    assert any("package-0" in names for names in still) == (output == "null")
    assert outcome.output == where
    assert not file.exists() or file.read_text() == "said\nwrong\n"  # of the last run alone
    shown = capfd.readouterr()
    assert "said" not in [*shown.out.split("\n")]
    assert shown.err.count("said\nwrong\n") == 3 * (output == "inherit")


def test_background_processes_may_continue_writing(bench: Bench) -> None:
    log, captured = bench.folder / "log", bench.folder / "told"
    line = f"{{ until [ -e {captured} ]; do sleep 0.02; done; echo late && echo lived > {log}; }} &"
    bench.measure(shell_commands([line]), runs=1)
    captured.touch()  # what goes on was not waited for
    while not log.exists():
        time.sleep(0.02)


def test_joules_of_what_a_command_leaves_running_are_not_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the pipe open, which is drained only after the last read."""
    monkeypatch.setattr(execute, "DRAIN_LIMIT_S", 60.0)
    add = " ".join(adding(bench.package, 5_000_000).argv[2:])
    line = f"{{ sleep 2; {add}; }} & {' '.join(adding(bench.package, 2_000_000).argv[2:])}"
    outcome = bench.measure(shell_commands([line]), runs=1)
    assert outcome.commands[0].trials[0].energy_j["package-0"] == 2.0
    assert int(bench.package.read_text(encoding="utf-8")) >= 7_000_000


def test_a_table_in_markdown(bench: Bench) -> None:
    commands = [adding(bench.package, 2_000_000, "a | b"), adding(bench.dram, 2_000_000, "c")]
    path = bench.folder / "table.md"
    bench.measure(commands, export_markdown=path)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("| Command | Energy |")
    assert lines[2].startswith("| `a \\| b` | 2.00")
    assert all(line.replace("\\|", "").count("|") == 8 for line in lines[:4])
    assert "; measured; mean" in lines[5]
    assert code_cell("`x`") == "`` `x` ``"


def test_the_command_line(capsys: Captured, monkeypatch: Any) -> None:
    monkeypatch.setenv("TERM", "dumb")
    measured: list[Sequence[Command]] = []

    def note(commands: Sequence[Command], _options: MeasureOptions) -> int:
        measured.append(commands)
        return 0

    monkeypatch.setattr("controller.measured_command.measure.run", note)
    assert app.main(["measure", "--help"]) == 0
    assert "measure [OPTIONS] COMMAND..." in capsys.readouterr().out
    for words in (["--", "gzip", "-9", "a b"], ["gzip", "-9", "a b"]):
        assert app.main(["measure", "--runs", "3", *words]) == 0
        assert measured.pop() == [command_from_words(["gzip", "-9", "a b"])]
    assert app.main(["measure", "gzip -9 a", "xz a"]) == 0
    assert measured.pop() == shell_commands(["gzip -9 a", "xz a"])
    assert app.main(["measure", "-n", "fast", "-n", "small", "gzip -9 a", "xz a"]) == 0
    assert [command.name for command in measured.pop()] == ["fast", "small"]
    assert app.main(["measure", "-n", "fast", "gzip -9 a", "xz a"]) == 1
    assert "--command-name is given for 1 of 2" in capsys.readouterr().err
    assert app.main(["measure", "--bogus", "--", "sleep"]) == 2
    assert app.main(["measure", "--"]) == 2
    assert "Missing argument" in capsys.readouterr().err
    assert app.main(["measure", "--meter", "m", "--", "true"]) == 1
    assert "--inventory" in capsys.readouterr().err


def trials_of(energy_j: Sequence[float], statistical_j: float = 0.0) -> tuple[Trial, ...]:
    """Return runs of 3 s with these joules of the system."""
    empty: dict[str, Any] = {key: {} for key in ("rest_power_w", "flags", "errors", "coverage")}
    times: dict[str, Any] = dict.fromkeys(("seconds", "user_s", "system_s"), 3.0)
    zeros: dict[str, Any] = dict.fromkeys(("place", "t_start_ns", "t_end_ns", "exit_code"), 0)
    return tuple(
        Trial(
            block=block,
            energy_j={"system": joules},
            statistical_j={"system": statistical_j},
            window_s={"system": 3.0},
            **empty,
            **times,
            **zeros,
        )
        for block, joules in enumerate(energy_j)
    )


def test_the_meters_digit_widens_the_ratios_interval() -> None:
    """60.4 W and 60.6 W, shown as 60 and 61 W in every run."""
    results = [
        evaluate.result(
            command_from_words([str(power_w)]),
            trials_of([3 * power_w + 1e-3 * n for n in range(6)]),
            0.0,
        )
        for power_w in (60, 61)
    ]
    digit = Accuracy(0.0, 0.5, "half a step of 1 W", absolute="resolution").terms
    for terms, verdict, holds in (
        ((), "equivalent (significant increase)", False),
        (digit, "significant increase", True),
    ):
        (comparison,) = evaluate.comparisons(results, "system", terms)
        assert comparison.low is not None and (comparison.low < 60.6 / 60.4) == holds
        assert comparison.verdict == verdict


def test_a_counters_step_widens_the_interval() -> None:
    """Six runs of 90 J in 3 s, each the same, of which a counter's step leaves 1 J open."""
    for open_j in (0.0, 1.0):
        result = evaluate.result(command_from_words(["x"]), trials_of([90.0] * 6, open_j), 0.0)
        component = result.components["system"]
        assert component.energy_j is not None and component.power_w is not None
        assert component.energy_j.half_width == pytest.approx(1.96 * open_j, abs=1e-3)
        assert component.power_w.half_width == pytest.approx(1.96 * open_j / 3, abs=1e-3)


def test_a_block_in_which_fde_was_stopped_is_measured_again(bench: Bench) -> None:
    stopped = bench.folder / "stopped"
    add = adding(bench.package, 1_000_000).argv[-1]
    (command,) = shell_commands([f"{add}; [ -e {stopped} ] || kill -CONT $PPID; touch {stopped}"])
    outcome = bench.measure([command], runs=2)
    (result,) = outcome.commands
    assert [trial.block for trial in result.trials] == [0, 1]
    assert any("(Ctrl-Z): 1." in n.sentence for n in outcome.notes)
