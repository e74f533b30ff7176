"""Ciphers in memory and on files: correct answers, and the library that provides each."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.tests.refusal import refuses
from workloads import programs
from workloads.child import ROOT, Child
from workloads.crypt import catalogue, known_answers, libraries, recipes, samples
from workloads.crypt.catalogue import Instructions, mask_problem
from workloads.file_ciphers import RECIPES

needs_libraries = pytest.mark.skipif(
    bool(catalogue.missing_libraries("this test")),
    reason=" ".join(catalogue.missing_libraries("this test")),
)


@needs_libraries
@pytest.mark.parametrize("mode", catalogue.MODES)
@pytest.mark.parametrize("cipher", catalogue.CIPHERS)
def test_every_cipher_and_mode_gives_its_known_answers(cipher: str, mode: str) -> None:
    held = known_answers.check(cipher, mode)
    assert held[-1].startswith("the mode by its definition")
    assert (len(held) == 2) == (known_answers.published(cipher, mode) is not None)


@needs_libraries
@pytest.mark.parametrize("mode", catalogue.MODES)
def test_by_definition_gives_the_published_answers(mode: str) -> None:
    """This validates the reference of the other check."""
    for cipher in ("aes-192", "des"):
        vector = known_answers.published(cipher, mode)
        if vector is None:
            continue
        ecb = libraries.begin(cipher, "ecb", encrypt=True, key=vector.key, iv=vector.iv)
        results = known_answers.by_definition(mode, ecb.crypt, vector.iv, vector.plain)
        assert results == vector.answer


@needs_libraries
@pytest.mark.parametrize("index", [0, 1])
def test_a_wrong_answer_is_a_failure_in_either_check(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if index == 0:
        cbc = known_answers.KNOWN["modes"]["des"]["cbc"]
        monkeypatch.setitem(cbc, "answer", "00" + cbc["answer"][2:])
        source = "FIPS 81"
    else:
        monkeypatch.setattr(known_answers, "by_definition", lambda *_: b"wrong")
        source = "the mode by its definition, on single blocks of OpenSSL"
    with refuses("wrong-cipher", cipher="des", mode="CBC", source=source):
        known_answers.check("des", "cbc")


@needs_libraries
def test_pycryptodome_provides_what_openssl_lacks(root: Path) -> None:
    lacking = {("3des", "ctr"), ("blowfish-448", "ctr"), ("blowfish-448", "cfb8")}
    with Child("cipher_modes", root) as child:
        for cipher in ("des", "3des", "aes-256", "blowfish-448"):
            for mode in catalogue.MODES:
                library = child.ask("answers", cipher=cipher, mode=mode)["library"]
                other = cipher == "des" or (cipher, mode) in lacking
                assert library.startswith("PyCryptodome " if other else "OpenSSL "), (cipher, mode)


def test_the_child_restarts_without_openssls_legacy_provider(root: Path) -> None:
    """With a `cryptography` that loads only when told beforehand, as the real one does then."""
    package = root / "cryptography" / "hazmat" / "backends"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    (package / "openssl.py").write_text(
        "import os\n"
        f"told = os.environ.get({libraries.WITHOUT_LEGACY!r})\n"
        f"open({str(root / 'loaded')!r}, 'a').write(f'{{told}} ')\n"
        "backend = None\n"
        "if not told: raise RuntimeError('the legacy provider failed to load')\n"
    )
    command = [sys.executable, "-m", "workloads.children.cipher_modes"]
    command += [str(os.getpid()), str(root)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop(libraries.WITHOUT_LEGACY, None)
    subprocess.run(command, input=b"", cwd=ROOT, env=environment, timeout=60, check=True)
    assert (root / "loaded").read_text() == "None 1 "


@needs_libraries
def test_pycryptodome_provides_blowfish_without_legacy_provider(root: Path) -> None:
    environment = {**os.environ, libraries.WITHOUT_LEGACY: "1"}
    with Child("cipher_modes", root, environment) as child:
        for cipher, library in (("blowfish-448", "PyCryptodome"), ("aes-128", "OpenSSL")):
            answers = child.ask("answers", cipher=cipher, mode="cbc")
            assert answers["library"].startswith(library)
            assert len(answers["held_against"]) == 2


@needs_libraries
@pytest.mark.parametrize("mode", catalogue.MODES)
@pytest.mark.parametrize("cipher", ["des", "blowfish-448", "aes-128"])
def test_a_stream_continues_after_its_last_input(cipher: str, mode: str) -> None:
    """The chaining value is not reset between inputs, as in a phase."""
    kind = catalogue.CIPHERS[cipher]
    key, iv = bytes(range(kind.key_bytes)), bytes(range(kind.block_bytes))
    size = 5 * kind.block_bytes if mode in catalogue.WHOLE_BLOCKS else 37
    source = bytes(range(size))
    once = libraries.begin(cipher, mode, encrypt=True, key=key, iv=iv).crypt(2 * source)
    twice = libraries.begin(cipher, mode, encrypt=True, key=key, iv=iv)
    assert twice.crypt(source) + twice.crypt(source) == once


@needs_libraries
@pytest.mark.parametrize("size", [1, 15, 16, 189, 190, 191, 5000])
@pytest.mark.parametrize("name", RECIPES)
def test_a_file_of_any_length_is_decrypted(name: str, size: int) -> None:
    recipe = recipes.make(name, seed=7)
    plain = bytes(i % 251 for i in range(size))
    source, target = bytearray(plain) + bytearray(64), bytearray(2 * size + 4096)
    length = recipe.encrypt(source, size, target)
    assert length > size and (size < 15 or plain[:15] not in target)
    source, back = target[:length] + bytearray(64), bytearray(2 * size + 4096)
    assert recipe.decrypt(source, length, back) == size
    assert back[:size] == plain


@needs_libraries
def test_encrypting_a_file_twice_gives_different_results() -> None:
    """Each has a fresh vector and, with RSA, fresh padding and a fresh key."""
    for name in ("aes-128-cbc", "rsa-2048-wrap", "rsa-2048-oaep"):
        recipe = recipes.make(name, seed=7)
        results = [bytearray(1000), bytearray(1000)]
        for target in results:
            recipe.encrypt(bytearray(100), 20, target)
        assert results[0] != results[1]
        if isinstance(recipe, recipes.RsaWrap):
            first, second = (recipe.unwrap(bytes(each[: recipes.RSA_BYTES])) for each in results)
            assert len(first) == 16 and first != second


def test_samples_are_seeded_of_exact_size_and_of_their_kind(root: Path) -> None:
    for kind in samples.KINDS:
        for name, size, seed in (("a", 1_500_000, 7), ("b", 1_500_000, 7), ("c", 4096, 8)):
            samples.write(root / f"{kind}-{name}", kind, size, seed)
            assert (root / f"{kind}-{name}").stat().st_size == size
        first, second, other = ((root / f"{kind}-{name}").read_bytes() for name in "abc")
        assert first == second and first[1024:4096] != other[1024:]
    words = set((root / "text-a").read_text().split())
    assert 1000 < len(words) < 3000
    magic, size, _, _, offset = struct.unpack("<2sIHHI", (root / "image-a").read_bytes()[:14])
    assert (magic, size, offset) == (b"BM", 1_500_000, 54)
    width, height = struct.unpack("<ii", (root / "image-a").read_bytes()[18:26])
    assert 54 + 3 * width * height <= size < 54 + 3 * width * (height + 1)


@needs_libraries
def test_the_mask_disables_aes_instructions_or_is_doubted(root: Path) -> None:
    if catalogue.reason_against(True):
        pytest.skip(catalogue.reason_against(True))
    answers = []
    for aes_instructions in (False, True):
        with Child("cipher_modes", root, catalogue.environment(aes_instructions)) as child:
            answers.append(Instructions(**child.ask("instructions")))
    assert mask_problem(*answers) == ""
    slow, fast = (Instructions(None, rate) for rate in (100.0, 140.0))
    features = "OPENSSL_ia32cap=0xfffa3203078bffff:0x405fc6f1bf07ab env:~0x0"
    assert "still uses AES-NI" in mask_problem(Instructions(features, 100.0), fast)
    masked = "OPENSSL_ia32cap=0xfdfa3203078bffff:0x405dc6f1bf07ab env:x"
    assert mask_problem(Instructions(masked, 100.0), fast) == ""
    assert "only 1.40 times faster" in mask_problem(slow, fast)
    assert "OPENSSL_ia32cap" not in catalogue.environment(True)


def test_aes_that_cannot_run_as_requested_has_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "CPUINFO", root / "cpuinfo")
    cases = (
        ("flags : fpu sse", True, "x86_64", "The processor has no instructions for AES"),
        ("flags : fpu sse", False, "x86_64", ""),
        ("flags : fpu aes", True, "x86_64", ""),
        ("flags : fpu aes", False, "x86_64", ""),
        ("Features : fp aes", True, "aarch64", ""),
        ("Features : fp aes", False, "aarch64", "How to keep OpenSSL from the instructions"),
        ("Features : fp", False, "aarch64", ""),
    )
    for flags, allowed, machine, reason in cases:
        (root / "cpuinfo").write_text(f"{flags}\n")
        monkeypatch.setattr(os, "uname", lambda machine=machine: SimpleNamespace(machine=machine))
        objection = catalogue.reason_against(allowed)
        assert objection.startswith(reason) and bool(objection) == bool(reason), (flags, allowed)


def test_inputs_are_padded_to_whole_blocks() -> None:
    assert [catalogue.padded(n, 16) for n in (1, 16, 20527)] == [16, 16, 20528]


def test_a_missing_library_is_named_with_its_package() -> None:
    """With a Python that has none: what a target without the packages says."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from workloads import registry; " + (
        "print('\\n'.join(registry.load(sys.argv[1]).requires({}, {})))"
    )
    for name in ("file_ciphers", "cipher_modes"):
        message = programs.run([sys.executable, "-I", "-S", "-c", code, name]).splitlines()
        assert message[0].endswith(
            "library cryptography: install the package python3-cryptography."
        )
        assert message[1].endswith("library Cryptodome: install the package python3-pycryptodome.")
        assert len(message) == 2 and all(line.startswith(f"{name} needs ") for line in message)
