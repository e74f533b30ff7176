"""The command `fde`: its JSON documents, exit statuses and pages of reference."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
import typer

from contract import places, schema
from contract.command_results import COMMANDS, Failure
from contract.errors import ControllerError
from contract.places import ANSIBLE, ROOT
from contract.plan import read_target
from contract.tests.programs import wait_until
from contract.tests.refusal import refuses
from controller.cli import options
from controller.cli.app import guarded, main
from controller.cli.options import newest
from controller.session import session
from controller.session.session import run as run_session
from controller.sharing import sandbox
from controller.targets import connection, fitness, init, prove, secrets, survey
from controller.targets.answers import Survey
from controller.targets.connection import TargetError
from controller.targets.tests.test_init import surveyed
from controller.tests import examples
from controller.tests.command import Fde, Printed
from validation import commands_page
from validation.synthetic.suite import Options, write_suite

EXAMPLE = ANSIBLE / "inventory" / "hardware.example"
PROOF = '{"configuration": "plain", "took_s": 1.5, "proof": {"ok": true, "mismatches": []}}'
REFUSAL = '{"problems": [{"code": "in-use", "facts": {}, "sentence": "It is.", "remedy": ""}]}'


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write two small suites, the first with a report."""
    folder = tmp_path_factory.mktemp("suites")
    small = Options(blocks=2, workloads=("kernel_grep", "sql"), configurations=("plain", "opal"))
    write_suite(folder / "a", small)
    write_suite(folder / "b", replace(small, host="other"))
    assert main(["report", str(folder / "a")]) == 0
    return [str(folder / name) for name in ("a", "b")]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a resolved target that answers with one proof; sessions seal at once."""
    path = tmp_path / "target.json"
    path.write_text(json.dumps(examples.target()), encoding="utf-8")
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    monkeypatch.setattr(
        connection, "python", lambda *_: [sys.executable, "-c", f"print('{PROOF}')"]
    )
    monkeypatch.setattr(secrets, "place", lambda _target: None)
    monkeypatch.setattr(session, "run", lambda folder, *_, **__: folder / "manifest.json")
    monkeypatch.setattr(init, "list_disks", lambda _: Survey("h", (surveyed("S1"),)))
    return str(path)


# Others validate `measure` and `here`; `watch` and `stop` need a running suite.
@pytest.mark.parametrize(
    "command", sorted(commands_page.commands().keys() - {"here", "measure", "stop", "watch"})
)
def test_a_command_ends_with_its_status_and_prints_only_its_document(
    command: str, suites: list[str], target: str, tmp_path: Path, fde: Fde
) -> None:
    (tmp_path / "hosts.yml").write_text("targets: {hosts: {alder: {ansible_host: 127.0.0.1}}}")
    planned = tmp_path / "planned"
    planned.mkdir()
    (planned / "plan.json").write_text(json.dumps(examples.plan()), encoding="utf-8")
    receiver = {"name": "p", "argv": ["true"]}
    notifying = tmp_path / "notifying.json"
    described = json.loads(Path(target).read_text(encoding="utf-8"))
    notifying.write_text(json.dumps(described | {"notify": {"receivers": [receiver]}}))
    whom = ["--target", target, "--inventory", str(tmp_path)]
    play = ["--inventory", str(tmp_path / "hosts.yml")]
    words: dict[str, tuple[list[str], int]] = {
        "check": (["--inventory", str(EXAMPLE)], 1),
        "init": ([str(tmp_path / "new"), "--host", "h", "--disk", "plain=S1", "--yes"], 0),
        "provision": ([*play, "--confirm", "S1"], 1),
        "assets": (play, 1),
        "teardown": (play, 1),
        "prove": (["--target", target, "plain"], 0),
        "notify": (["--target", str(notifying)], 0),
        "plan": (
            ["--suite", "micro", "-c", "plain,opal", "--target", target, "--out", str(tmp_path)],
            0,
        ),
        "run": ([str(planned), *whom], 0),
        "resume": ([str(planned), *whom], 0),
        "seal": ([str(planned)], 0),
        "report": ([suites[1]], 0),
        "verify": ([suites[0]], 0),
        "summary": ([suites[0]], 0),
        "compare": ([*suites, "--out", str(tmp_path)], 0),
        "publish": ([suites[0], "--out", str(tmp_path / "b.tar.gz")], 0),
        "notebook": ([suites[0]], 0),
        "payback": ([suites[0], "--hours", "6"], 1),  # no software to compare with
        "meters": ([], 0),
    }
    arguments, status = words[command]
    if command not in COMMANDS:
        fde(command, *arguments, status=status)
        return
    document = json.loads(fde(command, *arguments, "--json", status=status).out)
    jsonschema.validate(document, _published(command))
    schema.read(COMMANDS[command], document)
    assert document["ok"] is (status == 0)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_new_suite_whose_target_has_no_agent_leaves_no_folder_unless_recorded(
    recorded: bool, target: str, tmp_path: Path, fde: Fde, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path, *arguments: Any, **options: Any) -> Path | None:
        if recorded:
            (folder / "sessions.jsonl").touch()
        return run_session(folder, *arguments, **options)

    script = "import sys; sys.exit('python3: No module named agent')"
    monkeypatch.setattr(connection, "python", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(session, "run", run)
    monkeypatch.setattr(fitness, "require_ready", lambda *_: None)
    out = tmp_path / "suites"
    arguments = ["--suite", "micro", "-c", "plain,opal", "--target", target, "-i", tmp_path]
    captured = fde("run", *arguments, "--out", out, status=1)
    assert "agent" in captured.err
    assert ("removed" in captured.out, len(list(out.iterdir()))) == (not recorded, recorded)


@pytest.mark.parametrize(
    ("printed", "code", "configuration"),
    [
        ([REFUSAL], "in-use", "plain"),
        ([PROOF, REFUSAL], "in-use", "opal"),
        ([PROOF, PROOF, REFUSAL], "in-use", ""),
        ([PROOF, PROOF], "command-failed", ""),
    ],
)
def test_proofs_end_with_the_agents_refusal(
    printed: list[str], code: str, configuration: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"import sys; print({chr(10).join(printed)!r}); sys.exit(1)"
    monkeypatch.setattr(connection, "python", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(survey, "look", lambda *_, **__: None)  # the target answers
    with pytest.raises(TargetError) as refused:
        prove.run(read_target(Path(target)), ["plain", "opal"], lambda _: None)
    (problem,) = refused.value.problems
    assert (problem.code, problem.facts["configuration"]) == (code, configuration)


def test_commands_with_a_result_have_json() -> None:
    with_json = {
        name
        for name, command in commands_page.commands().items()
        if any("--json" in option for option, _ in commands_page.parameters(command))
    }
    assert with_json == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, ""),
        (["repot"], 2, "No such command 'repot'"),
        (["check"], 2, "--inventory"),
        (["report", "--nonesuch"], 2, "--nonesuch"),
        (["plan", "--suite", "micro", "--blocks", "1", "--hours", "1"], 2, "give one of"),
        (
            ["run", "a-suite", "--blocks", "3", "-c", "opal"],
            2,
            "--blocks, --configurations: the su",
        ),
        (["run", "a-suite", "--scale", "lab"], 2, "--scale: the suite in SUITE_DIR is planned"),
        (["measure", "--keep", "raw", "--", "true"], 2, "--keep: it keeps a meter"),
        (["--show-completion", "zsh"], 2, "--show-completion takes no word"),
        (["--install-completion", "fish"], 2, "--install-completion takes no word"),
        (["report", "nowhere"], 1, "nowhere"),
        (["report", "nowhere.tar.gz"], 1, "no suite folder or bundle nowhere.tar.gz"),
        (["report", "/etc/hostname"], 1, "/etc/hostname cannot be read as a bundle: it is no tar"),
        (["--help"], 0, ""),
    ],
)
def test_exit_status_and_error_of_wrong_arguments(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    captured = capsys.readouterr()
    if status == 0 or not arguments:
        assert "Exit status" in captured.out
    else:
        assert captured.err.startswith("fde: ") and captured.err.count("\n") == 1
        assert message in captured.err and not captured.out


# What people type wrongly, and what of it the sentence must name.
MISTAKES = (
    ("run --suite smoek", 1, "'smoek'; did you mean smoke?"),
    ("plan --suite smoek", 1, "'smoek'; did you mean smoke?"),
    ("run --suite smoke --skip vidoe", 1, "'vidoe'; did you mean video?"),
    ("run --suite paper --scale labb", 1, "'labb'; did you mean lab?"),
    ("run --suite smoke --blocks zwei", 2, "'--blocks': 'zwei' is not a valid whole number."),
    ("run --suite smoke --blocks 0", 2, "'--blocks': 0 is not in the range x>=1."),
    ("run --suite smoke --hours nan", 2, "'--hours': nan is not a number."),
    ("run --suite smoke --hours inf", 2, "'--hours': inf is not in the range 0<=x<=8760."),
    ("run --suite smoke --until 25:00", 2, "'--until': '25:00' does not match the format"),
    ("run --suite smoke --workloads video", 2, "No such option: --workloads"),
    ("run", 1, "--suite"),
    ("run nowhere", 1, "nowhere cannot be used"),
    ("resume nowhere", 1, "nowhere cannot be used"),
    ("provision -i nowhere", 1, "The inventory nowhere was not found."),
    ("run --suite smoke -i nowhere", 1, "The inventory nowhere was not found."),
    ("help repot", 2, "Did you mean 'report'?"),
    ("list suites", 2, "`fde --help` lists the commands and suites"),
    ("report /etc", 1, "/etc is not a suite: it has no plan.json."),
    ("report /etc/hostname", 1, "/etc/hostname cannot be read as a bundle"),
    ("report nosuch.tar.gz", 1, "no suite folder or bundle nosuch.tar.gz"),
    ("measure -r x -- true", 2, "'x' is not a valid whole number."),
)


@pytest.mark.parametrize(("words", "status", "message"), MISTAKES)
def test_a_mistake_is_named_before_ansible_runs(
    words: str,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FDE_INVENTORY", str(ROOT / "ansible" / "inventory" / "lab"))
    monkeypatch.setattr("controller.targets.playbook._play", lambda *_: pytest.fail("it runs"))
    assert main(words.split()) == status
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out
    assert captured.err.startswith("fde: ") and captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run --suite smoke", "plan --suite smoke", "resume"])
def test_a_missing_inventory_is_named_with_its_remedy(
    command: str,
    suites: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FDE_INVENTORY", raising=False)
    monkeypatch.setattr("controller.cli.suites.newest", lambda: Path(suites[0]))
    assert main(command.split()) == 1
    assert "--inventory FOLDER" in capsys.readouterr().err


class Panic(BaseException):
    """An error of a library in Rust, which is no Exception."""


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ControllerError("No\nway."), 1, "fde: No way.\n"),
        (PermissionError(13, "Permission denied", "x"), 1, "read x: Permission denied"),
        (KeyboardInterrupt(), 130, "fde: Interrupted.\n"),
        (KeyboardInterrupt("fde resume s"), 130, "kept. Continue with fde resume s.\n"),
        (ImportError("a.so: failed to map"), 1, "fde: A library cannot be loaded"),
        (MemoryError(), 1, "fde: Memory or a thread was refused"),
        (RuntimeError("can't start new thread"), 1, "fde: Memory or a thread was refused"),
        (Panic("could not spawn threads"), 1, "fde: Memory or a thread was refused"),
        (typer.Abort(), 1, "fde: A question was not answered"),
    ],
)
def test_exceptions_become_one_sentence_and_a_status(
    error: BaseException, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail) == status
    captured = capsys.readouterr().err
    assert message in captured and captured.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "prove", "run --suite smoke", "teardown"])
def test_a_missing_inventory_has_one_sentence(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FDE_INVENTORY", raising=False)
    assert main(command.split()) in (1, 2)
    assert capsys.readouterr().err.count("fde init FOLDER") == 1


def test_a_missing_library_of_the_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        reason = "libgcc_s.so.1: cannot open shared object file: No such file or directory"
        raise ImportError("PLEASE READ THIS") from ImportError(reason)

    assert guarded(fail) == 1
    captured = capsys.readouterr().err
    assert "no libgcc_s.so.1," in captured and "apt install libgcc-s1`" in captured


def test_each_of_several_problems_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ControllerError("one is wrong", "another is wrong")

    assert guarded(fail) == 1
    assert capsys.readouterr().err == "fde: one is wrong\nfde: another is wrong\n"


def _published(command: str) -> Any:
    return json.loads((places.SCHEMAS / f"fde-{command}.json").read_text(encoding="utf-8"))


def _failure(printed: Printed, command: str) -> Failure:
    """Return the document of a failed command, whose sentence is also on standard error."""
    document = json.loads(printed.out)
    jsonschema.validate(document, _published(command))
    failure = schema.read(Failure, document)
    assert printed.err.endswith(f"fde: {' '.join(map(str, failure.problems))}\n")
    return failure


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_wrong_option_is_a_document_too(command: str, fde: Fde) -> None:
    printed = fde(command, "--json", "--nonesuch", status=2)
    assert [problem.code for problem in _failure(printed, command).problems] == ["usage"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("check --inventory nowhere", "not-found"),
        ("here --folder nowhere", "no-folder"),
        ("plan --suite smoek --inventory i", "unknown-name"),
        ("run nowhere", "suite-folder-unusable"),
        ("resume nowhere", "suite-folder-unusable"),
        ("report nowhere", "no-suite-folder"),
        ("verify nowhere", "no-suite-folder"),
        ("summary nowhere", "no-suite-folder"),
        ("compare nowhere n", "no-suite-folder"),
        ("publish nowhere", "no-suite-folder"),
        ("notebook nowhere", "no-suite-folder"),
        ("measure --export-json no/such -- true", "file-error"),
    ],
)
def test_a_command_that_fails_prints_its_problems_as_its_document(
    words: str, code: str, fde: Fde
) -> None:
    command, *arguments = words.split()
    failure = _failure(fde(command, "--json", *arguments, status=1), command)
    assert [problem.code for problem in failure.problems] == [code]


@pytest.mark.parametrize(
    "words",
    [
        "report nowhere",
        "measure --export-json no/such -- jq --json",
        "measure --export-json no/such jq --json",
    ],
)
def test_a_command_without_json_that_fails_prints_no_document(words: str, fde: Fde) -> None:
    printed = fde(*words.split(), status=1)
    assert printed.err.count("fde: ") == 1 and not printed.out


@pytest.mark.parametrize(
    ("command", "code"), [("", "interrupted"), ("fde resume s", "interrupted-resumable")]
)
def test_an_interrupt_is_named_with_what_continues(
    command: str, code: str, fde: Fde, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt(*filter(None, [command]))

    monkeypatch.setattr("controller.cli.results.newest", interrupt)
    (problem,) = _failure(fde("verify", "--json", status=130), "verify").problems
    assert (problem.code, problem.facts.get("command")) == (code, command)


def test_the_default_suite_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refuses("no-suite", folder="fde-suites"):
        options.newest()
    for folder, file in {"mine": "plan.json", "notes": "x", ".copy": "plan.json"}.items():
        (tmp_path / "fde-suites" / folder).mkdir(parents=True)
        (tmp_path / "fde-suites" / folder / file).touch()
    assert options.newest() == Path("fde-suites", "mine")
    (tmp_path / "data" / "schema").mkdir(parents=True)
    (tmp_path / "data" / "suites" / "of-a-checkout").mkdir(parents=True)
    (tmp_path / "data" / "suites" / "of-a-checkout" / "plan.json").touch()
    assert options.newest().name == "of-a-checkout"


@pytest.mark.parametrize(
    ("name", "option", "generate"),
    [
        ("commands.md", "--markdown", commands_page.markdown),
        ("fde-help.svg", "--picture", commands_page.picture),
    ],
)
def test_the_reference_is_current(name: str, option: str, generate: Callable[[], str]) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generate(), (
        f"docs/{name} is old: python -m validation.commands_page {option} >docs/{name}"
    )


def test_the_version_is_that_of_the_project(fde: Fde) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert fde("--version").out.startswith(f"fde {project['version']} (")


def run_cli(*words: str, options: Sequence[str] = (), **variables: str) -> str:
    """Run `fde` in another process; return its standard output."""
    argv = [sys.executable, *options, "-m", "controller", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    ).stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"COLUMNS": "0", "LINES": "0"},
        {"COLUMNS": "1"},
        {"COLUMNS": "-5"},
        {"COLUMNS": "wide"},
        {"COLUMNS": "9" * 30},
    ],
)
def test_a_terminal_without_a_size_gets_the_usual_help(variables: dict[str, str]) -> None:
    assert run_cli("--help", **variables) == run_cli("--help", COLUMNS="80")


def test_the_help_describes_commands_without_docstrings() -> None:
    assert "Freeze a plan" in run_cli("--help", options=["-OO"])
    assert run_cli("verify", "--help", options=["-OO"]) == run_cli("verify", "--help")


@pytest.mark.parametrize("words", [[], ["plan"]])
def test_help_is_also_a_command(words: list[str], fde: Fde) -> None:
    assert fde("help", *words).out == fde(*words, "--help").out
    assert "'plna'" in fde("help", "plna", status=2).err


def test_a_dash_is_standard_output(suites: list[str], tmp_path: Path) -> None:
    """A suite that is published to a pipe is a bundle there, and no file is called `-`."""
    argv = [sys.executable, "-m", "controller", "publish", suites[0], "--out", "-"]
    environment = {**os.environ, "PYTHONPATH": places.python_path()}
    completed = subprocess.run(argv, capture_output=True, check=True, cwd=tmp_path, env=environment)
    assert completed.stdout[:2] == b"\x1f\x8b" and not list(tmp_path.iterdir())
    assert options.output_file("./-") == Path("-")


POLARS_THAT_CRASHES = """
import os, signal, warnings
warnings.warn("Missing required CPU features.\\n\\nThe following required CPU features were not "
    "detected:\\n    avx2, fma\\nContinuing will crash.", RuntimeWarning)
