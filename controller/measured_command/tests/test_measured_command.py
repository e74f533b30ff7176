"""`fde run -- COMMAND`: real commands that move real counter files, so that their joules are known.

A counter file stands for a zone of RAPL; a command adds to it what it is to have used.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from analysis.stats.planning import blocks_for, two_stages
from analysis.stats.stats import estimate
from contract import schema
from contract.errors import ControllerError
from contract.measured_command import (
    CommandDocument,
    CommandResult,
    Component,
    Interval,
    Trial,
)
from contract.places import ROOT
from contract.tests.refusal import Refusal, refuses
from controller.cli import app
from controller.cli.measured_command import _commands
from controller.measured_command import Command, MeasureOptions, evaluate, of_strings, of_words, run
from controller.measured_command.evaluate import Design
from controller.measured_command.execute import ended
from controller.measured_command.show import MEANING, MODELLED_WORDS, _code
from controller.measured_command.sources import LocalSources, main_component
from controller.session.tests.test_recorders import meter, speaking
from instrumentation.accuracy import Accuracy, ErrorTerm
from instrumentation.simulators.smartpower3 import SmartPower3Simulator, encode_line
from instrumentation.sources import standing
from instrumentation.sources.powercap import PowercapSource
from instrumentation.tests.trees import MAX_UJ, TREES, P, child

NOWHERE = Path("/dev/null/none")  # which no machine can have
OPTIONS = MeasureOptions(runs=3, rest_s=0.0, seed=1)
# 2^32 units of this range's size: what a wrap takes away.
MODULUS_UJ = 262_144_000_000


Opener = Callable[[], LocalSources]
Captured = pytest.CaptureFixture[str]
# A program of its own that measures by the counters of the tree that is its argument.
PROGRAM = """
import sys
from pathlib import Path
from controller.measured_command import MeasureOptions, of_strings, of_words, run
from controller.measured_command.sources import LocalSources
from instrumentation.sources.powercap import PowercapSource
sources = {"powercap": lambda: PowercapSource.open(Path(sys.argv[1]))}
opener = lambda: LocalSources.open(sources)
"""


@dataclass(frozen=True)
class Bench:
    """A machine of one socket whose counter files commands move; documents go to `folder`."""

    folder: Path

    @property
    def tree(self) -> Path:
        return self.folder / "powercap"

    @property
    def package(self) -> Path:
        return self.tree / f"{P}:0/energy_uj"

    @property
    def dram(self) -> Path:
        return self.tree / child(P, 0, 2) / "energy_uj"

    def opener(self) -> LocalSources:
        return LocalSources.open({"powercap": lambda: PowercapSource.open(self.tree)})

    def run(
        self, commands: Sequence[Command], options: MeasureOptions = OPTIONS, **changes: Any
    ) -> int:
        return run(commands, replace(options, **changes), self.opener)

    def measure(
        self,
        commands: Sequence[Command],
        options: MeasureOptions = OPTIONS,
        using: Opener | None = None,
        **changes: Any,
    ) -> CommandDocument:
        """Return the document, read back through its schema and its shape."""
        return measured(commands, replace(options, **changes), using or self.opener, self.folder)


def measured(
    commands: Sequence[Command], options: MeasureOptions, opener: Opener, folder: Path
) -> CommandDocument:
    path = folder / "result.json"
    assert run(commands, replace(options, export_json=path), opener) == 0
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads((ROOT / "data/schema/fde-measure.json").read_text()))
    return schema.read(CommandDocument, document)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Counters have all the time they need: they move by commands alone here."""
    monkeypatch.setattr(standing, "PATIENCE_S", {"RAPL": 3600.0})
    TREES["one socket"].lay_out(tmp_path / "powercap")
    return Bench(tmp_path)


def without_counters() -> LocalSources:
    return LocalSources.open({})


def adding(file: Path, uj: int | str, name: str = "") -> Command:
    """Make a command that takes so many µJ; the amount may be an expression of the shell."""
    line = f"n=$(cat {file}); echo $((n + {uj})) > {file}"
    return replace(of_strings([line])[0], name=name or f"add {uj}")


