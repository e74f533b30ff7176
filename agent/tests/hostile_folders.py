"""Suite folders that came from elsewhere, by the hundred thousand, given to every command.

`python -m agent.tests.hostile_folders --count 100000` changes a sealed suite folder by chance (see
`hostile_changes`) and calls the commands on it, in this process, where every file that is opened to
be written, every program that is started and every connection is heard (sys.addaudithook, PEP 578).
Each case must end with a result, or with sentences that begin with `fde:`; nothing may be started,
nothing written outside of the folder. The figures go to build/bench/hostile-folders.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent import pack
from agent.tests import hostile_changes
from analysis.suite.bundle import ABOUT
from contract import journal, names, schema
from contract import plan as plans
from contract.documents import BundleDocument
from contract.errors import AgentError
from contract.status import Event
from controller.cli.app import guarded
from controller.cli.app import main as fde
from controller.planning import compiler, suites
from controller.planning.known_names import SUITES
from controller.session import agent_client, seal, suite_folder
from controller.session.progress import suite_status
from controller.sharing import sandbox
from controller.targets import connection
from controller.tests import examples
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "data" / "examples" / "lab-one-disk.tar.gz"
# Of one case: on a busy machine the processor's time says more.
CPU_LIMIT_S, WALL_LIMIT_S = 30, 900
PIECE = 2000  # cases of one process
MOST_BYTES = 3 << 30  # of memory
LARGEST_FILE = 1 << 28  # a device copied has no end
SECRET = b"not yours\n"
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")
WRITES = {  # the event's arguments that are paths
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.symlink": (1,),
    "os.link": (1,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.truncate": (0,),
    "os.utime": (0,),
}
OTHERS = ("socket.connect", "socket.bind", "os.kill", "pickle.find_class", "ctypes.dlopen")
CONTROL = re.compile(r"[^\n\t\x20-\x7e\u00a0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
# Never answers: what would be asked of a target ends here.
NOWHERE = {"host": "127.0.0.1", "port": 1, "user": "nobody", "key": None, "known_hosts": None}


class HungError(Exception):
    """A case took too long."""


class Watch:
    """Hears what this process does, while it is on."""

    def __init__(self, *expected: Sequence[str]) -> None:
        self.on = False
        self.seen: list[str] = []
        self.allowed: tuple[Path, ...] = ()
        self._expected = [list(argv) for argv in expected]
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in STARTS:
            argv = list(map(str, arguments[1])) if event == "subprocess.Popen" else []
            if argv not in self._expected:
                self.seen.append(f"started: {event} {arguments!r}"[:300])
        elif event in OTHERS:
            self.seen.append(f"{event} {arguments!r}"[:300])
        elif event == "open":
            path, _, flags = arguments
            writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writing and isinstance(path, str | bytes | os.PathLike):
                self._written(event, os.path.realpath(os.fsdecode(path)))
        elif event in WRITES:
            for path in (arguments[place] for place in WRITES[event]):
                if isinstance(path, str | bytes | os.PathLike) and not _relative(arguments):
                    text = os.fsdecode(path)
                    parent = os.path.realpath(os.path.dirname(text) or ".")  # noqa: PTH120
                    self._written(event, f"{parent}/{os.path.basename(text)}")  # noqa: PTH119

    def _written(self, event: str, path: str) -> None:
        if path == "/dev/null" or any(Path(path).is_relative_to(top) for top in self.allowed):
            return
        self.seen.append(f"written outside: {event} {path!r}")


def _relative(arguments: tuple[Any, ...]) -> bool:
    """Whether a call was relative to an open folder, as shutil.rmtree's, which follows no links."""
    return any(isinstance(value, int) and value > 2 for value in arguments[1:])


@dataclass
class Figures:
    """What the cases came to; `found` are the first of those that were not well."""

    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    found: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        """Another process's."""
        self.cases += other["cases"]
        for name in ("outcomes", "commands", "changes", "faults"):
            getattr(self, name).update(other[name])
        self.found += other["found"]


