"""Suite folders that came from elsewhere, given to every command.

`python -m agent.tests.hostile_folders --count 2000` changes a sealed suite folder by chance and
calls the commands on it, in this process. Every file that is opened to be written, every program
that is started and every connection is heard (sys.addaudithook, PEP 578). Each case must end with
a result, or with sentences that begin with `fde:`; nothing may be started, nothing written outside
of the folder. The figures go to build/bench/hostile-folders.json.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import io
import json
import os
import random
import re
import resource
import shutil
import stat
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import analysis.report.figures  # noqa: F401 - it looks for fonts once, before it is watched
from contract import journal
from contract import plan as plans
from contract.status import Event
from controller.cli.app import main as fde
from controller.session import agent_client
from controller.session.progress import suite_status
from controller.sharing import sandbox
from controller.targets import connection
from controller.tests import examples
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import Options, write_suite

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60  # of one case, on a busy machine
MOST_BYTES = 3 << 30  # of memory
LARGEST_FILE = 1 << 28  # a device copied has no end
SECRET = b"not yours\n"
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")
FIRST = ("remove", "rmdir", "mkdir", "chmod", "chown", "truncate", "utime")
# By event, which of its arguments are paths that are written.
WRITES = {f"os.{name}": slice(0, 1) for name in FIRST}
WRITES |= {"os.symlink": slice(1, 2), "os.link": slice(1, 2), "os.rename": slice(0, 2)}
OTHERS = ("socket.connect", "socket.bind", "os.kill", "pickle.find_class", "ctypes.dlopen")
CONTROL = re.compile(r"[^\n\t\x20-\x7e\u00a0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
# Never answers: what would be asked of a target ends here.
NOWHERE = {"host": "127.0.0.1", "port": 1, "user": "nobody", "key": None, "known_hosts": None}
# What would leave a mark beside the suite folder, were any of it run or followed.
RUN = "touch ../executed"
TEXTS = (
    *("", " ", "..", "../outside/secret", "/etc/passwd", "-rf", "a\0b", "a\r\nb", "%s%n", "~root"),
    *("\x1b]0;title\x07\x1b[31mred", "\u202eabc", "ä", "\ud800", "NaN", "1e999", "usb:0403:6001"),
    *(f"$({RUN})", f"`{RUN}`", f"\n{RUN}\n", f"';{RUN};'", f'";{RUN};"', "{0.__class__}"),
    *(f"__import__('os').system('{RUN}')", "{{ ''.__class__ }}{% raw %}", "2026-13-45T99:99:99Z"),
    *("<script>alert(1)</script>", "]]>", r"\input{/etc/passwd}", "a" * 129, "a" * 70_000),
)
ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**400, -0.0, 1e-320, 1e308, 0.1),
    *(float("nan"), float("inf"), None, True, [], {}, [[]], [None], {"": None}, {"a": {}}),
)
# Written as text: Python would not write them, or not so deep.
RAW = (
    *("[" * 100_000, '{"a":' * 100_000, "[" * 3000 + "]" * 3000, "Infinity", "1" * 5000, "null"),
    *('{"a":1,"a":2}', "\ufeff{}", "[]", '"text"', "{} {}", "", "\0" * 64, "{'a': 1}"),
)
NAMES = (
    *("report.html", ".energy.parquet.part", "timing.json.partial", ".lock", "status/meters"),
    *("meters/meter0/samples.parquet.new", "runs/x", "identity.json.partial", ".fetched.tar"),
    *(".manifest.json.new", ".incoming-x", "meters/x", "b" * 255, "manifest.json\n", "meter0.2"),
)
Chance = random.Random


def odd_value(chance: Chance) -> Any:
    """Return something that nobody expects."""
    return copy.deepcopy(chance.choice(chance.choice((TEXTS, ODD))))


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or mapping inside a document with each of its keys."""
    entries = document if isinstance(document, dict) else range(len(document))
    for key in entries:
        yield document, key
        if isinstance(document[key], dict | list):
            yield from _places(document[key])


