"""The lab's guest: kernel, modelled counters, drives, network, secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from lab import lifecycle, power
from lab.devices import DRIVES, by_id
from lab.host_time import HostPage
from lab.lifecycle import LabOptions
from lab.machines import kernel
from lab.machines.base import DEBIAN_KERNEL, TWO_CPUS
from lab.power import machine_of
from lab.power_model import MODEL_FILE
from lab.state import REPOSITORY, Layout, cache_dir

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

ZONE = "/sys/class/powercap/intel-rapl/intel-rapl:0"

# Energy by pyRAPL over a stretch in which BUSY processes spin, beside what the kernel knows of the
# CPUs' time: [duration_s, busy_s, stolen_s, package_j, dram_j].
MEASURE = """
import json, os, sys, time
sys.path.insert(0, "/tmp/fde-test")
import pyRAPL
pyRAPL.setup()

def idle_and_stolen_s():
    ticks = [int(n) for n in open("/proc/stat").readline().split()[1:]]
    return [n / os.sysconf("SC_CLK_TCK") for n in (ticks[3] + ticks[4], ticks[7])]

def spin(end):
    while time.monotonic() < end:
        pass

measurement = pyRAPL.Measurement("test")
start = time.monotonic()
measurement.begin()  # which brings what was stolen up to date
idle, stolen = idle_and_stolen_s()
end = start + 5
children = []
for _ in range(BUSY):
    child = os.fork()
    if not child:
        spin(end)
        os._exit(0)
    children.append(child)
time.sleep(max(0, end - time.monotonic()))
for child in children:
    os.waitpid(child, 0)
measurement.end()
duration = time.monotonic() - start
result = measurement.result
idle, stolen = (now - then for now, then in zip(idle_and_stolen_s(), (idle, stolen)))
busy = os.cpu_count() * duration - idle - stolen
joules = [result.pkg[0] / 1e6, result.dram[0] / 1e6]
print(json.dumps([result.duration / 1e6, busy, stolen / os.cpu_count(), *joules]))
"""


@pytest.fixture(scope="module")
def model() -> dict[str, float]:
    """Coefficients of the zones, in watts."""
    rapl = yaml.safe_load(MODEL_FILE.read_text(encoding="utf-8"))["rapl"]
    plain = {k: v["value"] if isinstance(v, dict) else v for k, v in rapl.items()}
    return {name: float(value) / 1000 for name, value in plain.items() if "_mw" in name}


def _pyrapl(lab: LabHandle, busy: int) -> list[float]:
    spec = find_spec("pyRAPL")
    assert spec is not None and spec.origin is not None
    lab.send(Path(spec.origin).parent, "/tmp/fde-test")
    script = MEASURE.replace("BUSY", str(busy)).encode()
    values: list[float] = json.loads(lab.ssh("python3 -W ignore -", stdin=script).stdout)
    return values


def test_the_guest_has_the_expected_kernel_assets_and_units(lab: LabHandle) -> None:
    release = lab.ssh("uname -r").stdout.strip()
    if DEBIAN_KERNEL in machine_of(lab.state).abilities:
        assert release.startswith("6.12.")
    else:
        built = kernel.location(cache_dir())
        assert [path.name for path in built.modules.iterdir()] == [release]
        assert str(built.facts()["source"]).split()[1].startswith(release.removesuffix("-fde"))
    assert lab.ssh("systemctl --failed --no-legend").stdout == ""
    assert lab.ssh("cd /usr/share/fde-testbed && sha256sum --quiet -c SHA256SUMS").stdout == ""
    config = lab.ssh("zcat /proc/config.gz 2>/dev/null || cat /boot/config-$(uname -r)").stdout
    assert "CONFIG_BLK_SED_OPAL=y" in config
    assert Path(f"/proc/{lab.state['guest']['pid']}").exists()


@pytest.mark.needs(TWO_CPUS)
def test_both_virtual_cpus_are_threads_of_the_emulator(lab: LabHandle) -> None:
    threads = Path(f"/proc/{lab.state['guest']['pid']}/task")
    assert len(lab.state["guest"]["vcpu_tids"]) == 2
    assert all((threads / str(tid)).exists() for tid in lab.state["guest"]["vcpu_tids"])


@pytest.mark.parametrize("busy", [0, 1])
def test_pyrapl_reads_the_model_of_idle_and_busy(
    lab: LabHandle, model: dict[str, float], busy: int
) -> None:
    duration_s, busy_s, stolen_s, package_j, dram_j = _pyrapl(lab, busy)
    # The kernel's own account of CPU time is sampled at its ticks: 10 % of a CPU is its worth here.
    slack_s = 0.1 * duration_s
    for energy_j, zone in ((package_j, "package"), (dram_j, "dram")):
        per_busy_s = model[f"{zone}_busy_mw_per_cpu"]
        expected_j = model[f"{zone}_idle_mw"] * (duration_s - stolen_s) + per_busy_s * busy_s
        assert energy_j == pytest.approx(expected_j, abs=per_busy_s * slack_s + 0.02 * expected_j)
    assert (busy_s > 0.8 * (duration_s - stolen_s)) == bool(busy)


# Spins for some seconds; [steal of /proc/stat in s, J of package and memory together].
SPIN = """
import json, os, time

