"""Groups of hosts: refusals, a plan for each host, independent sessions."""

from __future__ import annotations

import copy
import functools
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from analysis.suite.group import members
from contract import plan as plans
from contract import schema
from contract.places import ROOT
from contract.plan import TargetDocument
from contract.tests.programs import meanwhile, wait_until
from contract.tests.refusal import refuses
from controller.planning.plan_folders import Options
from controller.session import group
from controller.session.seal import MANIFEST
from controller.session.tests.test_status import document
from controller.targets import playbook
from controller.tests import examples, terminal

pytestmark = pytest.mark.usefixtures("interruptible")
METER = {"name": "meter0", "kind": "smartpower3", "origin": "modelled", "channels": {"0": "system"}}


def host(name: str, **changes: Any) -> dict[str, Any]:
    """Return the example's target with a separate name, address and meter."""
    target = copy.deepcopy(examples.target())
    target["host"] = name
    target["ssh"]["host"] = f"{name}.example.org"
    target["meters"] = [{**METER, "port": f"/dev/null/{name}"}]
    return {**target, **changes}


def planned(target: dict[str, Any], **changes: Any) -> plans.Plan:
    return examples.compiled(examples.suite(**changes), target)


def require_apart(targets: list[dict[str, Any]]) -> None:
    group.require_apart([schema.read(TargetDocument, target) for target in targets])


def test_two_hosts_with_one_address_are_refused() -> None:
    alder, birch = host("alder"), host("birch")
    require_apart([alder, birch])
    with refuses("same-machine", host="alder", other="birch"):
        require_apart([alder, {**birch, "ssh": alder["ssh"]}])


def test_two_hosts_with_one_meter_port_are_refused(tmp_path: Path) -> None:
    alder, birch = host("alder"), host("birch")
    shared = {**birch, "meters": [{**METER, "name": "mains", "port": "/dev/null/alder"}]}
    with refuses("same-port", meter="meter0", other_meter="mains"):
        require_apart([alder, shared])
    device, link = tmp_path / "tty", tmp_path / "by-id"
    device.touch()
    link.symlink_to(device)
    ports = [{**METER, "port": str(path)} for path in (device, link)]
    with refuses("same-port"):
        require_apart([{**alder, "meters": ports[:1]}, {**birch, "meters": ports[1:]}])
    with refuses("same-port", port="usb"):
        usb = [{**METER, "port": "usb"}]
        require_apart([{**alder, "meters": usb}, {**birch, "meters": usb}])


def test_two_hosts_may_share_a_power_strip_but_no_outlet() -> None:
    alder, birch = host("alder"), host("birch")
    unit = {"name": "strip", "kind": "http", "port": "http://strip", "origin": "measured"}
    first, second = ({**unit, "channels": {outlet: "system"}} for outlet in "12")
    require_apart([{**alder, "meters": [first]}, {**birch, "meters": [second]}])
    with refuses("same-port", port="http://strip"):
        require_apart([{**alder, "meters": [first]}, {**birch, "meters": [first]}])


def test_hosts_with_different_plans_are_refused() -> None:
    alder, birch = host("alder"), host("birch")
    group.require_alike([planned(alder), planned(birch)])
    fewer = {**birch, "configurations": birch["configurations"][:2]}
    with refuses("not-on-all-hosts", host="alder", kind="configurations", elsewhere="birch"):
        group.require_alike([planned(alder), planned(fewer)])
    with refuses(
        "not-on-all-hosts", elsewhere="birch", missing="dmcrypt-aes128", shared="plain opal"
    ):
        group.require_alike([planned(fewer), planned(alder)])
    unlike = copy.deepcopy(birch)
    unlike["configurations"][2]["key_bits"] = 256
    with refuses(
        "not-alike",
        name="dmcrypt-aes128",
        host="alder",
        elsewhere="birch",
        unlike="label, key_bits",
    ):
        group.require_alike([planned(alder), planned(unlike)])
    with refuses("extents-differ"):
        group.require_alike([planned(alder), planned({**birch, "extent_bytes": 2**29})])
    with refuses("hosts-differ", what="what their figures are (fde_origin)"):
        group.require_alike([planned(alder), planned({**birch, "origin": "measured"})])