def change_value(document: Any, chance: Chance) -> Any:
    """Replace, remove or repeat one value, anywhere; or replace the document."""
    places = list(_places(document)) if isinstance(document, dict | list) else []
    if not places or chance.random() < 0.02:
        return odd_value(chance)
    inner, key = chance.choice(places)
    action = chance.random()
    if action < 0.75:
        inner[key] = odd_value(chance)
    elif action < 0.85:
        del inner[key]
    elif isinstance(inner, dict):
        inner[str(odd_value(chance))] = inner[key]
    else:
        inner[key:key] = [inner[key]] * chance.choice((1, 50))
    return document


def written(document: Any) -> bytes:
    return json.dumps(document).encode(errors="surrogatepass")


def _own_file(folder: Path, pattern: str, chance: Chance) -> Path | None:
    """Return a file of the folder itself, not behind a link that an earlier change made."""
    top = folder.resolve()
    paths = (p for p in sorted(folder.glob(pattern)) if p.is_file() and not p.is_symlink())
    files = [path for path in paths if path.parent.resolve().is_relative_to(top)]
    return chance.choice(files) if files else None


def values(folder: Path, chance: Chance) -> None:
    """Change values in a document or in a line of one; a plan is frozen again, to be believed."""
    path = _own_file(folder, chance.choice(("**/*.json", "**/*.json", "**/*.jsonl")), chance)
    if path is None:
        return
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    place = chance.randrange(len(lines))
    document = change_value(json.loads(lines[place]), chance)
    if path.name == "plan.json" and isinstance(document, dict):
        document["sha256"] = plans.digest(json.loads(written(document)))
        for run in folder.glob("runs/*/run.json"):
            record = re.sub(
                '(?<="plan_sha256": ").{64}', document["sha256"], run.read_text("utf-8")
            )
            run.write_text(record, encoding="utf-8")
    lines[place] = written(document).decode()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def raw(folder: Path, chance: Chance) -> None:
    """Put what is no such thing in place of a document, or behind it."""
    if path := _own_file(folder, "**/*.json*", chance):
        text = chance.choice(RAW).encode()
        path.write_bytes(path.read_bytes() + text if chance.random() < 0.3 else text)


def damage(folder: Path, chance: Chance) -> None:
    """Replace bytes of any file by others, fewer, more, or none."""
    if path := _own_file(folder, "**/*", chance):
        content = path.read_bytes()
        place = chance.randrange(len(content) + 1)
        end = min(len(content), place + chance.choice((1, 4, 200)))
        few = content[place:end]
        others = (chance.randbytes(len(few)), b"", few * 1000, bytes(len(few)))
        tail = content[end:] if chance.random() < 0.8 else b""
        path.write_bytes(content[:place] + chance.choice(others) + tail)


def kinds(folder: Path, chance: Chance) -> None:
    """Put a link, a pipe, a device, a folder, a strange file or nothing at the place of a file."""
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))]
    path, outside = folder / chance.choice((*names, *NAMES)), folder.parent / "outside"
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    targets = (path, folder, outside, outside / "secret", Path("../../outside"), Path("/nowhere"))
    devices = (Path("/dev/zero"), Path("/dev/tty"), Path("/proc/self/mem"), Path("/etc/passwd"))
    node = os.makedev(1, chance.choice((3, 5, 8)))  # null, zero, random
    others: list[Callable[[], object]] = [
        lambda: path.symlink_to(chance.choice((*targets, *devices))),
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: os.mknod(path, 0o600 | stat.S_IFCHR, node),
        lambda: path.write_bytes(written(odd_value(chance))),
        lambda: None,
    ]
    chance.choice(others)()


def resealed(folder: Path, chance: Chance) -> None:
    """Remove the seal, or make one that is right: whoever sends a folder can make one."""
    (folder / "manifest.json").unlink(missing_ok=True)
    plain = (p.is_dir() or (p.is_file() and not p.is_symlink()) for p in folder.rglob("*"))
    if chance.random() < 0.7 and all(plain):
        write_manifest(folder)


CHANGES = {values: 40, raw: 10, damage: 12, kinds: 20, resealed: 9}