def test_joules_of_two_commands_and_their_verdict(bench: Bench, capsys: Captured) -> None:
    two = adding(bench.package, 2_000_000, "two")
    three = adding(bench.dram, 3_000_000, "three")
    outcome = bench.measure([two, three])
    assert outcome.component == "cpu+memory"
    energies = {one.command: one.components["cpu+memory"].energy_j for one in outcome.commands}
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
    assert (compared.base, compared.other, compared.n) == ("two", "three", 3)
    assert compared.ratio == pytest.approx(1.5)
    assert compared.verdict_words == "significant increase"
    shown = capsys.readouterr().out
    assert "three against two: +50" in shown and "Seed of the order: 1." in shown
    assert MEANING.format(runs=3) in shown
    assert "none of its joules holds disks" in shown


def test_blocks_hold_every_command_once_in_an_order_of_the_seed(bench: Bench) -> None:
    commands = [adding(bench.package, n, str(n)) for n in (1, 2, 3)]

    def order(seed: int) -> list[list[str]]:
        options = replace(OPTIONS, runs=2, seed=seed)
        outcome = bench.measure(commands, options)
        trials = sorted((t.block, t.place, c.command) for c in outcome.commands for t in c.trials)
        return [[name for block, _, name in trials if block == n] for n in range(2)]

    first = order(7)
    assert all(sorted(block) == ["1", "2", "3"] for block in first)
    assert order(7) == first
    assert order(8) != first


def test_rest_is_the_baseline(bench: Bench) -> None:
    options = replace(OPTIONS, rest_s=0.02, prepare=[adding(bench.package, 50_000_000)])
    outcome = bench.measure([adding(bench.package, 2_000_000)], options)
    main = outcome.commands[0].components["cpu+memory"]
    assert main.energy_j and main.above_rest_j and main.rest_power_w
    assert (main.energy_j.mean, main.above_rest_j.mean, main.rest_power_w.mean) == (2.0, 2.0, 0.0)

    # A load of a known rate that also runs in the rest is taken off.
    options = replace(OPTIONS, rest_s=0.2)
    with _ticking(bench.package):
        outcome = bench.measure([of_words(["sleep", "0.2"])], options)
    for trial in outcome.commands[0].trials:
        assert (trial.rest_power_w["package-0"] or 0) > 0
    main = outcome.commands[0].components["package-0"]
    assert main.energy_j and main.above_rest_j and main.rest_power_w
    rest_j = [
        (trial.rest_power_w["package-0"] or 0) * trial.window_s["package-0"]
        for trial in outcome.commands[0].trials
    ]
    assert main.above_rest_j.mean == pytest.approx(main.energy_j.mean - sum(rest_j) / 3)


