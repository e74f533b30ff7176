"""What may be wrong in a suite folder that came from elsewhere: changes by chance, from a seed."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract.plan import digest
from validation.synthetic.folder import write_manifest

Chance = random.Random
Change = Callable[[Path, Chance], None]

# What would leave a mark beside the suite folder, were any of it run or followed.
MARK = "executed"
RUN = f"touch ../{MARK}"
TEXTS = (
    *("", " ", ".", "..", "../outside", "../outside/secret", "/etc/passwd", "a/b", "-rf", "--help"),
    *("a\0b", "a\nb", "a\r\nb", "\x1b]0;title\x07\x1b[31mred", "\u202eabc", "ä", "%s%n", "~root"),
    *(f"$({RUN})", f"`{RUN}`", f"; {RUN};", f"| {RUN}", f"\n{RUN}\n", f"';{RUN};'", f'";{RUN};"'),
    *(f"__import__('os').system('{RUN}')", "{{ ''.__class__ }}{% raw %}", "{0.__class__}"),
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style><script>x</script>"),
    *("javascript:alert(1)", "]]>", "<!--", "&lt;", "$x^2$", r"$\frac{", r"\input{/etc/passwd}"),
    *("a" * 129, "a" * 70_000, "NaN", "1e999", "2026-13-45T99:99:99Z", "\ud800", "usb:0403:6001"),
)
NUMBERS = (
    *(0, -1, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 10**400),
    *(0.0, -0.0, 1e-320, 1e308, -1e308, 0.1, float("nan"), float("inf"), -float("inf")),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [1, "x"], {"a": {}})
# Written as text: Python would not write them, or not so deep.
RAW = (
    *("[" * 100_000, '{"a":' * 100_000, "[" * 3000 + "]" * 3000, "NaN", "Infinity", "1" * 5000),
    *('{"a":1,"a":2}', "\ufeff{}", "null", "[]", '"text"', "{} {}", "", "\0" * 64, "{'a': 1}"),
)
DOCUMENTS = (
    *("plan.json", "meters/meter0/meter.json", "runs/*/run.json", "provenance/*.json"),
    *("manifest.json", "timing.json", "identity.json", "status/status.json"),
    "precondition/*.json",
    *("journal.jsonl", "clock.jsonl", "sessions.jsonl", "watermark.jsonl", "runs/*/rapl.jsonl"),
)


def value(chance: Chance) -> Any:
    """Something that nobody expects."""
    return copy.deepcopy(chance.choice(chance.choice((TEXTS, NUMBERS, OTHERS))))


def _places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, inner in entries:
        yield (*above, key)
        yield from _places(inner, (*above, key))


def _change(document: Any, chance: Chance) -> Any:
    """One value replaced, removed, repeated or added, anywhere; or all of it another."""
    places = list(_places(document))
    if not places or chance.random() < 0.02:
        return value(chance)
    *above, last = chance.choice(places)
    inner = document
    for key in above:
        inner = inner[key]
    what = chance.random()
    if what < 0.7:
        inner[last] = value(chance)
    elif what < 0.8:
        del inner[last]
    elif isinstance(inner, dict):
        inner[str(value(chance))] = inner[last]
    else:
        inner[last:last] = [inner[last]] * chance.choice((1, 2, 50))
    return document


def _written(document: Any) -> bytes:
    return json.dumps(document).encode(errors="surrogatepass")


def _own(folder: Path, path: Path) -> bool:
    """Whether a path lies in the folder itself, not behind a link that an earlier change made."""
    return not path.is_symlink() and path.parent.resolve().is_relative_to(folder.resolve())


def _one(folder: Path, paths: Iterable[Path], chance: Chance) -> Path | None:
    files = [path for path in sorted(paths) if path.is_file() and _own(folder, path)]
    return chance.choice(files) if files else None


def _document(folder: Path, chance: Chance) -> Path | None:
    return _one(folder, folder.glob(chance.choice(DOCUMENTS)), chance)


def values(folder: Path, chance: Chance) -> None:
    """Values in a document, or in lines of one; a plan is mostly frozen again, to be believed."""
    path = _document(folder, chance)
    if path is None:
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else None
        parsed = json.loads(path.read_bytes()) if lines is None else None
        if lines is not None:
            if lines:
                place = chance.randrange(len(lines))
                lines[place] = _written(_change(json.loads(lines[place]), chance)).decode()
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return
    except (ValueError, RecursionError):  # changed before
        return
    for _ in range(chance.choice((1, 1, 1, 3))):
        parsed = _change(parsed, chance)
    if path.name == "plan.json" and isinstance(parsed, dict) and chance.random() < 0.9:
        _freeze(folder, parsed)
    path.write_bytes(_written(parsed))


def _freeze(folder: Path, plan: dict[str, Any]) -> None:
    """Put the sum that the plan now has into the plan and its runs."""
    try:
        plan["sha256"] = digest(json.loads(_written(plan)))
    except (ValueError, RecursionError):  # no reader gets as far as the sum
        plan["sha256"] = "0" * 64
    for path in folder.glob("runs/*/run.json"):
        if not path.is_file() or not _own(folder, path):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        before, mark, after = text.partition('"plan_sha256": "')
        path.write_text(before + mark + plan["sha256"] * bool(mark) + after[64:], encoding="utf-8")


def raw(folder: Path, chance: Chance) -> None:
    """Put what is no such thing in place of a document, or of a line."""
    if (path := _document(folder, chance)) is not None:
        text = chance.choice(RAW).encode()
        path.write_bytes(path.read_bytes() + text if chance.random() < 0.3 else text)


def damage(folder: Path, chance: Chance) -> None:
    """Bytes of any file: others, fewer, more, twice."""
    path = _one(folder, folder.rglob("*"), chance)
    if path is None:
        return
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content) + 1)
    end = min(len(content), place + chance.choice((1, 4, 200)))
    what = chance.randrange(5)
    if what == 0:
        content[place:end] = chance.randbytes(end - place)
    elif what == 1:
        del content[place:]
    elif what == 2:
        content[place:place] = content[place:end] * chance.choice((1, 1000))
    elif what == 3:
        content[place:end] = bytes(end - place)
    else:
        content.clear()
    path.write_bytes(content)


def kinds(folder: Path, chance: Chance) -> None:
    """Something else in a file's or a folder's place: a link, a pipe, a device, another kind."""
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))]
    names += ["report.html", "energy.parquet", ".energy.parquet.part", ".report.html.part"]
    names += [
        "timing.json.partial",
        "manifest.json.partial",
        ".lock",
        "status/meters",
        "summary.csv",
    ]
    names += ["meters/meter0/samples.parquet.new", "runs/x", "meters/x", "status", ".fetched.tar"]
    names += ["identity.json.partial", ".timing.json.new", ".manifest.json.new", ".incoming-x"]
    path = folder / chance.choice(names)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if not path.parent.is_dir():
        return
    outside = folder.parent / "outside"
    what = chance.randrange(8)
    if what == 0:
        path.symlink_to(outside / "secret")
    elif what == 1:
        path.symlink_to(outside)
    elif what == 2:
        path.symlink_to(
            chance.choice((path, folder, Path("..", "..", "outside"), Path("/dev/tty")))
        )
    elif what == 3:
        os.mkfifo(path)
    elif what == 4:
        path.mkdir()
    elif what == 5 and os.geteuid() == 0:
        os.mknod(
            path, 0o600 | 0o020000, os.makedev(1, chance.choice((3, 5, 8)))
        )  # null zero random
    elif what == 6:
        path.symlink_to(chance.choice(("/dev/zero", "/proc/self/mem", "/etc/passwd", "/nowhere")))


def strange_names(folder: Path, chance: Chance) -> None:
    """Files and folders whose names are not of this world, among the others."""
    name = chance.choice([*TEXTS, "b" * 255, "meter0.2", "manifest.json\n", ".incoming-../x"])
    place = folder / chance.choice(("", "runs", "meters", "provenance", "status"))
    path = place / name.replace("/", "_").replace("\0", "_")[:255]
    if not _own(folder, path):
        return
    try:
        if chance.random() < 0.5:
            shutil.copytree(folder / "meters" / "meter0", path)
        else:
            path.write_text(json.dumps(value(chance)), encoding="utf-8")
    except (OSError, ValueError, shutil.Error):
        return


def missing(folder: Path, chance: Chance) -> None:
    """Remove a file or folder."""
    path = chance.choice([*sorted(folder.rglob("*")), folder / "plan.json"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def group(folder: Path, chance: Chance) -> None:
    """Make the folder a group's, whose members are what they want to be."""
    members: Any = [folder.name, "outside", *(value(chance) for _ in range(2))]
    document = {"format": "fde-group/1", "group": "g", "suites": members, "hosts": ["bench"]}
    if chance.random() < 0.5:
        document["suites"] = [folder.name, folder.name]
    path = folder / "group.json"
    path.unlink(missing_ok=True)  # it may be a link
    path.write_bytes(
        _written(_change(document, chance))
        if chance.random() < 0.7
        else chance.choice(RAW).encode()
    )


