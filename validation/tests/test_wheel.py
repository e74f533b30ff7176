"""The wheel and the sdist, built and installed: nothing of a checkout is needed."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from contract.places import ROOT

EXAMPLE = ROOT / "data" / "examples" / "lab-one-disk.tar.gz"
SCRIPT = "fde_testbed.__main__:main"
COMMIT = "0123456789ab"
PLUG = "http://127.0.0.1:9=0:system"
INSTRUMENT = {
    "name": "bench",
    "kind": "scpi",
    "port": "TCPIP::127.0.0.1::INSTR",
    "origin": "measured",
    "channels": {"0": "system"},
    "settings": {"period_s": 1, "resolution_w": 0.1, "query": "POW?"},
}
LIBRARY = """
import sys
import analysis
assert analysis.mine
from fde_testbed import Suite
print(Suite.open(sys.argv[1]).origin)
"""


STRAY = (
    *("agent/opal-secrets.txt", "controller/targets/psid.py", "workloads/.env"),
    *("contract/keys/a.pem", "ansible/inventory/lab/vault.yml", "data/examples/mine.tar.gz"),
    *("secrets.json", "ansible/inventory/lab/.secrets.json"),
)


def _run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def _output(*command: str | Path, **options: Any) -> str:
    result = _run(*command, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _sources(to: Path) -> Path:
    """Lay out what git would have of this checkout."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    to.mkdir(parents=True)
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes((ROOT / name).read_bytes())
    return to


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sdist and wheel; the wheel is made from the sdist, without a registry."""
    place = tmp_path_factory.mktemp("built")
    sources = _sources(place / "sources")
    for words in (["init", "-q"], ["add", "--force", "."]):
        _output("git", *words, cwd=sources)
    for name in STRAY:
        (sources / name).parent.mkdir(exist_ok=True)
        (sources / name).write_text("0f1e2d3c4b5a6978")
    mine = sources / "ansible" / "inventory" / "mine"  # a user's own
    mine.mkdir()
    (mine / "hosts.yml").write_text("targets:\n")
    (sources / "COMMIT").write_text(COMMIT)  # as in an sdist, where there is no git
    _output(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, sources)
    direct = place / "direct"  # not from the sdist
    _output(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", direct, sources)
    return next(place.glob("*.tar.gz")), next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def site(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the wheel; all else comes from this environment."""
    site = tmp_path_factory.mktemp("site")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    _output(sys.executable, *pip, site, built[1])
    (site / "pyproject.toml").write_text("[project]\nversion = '99'\n")  # another package's
    return site


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """Return a folder with modules of our names that are not ours."""
    (tmp_path / "analysis.py").write_text("mine = True\n")
    for name in ("agent", "contract", "controller"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    return tmp_path


def _fde(site: Path, place: Path, *arguments: str | Path) -> dict[str, Any]:
    path = os.pathsep.join([str(place), str(site)])
    environment = {**os.environ, "PYTHONPATH": path, "FDE_BUILD": str(place / "build")}
    program: list[str | Path] = [sys.executable, site / "bin" / "fde"]
    document: dict[str, Any] = json.loads(
        _output(*program, *arguments, "--json", cwd=place, env=environment)
    )
    return document


def test_the_wheel_has_one_package_and_nothing_of_tests(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = [Path(name) for name in wheel.namelist()]
    metadata = [name for name in names if name.parts[0].endswith(".dist-info")]
    assert {name.parts[0] for name in set(names) - set(metadata)} == {"fde_testbed"}
    assert not [
        n for n in names if "tests" in n.parts or n.name in ("conftest.py", "pyproject.toml")
    ]
    with zipfile.ZipFile(built[1]) as wheel:
        entry_points = wheel.read(str(next(n for n in metadata if n.name == "entry_points.txt")))
    assert entry_points.decode().split() == ["[console_scripts]", "fde", "=", SCRIPT]


def test_stray_files_and_own_inventories_are_not_packed(built: tuple[Path, Path]) -> None:
    """An inventory names hosts and disks."""
    with tarfile.open(built[0]) as sdist:
        listed = next(n for n in sdist.getnames() if n.endswith("egg-info/SOURCES.txt"))
        sources = sdist.extractfile(listed)
        assert sources is not None
        names = [*sdist.getnames(), *sources.read().decode().splitlines()]
    (direct,) = built[0].parent.joinpath("direct").glob("*.whl")
    for path in (built[1], direct):
        with zipfile.ZipFile(path) as wheel:
            names += wheel.namelist()
    assert "setup.py" in names and "fde_testbed/agent/__main__.py" in names
    assert not [name for name in names if Path(name).name in {Path(stray).name for stray in STRAY}]
    assert not [name for name in names if "/data/suites" in name or "inventory/mine" in name]
    assert sum(name.endswith("inventory/lab/hosts.yml") for name in names) >= 3


def test_the_version_is_known_beside_modules_of_the_same_names(site: Path, beside: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    environment = {**os.environ, "PYTHONPATH": f"{beside}{os.pathsep}{site}"}
    output = _output(sys.executable, site / "bin" / "fde", "--version", cwd=beside, env=environment)
    assert output == f"fde {project['version']} ({COMMIT})\n"


def test_packages_that_do_not_fit_are_a_sentence(site: Path, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("")  # as an old version, which lacks what is imported
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{site}"}
    result = _run(sys.executable, site / "bin" / "fde", "--version", env=environment)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("fde: ") and len(result.stderr.splitlines()) == 1


def test_the_notebook_opens_on_an_example(site: Path, beside: Path) -> None:
    opened = _fde(site, beside, "notebook")
    assert Path(opened["suite"]).is_relative_to(beside / "build" / "bundles")
    assert Path(opened["notebook"]).is_file()


def test_an_inventory_is_resolved(site: Path, beside: Path) -> None:
    """Ansible's processes run modules of ours."""
    answer = _fde(site, beside, "plan", "--suite", "smoke", "-i", _inventory(beside))
    plan = json.loads(Path(beside, answer["folder"], "plan.json").read_text(encoding="utf-8"))
    assert plan["suite"] == "smoke"


def _inventory(place: Path) -> Path:
    folder = place / "my inventory's"
    for path in (ROOT / "ansible/inventory/hardware.example").rglob("*.yml"):
        copy = folder / path.relative_to(ROOT / "ansible/inventory/hardware.example")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    secrets = {"luks_passphrase": "0f1e2d3c" * 3, "opal_admin_pin": "4b5a6978" * 3}
    (folder / ".secrets.json").write_text(json.dumps(secrets))
    (folder / ".secrets.json").chmod(0o600)
    return folder


def test_the_library_is_found_beside_modules_of_the_same_names(site: Path, beside: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{beside}{os.pathsep}{site}"}
    output = _output(sys.executable, "-c", LIBRARY, EXAMPLE, cwd=beside, env=environment)
    assert output == "modelled\n"


@pytest.mark.slow
@pytest.mark.parametrize("resolution", ["lowest-direct", "highest"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_it_verifies_an_example_in_an_empty_environment(
    built: tuple[Path, Path], tmp_path: Path, python: str, resolution: str
) -> None:
    """Wheel and sdist with the lowest and the newest versions that are allowed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    interpreters = [str(path) for path in pyenv.glob(f"versions/{python}.*/bin")]
    environment = {**os.environ, "PATH": os.pathsep.join([os.environ["PATH"], *interpreters])}
    resolved = _run("uv", "pip", "compile", "--no-cache", "--quiet", "-", input="packaging")
    if resolved.returncode:
        pytest.skip(f"no packages can be fetched: {resolved.stderr.strip().splitlines()[-1]}")
    if _run("uv", "python", "find", "--no-python-downloads", python, env=environment).returncode:
        pytest.skip(f"there is no Python {python} here")
    _output("uv", "venv", "--no-python-downloads", "-p", python, tmp_path / "env", env=environment)
    to = ("-p", tmp_path / "env" / "bin" / "python")
    _output("tar", "-xf", built[0], "-C", tmp_path)
    project = next(tmp_path.glob("fde_energy_testbed-*")) / "pyproject.toml"
    _output("uv", "pip", "install", *to, "--resolution", resolution, "-r", project)
    for package in built:
        _output("uv", "pip", "install", *to, "--no-deps", "--reinstall", package)
        output = _output(tmp_path / "env" / "bin" / "fde", "--version", cwd=tmp_path)
        with zipfile.ZipFile(built[1]) as wheel:
            name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            metadata = email.message_from_bytes(wheel.read(name))
        assert output == f"fde {metadata['Version']} ({COMMIT})\n"
    checked = json.loads(
        _output(tmp_path / "env" / "bin" / "fde", "verify", EXAMPLE, "--json", cwd=tmp_path)
    )
    assert checked["ok"]
    inventory = _inventory(tmp_path)
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars" / "target.yml").write_text(json.dumps({"fde_meters": [INSTRUMENT]}))
    without = {**os.environ, "FDE_BUILD": str(tmp_path / "build")}
    needing: dict[str, list[str | Path]] = {
        "lan": ["check", "-i", inventory],
        "notebook": ["notebook"],
        "plugs": ["init", "new", "--host", "h", "--disk", "plain=S1", "--meter", PLUG, "--yes"],
    }
    for extra, command in needing.items():
        result = _run(tmp_path / "env" / "bin" / "fde", *command, cwd=tmp_path, env=without)
        assert result.returncode == 1
        assert f"[{extra}]" in "".join((result.stdout + result.stderr).split())
