"""Ciphers on files and in memory: phases, counts, reports and omissions."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract.tests.refusal import refuses
from workloads import registry
from workloads.base import Context
from workloads.children import cipher_modes, file_ciphers
from workloads.crypt import catalogue, libraries
from workloads.tests import contract

pytestmark = pytest.mark.skipif(
    bool(catalogue.missing_libraries("this test")),
    reason=" ".join(catalogue.missing_libraries("this test")),
)
needs_aes = pytest.mark.skipif(
    bool(catalogue.reason_against(True)), reason=catalogue.reason_against(True)
)


@dataclass(frozen=True)
class CipherRun:
    context: Context
    phases: contract.Phases
    report: dict[str, Any]


AES_OFF = {"ciphers": "aes-128,des", "modes": "ecb", "sizes": "1000", "aes_instructions": False}


def run_ciphers(root: Path, name: str, **settings: Any) -> CipherRun:
    context, phases = contract.performed(name, root / "run", **{"seconds": 0.01, **settings})
    return CipherRun(context, phases, json.loads((context.kept / "ciphers.json").read_text()))


def test_every_mode_size_and_direction_is_a_phase_counted_by_its_input(root: Path) -> None:
    few = {"ciphers": "blowfish-448", "modes": "ctr,ecb", "sizes": "1001,large", "large_mib": 1}
    run = run_ciphers(root, "cipher_modes", **few)
    assert run.phases.names == [
        f"blowfish-448-{mode}.{verb}.{size}B"
        for size in (1001, 1 << 20)
        for mode in ("ctr", "ecb")
        for verb in ("encrypt", "decrypt")
    ]
    for name, work in zip(run.phases.names, run.phases.works, strict=True):
        size = int(name.rpartition(".")[2].removesuffix("B"))
        assert work.amounts["bytes"] == work.amounts["operations"] * size
    assert run.phases.left_out == []
    # What did which cipher is kept.
    ciphers = run.report["ciphers"]
    assert {each["cipher"]: each["library"].split()[0] for each in ciphers} == {
        "blowfish-448-ctr": "PyCryptodome",
        "blowfish-448-ecb": "OpenSSL",
    }
    assert all(each["held_against"] for each in ciphers)
    assert list(run.report["unsafe"]) == ["blowfish-448"]
    assert run.report["aes_instructions"] == {}
    for each in run.report["phases"]:
        assert 0 <= each["python_share_at_most"] <= 1 and each["seconds"] >= 0.01


def test_a_cipher_that_no_library_has_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sitecustomize.py").write_text(
        "import sys\nsys.modules['Cryptodome.Cipher.DES'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(root))
    run = run_ciphers(root, "cipher_modes", ciphers="des,3des", modes="ecb", sizes="1000")
    assert run.phases.left_out == [("des-ecb", "No library here has des in ECB.")]
    assert run.phases.names == ["3des-ecb.encrypt.1000B", "3des-ecb.decrypt.1000B"]


@needs_aes
def test_aes_is_slower_without_the_processors_instructions(root: Path) -> None:
    run = run_ciphers(root, "cipher_modes", **AES_OFF)
    assert len(run.phases.names) == 4 and run.phases.left_out == []
    rates = run.report["aes_instructions"]
    assert rates["with"]["aes_mib_per_s"] > rates["without"]["aes_mib_per_s"]


@pytest.fixture
def no_aes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a processor without AES instructions."""
    (root / "cpuinfo").write_text("flags\t: fpu sse\n")
    monkeypatch.setattr(catalogue, "CPUINFO", root / "cpuinfo")