os.kill(os.getpid(), signal.SIGILL)
"""


@pytest.mark.parametrize("words", ["report {suite}", "run {suite} -i no", "verify {suite}"])
def test_a_processor_that_polars_does_not_support_is_refused_before_it_crashes(
    words: str, suites: list[str], tmp_path: Path
) -> None:
    (tmp_path / "polars.py").write_text(POLARS_THAT_CRASHES, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    completed = subprocess.run(
        [sys.executable, "-m", "controller", *words.format(suite=suites[0]).split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert completed.returncode == 1 and completed.stderr.count("\n") == 1
    assert "lacks what Polars requires: avx2, fma. For another build, run" in completed.stderr


def test_the_library_raises_where_polars_would_crash(tmp_path: Path) -> None:
    (tmp_path / "polars.py").write_text(POLARS_THAT_CRASHES, encoding="utf-8")
    completed = subprocess.run(
        [sys.executable, "-c", "from fde_testbed import Suite"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    assert completed.returncode == 1 and "RuntimeWarning: Missing required" in completed.stderr


@pytest.mark.parametrize(
    "words",
    ["plan -i a -i b --suite smoke", "measure -r 2 --runs 3 -- true", "report -i a --inventory b"],
)
def test_an_option_given_twice_is_refused(words: str) -> None:
    assert main(words.split()) == 2


def test_options_that_may_be_repeated_pass() -> None:
    assert main(["plan", "-c", "plain", "-c", "opal", "--help"]) == 0


def test_completing_a_word_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"_FDE_COMPLETE": "complete_bash", "COMP_WORDS": "fde pl", "COMP_CWORD": "1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0


def test_a_package_without_its_contents_is_not_the_fault_of_a_bundle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a file `numpy.py` in front of the package."""
    monkeypatch.setenv(sandbox.IS_BOUNDED, "1")

    def shadowed() -> NoReturn:
        raise AttributeError("module 'numpy' has no attribute 'int8'")

    assert guarded(shadowed) == 1
    assert "A library cannot be loaded" in capsys.readouterr().err