class Watch:
    """Hears what this process does, while it is on."""

    def __init__(self, *expected: Sequence[str]) -> None:
        self.on = False
        self.seen: list[str] = []
        self.allowed: tuple[Path, ...] = ()
        self._expected = [list(argv) for argv in expected]
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
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
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._write(event, path, follow=True)
        elif event in WRITES and not any(isinstance(n, int) and n > 2 for n in arguments[1:]):
            # One relative to an open folder is shutil.rmtree's, which follows no links.
            for path in arguments[WRITES[event]]:
                self._write(event, path, follow=False)

    def _write(self, event: str, path: Any, *, follow: bool) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        named = Path(os.fsdecode(path))
        real = Path(os.path.realpath(named) if follow else named.parent.resolve() / named.name)
        if real != Path("/dev/null") and not any(map(real.is_relative_to, self.allowed)):
            self.seen.append(f"written outside: {event} {str(real)!r}")


class Cases:
    """One folder after another: `suite` is the hostile one, `outside` must stay as it is."""

    def __init__(self, root: Path) -> None:
        self.root, self.base, self.outside = root, root / "base", root / "outside"
        self.suites, self.scratch = root / "suites", root / "scratch"
        self.suite = self.suites / "suite"
        self._put_secret()
        self.target = examples.target() | {"ssh": NOWHERE}
        self.plan = _write_base(self.base, self.target)
        (root / "target.json").write_text(json.dumps(self.target), encoding="utf-8")
        # A session asks whether the target has the plan already, and which machine it is.
        where = examples.resolved(ssh=NOWHERE)
        plan_path = f"{connection.SUITES}/{self.plan['suite_id']}/plan.json"
        asked = ["-m", "agent", "identity", "--suites", connection.SUITES]
        content = ["sh", "-c", agent_client.CONTENT, "sh", plan_path]
        self.watch = Watch(connection.python(where, *asked), connection.command(where, content))
        self.watch.allowed = (self.suites.resolve(), self.scratch.resolve())
        suite, target = str(self.suite), ["--target", str(root / "target.json")]
        plan = ["plan", "--suite", "smoke", *target, "--hours", "1", "--configurations", "plain"]
        self.commands: dict[tuple[str, ...], int] = {
            **{("summary", suite): 14, ("verify", suite): 12, ("notebook", "--json", suite): 6},
            **{("watch", suite): 16, ("seal", suite): 12},
            ("compare", suite, str(self.base), "--out", str(self.scratch / "c")): 2,
            ("resume", suite, *target, "--inventory", str(root)): 25,
            (*plan, "--out", str(self.suites)): 3,
        }

    def _put_secret(self) -> None:
        shutil.rmtree(self.outside, ignore_errors=True)
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(SECRET)

    def run(self, seed: int) -> dict[str, Any]:
        """Return a case's command, changes, outcome and faults; the same seed gives the same."""
        chance = random.Random(seed)
        for path in (self.suites, self.scratch):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        shutil.copytree(self.base, self.suite)
        changes = chance.choices(
            list(CHANGES), list(CHANGES.values()), k=chance.choice((1, 1, 2, 4))
        )
        for change in changes:
            # Of what an earlier change has made.
            with contextlib.suppress(RuntimeError, OSError, ValueError, shutil.Error):
                change(self.suite, chance)
        (line,) = chance.choices(list(self.commands), list(self.commands.values()))
        outcome, faults = self._call(line)
        name = line[0]
        change_names = [change.__name__ for change in changes]
        return {
            "seed": seed,
            "command": name,
            "changes": change_names,
            "outcome": outcome,
            "faults": faults,
        }

    def _call(self, line: Sequence[str]) -> tuple[str, list[str]]:
        out, err = io.StringIO(), io.StringIO()
        faults: list[str] = []
        status: object = None
        self.watch.seen.clear()
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        self.watch.on = True
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = fde(list(line))
        except SystemExit as error:
            status = error.code
        except BaseException:  # noqa: BLE001 (whatever it is, a person would see a traceback)
            faults.append(f"traceback: {traceback.format_exc()[-700:]}")
        finally:
            self.watch.on = False
            faulthandler.cancel_dump_traceback_later()
        faults += sorted(set(self.watch.seen))
        faults += self._changes_outside()
        faults += _faults_of_words(out.getvalue(), err.getvalue(), 0 if faults else status)
        return ("result" if status == 0 else "refused"), faults

    def _changes_outside(self) -> Iterator[str]:
        names_there = sorted(path.name for path in self.root.iterdir())
        if names_there != ["base", "outside", "scratch", "suites", "target.json"]:
            yield f"written outside: {names_there}"
        entries = [(path.name, path.read_bytes()) for path in self.outside.iterdir()]
        if entries != [("secret", SECRET)]:
            yield f"written outside: {entries}"
            self._put_secret()