@contextlib.contextmanager
def _ticking(file: Path) -> Iterator[None]:
    """Another program takes 1 mJ about every millisecond."""
    code = (
        "import sys, time\nn = 0\nf = open(sys.argv[1], 'r+')\n"
        "while True:\n n += 1000; f.seek(0); f.write(str(10**9 + n)); f.flush(); time.sleep(.001)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, file])
    try:
        while int(file.read_text() or 0) < 10**9:
            time.sleep(0.005)
        yield
    finally:
        process.kill()
        process.wait()


def test_a_wrap_within_a_run_is_corrected(bench: Bench) -> None:
    (bench.package).write_text(f"{MAX_UJ - 500_000}\n")
    file = bench.package
    wrapping = Command("wrap", ("sh", "-c", f"echo 500000 > {file}; sleep 0.1"))
    outcome = bench.measure([wrapping], runs=1)
    energy_j = outcome.commands[0].trials[0].energy_j["package-0"]
    assert energy_j == pytest.approx(1.0, abs=1e-3)
    interval = outcome.commands[0].seconds
    assert (interval.n, interval.low, interval.high) == (1, None, None)


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
    (one,) = outcome.commands
    assert [t.energy_j["package-0"] for t in one.trials] == [1.0, None, None, 1.0]
    flags, errors = one.trials[1].flags["cpu+memory"], one.trials[1].errors["cpu+memory"]
    assert "read-failed" in flags and not any(" " in flag for flag in flags)
    assert any("in place of a number" in error for error in errors)
    notes = {note.code: note.facts for note in outcome.notes}
    assert notes["no-joules"] == {
        "command": "flaky",
        "component": "cpu+memory",
        "runs": 2,
        "of": 4,
        "flags": ["read-failed"],
    }
    assert (notes["read-failed"]["flagged"], notes["read-failed"]["of"]) == (2, 4)
    energy = one.components["cpu+memory"].energy_j
    assert energy is not None and (energy.n, energy.mean) == (2, 1.0)
    assert "flaky: 2 of 4 runs have no joules (read-failed" in capsys.readouterr().out


def test_a_failing_command_ends_it_and_keeps_the_blocks_before(
    bench: Bench, capsys: Captured
) -> None:
    log, cleaned, path = bench.folder / "log", bench.folder / "cleaned", bench.folder / "out.json"
    failing = Command("third time", ("sh", "-c", f"echo x >> {log}; [ $(wc -l < {log}) -lt 3 ]"))
    options = replace(
        OPTIONS, export_json=path, runs=5, cleanup=of_strings([f"echo x >> {cleaned}"])
    )
    with refuses("command-failed", command="third time", ended="failed with exit code 1"):
        bench.run([failing], options)
    outcome = schema.read(CommandDocument, json.loads(path.read_text()))
    assert (outcome.ok, outcome.blocks) == (False, 2)
    assert cleaned.read_text() == "x\n"
    assert "Not complete: The command third time failed" in capsys.readouterr().out

    log.unlink()
    assert bench.run([failing], options, ignore_failure=True) == 0
    outcome = schema.read(CommandDocument, json.loads(path.read_text()))
    assert [t.exit_code for t in outcome.commands[0].trials] == [0, 0, 1, 1, 1]
    (failed,) = [note for note in outcome.notes if note.code == "failed-runs"]
    assert failed.facts == {"command": "third time", "runs": 3, "of": 5}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"prepare": of_strings(["echo why >&2; exit 3"])},
            refuses("helper-failed", output=": why"),
        ),
        (
            {"cleanup": of_strings(["kill -9 $$"])},
            refuses("helper-failed", what="The cleanup command"),
        ),
        ({"component": "psyss"}, refuses("unknown-name", name="psyss")),
        ({"input": NOWHERE}, refuses("input-unread", path=str(NOWHERE))),
        ({"export_json": NOWHERE / "x.json"}, refuses("no-folder", folder=str(NOWHERE))),
        ({"prepare": of_strings(["true", "true"])}, refuses("auxiliary-count", option="--prepare")),
        ({"precision": 2.0}, refuses("invalid-precision")),
        ({"rest_s": 1e10}, refuses("invalid-rest")),
        ({"output": f"{NOWHERE}/x"}, refuses("no-folder", folder=str(NOWHERE))),
        ({"output": "/"}, refuses("output-unwritable", path="/", reason="Is a directory")),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    bench: Bench, options: dict[str, Any], sentence: Refusal
) -> None:
    with sentence as refused:
        bench.run([of_words(["true"])], **options)
    assert "\n" not in str(refused.value)


def test_a_command_that_is_not_there(bench: Bench) -> None:
    with refuses("command-not-started", program="no-such-program"):
        bench.run([of_words(["no-such-program"])])
    with refuses("command-twice", command="true"):
        bench.run(of_strings(["true", "true"]))
    with refuses("not-words"):
        of_strings(["true"], 'bash -e "')


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
def test_what_cannot_run_ends_as_in_a_shell(
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
    commands = _commands(words, each=False, shell=None, no_shell=False)
    with contextlib.chdir(bench.folder):
        assert app.guarded(lambda: bench.run(commands)) == status
    assert capsys.readouterr().err.count("fde: ") == 1


def test_nothing_is_measured_where_the_statistics_cannot_be_loaded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "analysis.stats.repetition", None)
    ran = bench.folder / "ran"
    with pytest.raises(ImportError):
        bench.run([of_words(["touch", str(ran)])])
    assert not ran.exists()


def test_a_file_that_is_named_twice_is_not_overwritten(bench: Bench) -> None:
    file = bench.folder / "data"
    (bench.folder / "link").symlink_to(file)
    file.write_text("data")
    for options in (
        {"input": file, "output": str(file)},
        {"export_json": file, "export_markdown": bench.folder / "link"},
    ):
        with refuses("file-twice", path=str(file)):
            bench.run([of_words(["cat"])], **options)
    assert file.read_text() == "data"
    null = Path(os.devnull)
    replace(OPTIONS, input=null, output=str(null), export_json=null).check([of_words(["cat"])])