def test_measuring_one_run_needs_neither_polars_nor_numpy() -> None:
    code = (
        "import sys, controller.cli.app, controller.measured_command.measure as measure;"
        "measure.evaluate._interval([1.0]);"
        "sys.exit(bool({'polars', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_help_needs_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys; from controller.cli.app import main; main(['--help']);"
        "sys.exit(str(sorted({'numpy', 'polars', 'scipy', 'yaml', 'jinja2'} & set(sys.modules))))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert completed.stderr.strip() == "[]"


def commands_in_messages() -> Iterator[tuple[str, str, ast.Call]]:
    """Yield all commands named in messages: the place, the name and the call that builds it."""
    for package in ("agent", "analysis", "controller"):
        for path in sorted((places.ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "contract.places import" in text else ():
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command_line":
                    first = node.args[0]
                    name = first.value if isinstance(first, ast.Constant) else "report"
                    yield f"{path.name}:{node.lineno}", str(name), node


def test_commands_in_messages_exist_with_their_options() -> None:
    commands, calls = commands_page.commands(), list(commands_in_messages())
    assert len(calls) > 15
    for place, name, call in calls:
        options = {str(keyword.arg): "x" for keyword in call.keywords}
        folder = "FOLDER" if len(call.args) > 1 else ""
        parameters = [text for text, _ in commands_page.parameters(commands[name])]
        words = places.command_line(name, folder, **options).split()
        assert words[:2] == ["fde", name]
        for word in words[2:]:
            if word.startswith("-"):
                assert any(word in re.split("[`, ]+", text) for text in parameters), (place, word)
        assert not folder or any("SUITE_DIR" in text for text in parameters), place


@pytest.mark.parametrize("words", ["meters --json", "--help", "summary {bundle}"])
@pytest.mark.parametrize(("where", "status"), [("full", 1), ("no reader", 141)])
def test_unwritable_standard_output_fails(where: str, status: int, words: str) -> None:
    """One sentence for a full disk; none if the reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    argv = words.format(bundle=ROOT / "data" / "examples" / "paper-synthetic.tar.gz").split()
    completed = subprocess.run(
        [sys.executable, "-m", "controller", *argv],
        stdout=full if where == "full" else writer,
        stderr=subprocess.PIPE,
        text=True,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        cwd=ROOT,
        check=False,
    )
    os.close(writer)
    os.close(full)
    assert completed.returncode == status
    sentences = [line for line in completed.stderr.splitlines() if line.startswith("fde: ")]
    assert len(sentences) == (where == "full")


@pytest.mark.parametrize("words", ["verify {bundle}", "measure --rest 0 -- true"])
def test_too_little_address_space_is_refused(words: str) -> None:
    argv = words.format(bundle=ROOT / "data" / "examples" / "paper-synthetic.tar.gz").split()
    completed = subprocess.run(
        ["prlimit", "--as=200000000", sys.executable, "-m", "controller", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert (
        completed.returncode == 1
        and "ulimit -v" in completed.stderr
        and completed.stderr.count("\n") == 1
    )


def test_control_characters_of_a_suite_are_never_printed(
    suites: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In text, --json, sentences and warnings of libraries."""
    folder = tmp_path / "suite"
    write_suite(folder, Options(blocks=2, workloads=("sql",), host="x"))
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    evil = "x\x1b[2J\x9b\u202e"
    plan["workloads"][0]["parameters"]["server"] = evil
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    for further in ([], ["--json"]):
        for words in (["report"], ["summary"], ["verify"], ["compare", suites[0]]):
            main([*words, str(folder), *further])
            printed = "".join(capsys.readouterr()).replace("\n", "")
            assert printed.isprintable(), words
    main(["compare", suites[0], str(folder), "--json"])
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert evil in [
        difference["b"] for difference in pair["differences"]
    ]  # for a program, the text as it is
    assert warnings.formatwarning(evil, UserWarning, "f", 1) == "fde: x\\x1b[2J\\x9b\\u202e\n"


def test_a_removed_working_folder_is_reported(tmp_path: Path, fde: Fde) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with contextlib.chdir(gone):
        gone.rmdir()
        captured = fde("report", status=1).err
    assert "folder is gone" in captured and captured.count("\n") == 1


def test_a_wrong_inventory_lists_the_existing_ones(tmp_path: Path, fde: Fde) -> None:
    for name in ("bench", "suites"):
        (tmp_path / name).mkdir()
    assert "was not found" in fde("check", "-i", tmp_path / "mine", status=1).err
    (tmp_path / "bench" / "hosts.yml").write_text("targets:\n")
    captured = fde("check", "-i", tmp_path / "mine", status=1).err
    assert "bench" in captured and "suites" not in captured


@pytest.mark.parametrize("command", ["plan", "run", "check"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "smokee"], "did you mean smoke?"),
        (["--suite", "smoke", "--scale", "lba"], "Omit --scale lba"),
        (["--suite", "paper", "--scale", "lba"], "did you mean lab?"),
        (["--suite", "smoke", "--skip", "idel"], "did you mean idle?"),
        (["--suite", "smoke", "--blocks", "zwei"], "--blocks"),
        (["--suite", "smoke", "--blocks", "0"], "--blocks"),
        (["--suite", "smoke", "--hours", "-1"], "--hours"),
        (["nosuch"], "name the folder of a planned suite"),
        (["--suite", "smoke"], "was not found"),
    ],
)
def test_names_are_refused_before_the_inventory_is_read(
    command: str, words: list[str], message: str, fde: Fde
) -> None:
    if command == "check" and not {"nosuch", "--skip", "--blocks", "--hours"}.isdisjoint(words):
        pytest.skip("check takes none of them")
    if command == "plan" and "nosuch" in words:
        pytest.skip("plan takes no folder")
    status = 1 if {"--blocks", "--hours"}.isdisjoint(words) else 2
    assert message in fde(command, *words, "-i", "no/inventory", status=status).err


def test_a_lab_that_does_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fde: Fde
) -> None:
    monkeypatch.setenv("FDE_LAB_DIR", str(tmp_path))
    lab = ANSIBLE / "inventory" / "lab"
    assert fde("plan", "--suite", "smoke", "-i", lab, status=1).err == (
        f"fde: The inventory {lab} is refused. target: The lab is not running: "
        f"{tmp_path}/state.json is missing. Run `make lab`.\n"
    )