@pytest.fixture
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the mask have no effect, so that both rates are similar under any load."""
    monkeypatch.setattr(catalogue, "MASK", "~0x0")
    monkeypatch.setattr(catalogue, "LEAST_RATIO", 50.0)


@pytest.mark.usefixtures("no_aes")
def test_aes_is_left_out_where_the_processor_lacks_its_instructions(root: Path) -> None:
    run = run_ciphers(root, "cipher_modes", ciphers="aes-128,des", modes="ecb", sizes="1000")
    ((part, reason),) = run.phases.left_out
    assert part == "AES" and "aes_instructions off" in reason
    assert run.phases.names == ["des-ecb.encrypt.1000B", "des-ecb.decrypt.1000B"]


@pytest.mark.usefixtures("no_aes", "no_mask")
def test_a_processor_without_instructions_needs_no_mask(root: Path) -> None:
    run = run_ciphers(root, "cipher_modes", **{**AES_OFF, "ciphers": "aes-128"})
    assert run.phases.left_out == [] and len(run.phases.names) == 2


@needs_aes
@pytest.mark.usefixtures("no_mask")
def test_an_ineffective_mask_leaves_aes_out(root: Path) -> None:
    run = run_ciphers(root, "cipher_modes", **AES_OFF)
    assert [part for part, _ in run.phases.left_out] == ["AES"]
    assert not any(name.startswith("aes") for name in run.phases.names)


def test_ciphers_need_memory_and_room(root: Path) -> None:
    modes, files = registry.load("cipher_modes"), registry.load("file_ciphers")
    large = modes.needs(registry.complete("cipher_modes", {}), {})
    assert large.memory_bytes > 2 * 256 * catalogue.MIB and large.disk_bytes == 0
    settings = {"kinds": "text,image", "sizes": "5000,10000"}
    few = files.needs(registry.complete("file_ciphers", settings), {})
    assert few.disk_bytes > 2 * 15_000 + 10_000 * 256 / 190 + 10_000
    run = run_ciphers(root, "file_ciphers", kinds="text", sizes="5000", ciphers="rsa-2048-oaep")
    sizes = [file.stat().st_size for file in run.context.disk.iterdir()]
    assert sizes == [5000], "no encrypted or decrypted file stays"


def test_files_too_long_for_rsa_are_left_out_with_figures(root: Path) -> None:
    settings = {"ciphers": "des-cbc,rsa-2048-oaep", "kinds": "binary", "sizes": "5000,10000"}
    run = run_ciphers(root, "file_ciphers", **settings, oaep_max_bytes=5000)
    assert run.phases.names == [
        *(
            f"{cipher}.{verb}.binary.{size}B"
            for cipher, size in (("des-cbc", 5000), ("rsa-2048-oaep", 5000), ("des-cbc", 10000))
            for verb in ("encrypt", "decrypt")
        ),
        "rsa-2048-oaep.encrypt.binary.10000B",
    ]
    for name, work in zip(run.phases.names, run.phases.works, strict=True):
        amounts, size = work.amounts, int(name.rpartition(".")[2].removesuffix("B"))
        assert amounts["operations"] == amounts["files"] == amounts["bytes"] / size
    ((part, reason),) = run.phases.left_out
    assert part == "decrypting rsa-2048-oaep of 10000 B"
    assert "takes 53 private operations of" in reason and "raise oaep_max_bytes" in reason
    assert list(run.report["unsafe"]) == ["des"]
    assert {each["cipher"] for each in run.report["ciphers"]} == {"des-cbc", "rsa-2048-oaep"}


@pytest.mark.parametrize(("file_io", "fsync"), [(True, True), (True, False), (False, True)])
def test_file_io_and_fsync_apply_within_the_phase(
    file_io: bool, fsync: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(os, "fsync", spy(os.fsync, "fsync", calls))
    monkeypatch.setattr(os, "write", spy(os.write, "write", calls))
    (root / "plain").write_bytes(bytes(range(200)))
    (root / "out").write_bytes(bytes(1000))
    file_ciphers.recipe(file_ciphers.Make("des-cbc", seed=7))
    turn = file_ciphers.Turn(
        "des-cbc",
        encrypt=True,
        source=str(root / "plain"),
        target=str(root / "out"),
        seconds=0.01,
        file_io=file_io,
        fsync=fsync,
    )
    _, task = file_ciphers.file(turn)
    before = len(calls)
    steps = task()["steps"]
    within = calls[before:]
    assert (root / "out").stat().st_size == 8 + 208
    assert within.count("write") == (steps if file_io else 0)
    assert within.count("fsync") == (steps if file_io and fsync else 0)


def spy(real: Any, name: str, calls: list[str]) -> Any:
    def noted(*arguments: Any) -> Any:
        calls.append(name)
        return real(*arguments)

    return noted


def test_an_undecryptable_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a library that decrypts as it encrypts."""
    begin = libraries.begin

    def broken(*which: str, **settings: Any) -> libraries.Stream:
        return begin(*which, **{**settings, "encrypt": True})

    stream = cipher_modes.Stream("des", "ecb", bytes=1000, seed=7, encrypt=False, seconds=0.01)
    cipher_modes.stream(stream)
    monkeypatch.setattr(libraries, "begin", broken)
    with refuses("not-decrypted"):
        cipher_modes.stream(stream)