def test_a_signal_without_a_name_is_a_sentence() -> None:
    assert ended(-signal.SIGSEGV).endswith("SIGSEGV")
    assert ended(-35).endswith("signal 35")


@pytest.mark.parametrize(
    ("line", "code"),
    [("./fde-none/program", 127), ("env ./fde-none", 127), (". / ; /", 126)],
)
def test_what_did_not_run_is_compared_with_nothing(
    bench: Bench, line: str, code: int, capsys: Captured
) -> None:
    options = replace(OPTIONS, ignore_failure=True, export_json=bench.folder / "result.json")
    with refuses("command-did-not-run", command=line, exit_code=code):
        bench.run(of_strings(["false", line]), options)
    assert not (bench.folder / "result.json").exists()
    assert "against" not in capsys.readouterr().out


def test_prepare_warmup_and_cleanup_in_their_order(bench: Bench) -> None:
    log = bench.folder / "log"
    options = replace(
        OPTIONS,
        runs=2,
        warmup=1,
        prepare=of_strings([f"echo prepare >> {log}"]),
        cleanup=of_strings([f"echo cleanup >> {log}"]),
    )
    bench.measure(of_strings([f"echo run >> {log}"]), options)
    assert log.read_text().split() == ["prepare", "run"] * 3 + ["cleanup"]


def test_precision_takes_as_many_runs_as_a_pilot_asks_for(bench: Bench) -> None:
    log = bench.folder / "log"
    log.touch()
    even = f"1000000 + 40000 * ($(wc -l < {log}) % 2)"
    command = adding(bench.package, even, "wavering")
    options = replace(OPTIONS, precision=0.01, prepare=of_strings([f"echo x >> {log}"]))
    outcome = bench.measure([command], options)
    values = [t.energy_j["cpu+memory"] or 0.0 for t in outcome.commands[0].trials]
    pilot = values[:10]
    needed = blocks_for(float(np.std(pilot, ddof=1) / np.mean(pilot)), 10, 0.01)
    assert outcome.pilot_blocks == 10 and outcome.blocks == needed > 10
    wanted = two_stages(pilot, values[10:])
    energy = outcome.commands[0].components["cpu+memory"].energy_j
    assert energy is not None and energy.low is not None and wanted.low is not None
    assert energy.low <= wanted.low  # beside the scatter, what updates leave open
    assert wanted.half_width is not None and wanted.half_width <= 0.01 * wanted.mean
    plain = estimate(values).low
    assert plain is not None and wanted.low < plain  # which would be too narrow

    log.write_text("")
    outcome = bench.measure([command], options, most_runs=12)
    assert outcome.blocks == 12
    (ended,) = [note for note in outcome.notes if note.code == "max-runs"]
    assert ended.facts == {"needed": needed, "most_runs": 12}


def test_without_any_source_one_sentence_says_what_was_looked_for() -> None:
    with pytest.raises(ControllerError) as refused:
        run([of_words(["true"])], OPTIONS, without_counters)
    printed = str(refused.value)
    words = "powercap", "battery", "fde-instruments", "--meter", "make lab"
    assert all(word in printed for word in words)


def test_a_counter_that_only_root_may_read_is_told(bench: Bench) -> None:
    if os.geteuid() == 0:
        way = "sudo chmod a+r"
        sources = LocalSources({}, {"powercap": f"x may be read by root only: {way} x."})
    else:
        for file in bench.tree.rglob("energy_uj"):
            file.chmod(0)
        way = "sudo chmod a+r"
        sources = LocalSources.open({"powercap": lambda: PowercapSource.open(bench.tree)})
    with pytest.raises(ControllerError, match=way.replace("+", r"\+")):
        run([of_words(["true"])], OPTIONS, lambda: sources)


def test_an_interruption_ends_the_command_and_shows_what_was_measured(bench: Bench) -> None:
    code = (
        PROGRAM
        + f"""
line = "echo x >> {bench.folder}/log; [ $(wc -l < {bench.folder}/log) -lt 3 ] || exec sleep 600"
options = MeasureOptions(rest_s=0, cleanup=of_strings(["echo cleaned >> {bench.folder}/log"]))
sys.exit(run(of_strings([line]), options, opener))
"""
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, bench.tree], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    log = bench.folder / "log"
    while not log.exists() or len(log.read_text().split()) < 3:
        time.sleep(0.02)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)  # as Ctrl-C, which a background job may not hear
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Not complete: interrupted" in shown and "2 runs" in shown
    assert log.read_text().split() == ["x", "x", "x", "cleaned"]