def test_a_duplicate_host_is_refused(tmp_path: Path, fde: Fde) -> None:
    (tmp_path / "hosts.yml").write_text("targets:\n  hosts:\n    alder: {}\n    alder: {}\n")
    assert "name alder is already used" in fde("check", "-i", tmp_path, status=1).err


SEES_PASSWORD = """#!/bin/sh
cat "$ANSIBLE_BECOME_PASSWORD_FILE" >"$SEEN.new" && mv "$SEEN.new" "$SEEN"
exec sleep "$NAP_S"
"""


@pytest.mark.parametrize("killed", [True, False])
def test_the_file_with_sudos_password_is_removed(killed: bool, tmp_path: Path) -> None:
    """An executable inventory sees the file as Ansible does."""
    inventory, note, runtime = tmp_path / "inventory", tmp_path / "note", tmp_path / "runtime"
    inventory.write_text(SEES_PASSWORD, encoding="utf-8")
    inventory.chmod(0o755)
    runtime.mkdir()
    variables = {
        **os.environ,
        "XDG_RUNTIME_DIR": str(runtime),
        "SEEN": str(note),
        "NAP_S": "60" if killed else "0",
        "PYTHONPATH": str(ROOT),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "controller", "-K", "check", "-i", str(inventory)],
        env=variables,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b"correct horse\n")
            process.stdin.close()
            wait_until(note.exists)
            if killed:
                process.kill()
            assert process.wait() == (-signal.SIGKILL if killed else 1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert note.read_text(encoding="utf-8") == "correct horse\n"
    wait_until(lambda: not any(runtime.iterdir()))


def test_the_newest_suite_is_the_one_planned_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the folders has other times; a group is newer than its suites."""
    monkeypatch.chdir(tmp_path)
    folders = {}
    for day in ("2026-03-01", "2026-01-01"):  # the older one is written last
        document = {**examples.plan(), "created_wall": f"{day}T10:00:00+00:00"}
        folders[day] = examples.suite_folder(places.suites_folder() / f"s-{day}", document)
    assert newest() == folders["2026-03-01"]
    group = places.suites_folder() / "a-group"
    group.mkdir()
    members = {"suites": [folders["2026-03-01"].name], "hosts": ["target"]}
    document = {"format": "fde-group/1", "group": group.name, **members}
    (group / "group.json").write_text(json.dumps(document), encoding="utf-8")
    assert newest() == group


def test_variables_that_libraries_fail_at_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "POLARS_MAX_THREADS": "0",
        "SOURCE_DATE_EPOCH": "yesterday",
    }
    for name, text in bad.items():
        monkeypatch.setenv(name, text)
    assert main(["--version"]) == 0
    assert not bad.keys() & os.environ.keys()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert main(["--version"]) == 0 and "SOURCE_DATE_EPOCH" in os.environ
