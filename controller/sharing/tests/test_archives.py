"""Archives and commands of strangers: what is refused before it costs anything."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.errors import ControllerError
from contract.packed import extract
from controller.sharing import sandbox

MB = 1 << 20


def a_header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def a_pax_header(text: bytes) -> bytes:
    record = b"%d %s\n" % (len(text) + 4, text)
    assert len(record) == len(text) + 4
    return a_header(b"x", len(record)) + record.ljust(512, b"\0")


def zeros(size: int) -> Iterator[bytes]:
    yield from (bytes(MB) for _ in range(size // MB))


SUMS = a_header(b"0", 2, "sums.json") + b"{}".ljust(512, b"\0")
BOMBS: dict[str, tuple[bytes, int]] = {
    "extended header": (a_header(b"x", 64 * MB), 64 * MB),
    "global header": (a_header(b"g", 64 * MB), 64 * MB),
    "long name": (a_header(b"L", 64 * MB), 64 * MB),
    "long link": (a_header(b"K", 64 * MB), 64 * MB),
    "headers of headers": (a_pax_header(b"path=abcdef") * 5000, 0),
    "sums": (a_header(b"0", 64 * MB, "sums.json"), 64 * MB),
    "document": (SUMS + a_header(b"0", 64 * MB, "s/plan.json"), 64 * MB),
    "sparse": (SUMS + a_header(b"S", 512), 0),
    "sparse by a header": (SUMS + a_pax_header(b"GNU.sparse.map=0,9") + a_header(b"0", 0), 0),
    "all members": (SUMS + a_header(b"0", 400 * MB, "s/stream.raw"), MB),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    head, size = BOMBS[name]
    path = tmp_path / "bomb.tar.gz"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw) as file:
        for piece in (head, *zeros(size), bytes(1024)):
            file.write(piece)
    with path.open("rb") as packed, pytest.raises((ValueError, tarfile.TarError)):
        try:
            extract(packed, tmp_path / "to")
        finally:
            read_bytes = packed.tell()
    assert read_bytes < path.stat().st_size / 2 or size < 64 * MB
    assert not list((tmp_path / "to").rglob("*"))


def test_only_gzip_is_unpacked(tmp_path: Path) -> None:
    """Others may ask for gigabytes to begin with."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:xz") as tar:
        tar.addfile(tarfile.TarInfo("sums.json"))
    (tmp_path / "x").write_bytes(held.getvalue())
    with (tmp_path / "x").open("rb") as packed, pytest.raises((ValueError, tarfile.TarError)):
        extract(packed, tmp_path / "to")


@pytest.mark.parametrize(
    ("work", "cpu_s"), [("while True: pass", 1), ("[bytearray(1 << 27) for _ in range(99)]", 100)]
)
def test_a_command_beyond_its_limits_is_ended(
    work: str, cpu_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(b"")
    monkeypatch.setattr(sandbox, "_CPU_S", cpu_s)
    code = f"import os\ntry:\n {work}\nexcept MemoryError:\n os.abort()"
    with pytest.raises(ControllerError):
        sandbox.run(["timeit", "-n", "1", code], [path])


@pytest.mark.parametrize(("number", "size"), [(15, False), (35, False), (9, True), (24, True)])
def test_only_signals_of_limits_are_reported_as_too_large(
    tmp_path: Path, number: int, size: bool
) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(b"x")
    code = f"import os, signal; signal.signal({number}, 0) if {number} != 9 else 0; "
    with pytest.raises(ControllerError) as refused:
        sandbox.run(["timeit", "-n", "1", f"{code}os.kill(os.getpid(), {number})"], [path])
    assert ("of memory" in str(refused.value)) == size


@pytest.mark.parametrize(
    "argv",
    [
        ["verify", "{}"],
        ["-K", "verify", "{}"],
        ["--ask-become-pass", "report", "--json", "{}"],
        ["summary", "--", "{}"],
        ["compare", "x", "{}"],
        ["notebook", "--json", "{}"],
        ["notebook", "{}"],
    ],
)
@pytest.mark.parametrize("name", ["b.tar.gz", "b.yml", "b.yaml", "-b", "b", "verify"])
def test_a_bundle_is_recognised_by_its_content(
    argv: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for mode in ("w:gz", "w"):
        with tarfile.open(name, mode) as tar:
            tar.addfile(tarfile.TarInfo("x/sums.json"))
        assert sandbox.bundles([word.format(name) for word in argv]) == [Path(name)]


def test_other_files_do_not_need_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bundle.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x/sums.json"))
    assumptions = tmp_path / "assumptions.tar.gz"
    assumptions.write_text("currency: EUR\n" * 99, encoding="utf-8")
    assert sandbox.bundles(["report", str(tmp_path), f"--assumptions={assumptions}"]) == []
    assert sandbox.bundles(["report", str(tmp_path), "--assumptions", str(assumptions)]) == []
    assert sandbox.bundles(["verify", str(tmp_path)]) == [tmp_path]  # whose tables it reads
    assert sandbox.bundles(["summary", str(tmp_path)]) == []
    assert sandbox.bundles(["run", "--", "verify", str(path)]) == []
    monkeypatch.setenv(sandbox.IS_BOUNDED, "1")
    assert sandbox.bundles(["verify", str(path)]) == []


def test_limits_grow_with_allocated_size_up_to_a_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = sandbox.limits([tmp_path])
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    assert sandbox.limits([tmp_path]) == sandbox.limits([tmp_path / "sparse"]) == least
    (tmp_path / "whole").write_bytes(bytes(6 << 20))
    twice = sandbox.limits([tmp_path])
    assert twice[0] >= 2 * least[0]
    for number in range(9):
        os.link(tmp_path / "whole", tmp_path / f"again-{number}")
    assert sandbox.limits([tmp_path]) == twice
    monkeypatch.setattr(sandbox, "_USUAL_BYTES", 1)
    cpu_s, memory_bytes = sandbox.limits([tmp_path])
    assert cpu_s == 86_400
    assert memory_bytes <= max(1100 << 20, os.sysconf("SC_PHYS_PAGES") << 16)