def resealed(folder: Path, _: Chance) -> None:
    """Make a seal that is right: whoever sends a folder can make one."""
    try:
        (folder / "manifest.json").unlink(missing_ok=True)
        if all(
            path.is_dir() or (path.is_file() and not path.is_symlink())
            for path in folder.rglob("*")
        ):
            write_manifest(folder)
    except OSError:
        return


def unsealed(folder: Path, _: Chance) -> None:
    """None at all."""
    if (folder / "manifest.json").is_file():
        (folder / "manifest.json").unlink()


CHANGES: tuple[tuple[Change, int], ...] = (
    *((values, 40), (raw, 10), (damage, 12), (kinds, 14), (strange_names, 5)),
    *((missing, 4), (group, 4), (resealed, 6), (unsealed, 3)),
)


def apply(folder: Path, chance: Chance) -> list[str]:
    """Between one and four changes; their names."""
    count = chance.choice((1, 1, 1, 2, 2, 4))
    chosen = chance.choices([c for c, _ in CHANGES], [weight for _, weight in CHANGES], k=count)
    for change in chosen:
        with suppress(RuntimeError, OSError):  # of what an earlier change has made
            change(folder, chance)
    return [change.__name__ for change in chosen]


def archive(plan: bytes, suite_id: str, chance: Chance) -> bytes:
    """Return what a target that is not to be trusted may send for its results."""
    held = io.BytesIO()
    members: dict[str, bytes] = {f"{suite_id}/plan.json": plan}
    for _ in range(chance.choice((0, 1, 3))):
        members[
            str(chance.choice((*TEXTS, "../../outside/secret", f"{suite_id}/runs/../../../x")))
        ] = b"x"
    members[f"{suite_id}/journal.jsonl"] = b"{}\n"
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _member(
            tar, "sums.json", _written(_change(sums, chance) if chance.random() < 0.3 else sums)
        )
        for name, content in members.items():
            _member(tar, name, content)
        kind = chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE))
        link = tarfile.TarInfo(f"{suite_id}/runs")
        link.type, link.linkname = kind, "../../outside"
        tar.addfile(link)
        _member(tar, f"{suite_id}/runs/secret", b"through a link")
    data = bytearray(held.getvalue())
    if chance.random() < 0.5:
        place = chance.randrange(len(data))
        data[place : place + 8] = chance.randbytes(8)
    return bytes(data)