class Planner:
    """Options of several hosts, and a plan for each as the command line makes it."""

    def __init__(self, out: Path, hosts: list[dict[str, Any]], **options: Any) -> None:
        targets = [schema.read(TargetDocument, each) for each in hosts]
        settings = {"suite": "smoke", "seed": None, "blocks": None, "hours": None, "out": out}
        self.options = Options(**{**settings, "targets": targets, "target": None, **options})
        self.fits: dict[str, int] = {}

    def freeze(self, options: Options, group: str, created: Any) -> plans.Plan:
        (target,) = options.targets
        blocks = options.blocks or self.fits.get(target.host)
        described = target.document()
        return examples.compiled(
            examples.suite(),
            described,
            seed=options.seed,
            blocks=blocks,
            group=group,
            created=created,
        )

    def plan(self) -> Path:
        return group.plan(self.options, self.freeze)


def test_a_group_has_one_plan_per_host_with_the_same_runs(tmp_path: Path) -> None:
    folder = Planner(tmp_path, [host("alder"), host("birch")]).plan()
    document = json.loads((folder / "group.json").read_text(encoding="utf-8"))
    assert document["format"] == "fde-group/1"
    assert document["group"] == folder.name
    assert document["hosts"] == ["alder", "birch"]
    suites = members(folder)
    assert [path.name for path in suites] == document["suites"]
    documents = [json.loads((path / "plan.json").read_text(encoding="utf-8")) for path in suites]
    for path, plan, name in zip(suites, documents, ("alder", "birch"), strict=True):
        plans.load(path / "plan.json")
        assert plan["group"] == folder.name
        assert path.name == f"smoke-{name}-{folder.name.removeprefix('smoke-')}"
    assert documents[0]["seed"] == documents[1]["seed"]
    assert documents[0]["runs"] == documents[1]["runs"]
    assert documents[0]["sha256"] != documents[1]["sha256"]


def test_the_slowest_host_determines_the_number_of_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planner = Planner(tmp_path, [host("alder"), host("birch")], hours=9.0)
    planner.fits = {"alder": 5, "birch": 2}
    blocks = [
        json.loads((path / "plan.json").read_text(encoding="utf-8"))["blocks"]
        for path in members(planner.plan())
    ]
    assert blocks == [2, 2]
    assert "birch is the slowest: 2 blocks on every host" in capsys.readouterr().out


def test_hosts_that_differ_write_no_folder(tmp_path: Path) -> None:
    other = host("birch")
    other["configurations"] = other["configurations"][:2]
    with refuses("not-on-all-hosts", elsewhere="birch"):
        Planner(tmp_path, [host("alder"), other]).plan()
    with refuses("same-machine"):
        Planner(tmp_path, [host("alder"), host("alder")]).plan()
    assert not list(tmp_path.iterdir())


# Replaces a session: it prints lines and ends by the file `code` in its folder.
SESSION = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.default_int_handler)
folder = pathlib.Path(sys.argv[1])
code = (folder / "code").read_text()
print("block 1/3", flush=True)
if code == "wait":
    try:
        (folder / "waits").touch()
        time.sleep(60)
    except KeyboardInterrupt:
        print("fde: interrupted, what was measured is kept.", file=sys.stderr)
        sys.exit(130)
if code == "0":
    (folder / "manifest.json").write_text("{}")
else:
    print("fde: The agent gave up: no room.", file=sys.stderr)