def test_a_meter_of_an_inventory(bench: Bench, capsys: Captured) -> None:
    entry = meter(bench.folder / "port")
    with speaking(bench.folder / "port"):
        options = replace(OPTIONS, runs=2, rest_s=0.3, meters=[entry], keep=bench.folder / "kept")
        outcome = bench.measure([of_words(["sleep", "0.5"])], options, without_counters)
    assert (outcome.component, outcome.origin) == ("system", "modelled")
    for trial in outcome.commands[0].trials:  # the simulator gives 20 W
        assert trial.energy_j["system"] == pytest.approx(20 * trial.seconds, rel=0.05)
        assert trial.rest_power_w["system"] == pytest.approx(20, rel=0.05)
    assert (bench.folder / "kept/meters/meter0/stream.raw").stat().st_size > 0
    assert MODELLED_WORDS in capsys.readouterr().out
    with refuses("folder-recorded"):
        run([of_words(["true"])], options, without_counters)


def test_a_recorder_that_ends_is_started_again_and_noted(bench: Bench) -> None:
    kept, ended = bench.folder / "kept", bench.folder / "ended"
    code = f"""
import os, pathlib, time
from agent.system import lock
if not os.path.exists({str(ended)!r}):
    os.kill(lock.holder(pathlib.Path({str(kept / "meters/meter0")!r})), 9)
    pathlib.Path({str(ended)!r}).touch()
time.sleep(0.5)
"""
    commands = [of_words(["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", code])]
    with speaking(bench.folder / "port"):
        options = replace(
            OPTIONS, runs=4, rest_s=2, meters=[meter(bench.folder / "port")], keep=kept
        )
        outcome = bench.measure(commands, options, without_counters)
    assert "recorder-ended" in {note.code for note in outcome.notes}
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
    halves = Command("halves", ("sh", "-c", f"sleep 0.5; : > {silent}; sleep 0.5; rm {silent}"))
    entry = meter(bench.folder / "port")
    with speaking(bench.folder / "port", Troubled(silent)):
        options = replace(OPTIONS, runs=2, rest_s=0.3, meters=[entry], export_markdown=table)
        outcome = bench.measure([halves], options, without_counters)
    for trial in outcome.commands[0].trials:
        assert set(trial.flags["system"]) >= {"off", "gap-filled"}
        assert trial.rest_flags["system"] == ("off",)
        assert 0 < trial.coverage["system"] < 1
    facts = {(note.code, note.facts.get("rest")): note.facts for note in outcome.notes}
    assert facts["off", False]["flagged"] == facts["off", True]["flagged"] == 2
    assert 0 < facts["gap-filled", False]["coverage"] < 1
    shown, written = capsys.readouterr().out, table.read_text()
    for note in outcome.notes:
        assert note.sentence in shown and note.sentence in written
    assert "flagged: " in shown and "(flagged)" in written


# Of a command that does its work only where its output is not /dev/null, as GNU grep and tar do.
NOTICING = "[ /proc/$$/fd/1 -ef /dev/null ] || {{ n=$(cat {0}); echo $((n + 2000000)) > {0}; }}"


@pytest.mark.parametrize("output", ["pipe", "null", "/dev/null", "file", "inherit"])
def test_where_the_output_goes(bench: Bench, output: str, capfd: Captured) -> None:
    file = bench.folder / "output"
    line = f"{NOTICING.format(bench.package)}; echo said; echo wrong >&2"
    where = str(file) if output == "file" else output
    outcome = bench.measure(of_strings([line]), output=where)
    energy = outcome.commands[0].components["package-0"].energy_j
    to_null = output in ("null", "/dev/null")
    # A counter that did not move has no joules.
    assert (energy is None) if to_null else (energy is not None and energy.mean == 2.0)
    assert ("output-null" in [note.code for note in outcome.notes]) == to_null
    assert outcome.output == where
    written = [trial.output_bytes for trial in outcome.commands[0].trials]
    assert written == [len("said\nwrong\n") if output == "pipe" else None] * 3
    assert not file.exists() or file.read_text() == "said\nwrong\n"  # of the last run alone
    shown = capfd.readouterr()
    assert "said" not in [*shown.out.split("\n")]
    assert shown.err.count("said\nwrong\n") == 3 * (output == "inherit")