def bundle(content: bytes, chance: Chance) -> bytes:
    """Return what a stranger may make of the tar of a bundle; in half of the cases nothing."""
    content_bytes, what = bytearray(content), chance.random()
    if what < 0.2:
        place = chance.randrange(0, len(content_bytes), 512 if what < 0.15 else 1)
        content_bytes[place : place + 8] = chance.randbytes(8)
    elif what < 0.3:  # a header of another kind before all members
        info = tarfile.TarInfo("x")
        info.type = chance.choice((b"x", b"g", b"L", b"K", b"S", b"X", b"5", b"1"))
        info.size = size = chance.choice((0, 20, 1000, 70_000, 2**33))
        body = b"20 GNU.sparse.map=x\n" * 3500 if chance.random() < 0.5 else bytes(size % 2**20)
        content_bytes[:0] = info.tobuf(tarfile.GNU_FORMAT) + body[: size + -size % 512]
    packed = gzip.compress(bytes(content_bytes), 1)
    return packed[: chance.randrange(len(packed))] if 0.3 <= what < 0.35 else packed


def _member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    try:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    except (ValueError, UnicodeError):
        return


def suite_text(honest: str, chance: Chance) -> str:
    """Return a suite's YAML: changed in place, or what YAML alone can do."""
    what = chance.randrange(5)
    if what == 0:
        return f"!!python/object/apply:os.system ['{RUN}']\n"
    if what == 1:  # each line refers nine times to the one before
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
        return "\n".join([*lines, "summary: *a8", honest])
    if what == 2:
        return chance.choice(
            (*RAW, "a: &a [*a]", "? [x]\n: y\n", "\t", "a: b: c", "%YAML 9\n---\n")
        )
    lines = honest.splitlines()
    place = chance.randrange(len(lines))
    if what == 3:
        key = lines[place].partition(":")[0]
        lines[place] = f"{key}: {json.dumps(value(chance))}"
    else:
        lines[place:place] = [chance.choice(TEXTS)]
    return "\n".join(lines)