def joules():
    zone = "/sys/class/powercap/intel-rapl/intel-rapl:0/"
    return sum(int(open(zone + z + "energy_uj").read()) for z in ("", "intel-rapl:0:0/")) / 1e6

def stolen_s():
    return int(open("/proc/stat").readline().split()[8]) / os.sysconf("SC_CLK_TCK")

before_j, before_s, end = joules(), stolen_s(), time.monotonic() + 4
while time.monotonic() < end:
    pass
print(json.dumps([joules() - before_j, stolen_s() - before_s]))
"""


def test_spinning_counts_as_user_time(lab: LabHandle) -> None:
    """The time by which cryptsetup sizes a key derivation, without end where that rests."""
    spin = "import os, time\nwhile time.process_time() < 1: pass\nprint(*os.times()[:2])"
    user_s, system_s = map(float, lab.ssh("python3 -", stdin=spin.encode()).stdout.split())
    assert user_s > 2 * system_s


def test_counters_stay_below_the_meter_on_a_crowded_host(lab: LabHandle) -> None:
    """Three loops of the host's run where the guest does: it waits for most of the time."""
    processor = lab.state["processor"]
    burn = "import os, sys\nif sys.argv[1:]: os.sched_setaffinity(0, [int(sys.argv[1])])\n"
    argv = [sys.executable, "-c", burn + "while True: pass"]
    argv += [] if processor is None else [str(processor)]
    loops = [subprocess.Popen(argv) for _ in range(3 * (1 if argv[3:] else os.cpu_count() or 1))]
    try:
        first_ns = time.monotonic_ns()
        counters_j, stolen_s = json.loads(lab.ssh("python3 -", stdin=SPIN.encode()).stdout)
        last_ns = time.monotonic_ns()
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    lines = [json.loads(line) for line in (lab.directory / "meter.truth.jsonl").open()]
    within = [line for line in lines if first_ns <= line["t_mono_ns"] <= last_ns]
    assert counters_j < within[-1]["system_j"] - within[0]["system_j"]
    assert stolen_s > 0.5
    assert stolen_s <= within[-1]["stolen_s"] - within[0]["stolen_s"] + 0.05


def test_the_counter_never_goes_back_and_wraps_at_its_range(
    lab: LabHandle, model: dict[str, float]
) -> None:
    """At some 4 W and more, a range of 2 J is passed within half a second of its own."""
    range_uj = 2_000_000
    load = "modprobe -r fde_rapl_sim && modprobe fde_rapl_sim"
    script = f"""
import json, os, time
counter = os.open("{ZONE}/energy_uj", os.O_RDONLY)
values, falls = [], 0
while falls < 3:  # however long a busy host takes for it
    before = time.monotonic()
    values.append((before, int(os.pread(counter, 32, 0)), time.monotonic()))
    falls += len(values) > 1 and values[-1][1] < values[-2][1]
    time.sleep(0.001)
print(json.dumps([int(open("{ZONE}/max_energy_range_uj").read()), values]))
"""
    try:
        lab.ssh(f"{load} max_energy_range_uj={range_uj}")
        shown_uj, values = json.loads(lab.ssh("python3 -", stdin=script.encode()).stdout)
    finally:
        lab.ssh(load)
    assert shown_uj == range_uj
    assert max(uj for _, uj, _ in values) <= range_uj
    falls = [(b - a, t - s) for (s, a, _), (_, b, t) in pairwise(values) if b < a]
    # Each fall is a whole wrap, none a step back: no more came in than all CPUs can draw.
    cpus = int(lab.ssh("nproc").stdout)
    most_w = model["package_idle_mw"] + cpus * model["package_busy_mw_per_cpu"]
    for fall_uj, took_s in falls:
        assert fall_uj + range_uj <= 1e6 * most_w * (took_s + 0.01)


TWO_PACKAGES = """
import json, os, sys, time
sys.path.insert(0, "/tmp/fde-test")
from instrumentation.sources.powercap import PowercapSource
from instrumentation.sources.zones import summands

def stolen_s():
    return int(open("/proc/stat").readline().split()[8]) / os.sysconf("SC_CLK_TCK")

with PowercapSource.open() as source:
    before, stolen = source.read(), stolen_s()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pass
    after, stolen = source.read(), stolen_s() - stolen
    used = {n: (after[n].energy_uj - before[n].energy_uj) / 1e6 for n in source.names}
    read_s = (after["package-0"].t_before_ns - before["package-0"].t_before_ns) / 1e9
    own = [zone.name for zone in source.zones if zone.mirror_of is None]
print(json.dumps([used, summands(own), read_s, stolen]))
"""