def test_a_pipe_that_costs_is_noted(bench: Bench) -> None:
    much = of_words(["head", "-c", "100000000", "/dev/zero"])
    outcome = bench.measure([much], runs=1)
    (note,) = [note for note in outcome.notes if note.code == "output-piped"]
    assert note.facts["bytes"] == outcome.commands[0].trials[0].output_bytes == 100_000_000
    outcome = bench.measure([of_words(["echo", "x"])], runs=1)
    assert not [note for note in outcome.notes if note.code == "output-piped"]


def test_what_a_command_leaves_running_may_go_on_writing(bench: Bench) -> None:
    log, captured = bench.folder / "log", bench.folder / "told"
    line = f"{{ until [ -e {captured} ]; do sleep 0.02; done; echo late && echo lived > {log}; }} &"
    bench.measure(of_strings([line]), runs=1)
    captured.touch()  # what goes on was not waited for
    while not log.exists():
        time.sleep(0.02)


def test_a_slow_first_run_is_noted(bench: Bench) -> None:
    log = bench.folder / "log"
    log.touch()
    # The first run takes 9 J, the others 1 J and what tells them apart.
    number = f"$(wc -l < {log})"
    joules = f"1000000 + {number} * 7919 % 10 * 1000 + ({number} == 1) * 8000000"
    command = adding(bench.package, joules, "cold")
    options = replace(OPTIONS, runs=10, prepare=of_strings([f"echo x >> {log}"]))
    outcome = bench.measure([command], options)
    (note,) = [note for note in outcome.notes if note.code == "first-run"]
    assert note.facts["share"] == pytest.approx(8, abs=0.1)
    assert (note.facts["command"], note.facts["runs"]) == ("cold", [1])
    options = replace(options, warmup=1)
    log.write_text("")
    outcome = bench.measure([command], options)
    assert not {"first-run", "outliers"} & {note.code for note in outcome.notes}


def test_one_run_needs_no_statistics(bench: Bench) -> None:
    code = (
        PROGRAM
        + """
assert run([of_words(["true"])], MeasureOptions(runs=1, rest_s=0), opener) == 0
assert not {"numpy", "scipy", "polars"} & sys.modules.keys(), "imported without need"
"""
    )
    subprocess.run([sys.executable, "-c", code, bench.tree], cwd=ROOT, check=True)


def test_what_is_compared_is_what_sees_most() -> None:
    def choose(*names: str, wanted: str | None = None) -> str:
        known = {n: Component("meter m" if n == "system" else "x", n, "measured") for n in names}
        return main_component(known, wanted)

    assert choose("cpu", "package-0", "gpu-0", "system") == "system"
    assert choose("cpu", "psys", "battery") == "battery"
    assert choose("cpu", "package-0", "psys") == "psys"
    assert choose("gpu-0") == "gpu-0"
    assert choose("cpu", "system", wanted="cpu") == "cpu"


def test_words_after_the_dashes() -> None:
    def names(*words: str, each: bool = False, no_shell: bool = False) -> list[tuple[str, ...]]:
        return [command.argv for command in _commands(words, each, None, no_shell)]

    assert names("gzip", "-9", "a b") == [("gzip", "-9", "a b")]
    assert names("gzip -9 a", "xz a") == [
        ("/bin/sh", "-c", "gzip -9 a"),
        ("/bin/sh", "-c", "xz a"),
    ]
    assert names("echo 'a b'", no_shell=True) == [("echo", "a b")]
    assert names("./a", "./b", each=True, no_shell=True) == [("./a",), ("./b",)]
    assert names() == []