sys.exit(int(code))
"""


def prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **codes: str
) -> tuple[Options, dict[str, Path]]:
    """Plan a group whose sessions end with these codes."""
    script = tmp_path / "session.py"
    script.write_text(SESSION, encoding="utf-8")
    monkeypatch.setattr(group, "SESSION", (sys.executable, str(script)))
    monkeypatch.setattr(group, "POLL_S", 0.02)
    planner = Planner(tmp_path / "suites", [host(name) for name in codes])
    folder = planner.plan()
    suites = dict(zip(codes, members(folder), strict=True))
    for name, code in codes.items():
        (suites[name] / "code").write_text(code, encoding="utf-8")
    planner.options.suite_dir = folder
    planner.options.inventory = tmp_path / "inventory"
    return planner.options, suites


def test_a_host_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, suites = prepared(tmp_path, monkeypatch, alder="1", birch="0")
    assert group.run(options) is False
    output = capsys.readouterr().out
    assert "alder | block 1/3" in output
    assert "birch | block 1/3" in output
    assert "alder: failed: The agent gave up: no room." in output
    assert f"fde resume {suites['alder']} --inventory {tmp_path / 'inventory'}" in output
    assert f"birch: sealed, {suites['birch']}" in output
    assert (suites["birch"] / MANIFEST).exists()


def test_resuming_a_group_skips_its_sealed_suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, suites = prepared(tmp_path, monkeypatch, alder="1", birch="0")
    assert not group.run(options)
    (suites["alder"] / "code").write_text("0", encoding="utf-8")
    capsys.readouterr()
    assert group.run(options) is True
    output = capsys.readouterr().out
    assert "birch" not in output.replace("all hosts", "")
    assert "no room" not in output  # of the session before
    assert f"fde report {options.suite_dir}" in output
    with refuses("group-sealed"):
        group.run(options)


def test_ctrl_c_ends_every_session_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, suites = prepared(tmp_path, monkeypatch, alder="wait", birch="wait")

    def interrupt() -> None:
        wait_until(lambda: all((path / "waits").exists() for path in suites.values()))
        os.kill(os.getpid(), signal.SIGINT)

    with meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
        group.run(options)
    output = capsys.readouterr().out
    assert output.count("failed: interrupted, what was measured is kept.") == 2


def test_ctrl_c_while_sessions_start_leaves_none_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, _ = prepared(tmp_path, monkeypatch, alder="wait", birch="wait")
    start, started = group._start, []

    def interrupted(*arguments: Any) -> group.HostSession:
        started.append(start(*arguments))
        os.kill(os.getpid(), signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(group, "_start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        group.run(options)
    assert [session.process.returncode is None for session in started] == [False, False]


def test_real_sessions_of_absent_targets_fail_without_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens at either address."""
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    hosts = [host("alder", meters=[]), host("birch", meters=[])]
    for port, target in enumerate(hosts, start=1):
        target["ssh"] |= {"host": "127.0.0.1", "port": port}
    planner = Planner(tmp_path / "suites", hosts)
    planner.options.suite_dir = planner.plan()
    planner.options.inventory = tmp_path / "inventory"
    assert group.run(planner.options) is False
    output = capsys.readouterr().out
    assert output.count(": failed: ") == 2
    assert "Traceback" not in output


def test_several_hosts_in_the_inventory_are_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Ansible, whose answers are cached here; a suite's folder selects its own host."""
    monkeypatch.setattr(playbook, "resolve", functools.cache(playbook.resolve))
    monkeypatch.setenv("FDE_BUILD", str(tmp_path / "build"))
    example = ROOT / "ansible" / "inventory" / "hardware.example"

    def options_for(hosts: list[str], **options: Any) -> Options:
        folder = tmp_path / "-".join(hosts)
        if not folder.exists():
            folder.mkdir()
            (folder / "group_vars").symlink_to(example / "group_vars")
        lines = "".join(f"    {name}: {{ansible_host: {name}.example.org}}\n" for name in hosts)
        (folder / "hosts.yml").write_text(f"targets:\n  hosts:\n{lines}", encoding="utf-8")
        return Options(inventory=folder, **options)

    single = options_for(["alder"])
    assert group.several(single) is False
    assert [target.host for target in single.targets] == ["alder"]
    pair = options_for(["alder", "birch"])
    assert group.several(pair) is True
    with refuses("same-port"):  # one meter for both
        group.require_apart(pair.targets)
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "plan.json").write_text('{"host": "birch"}', encoding="utf-8")
    resumed = options_for(["alder", "birch"], suite_dir=suite)
    assert group.several(resumed) is False
    assert [target.host for target in resumed.targets] == ["birch"]
    (suite / "plan.json").write_text('{"host": "cedar"}', encoding="utf-8")
    with refuses("host-not-in-inventory", host="cedar"):
        group.several(options_for(["alder", "birch"], suite_dir=suite))


HOSTS = """
import sys
from contextlib import closing
from contract import strict_json
from contract.status import SuiteStatus
from controller.session.status import Hosts
with closing(Hosts(["alder", "birch"])) as view:
    view.line("alder", "starting\\x1b[2J")
    view.draw()
    for text in sys.argv[1:]:
        view.status("alder", strict_json.parse(SuiteStatus, text))
        view.draw()
    print("meanwhile")
    view.draw()
"""


def test_a_terminal_shows_one_row_per_host_redrawn_in_place() -> None:
    statuses = document(), document(answer=examples.ANSWER)
    shown = terminal.run(HOSTS, *(json.dumps(asdict(status)) for status in statuses))
    heading, *hosts, end = (line.rstrip() for line in shown)
    assert heading == "meanwhile" and end == ""
    assert hosts[0].startswith("alder  block 1 of 3")
    so_far = "       so far Opal +0.6 %, AES-128 +41.0 % after block 2 (modelled)"
    assert hosts[1:] == [so_far, "birch  starting"]