def test_two_packages_share_the_joules_of_one(lab: LabHandle, model: dict[str, float]) -> None:
    """One CPU spins; a lost package, or one counted twice, would not add up to the model."""
    load = "modprobe -r fde_rapl_sim && modprobe fde_rapl_sim"
    for package in ("contract", "instrumentation"):
        lab.send(REPOSITORY / package, "/tmp/fde-test")
    try:
        lab.ssh(f"{load} packages=2")
        script = TWO_PACKAGES.encode()
        answer = lab.ssh("python3 -", stdin=script).stdout
        used_j, zones, read_s, stolen_s = json.loads(answer)
    finally:
        lab.ssh(load)
    assert zones == {
        "package": ["package-0", "package-1"],
        "dram": ["package-0/dram", "package-1/dram"],
    }
    cpus = int(lab.ssh("nproc").stdout)
    for kind, parts in zones.items():
        whole_j = sum(used_j[zone] for zone in parts)
        assert used_j[parts[1]] == pytest.approx(0.4 * whole_j, rel=0.01)
        idle_w, busy_w = (model[f"{kind}_{part}"] for part in ("idle_mw", "busy_mw_per_cpu"))
        least_j = (idle_w + 0.9 * busy_w) * (read_s - stolen_s)
        most_j = (idle_w + cpus * busy_w) * read_s
        assert least_j <= whole_j <= 1.02 * most_j


def test_invalid_module_parameters_are_refused(lab: LabHandle) -> None:
    try:
        lab.ssh("modprobe -r fde_rapl_sim")
        for parameter in ("max_energy_range_uj=0", "package_idle_mw=2000000", "packages=3"):
            assert lab.ssh(f"modprobe fde_rapl_sim {parameter}", check=False).returncode != 0
    finally:
        lab.ssh("modprobe fde_rapl_sim")


def test_idle_time_restarts_with_a_reset(lab: LabHandle) -> None:
    """Else the meter takes the difference for stolen, and the modelled machine stands still."""
    boot_id = lab.ssh("cat /proc/sys/kernel/random/boot_id").stdout
    lab.disconnect()
    time.sleep(1)  # with nothing to do it sleeps, but wakes at times
    reset_ns = time.monotonic_ns()
    power.reset(Layout(lab.directory))
    until_s = time.monotonic() + 120
    asked = lab.ssh("cat /proc/sys/kernel/random/boot_id", check=False)
    while asked.returncode or asked.stdout == boot_id:
        assert time.monotonic() < until_s, "the guest did not come back"
        time.sleep(0.5)
        asked = lab.ssh("cat /proc/sys/kernel/random/boot_id", check=False)
    page = HostPage(Path(lab.state["host_page"]))
    for _ in range(100):
        now_ns = time.monotonic_ns()
        assert 0 <= page.idle_ns(now_ns) <= now_ns - reset_ns
        time.sleep(0.02)
    page.close()


def test_a_sending_guest_survives_an_unplugged_network(lab: LabHandle) -> None:
    send = "while :; do echo > /dev/udp/10.0.2.2/9; sleep 0.05; done"
    lab.ssh(f"nohup bash -c '{send}' >/dev/null 2>&1 & echo $! >/run/sender")
    layout = Layout(lab.directory)
    power.network(layout, plugged=False)
    try:
        time.sleep(2)
    finally:
        power.network(layout, plugged=True)
    lab.ssh("kill $(cat /run/sender)")


def test_both_drives_have_by_id_links_and_sizes(lab: LabHandle) -> None:
    for kind in DRIVES:
        disk = by_id(kind.model, kind.serial)
        size = lab.ssh(f"blockdev --getsize64 --getpbsz {disk}").stdout.split()
        drive = lab.state["drives"][kind.role]
        assert [int(n) for n in size] == [drive["size_bytes"], drive["block_size"]]


def test_up_of_a_running_lab_does_nothing(lab: LabHandle) -> None:
    lines: list[str] = []
    assert not lifecycle.up(Layout(lab.directory), lines.append, LabOptions())
    assert lines == []
    assert lab.ssh("true").returncode == 0


def test_secrets_are_readable_only_by_their_owner(lab: LabHandle) -> None:
    secret_files = [lab.state["secrets"], lab.state["ssh"]["key"]]
    secret_files += [lab.state["drives"]["sed"]["psid_file"]]
    assert {Path(f).stat().st_mode & 0o077 for f in secret_files} == {0}
    secrets = json.loads(Path(lab.state["secrets"]).read_text()).values()
    ps = ["ps", "-wweo", "args"]
    processes = subprocess.run(ps, capture_output=True, text=True, check=True).stdout
    assert lab.state["guest"]["command"][-1] in processes
    assert not [secret for secret in secrets if secret in processes]