def test_the_command_line(capsys: Captured, monkeypatch: Any) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert app.main(["run", "--", "--help"]) == 0
    assert "run [OPTIONS] -- COMMAND" in capsys.readouterr().out
    assert app.main(["run", "--help"]) == 0
    assert "planned suite" in capsys.readouterr().out
    for words in (["run", "sleep 1"], ["run", "sleep", "1"], ["measure", "sleep", "1"]):
        assert app.main(words) == 2
        captured = capsys.readouterr().err
        assert f"fde run -- {shlex.join(words[1:])}" in captured and captured.count("\n") == 1
    assert app.main(["run", "-r", "3", "sleep", "-v"]) == 2
    assert "fde run -r 3 -- sleep -v" in capsys.readouterr().err
    assert app.main(["run", "--inventory", str(NOWHERE), "sleep 1"]) == 2
    assert "fde run -- 'sleep 1'" in capsys.readouterr().err
    for words in (["run", "--runs", "3"], ["measure", "--bogus", "--", "sleep"]):
        assert app.main(words) == 2  # whose fault is another
        assert "put -- before" not in capsys.readouterr().err
    assert app.main(["run", "--"]) == 1
    assert "No command" in capsys.readouterr().err
    assert app.main(["run", "--meter", "m", "--", "true"]) == 1
    assert "--inventory" in capsys.readouterr().err


def test_a_table_in_markdown(bench: Bench) -> None:
    commands = [adding(bench.package, 2_000_000, "a | b"), adding(bench.dram, 2_000_000, "c")]
    path = bench.folder / "table.md"
    bench.measure(commands, export_markdown=path)
    lines = path.read_text().splitlines()
    assert lines[0].startswith("| Command | Energy |")
    assert lines[2].startswith("| `a \\| b` | 2.00")
    assert all(line.replace("\\|", "").count("|") == 8 for line in lines[:4])
    assert "; measured; mean" in lines[5]
    assert _code("`x`") == "`` `x` ``"


def test_the_digit_of_a_meter_is_in_a_ratio_that_scatter_does_not_show() -> None:
    """60.4 W and 60.6 W, shown as 60 and 61 W in every run."""

    def shown(power_w: float) -> CommandResult:
        seconds = dict.fromkeys(("seconds", "user_s", "system_s"), 3.0)
        trials = [
            replace(trial_of(block), energy_j={"system": 3 * power_w + 1e-3 * block})
            for block in range(6)
        ]
        every = {name: Interval(6, value, value, value) for name, value in seconds.items()}
        return CommandResult(f"{power_w}", (), components={}, trials=tuple(trials), **every)

    results = [shown(60), shown(61)]
    digit = Accuracy(0.0, 0.5, "half a step of 1 W", absolute="resolution").terms
    for terms, verdict, holds in (((), "equivalent", False), (digit, "differs", True)):
        ((comparison, _),) = evaluate.comparisons(results, "system", Design(0.02), terms)
        assert comparison.low is not None and (comparison.low < 60.6 / 60.4) == holds
        assert comparison.verdict == verdict


@pytest.mark.parametrize(("step_j", "update_s"), [(1.0, 0.0), (0.0, 1 / 30), (0.0, 0.0)])
def test_a_step_that_scatter_does_not_show_is_in_the_interval(
    step_j: float, update_s: float
) -> None:
    """Six runs of 90 J in 3 s, each the same: a step, or an update at 30 W, leaves 1 J open."""
    trials = [replace(trial_of(block), energy_j={"psys": 90.0}) for block in range(6)]
    trials = [replace(trial, window_s={"psys": 3.0}) for trial in trials]
    terms = [ErrorTerm("count", step_j, ""), ErrorTerm("update", update_s, "")]
    result = evaluate.result(of_words(["x"]), trials, Design(0.02), {"psys": terms})
    energy_j, power_w = result.components["psys"].energy_j, result.components["psys"].power_w
    assert energy_j is not None and power_w is not None
    # The difference of two reads that are off by up to 1 J: a triangle, and 95 % of a normal one.
    half_width_j = 1.96 / math.sqrt(6) if step_j or update_s else 0.0
    assert energy_j.half_width == pytest.approx(half_width_j, abs=1e-3)
    assert power_w.half_width == pytest.approx(half_width_j / 3, abs=1e-3)


def trial_of(block: int) -> Trial:
    names = ("rest_power_w", "flags", "rest_flags", "errors", "coverage")
    empty: dict[str, Any] = {name: {} for name in names}
    numbers: dict[str, Any] = dict.fromkeys(("seconds", "user_s", "system_s"), 3.0)
    numbers |= dict.fromkeys(("place", "t_start_ns", "t_end_ns", "exit_code"), 0)
    return Trial(
        block=block,
        energy_j={},
        window_s={"system": 3.0},
        output_bytes=None,
        **empty,
        **numbers,
    )
