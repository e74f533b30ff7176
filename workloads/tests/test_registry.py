"""Names and parameters are checked before anything runs, with a remedy in the message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contract.parameters import Parameter
from contract.strict_json import Json
from contract.tests.refusal import Refusal, refuses
from workloads import describe, registry


@pytest.mark.parametrize("name", registry.names())
def test_a_workload_has_its_registered_name(name: str) -> None:
    workload = registry.load(name)
    assert workload.name == name
    assert workload.summary
    assert registry.load(name) is not workload, "instances hold a run's state"


@pytest.mark.parametrize("name", registry.names())
def test_parameters_are_declared_completely(name: str) -> None:
    parameters = registry.load(name).parameters
    assert len({p.name for p in parameters}) == len(parameters)
    for parameter in parameters:
        assert parameter.help
        last = parameter.name.rsplit("_", 1)[-1]
        unit_of_name = {"mib": "MiB", "seconds": "s", "s": "s", "bytes": "B"}.get(last)
        assert unit_of_name in (None, parameter.unit), "name and unit contradict each other"
        if isinstance(parameter.default, float):
            assert parameter.unit, f"{name}: {parameter.name} is a quantity without a unit"
    assert registry.complete(name, {}) == {p.name: p.default for p in parameters}


def test_an_unknown_workload_is_refused_with_the_nearest_name() -> None:
    with refuses("unknown-name", nearest="did you mean kernel_grep?"):
        registry.load("kernelgrep")
    with refuses("unknown-name", name="qqqq"):
        registry.load("qqqq")


@pytest.mark.parametrize(
    ("name", "settings", "refusal"),
    [
        ("file_io", {"large_mb": 5}, refuses("unknown-name", nearest="did you mean large_mib?")),
        ("file_io", {"large_mib": 0}, refuses("parameter-minimum", minimum=1, value=0)),
        ("file_io", {"large_mib": 2.5}, refuses("parameter-type", type="int", value=2.5)),
        ("file_io", {"small_files": True}, refuses("parameter-type", type="int")),
        ("file_io", {"fsync": "yes"}, refuses("parameter-type", type="bool", value="yes")),
        (
            "file_io",
            {"source": "random"},
            refuses("parameter-choice", allowed="incompressible, zero"),
        ),
        ("idle", {"seconds": float("nan")}, refuses("parameter-minimum", minimum=0.1)),
        ("idle", {"seconds": "5"}, refuses("parameter-type", type="float", value="5")),
        ("access_patterns", {"engine": "psync", "depth": 2}, refuses("depth-of-psync", depth=2)),
        ("block_sizes", {"steps": f"{2**31}"}, refuses("invalid-number", most=2**30)),
        ("block_sizes", {"steps": "9" * 5000}, refuses("invalid-number", most=2**30)),
        ("key_derivation", {"argon2id": "t1-m999999999KiB-p4"}, refuses("invalid-argon2id")),
        ("block_sizes", {"engine": "psync", "depth": 2}, refuses("depth-of-psync", depth=2)),
        ("block_sizes", {"steps": "paper,512"}, refuses("invalid-number", word="paper")),
        ("block_sizes", {"steps": ""}, refuses("list-empty")),
        ("block_sizes", {"steps": "256"}, refuses("steps-outside", sizes="256")),
        (
            "block_sizes",
            {"steps": "2097152", "file_mib": 1},
            refuses("steps-outside", file_bytes=1048576, sizes="2097152"),
        ),
        ("file_ciphers", {"ciphers": "rsa-2048"}, refuses("unknown-word", word="rsa-2048")),
        ("file_ciphers", {"kinds": "images"}, refuses("unknown-word", word="images")),
        ("file_ciphers", {"sizes": "100"}, refuses("sizes-too-small", size=100)),
        ("cipher_modes", {"ciphers": "blowfish"}, refuses("unknown-word", word="blowfish")),
        ("cipher_modes", {"sizes": "1MB"}, refuses("invalid-number", least=1, word="1MB")),
        ("cipher_modes", {"modes": "cbc ecb"}, refuses("not-words", word="cbc ecb")),
        (
            "cipher_modes",
            {"modes": "ecb,ctx"},
            refuses("unknown-word", word="ctx", nearest="did you mean ctr?"),
        ),
        ("cipher_modes", {"modes": " ,"}, refuses("words-empty")),
        ("kernel_ciphers", {"modes": "ecb"}, refuses("unknown-word", word="ecb")),
        ("kernel_ciphers", {"drivers": "aesni"}, refuses("not-a-driver", driver="aesni")),
        ("kernel_ciphers", {"request_kib": 6}, refuses("request-without-sectors", kib=6)),
        ("kernel_ciphers", {"key_bits": "192"}, refuses("unknown-word", word="192")),
        ("kernel_ciphers", {"ciphers": "", "cascades": " ,"}, refuses("no-ciphers")),
        ("key_derivation", {"functions": "md5"}, refuses("unknown-word", word="md5")),
        ("key_derivation", {"iterations": "1e6"}, refuses("invalid-number", what="iterations")),
        ("key_derivation", {"pims": "-1"}, refuses("invalid-number", what="pims", least=0)),
        ("key_derivation", {"functions": "sha256", "pims": ""}, refuses("no-derivations")),
        ("key_derivation", {"argon2id": "4-65536-4"}, refuses("invalid-argon2id")),
        ("key_derivation", {"argon2id": "t1-m16KiB-p4"}, refuses("invalid-argon2id")),
        ("video", {"picture": ""}, refuses("invalid-name", parameter="picture")),
        ("video", {"sound": "-x"}, refuses("invalid-name", parameter="sound")),
        ("video", {"decoder": "a b"}, refuses("invalid-name", parameter="decoder")),
    ],
)
def test_invalid_parameters_are_refused_at_planning(
    name: str, settings: dict[str, Json], refusal: Refusal
) -> None:
    with refusal:
        registry.complete(name, settings)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        (name, parameter)
        for name in registry.names()
        for parameter in registry.load(name).parameters
        if type(parameter.default) in (int, float) and not parameter.choices
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_number_of_a_workload_has_a_maximum(name: str, parameter: Parameter) -> None:
    assert parameter.minimum < parameter.most <= 2**30
    for beyond in (parameter.most + 1, 10**15):
        with refuses("parameter-maximum", maximum=parameter.most):
            registry.complete(name, {parameter.name: type(parameter.default)(beyond)})


def test_whole_numbers_of_seconds_become_floats() -> None:
    value = registry.complete("idle", {"seconds": 3})["seconds"]
    assert value == 3 and type(value) is float


def test_workloads_load_lazily_with_the_standard_library_only() -> None:
    code = (
        "import sys; from workloads import registry; "
        "assert not [m for m in sys.modules if m == 'workloads.sql'], 'not lazy'; "
        "[registry.load(n) for n in registry.names()]"
    )
    root = Path(__file__).parents[2]
    # -S leaves out site-packages: what is not in the standard library cannot be imported.
    subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(root)!r}); {code}",
        ],
        check=True,
    )


def test_describe_prints_parameters_and_missing_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe.main(["kernel_grep"]) == 0
    message = capsys.readouterr().out
    assert "  word = module: what is searched for\n" in message
    assert "  cache = cold (cold, warm): " in message
    assert (
        "  cannot run here: kernel_grep needs the program grep: install its package.\n" in message
    )
    assert "assets    kernel_grep" in message and "needs the asset" not in message
    assert describe.main(["all"]) == 0
    message = capsys.readouterr().out
    assert all(f"\n{name}: " in f"\n{message}" for name in registry.names())


def test_describe_refuses_unknown_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe.main(["kernelgrep"]) == 1
    assert "fde: There is no workload called 'kernelgrep'; did you mean" in capsys.readouterr().err
    assert describe.main([]) == 2