class Cases:
    """One folder after another: `suite` is the hostile one, `outside` must stay as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.suite, self.outside, self.scratch = root / "suite", root / "outside", root / "scratch"
        self.base = root / "base"
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        self.scratch.mkdir()
        self.target = examples.target() | {"ssh": NOWHERE}
        _sound(self.base, self.target)
        (root / "target.json").write_text(json.dumps(self.target), encoding="utf-8")
        # A session asks whether the target has the plan already, and which machine it is.
        where = examples.resolved(ssh=NOWHERE)
        suite_id = json.loads((self.base / "plan.json").read_text(encoding="utf-8"))["suite_id"]
        kept = f"{connection.SUITES}/{suite_id}/plan.json"
        asked = ["-m", "agent", "identity", "--suites", connection.SUITES]
        self.watch = Watch(
            connection.python(where, *asked),
            connection.command(where, ["sh", "-c", agent_client.CONTENT, "sh", kept]),
        )
        self.watch.allowed = (self.suite.resolve(), self.scratch.resolve())
        self.commands: dict[str, tuple[Callable[[random.Random], object], float]] = {
            "summary": (lambda _: fde(["summary", str(self.suite)]), 14),
            "verify": (lambda _: fde(["verify", str(self.suite)]), 6),
            "compare": (self._compare, 2),
            "page": (self._page, 0.5),
            "notebook": (lambda _: fde(["notebook", "--json", str(self.suite)]), 6),
            "resume": (self._resume, 25),
            "watch": (lambda _: fde(["watch", str(self.suite)]), 16),
            "seal": (lambda _: fde(["seal", str(self.suite)]), 12),
            "hours": (self._hours, 3),
            "fetched": (self._fetched, 12),
            "bundle": (self._bundle, 6),
            "suite": (self._suite, 12),
        }

    def _out(self, name: str) -> str:
        return str(self.scratch / name)

    def _compare(self, chance: random.Random) -> object:
        two = [str(self.suite), str(self.base)]
        chance.shuffle(two)
        return fde(["compare", *two, "--out", self._out("c")])

    def _page(self, _: random.Random) -> object:
        """All of the page, in this process."""
        from analysis.report.build import build
        from analysis.report.figures import style
        from analysis.tests.pages import live_markup

        style.PROCESSES = 1

        def made() -> int:
            page = build(self.suite).page.read_text(encoding="utf-8")
            if problem := live_markup(page):
                self.watch.seen.append(f"live markup: {problem}")
            return 0

        return guarded(made)

    def _resume(self, _: random.Random) -> object:
        where = ["--target", str(self.root / "target.json"), "--inventory", str(self.root)]
        return fde(["resume", str(self.suite), *where])

    def _hours(self, _: random.Random) -> object:
        options = ["--suite", "smoke", "--target", str(self.root / "target.json"), "--hours", "1"]
        suites_here = self.scratch / "suites"
        suites_here.mkdir()
        self.suite.rename(suites_here / "suite")
        try:
            chosen = ["--configurations", "plain", "--out", str(suites_here)]
            return fde(["plan", *options, *chosen])
        finally:
            (suites_here / "suite").rename(self.suite)

    def _fetched(self, chance: random.Random) -> object:
        plan = (self.base / "plan.json").read_bytes()
        content = hostile_changes.archive(plan, json.loads(plan)["suite_id"], chance)
        (self.scratch / "a.tar").write_bytes(content)

        def taken() -> None:  # as a session begins, and continues
            suite_folder.require_plain(self.suite)
            seal.unpack(self.scratch / "a.tar", self.suite)

        return _said(taken)

    def _packed(self, chance: random.Random) -> Path:
        """Return the suite as a bundle that says of itself what it wants."""
        plan = json.loads((self.base / "plan.json").read_text(encoding="utf-8"))
        what = BundleDocument("fde-bundle/1", plan["suite_id"], "0", "0" * 64)
        with contextlib.suppress(OSError):  # an earlier change made something else there
            (self.suite / ABOUT).write_text(json.dumps(asdict(what)), encoding="utf-8")
        held = io.BytesIO()
        pack.pack(self.suite, held)
        path = self.scratch / "bundles" / "one.tar.gz"
        path.parent.mkdir()
        path.write_bytes(hostile_changes.bundle(held.getvalue(), chance))
        return path

    def _bundle(self, chance: random.Random) -> object:
        command = chance.choice(("verify", "verify", "verify", "summary"))
        return fde([command, str(self._packed(chance))])

    def _suite(self, chance: random.Random) -> object:
        honest = (SUITES / "smoke.yml").read_text(encoding="utf-8")
        folder = self.scratch / "yaml"
        folder.mkdir()
        text = hostile_changes.suite_text(honest, chance).encode(errors="surrogatepass")
        (folder / "x.yml").write_bytes(text)

        def compiled() -> None:
            target = schema.read(plans.TargetDocument, self.target)
            suite = suites.load_suite("x", folder)
            compiler.compile_plan("x", suite, target, seed=1, configurations=["plain"])

        return _said(compiled)

    def one(self, seed: int, figures: Figures) -> None:
        """One case; the same seed gives the same."""
        chance = random.Random(seed)
        for path in (self.suite, self.scratch):
            shutil.rmtree(path, ignore_errors=True)
        self.scratch.mkdir()
        shutil.copytree(self.base, self.suite)
        changes = hostile_changes.apply(self.suite, chance)
        weights = [weight for _, weight in self.commands.values()]
        name = chance.choices(list(self.commands), weights)[0]
        outcome, wrong = self._called(self.commands[name][0], chance)
        figures.cases += 1
        figures.outcomes[outcome] += 1
        figures.commands[name] += 1
        figures.changes.update(changes)
        for fault in wrong:
            kind = fault.partition(":")[0]
            figures.faults[kind] += 1
            if figures.faults[kind] <= 20:
                figures.found.append(
                    {"seed": seed, "command": name, "changes": changes, "fault": fault}
                )

    def _called(self, command: Callable[[random.Random], object], chance: random.Random) -> Any:
        out, err = io.StringIO(), io.StringIO()
        wrong: list[str] = []
        status: object = None
        self.watch.seen.clear()
        _limit(CPU_LIMIT_S, WALL_LIMIT_S)
        self.watch.on = True
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = command(chance)
        except SystemExit as error:
            status = error.code
        except HungError:
            wrong.append(f"hung: {traceback.format_exc()[-600:]}")
        except BaseException:  # noqa: BLE001 (whatever it is, a person would see a traceback)
            lines = traceback.format_exc().strip().splitlines()
            wrong.append(f"traceback: {lines[-1][:200]} | " + " ".join(lines[-7:-1])[-500:])
        finally:
            self.watch.on = False
            _limit(0, 0)
        wrong += sorted(set(self.watch.seen))
        wrong += self._outside()
        wrong += _sentences(out.getvalue(), err.getvalue(), status if not wrong else None)
        return ("result" if status == 0 else "refused"), wrong

    def _outside(self) -> Iterator[str]:
        names = sorted(path.name for path in self.root.iterdir())
        if names != ["base", "outside", "scratch", "suite", "target.json"]:
            yield f"written outside: {names}"
        secret, entries = self.outside / "secret", sorted(self.outside.iterdir())
        if entries != [secret] or not secret.is_file() or secret.read_bytes() != SECRET:
            yield f"written outside: {[path.name for path in entries]}"
            shutil.rmtree(self.outside)
            self.outside.mkdir()
            (self.outside / "secret").write_bytes(SECRET)


def _limit(cpu_s: float, wall_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _said(do: Callable[[], object]) -> int:
    """As a command says what its functions raise."""
    try:
        do()
    except AgentError as error:
        print(f"fde: {names.sentence(str(error))}", file=sys.stderr)
        return 1
    return 0


def _sentences(out: str, err: str, status: object) -> Iterator[str]:
    """Yield what is wrong with the words of a command that ended with `status`.

    None: it did not end.
    """
    for text in (out, err):
        if match := CONTROL.search(text):
            around = text[max(0, match.start() - 60) : match.end() + 20]
            yield f"control characters for the terminal: {around!r}"
    lines = err.splitlines()
    if status not in (None, 0, 1, 2):
        yield f"status: {status!r}"
    if status == 1 and not err and not out:
        yield "refused without a word: "
    strange = [line for line in lines if not line.startswith("fde: ")]
    if strange:
        yield f"no sentence: {strange[0][:300]!r}"


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _sound(folder: Path, target: dict[str, Any]) -> None:
    """Make a sealed suite that both the analysis and a session take."""
    options = Options(
        blocks=1, interval_ms=500, configurations=("plain", "opal"), workloads=("idle",),
        host="target", settling={"plain": [400, 100, 100, 101, 99, 100]},
    )  # fmt: skip
    write_suite(folder, options, seal=False)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    document = {**examples.plan(), **plan, "disks": target["disks"]}
    document["workloads"] = [{"name": "idle", "parameters": {"seconds": 3}}]
    with tarfile.open(EXAMPLE) as tar:  # what a real machine tells beside
        real = {
            Path(member.name).relative_to(Path(member.name).parts[0]): member
            for member in tar
            if member.name.endswith(".json") and "/" in member.name
        }
        (folder / "provenance").mkdir(exist_ok=True)
        for name in ("before.json", "after.json"):
            path = folder / "provenance" / name
            before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            known = json.loads(_content(tar, real[Path("provenance", name)]))
            path.write_text(json.dumps({**known, **before}), encoding="utf-8")
        runs = [member for path, member in real.items() if path.name == "run.json"]
        of_run = json.loads(_content(tar, runs[0]))
    beside = {name: of_run[name] for name in ("checks", "other_sources", "sampler", "left_out")}
    document = plans.freeze({key: value for key, value in document.items() if key != "sha256"})
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    for path in (*folder.glob("runs/*/run.json"), *folder.glob("precondition/*.json")):
        run = {**json.loads(path.read_text(encoding="utf-8")), "plan_sha256": document["sha256"]}
        run |= beside if path.name == "run.json" else {}
        path.write_text(json.dumps(run), encoding="utf-8")
    session = {"begun_ns": 1, "controller_boot_id": "b", "wall_s": 60.0}
    (folder / "sessions.jsonl").write_text(json.dumps(session) + "\n", encoding="utf-8")
    write_manifest(folder)
    (folder / "status").mkdir()
    status = suite_status(
        plans.load(folder / "plan.json"),
        journal.read(folder / "journal.jsonl"),
        watts={"system": 20.5},
        gaps={"meter0": 1},
        events=[Event("2026-01-01T00:00:00+00:00", "began")],
        since_s=3.0,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    (folder / "status" / "status.json").write_text(json.dumps(asdict(status)), encoding="utf-8")


def run(seeds: Sequence[int], folder: Path) -> Figures:
    """Return the cases of these seeds, one after the other, below `folder`."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    scratch = folder / "scratch"
    tempfile.tempdir = str(scratch)
    os.environ |= {sandbox.IS_BOUNDED: "0", "FDE_BUILD": str(scratch / "build")}
    cases, figures = Cases(folder), Figures()

    def hung(*_: object) -> None:
        if cases.watch.on:
            raise HungError

    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, hung)
    for seed in seeds:
        cases.one(seed, figures)
    return figures


