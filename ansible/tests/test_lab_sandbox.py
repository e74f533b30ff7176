"""The agent as a service: its sandbox, and its secrets when it crashes or the target swaps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract import plan
from controller.targets.secrets import PLACE
from workloads import registry
from workloads.tests import contract
from workloads.tests.test_contract import ASSET_FILES, GUEST_ASSETS

pytestmark = pytest.mark.lab

# Of 100, as systemd-analyze counts it; 94 without a sandbox. It may only get less.
MOST_EXPOSED = 47
UNIT = "fde-agent@sandbox.service"
SUITE = "/var/lib/fde-testbed/suites/sandbox"
AGENT = "cd /opt/fde-testbed && PYTHONPATH=/opt/fde-testbed:/opt/fde-testbed/lib python3 -m agent"
CGROUP = "/sys/fs/cgroup/system.slice"
CRASHES = "/var/tmp/fde-crashes"
SWAP = "/var/tmp/fde-swap"
UNIT_FILE = Path(__file__).parents[1] / "roles" / "agent" / "files" / "fde-agent@.service"
# Code and assets that the sandbox shows, and a folder that it lets write.
CODE, ROOT = "/opt/fde-sandbox", "/var/lib/fde-testbed/sandbox-contract"
# Reads a secret as a careless program would, and says that it has it.
HOLDER = f"import time; held = open('{PLACE}').read() * 1000; print('ready', flush=True); "
HOLDER += "time.sleep(600)"


def frozen(controller: Any) -> dict[str, Any]:
    """Return a plan with one run on each of two configurations."""
    target = json.loads(controller.target.read_text())
    names = ("plain", "opal")
    disk_settings = {key: target[key] for key in ("disks", "extent_bytes", "filesystem")}
    return plan.freeze(
        {
            **disk_settings,
            "configurations": [c for c in target["configurations"] if c["name"] in names],
            "format": plan.FORMAT,
            "suite_id": "sandbox",
            "suite": "sandbox",
            "host": "target",
            "seed": 1,
            "blocks": 1,
            "origin": "measured",
            "extent": {
                "offset_bytes": plan.DATA_OFFSET_BYTES,
                "size_bytes": target["extent_bytes"],
            },
            "workloads": [
                {"name": "idle", "parameters": registry.complete("idle", {"seconds": 3})}
            ],
            "runs": [
                {
                    "run_id": f"{index:04d}-b00-{name}-idle",
                    "index": index,
                    "block": 0,
                    "configuration": name,
                    "workload": "idle",
                }
                for index, name in enumerate(names)
            ],
            "rapl_hz": 10,
            "settle_s": 0.2,
            "tail_s": 0.5,
            "assets": {},
        }
    )


def until(lab: Any, condition: str) -> str:
    """Wait for a shell condition in the guest; what it printed."""
    for _ in range(100):
        result = lab.ssh(condition, check=False)
        if result.returncode == 0:
            text: str = result.stdout.strip()
            return text
        time.sleep(0.3)
    state = lab.ssh(f"cat {SUITE}/journal.jsonl; journalctl -n 30 -u {UNIT}", check=False).stdout
    pytest.fail(f"never true in the guest: {condition}\n{state}")


@pytest.fixture(scope="module")
def held(provisioned: Any) -> Iterator[Any]:
    """Provide the guest, whose agent has its secrets and waits for its first run.

    It found a configuration that was mounted outside of its sandbox before it was started.
    """
    lab, document = provisioned.lab, json.dumps(frozen(provisioned)).encode()
    lab.ssh(f"{AGENT} hold --reason test --for 900 && {AGENT} storage enter plain")
    lab.ssh(f"rm -rf {SUITE}; mkdir -p {SUITE} && cat >{SUITE}/plan.json", stdin=document)
    lab.ssh(f"systemctl start {UNIT}")
    until(lab, f"tail -n 1 {SUITE}/journal.jsonl | grep -q held")
    yield lab
    lab.ssh(
        f"systemctl stop {UNIT}; systemctl disable -q {UNIT}; {AGENT} hold --end; rm -r {SUITE}"
    )


def main_pid(lab: Any) -> str:
    return until(lab, f"p=$(systemctl show -P MainPID {UNIT}); [ $p != 0 ] && echo $p")


def test_the_exposure_of_the_unit_grows_no_more(held: Any) -> None:
    analysis = held.ssh(f"systemd-analyze security --no-pager --threshold={MOST_EXPOSED} {UNIT}")
    print(analysis.stdout.splitlines()[-1])


def test_its_capabilities_and_system_calls_are_few(held: Any) -> None:
    """What systemd-analyze reads from the unit is what the kernel enforces."""
    pid = main_pid(held)
    status = held.ssh(f"cat /proc/{pid}/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    inside = f"nsenter -t {pid} -m"
    assert held.ssh(f"{inside} touch /etc/x /usr/x /opt/x", check=False).returncode == 1
    assert held.ssh(f"{inside} ls -A /root /home").stdout.split() == ["/home:", "/root:"]
    # linux/capability.h: SETPCAP, NET_ADMIN, SYS_MODULE, SYS_BOOT, SYS_TIME, MKNOD, MAC_ADMIN, BPF
    for able in (8, 12, 16, 22, 25, 27, 33, 39):
        assert not int(fields["CapBnd"], 16) >> able & 1


def test_what_was_mounted_outside_before_it_started_is_closed(held: Any) -> None:
    assert held.ssh("findmnt -rno SOURCE /run/fde-testbed/disk", check=False).stdout == ""
    assert "fde-data" not in held.ssh("dmsetup ls").stdout


def test_a_crash_of_the_agent_leaves_no_core(held: Any) -> None:
    before = held.ssh("cat /proc/sys/kernel/core_pattern").stdout.strip()
    pipe = f"{CRASHES}/take"
    held.ssh(
        f"mkdir -p {CRASHES}; cat >{pipe} && chmod +x {pipe}",
        stdin=f"#!/bin/sh\nexec cat >{CRASHES}/piped.$1\n".encode(),
    )
    secret = f"python3 -c \"import json; print(json.load(open('{PLACE}'))['opal_admin_pin'])\""
    search = f"{secret} | grep -rlaF -f - {CRASHES}; true"
    try:
        for pattern, name in ((f"{CRASHES}/core.%p", "core"), (f"|{pipe} %p", "piped")):
            held.ssh(f"echo '{pattern}' >/proc/sys/kernel/core_pattern")
            careless = _crash(held, f'python3 -c "{HOLDER}"')
            core = until(held, f'f=$({search}); [ -n "$f" ] && echo $f')
            assert core == f"{CRASHES}/{name}.{careless}"
            held.ssh(f"rm {core}")
            for signal in ("SEGV", "ABRT"):
                pid = main_pid(held)
                held.ssh(f"kill -{signal} {pid}")
                until(
                    held, f"p=$(systemctl show -P MainPID {UNIT}); [ $p != 0 ] && [ $p != {pid} ]"
                )
                until(held, f"tail -n 1 {SUITE}/journal.jsonl | grep -q held")
            # A program that it gave a secret to, as cryptsetup is.
            _crash(
                held,
                'cd /opt/fde-testbed && PYTHONPATH=/opt/fde-testbed python3 -c "import os; '
                "from agent.system.command import keep_private; keep_private(); "
                f"os.execvp('python3', ['python3', '-c', '''{HOLDER}'''])\"",
            )
            assert held.ssh(f"{search}").stdout == ""
            names = held.ssh(f"ls {CRASHES}").stdout.split()
            assert [n for n in names if n.startswith("core")] == []
    finally:
        held.ssh(f"echo '{before}' >/proc/sys/kernel/core_pattern; rm -r {CRASHES}")


def _crash(lab: Any, program: str) -> str:
    """Start a program that says when it is ready, and end it by SIGSEGV; its process number."""
    script = f"ulimit -c unlimited; mkfifo {CRASHES}/said; ({program}) >{CRASHES}/said & p=$!; "
    script += f"read -r _ <{CRASHES}/said; p=$(pgrep -nf 'held = op[e]n'); kill -SEGV $p; wait; "
    result = lab.ssh(f"{script} rm {CRASHES}/said; echo $p", check=False)
    text: str = result.stdout.split()[-1]
    return text


def test_no_secret_reaches_the_swap(held: Any, provisioned: Any) -> None:
    """What a careless program holds, in its memory or in a file below /run, does."""
    careless = (
        "import time; held = ('decoy-ddd' + 's') * 10**6; "
        "file = open('/run/fde-decoy', 'w'); file.write(('decoy-ddd' + 'f') * 10**5); "
        "file.flush(); time.sleep(600)"
    )
    needles = "\n".join(json.loads(Path(provisioned.lab.state["secrets"]).read_text()).values())
    groups = ("fde-decoy.service", f"system-fde\\x2dagent.slice/{UNIT}")
    read = f"dd if={SWAP} bs=1M iflag=direct status=none | LC_ALL=C"
    held.ssh(
        f"head -c 256M /dev/zero >{SWAP}; chmod 600 {SWAP}; mkswap -q {SWAP} && swapon {SWAP}; "
        f'systemd-run -q --unit fde-decoy python3 -c "{careless}"; '
        "until [ -s /run/fde-decoy ]; do sleep 0.2; done"
    )
    try:
        for group in groups:
            # More than there is: all that can be swapped is, then the call fails.
            reclaim = f"{CGROUP}/{group}/memory.reclaim"
            held.ssh(f"for n in 1 2 3; do echo 200M >'{reclaim}' || true; done")
        for decoy in ("decoy-ddds", "decoy-dddf"):
            held.ssh(f"{read} grep -qaF {decoy}")
        status = held.ssh(f"grep -E 'VmSwap|VmLck' /proc/{main_pid(held)}/status").stdout.split()
        assert int(status[status.index("VmLck:") + 1]) > 1000
        assert int(status[status.index("VmSwap:") + 1]) == 0
        held.ssh("umask 077; cat >/run/fde-needles", stdin=needles.encode())
        held.ssh(f"! {read} grep -qaF -f /run/fde-needles")
    finally:
        held.ssh(
            f"swapoff {SWAP}; systemctl stop fde-decoy; "
            f"rm -f {SWAP} /run/fde-decoy /run/fde-needles"
        )


def test_after_a_crash_the_secrets_lie_in_the_one_place_and_not_in_the_unit(held: Any) -> None:
    secrets = Path(held.state["secrets"]).read_text()
    for secret in json.loads(secrets).values():
        shown = f"systemctl show {UNIT}; cat /proc/{main_pid(held)}/environ /proc/*/cmdline"
        assert secret not in held.ssh(shown).stdout


def test_the_suite_goes_on_and_its_mount_is_seen_outside(held: Any) -> None:
    """Last, for it lets the agent go."""
    held.ssh(f"{AGENT} hold --end")
    assert until(held, "findmnt -rno SOURCE /run/fde-testbed/disk") == "/dev/mapper/fde-data"
    until(held, f"tail -n 1 {SUITE}/journal.jsonl | grep -q suite-finished")
    last = json.loads(held.ssh(f"tail -n 1 {SUITE}/journal.jsonl").stdout)
    assert last["detail"] == "2 finished, 0 void"
    assert held.ssh("findmnt /run/fde-testbed/disk", check=False).stdout == ""


def sandboxed_unit() -> str:
    """Return a unit with the agent's own lines of its sandbox, in which a workload is run."""
    text = UNIT_FILE.read_text(encoding="utf-8")
    lines = text.partition("# The sandbox.")[2].partition("[Install]")[0].splitlines()[1:]
    start = [f"WorkingDirectory={CODE}", f"ExecStart=/bin/sh {CODE}/contract.sh %i"]
    outputs = ["StandardOutput=truncate:/run/fde-contract", "StandardError=inherit"]
    return "\n".join(["[Service]", "Type=oneshot", *start, *outputs, *lines, ""])


