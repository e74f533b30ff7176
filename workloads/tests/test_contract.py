"""Rules for every registered workload, checked by running it here or in the lab's guest."""

from __future__ import annotations

import json
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import yaml

from contract.parameters import Parameter
from contract.tests import programs
from workloads import registry
from workloads.base import Context, Workload, WorkloadError
from workloads.tests import contract

if TYPE_CHECKING:
    from conftest import LabHandle

SUITES = Path(__file__).parents[1] / "suites"
GUEST_CODE = "/var/tmp/fde-contract"
GUEST_ASSETS = "/usr/share/fde-testbed"
ASSET_FILES = {
    "kernel_tree": "kernel_tree.tar.gz",
    "kernel_grep": "kernel_grep.tar.gz",
    "clip": "clip.mpg",
}
# For each program a workload starts itself, what it says when it fails.
FAILING = [
    *[(name, program) for name in registry.names() for program in registry.load(name).programs],
    *[("sql", program) for program in ("mariadb-install-db", "mariadbd", "mariadb")],
]


def skip_unless_possible(name: str, assets: dict[str, Path]) -> None:
    reasons = registry.load(name).requires(registry.complete(name, {}), assets)
    if reasons:
        pytest.skip(" ".join(reasons))


@pytest.mark.parametrize("name", registry.names())
def test_a_workload_keeps_the_contract(
    name: str, assets: dict[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_possible(name, assets)
    outside = root / "outside"
    outside.mkdir()
    for variable in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(outside))
    monkeypatch.chdir(outside)
    broken, phases = contract.check(name, root / "inside", assets, registry.load(name).small)
    assert broken == []
    assert list(outside.iterdir()) == [], "something was left outside disk and scratch"
    print(name, dict(zip(phases.names, phases.seconds, strict=True)))


@pytest.mark.parametrize("name", registry.names())
def test_missing_programs_and_assets_are_named_with_the_remedy(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.setattr("workloads.programs.SEARCH_PATH_SUFFIX", ())
    workload = registry.load(name)
    values = registry.complete(name, {})
    reasons = workload.requires(values, dict.fromkeys(workload.assets, root / "absent"))
    for program in workload.programs:
        assert f"{name} needs the program {program}: install its package." in reasons
    for asset in workload.assets:
        assert any(str(root / "absent") in reason for reason in reasons)
        assert any(f"the asset {asset}:" in reason for reason in workload.requires(values, {}))
    assert reasons or not (workload.programs or workload.assets)


@pytest.mark.parametrize(("name", "program"), FAILING)
def test_a_failing_program_ends_the_run_with_its_message(
    name: str, program: str, assets: dict[str, Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_possible(name, assets)
    broken = '[ "$1" = --version ] && exit 0\necho first >&2\necho it is broken >&2\nexit 9'
    shadow = programs.program(root / "shadow" / program, broken)
    monkeypatch.setenv("PATH", str(shadow.parent), prepend=":")
    context, _ = contract.new_run(name, root / "run", assets, **registry.load(name).small)
    with pytest.raises(WorkloadError) as caught:
        contract.perform(registry.load(name), context)
    (problem,) = caught.value.problems
    # Some releases of mariadb-install-db start the server by its whole path.
    assert problem.code in {"program-failed", "server-ended"}
    assert {program, "it is broken"} <= set(problem.facts.values())
    assert contract.processes_using(root) == []


@pytest.fixture(scope="module")
def target(lab: LabHandle) -> LabHandle:
    """Provide the guest with the workloads of this checkout."""
    for package in ("contract", "workloads"):
        lab.send(Path(contract.__file__).parents[2] / package, GUEST_CODE)
    return lab


@pytest.mark.lab
@pytest.mark.parametrize("name", registry.names())
def test_a_workload_keeps_the_contract_on_the_target(name: str, target: LabHandle) -> None:
    """With the target's own Python and programs, at the sizes of `micro` or the smallest."""
    suite = yaml.safe_load((SUITES / "micro.yml").read_text())
    sizes = {entry["name"]: entry["parameters"] for entry in suite["workloads"]}
    settings = {**sizes, "drift_check": suite["drift_check"]}.get(name, registry.load(name).small)
    options = [f"--asset={asset}={GUEST_ASSETS}/{file}" for asset, file in ASSET_FILES.items()]
    command = [*("python3", "-m", "workloads.tests.contract", name), *options]
    command += ["--root", f"{GUEST_CODE}/{name}", "--parameters", json.dumps(settings)]
    result = target.ssh(f"cd {GUEST_CODE} && {shlex.join(command)}", check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout)["broken"] == []
    print(result.stdout)


@pytest.mark.parametrize("name", registry.names())
def test_a_workload_describes_its_program_and_needs(name: str, assets: dict[str, Path]) -> None:
    workload = registry.load(name)
    assert workload.program, "say in words what does the measured work"
    needs = workload.needs(registry.complete(name, registry.load(name).small), assets)
    # The file system of the smallest target, the lab's, is to hold the sizes of a test.
    assert 0 <= needs.disk_bytes < 2**30
    assert needs.scratch_bytes >= 0 and needs.memory_bytes >= 0


class Bad(Workload):
    """Breaks every rule that the contract knows."""

    name = "bad"
    summary = "bad"
    parameters = (Parameter("idle", 1, "", "never used"),)

    def run(self, context: Context) -> None:
        for _ in range(2):
            with suppress(contract.InjectedError), context.phase("same"):
                pass
        root = context.disk.parent
        (root / "left").write_text("here\n")
        leftovers = subprocess.Popen(["tail", "-f", root / "left"], stdout=subprocess.PIPE)
        Bad.started.append(leftovers)
        assert leftovers.stdout  # its first line: before that, the kernel may show no arguments yet
        leftovers.stdout.readline()

    started: ClassVar[list[subprocess.Popen[bytes]]] = []


def test_the_contract_detects_broken_rules(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda _name: Bad())
    try:
        broken, _ = contract.check("bad", root / "inside", {}, {})
    finally:
        for process in Bad.started:
            process.kill()
            process.wait()
    text = "\n".join(broken)
    for rule in (
        "phase names are not unique",
        "phase same has no work",
        "declared and not used: ['idle']",
        "left was left beside",
        "a failure after phase same was swallowed",
        "still running",
    ):
        assert rule in text