def _part(options: argparse.Namespace) -> int:
    """One process of several."""
    seeds = range(options.first, options.first + options.count)
    # A disk takes most of the time for thousands of small folders.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fde-hostile-", dir=memory) as folder:
        figures = run(seeds, Path(folder).resolve())
    print(json.dumps(vars(figures)))
    return 0


def piece(first: int, count: int, bytecode: str = "") -> dict[str, Any]:
    """Return the figures of some cases, from a process of its own.

    `bytecode` is a folder of modules'.
    """
    argv = [sys.executable, "-B", "-m", "agent.tests.hostile_folders", "--part"]
    done = subprocess.run(
        [*argv, "--first", str(first), "--count", str(count)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        # Pools of threads cost more than these few rows.
        env={
            **os.environ,
            "POLARS_MAX_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": bytecode,
        },
        check=False,
    )
    if done.returncode:
        ended = f"a process ended with {done.returncode} in the {count} cases from {first} on"
        return vars(Figures(faults=Counter({ended: 1})))
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _compile(bytecode: str) -> None:
    """Keep what the pieces import as byte code: they write none, and compiling takes longest."""
    modules = "analysis.report.build, analysis.report.compare_page, controller.sharing.publish"
    here = ["env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPYCACHEPREFIX={bytecode}"]
    subprocess.run([*here, sys.executable, "-c", f"import {modules}, {__spec__.name}"], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every case was well."""
    parser = argparse.ArgumentParser(
        prog="python -m agent.tests.hostile_folders", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=1000, help="cases")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    default = ROOT / "build" / "bench" / "hostile-folders.json"
    parser.add_argument("--out", type=Path, default=default, help="the figures, as JSON")
    options = parser.parse_args(arguments)
    if options.part:
        return _part(options)
    begun = time.monotonic()
    figures = Figures()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    end = options.first + options.count
    firsts = range(options.first, end, PIECE)
    with (
        tempfile.TemporaryDirectory(prefix="fde-bytecode-") as bytecode,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        _compile(bytecode)
        for result in pool.map(lambda n: piece(n, min(PIECE, end - n), bytecode), firsts):
            figures.add(result)
            figures.seconds = round(time.monotonic() - begun, 1)
            options.out.write_text(json.dumps(vars(figures), indent=1) + "\n", encoding="utf-8")
    print(f"{figures.cases} cases in {figures.seconds} s: {dict(figures.outcomes)}")
    for kind, count in figures.faults.items():
        print(f"fde: {count} times {kind}, see {options.out}", file=sys.stderr)
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