@pytest.fixture(scope="module")
def sandbox(lab: Any) -> Iterator[Any]:
    """Provide the guest with such a unit; no command line names the folder of a workload."""
    for package in ("contract", "workloads"):
        lab.send(Path(contract.__file__).parents[2] / package, CODE)
    assets = [f"--asset={asset}={GUEST_ASSETS}/{file}" for asset, file in ASSET_FILES.items()]
    script = f'exec python3 -m workloads.tests.contract "$1" {" ".join(assets)} --root {ROOT}/"$1" '
    script += f'--parameters "$(cat {CODE}/"$1".json)" --time-only'
    unit = "/run/systemd/system/fde-contract@.service"
    lab.ssh(f"mkdir -p {ROOT}; cat >{CODE}/contract.sh", stdin=script.encode())
    lab.ssh(f"cat >{unit}; systemctl daemon-reload", stdin=sandboxed_unit().encode())
    yield lab
    lab.ssh(f"rm -r {unit} {CODE} {ROOT}; systemctl daemon-reload")


@pytest.mark.parametrize("name", registry.names())
def test_every_workload_runs_in_the_sandbox(name: str, sandbox: Any) -> None:
    sandbox.ssh(f"cat >{CODE}/{name}.json", stdin=json.dumps(registry.load(name).small).encode())
    sandbox.ssh(f"systemctl start fde-contract@{name}", check=False)
    printed = sandbox.ssh("cat /run/fde-contract").stdout
    assert '"broken": []' in printed, printed
    print(printed)
