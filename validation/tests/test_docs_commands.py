"""The documentation's commands: each shell block is run as printed, by a test, or *unverified*.

A comment above a block states which: `<!-- run: here -->`, `<!-- run: here after SET-UP -->`, a
test that takes the same steps, or `by hand` with the day. A block that was not run has a line
`*(unverified: WHY)*` below it. `console` blocks show the output, and a command that fails has the
line `fde: …` there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import yaml

from contract.places import ROOT, version
from contract.tests.programs import meanwhile, program
from controller.cli.app import app
from instrumentation.tests.trees import TREES, P, child

GENERATED = ("docs/commands.md",)
FENCE = re.compile(
    r"(?:^<!-- run: (?P<run>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```\n"
    r"(?:\*\(unverified: (?P<unverified>.*?)\)\*\n)?",
    re.M | re.S,
)
HERE, BY_HAND = "here", "by hand"
WITHOUT_COUNTERS = f"{HERE} without counters"
# `fde` whose RAPL counters are files, which move by 10 W for package and memory each.
PROGRAM = """#!{python} -P
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from controller.cli.app import main
from instrumentation.sources.local import LocalSources
from instrumentation.sources.powercap import PowercapSource
counters = Path(os.environ["COUNTERS"])
readers = {{"powercap": lambda: PowercapSource.open(counters)}} if counters.is_dir() else {{}}
LocalSources.open.__func__.__defaults__ = (readers,)
sys.exit(main())
"""
POWER_W, TICK_S = 10, 0.002


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    text: str
    run: str
    unverified: str

    @property
    def how(self) -> str:
        """`here`, `by hand`, `test`, or `unverified`."""
        mark = next((mark for mark in (HERE, BY_HAND) if self.run.startswith(mark)), "")
        return mark or ("test" if self.run else "unverified")


def pages() -> Iterator[tuple[str, str]]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in sorted(set(filter(None, listed.split("\0"))) - set(GENERATED)):
        yield name, (ROOT / name).read_text(encoding="utf-8")


BLOCKS = [
    Block(page, *(match[key] or "" for key in ("language", "text", "run", "unverified")))
    for page, text in pages()
    for match in FENCE.finditer(text)
]
SHELL = [block for block in BLOCKS if block.language in ("sh", "console")]


def test_each_shell_block_is_marked_once() -> None:
    assert not [block for block in BLOCKS if not block.language]
    assert not [block for block in SHELL if bool(block.run) == bool(block.unverified)]
    tests = {block.run for block in SHELL if block.how == "test"}
    assert not [name for name in tests if not (ROOT / name).is_file()]


def _commands(text: str) -> Iterator[str]:
    """Yield what follows `fde` on each line of a shell block or in inline code."""
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.findall(r"(?:^|[;&|(] *|\$ )(?:\./)?fde (.*)", line):
            yield re.split(r" && |; | \| |  +#| #|\)$", command)[0].strip()


def test_each_command_of_fde_has_these_options() -> None:
    commands = getattr(typer.main.get_command(app), "commands")  # noqa: B009
    wrong = []
    for page, text in pages():
        code = [block.text for block in SHELL if block.page == page]
        code += re.findall(r"(?<!`)`((?:\./)?fde [^`]+)`", FENCE.sub("", text))
        for line in (line for part in code for line in _commands(part)):
            name, *words = shlex.split(re.sub(r"['\[\]]", "", line)) or ["--help"]
            if name.startswith("-") or not name.isalpha() or not name.islower():
                continue
            name = "measure" if name == "run" and "--" in words else name
            try:
                command = commands[name]
                command.make_parser(typer.Context(command)).parse_args(words)
            except Exception as error:  # noqa: BLE001 - of any parser's
                wrong.append(f"{page}: fde {line}: {error!r}")
    assert not wrong, "\n".join(wrong)


def test_each_step_of_make_is_one() -> None:
    steps = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))
    names = {
        (page, word)
        for page, text in pages()
        for line in re.findall(r"(?:^|`|&& |; )make ([a-z][^`#&;\n]*)", text, re.M)
        for word in re.findall(r"(?:^| )([a-z][a-z-]*)(?= |$)", line)
    }
    assert not [(page, word) for page, word in names if word not in steps]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Lay out a folder that looks like this checkout, with a copy of the examples."""
    folder = tmp_path / "checkout"
    (folder / "data").mkdir(parents=True)
    for path in (*ROOT.iterdir(), *(ROOT / "data").iterdir()):
        if path.name not in (".git", ".venv", "build", "data", "examples", "fde", "suites"):
            (folder / path.relative_to(ROOT)).symlink_to(path)
    (folder / "examples").symlink_to(ROOT / "examples")
    shutil.copytree(ROOT / "data" / "examples", folder / "data" / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "build").mkdir()
    program(folder / "fde", PROGRAM.format(python=sys.executable, root=str(ROOT)))
    return folder


@contextmanager
def moving(counters: Path) -> Iterator[None]:
    """Let the counters of a machine of one socket move until the end."""
    TREES["one socket"].lay_out(counters)
    files = [counters / zone / "energy_uj" for zone in (f"{P}:0", child(P, 0, 2))]
    stop = threading.Event()

    def move() -> None:
        start_ns = time.monotonic_ns()
        while not stop.wait(TICK_S):
            count_uj = POWER_W * (time.monotonic_ns() - start_ns) // 1000
            for file in files:
                with file.open("r+") as writable:  # in place, so that no read finds it empty
                    writable.write(f"{count_uj:012d}\n")

    with meanwhile(move, stop.set):
        yield


def _script(block: Block) -> str:
    """Return a block as a script that ends with 1 where a command does not end as printed."""
    set_up = block.run.partition(" after ")[2]
    if block.language == "sh":
        return f"{set_up}\n{block.text}"
    lines = block.text.replace("\\\n", " ").splitlines()
    steps = [
        f"! {line[2:]}" if "\n".join(lines[at + 1 : at + 2]).startswith("fde: ") else line[2:]
        for at, line in enumerate(lines)
        if line.startswith("$ ")
    ]
    return "\n".join([set_up, *(f"{{ {step}; }} || exit 1" for step in steps)])


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({b.page for b in SHELL if b.how == HERE}))
def test_the_blocks_of_a_page_run_in_their_order(page: str, checkout: Path) -> None:
    (checkout / "home").mkdir()
    counters = checkout.parent / "counters"
    path = [str(checkout), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ,
        "HOME": str(checkout / "home"),
        "FDE_BUILD": str(checkout / "build"),
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(ROOT),
    }
    with moving(counters):
        for block in (b for b in SHELL if b.page == page and b.how == HERE):
            is_counting = not block.run.startswith(WITHOUT_COUNTERS)
            script = f"trap 'kill $(jobs -p) 2>&- || :' EXIT\n{_script(block)}"
            result = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=checkout,
                env={**environment, "COUNTERS": str(counters if is_counting else "none")},
                input="one\ntwo\nthree\n",
                capture_output=True,
                text=True,
                check=False,
                start_new_session=True,  # who asks for a secret has no terminal
            )
            assert result.returncode == 0, f"{block.text}\n{result.stdout}{result.stderr}"


def test_the_citation_is_of_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version()