def _faults_of_words(out: str, err: str, status: object) -> Iterator[str]:
    """Yield what is wrong with the words of a command that ended with `status`."""
    for text in (out, err):
        if match := CONTROL.search(text):
            around = text[max(0, match.start() - 60) : match.end() + 20]
            yield f"control characters for the terminal: {around!r}"
    if status not in (0, 1, 2):
        yield f"status: {status!r}"
    if status == 1 and not err and not out:
        yield "refused without a word: "
    if status:
        strange = [line for line in err.splitlines() if not line.startswith("fde: ")]
        yield from (f"no sentence: {line[:300]!r}" for line in strange)


def _write_base(folder: Path, target: dict[str, Any]) -> dict[str, Any]:
    """Make a sealed suite that both the analysis and a session take; return its plan."""
    settling = {"plain": [400, 100, 100, 101, 99, 100]}
    small = Options(1, interval_ms=500, configurations=("plain", "opal"), workloads=("idle",))
    write_suite(folder, replace(small, host="target", settling=settling), seal=False)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    document = {**examples.plan(), **plan, "disks": target["disks"]}
    document["workloads"] = [{"name": "idle", "parameters": {"seconds": 3}}]
    del document["sha256"]
    document = plans.freeze(document)
    (folder / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    for path in (*folder.glob("runs/*/run.json"), *folder.glob("precondition/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**record, "plan_sha256": document["sha256"]}), encoding="utf-8")
    session = {"begun_ns": 1, "controller_boot_id": "b", "wall_s": 60.0}
    (folder / "sessions.jsonl").write_text(json.dumps(session) + "\n", encoding="utf-8")
    write_manifest(folder)
    (folder / "status").mkdir()
    shown = suite_status(
        plans.load(folder / "plan.json"),
        journal.read(folder / "journal.jsonl"),
        watts={"system": 20.5},
        gaps={"meter0": 1},
        events=[Event("2026-01-01T00:00:00+00:00", "began")],
        since_s=3.0,
        moment=examples.NOW,
    )
    (folder / "status" / "status.json").write_text(json.dumps(asdict(shown)), encoding="utf-8")
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every case was well."""
    parser = argparse.ArgumentParser(prog="python -m agent.tests.hostile_folders")
    parser.add_argument("--count", type=int, default=1000, help="cases")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    default = ROOT / "build" / "bench" / "hostile-folders.json"
    parser.add_argument("--out", type=Path, default=default, help="the figures, as JSON")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    # A disk takes most of the time for thousands of small folders.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fde-hostile-", dir=memory) as folder:
        cases = Cases(Path(folder).resolve())
        tempfile.tempdir = str(cases.scratch)
        os.environ |= {sandbox.IS_BOUNDED: "0", "FDE_BUILD": str(cases.scratch / "build")}
        results = [cases.run(seed) for seed in range(options.first, options.first + options.count)]
    kinds_of_fault = Counter(f.partition(":")[0] for case in results for f in case["faults"])
    figures = {
        "cases": len(results),
        "outcomes": Counter(case["outcome"] for case in results),
        "commands": Counter(case["command"] for case in results),
        "changes": Counter(change for case in results for change in case["changes"]),
        "faults": kinds_of_fault,
        "found": [case for case in results if case["faults"]][:20],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for kind, count in kinds_of_fault.items():
        print(f"fde: {count} times {kind}, see {options.out}", file=sys.stderr)
    return 1 if kinds_of_fault else 0


if __name__ == "__main__":
    sys.exit(main())
