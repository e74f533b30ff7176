"""Every row of the table of checks: in order, out of order, and where the machine has nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.checks import (
    TABLE,
    CheckContext,
    Inspection,
    Memory,
    blockers,
    disks,
    kernel_log,
    machine,
    smart,
)
from agent.system import lock
from agent.tests.check_context import DISK, FILES, SMART, Machine, inspect_before, program
from contract import strict_json
from contract.disks import Lifetime
from contract.documents import RunDisks
from contract.examination import Finding
from validation.checks_page import document

CPU = "sys/devices/system/cpu"
QUEUE = f"sys/class/block/{DISK}/queue"
DEVICE = f"sys/class/block/{DISK}/device"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "checks.md"
Fault = Callable[[Machine], Machine | None]


def _smart(**log: int) -> str:
    health = {**SMART["nvme_smart_health_information_log"], **log}
    passed = not health["critical_warning"]
    changes = {"nvme_smart_health_information_log": health, "smart_status": {"passed": passed}}
    return json.dumps({**SMART, **changes})


def _write(name: str, text: str) -> Fault:
    return lambda place: place.write(name, text)


def _append(name: str, text: str) -> Fault:
    return lambda place: place.append(name, text)


def _scene(**changes: object) -> Fault:
    return lambda place: place.with_scene(**changes)


def _remembered(key: str, value: object) -> Fault:
    def fault(place: Machine) -> None:
        folder = place.root / "suite" / "provenance"
        folder.mkdir()
        (folder / "first-readings.json").write_text(json.dumps({key: value}))

    return fault


def _held(place: Machine) -> None:
    lock.take("the meter is silent", 3600, place.root / "run" / "hold.json")


def _steal(place: Machine) -> None:
    """More than any time between two looks, of a machine that is no model."""
    text = FILES["proc/stat"].replace(" 0 0 0\n", " 10000000 0 0\n", 1)
    assert text != FILES["proc/stat"]
    (place.root / "proc/stat").write_text(text)


# What puts each row out of order: before the inspection, or between its two looks.
FAULTS: dict[tuple[str, str], Fault] = {
    ("held", "before"): _held,
    ("suite-room", "before"): _scene(min_free_bytes=2**62),
    ("load", "before"): _scene(load_limit=-1.0),
    ("temperature", "before"): _remembered("temperature_c", 40.0),
    ("mounted", "before"): lambda place: place.with_scene(mount_point=place.root),
    ("free-room", "before"): _scene(min_free_share=1.1),
    ("powercap", "before"): _write("sys/class/powercap/intel-rapl:0/energy_uj", ""),
    ("governor", "before"): _write(f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave\n"),
    ("turbo", "before"): _write(f"{CPU}/intel_pstate/no_turbo", "0\n"),
    ("memory", "before"): _write("proc/meminfo", "MemAvailable:  1000 kB\n"),
    ("swap", "before"): _append("proc/swaps", "/dev/sda2 partition 100 10 -2\n"),
    ("timers", "before"): _write("units", "cron.service loaded active running Cron\n"),
    ("preloaded", "before"): _write("proc/1/root/etc/ld.so.preload", "/lib/libeatmydata.so\n"),
    ("unflushed", "before"): _write(f"{QUEUE}/write_cache", "write through\n"),
    ("disk-health", "before"): _write("smart.json", _smart(critical_warning=4)),
    ("disk-errors", "before"): _remembered("medium_errors", {"S1": 2}),
    ("firmware", "before"): _remembered("firmware", {DISK: "0.9"}),
    ("disk-temperature", "before"): _remembered("disk_temperatures_c", {DISK: 29.0}),
    ("disk-link", "before"): _remembered("disk_links", {DISK: "16.0 GT/s PCIe, x4"}),
    ("settings", "before"): _remembered("settings", {"sys/vm/dirty_ratio": "40"}),
    ("settings", "during"): _write(f"{QUEUE}/scheduler", "none [mq-deadline]"),
    ("power-limits", "during"): _write(f"{CPU}/cpu0/cpufreq/scaling_max_freq", "2000000"),
    ("disk-throttle", "during"): _write("smart.json", _smart(warning_temp_time=2)),
    ("disk-link", "during"): _write(f"{DEVICE}/device/current_link_width", "1"),
    ("c-states", "during"): _write(f"{CPU}/cpu0/cpuidle/state1/disable", "1"),
    ("throttle-core", "during"): _write(f"{CPU}/cpu0/thermal_throttle/core_throttle_count", "8"),
    ("throttle-package", "during"): _write(
        f"{CPU}/cpu0/thermal_throttle/package_throttle_count", "3"
    ),
    ("stolen-time", "during"): _steal,
    ("kernel-errors", "during"): _append("kmsg", "3,3,9,-;I/O error, dev sdx, sector 8\n"),
    ("kernel-log", "during"): _append("kmsg", "4,3,9,-;something odd\n"),
    ("disk-errors", "during"): _write("smart.json", _smart(media_errors=4)),
    ("disk-io-errors", "during"): _write(f"sys/class/block/{DISK}/device/ioerr_cnt", "0x3"),
    ("swap", "after"): _append("proc/swaps", "/dev/sda2 partition 100 10 -2\n"),
    ("disk-health", "after"): _write("smart.json", _smart(critical_warning=4)),
}
# Nobody here may set the clock or send the machine to sleep: the guest does the first for real.
CLOCKS = {("clock", "during"): time.CLOCK_REALTIME, ("suspend", "during"): time.CLOCK_BOOTTIME}
# What a machine always offers, even one without anything.
ALWAYS = {"held", "suite-room", "load", "mounted", "free-room", "powercap", "clock", "suspend"}
ALWAYS |= {"stolen-time", "disk-link", "preloaded", "unflushed"}


def _inspect(
    place: Machine, between: Callable[[], object] = lambda: None, memory: Memory | None = None
) -> list[Finding]:
    inspection, *_ = inspect_before(place, memory or Memory())
    between()
    inspection.after()
    return inspection.findings


def _failed(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.ok]


def test_every_check_passes_on_a_sound_machine(place: Machine) -> None:
    findings = _inspect(place)
    assert [(f.name, f.when) for f in findings] == [(c.name, c.when) for c in TABLE]
    assert _failed(findings) == []
    assert all(f.cause == f.message == "" and f.facts == {} for f in findings)


def test_every_check_has_a_fault_in_the_table() -> None:
    assert {*FAULTS, *CLOCKS} == {(check.name, check.when) for check in TABLE}


@pytest.mark.parametrize("row", FAULTS, ids="-".join)
def test_a_fault_fails_only_its_check_and_names_the_remedy(
    place: Machine, row: tuple[str, str]
) -> None:
    fault = FAULTS[row]
    if row[1] == "before":
        findings = _inspect(fault(place) or place)
    else:
        findings = _inspect(place, lambda: fault(place))
    (check,) = (check for check in TABLE if (check.name, check.when) == row)
    finding = _failed(findings)[0]
    assert (finding.name, finding.when) == row
    assert {other.name for other in _failed(findings)} == {row[0]}
    assert finding.cause == row[0]
    assert finding.severity == (check.wait.then if check.wait else check.severity)
    assert finding.message.endswith(f": {check.remedy}.")
    assert finding.message[0].isupper()
    assert bool(blockers(findings)) == (finding.severity == "blocker")
    keys = {"name", "when", "severity", "ok", "cause", "facts", "value", "message"}
    assert all(keys <= json.loads(json.dumps(each.document())).keys() for each in findings)


@pytest.mark.parametrize(
    ("file", "value", "named"),
    [
        (f"{QUEUE}/read_ahead_kb", "4096", f"{DISK} queue/read_ahead_kb: 128, now 4096"),
        (f"{QUEUE}/a_setting_of_tomorrow", "1", "a_setting_of_tomorrow: absent, now 1"),
        (f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave", "performance, now powersave"),
        (f"{CPU}/intel_pstate/no_turbo", "0", "no_turbo: 1, now 0"),
        ("proc/sys/vm/dirty_ratio", "40", "sys/vm/dirty_ratio: 20, now 40"),
        (
            "proc/self/mountinfo",
            FILES["proc/self/mountinfo"].replace("noatime", "relatime"),
            "mount options: rw,noatime rw,discard, now rw,relatime rw,discard",
        ),
        ("proc/sys/vm/drop_caches", "3", ""),
        (f"{QUEUE}/scheduler", "[none] mq-deadline bfq", ""),  # its module came with a USB stick
        (f"{QUEUE}/scheduler", "none [mq-deadline]", "queue/scheduler: none, now mq-deadline"),
    ],
)
def test_a_changed_setting_voids_this_run_and_later_ones(
    place: Machine, file: str, value: str, named: str
) -> None:
    memory = Memory()
    first = _failed(_inspect(place, lambda: place.write(file, value), memory=memory))
    later = [f for f in _failed(_inspect(place, memory=memory)) if f.name == "settings"]
    new = "absent" in named  # what was not there at first is not missed, once it is there
    whens = (["during"] if named else []), (["before"] if named and not new else [])
    assert ([f.when for f in first], [f.when for f in later]) == whens
    assert all(named in f.facts["changed"] and f.severity == "blocker" for f in (*first, *later))


def test_layers_are_compared_within_one_configuration(place: Machine) -> None:
    layer = place.root / "sys/class/block/dm-0"
    for name, value in (("dm/name", "fde-data"), ("queue/nr_requests", "128"), ("slaves/sdx", "")):
        (layer / name).parent.mkdir(parents=True, exist_ok=True)
        (layer / name).write_text(value)
    for configuration, requests, whens in (
        ("plain", "128", []),
        ("opal", "64", []),
        ("plain", "128", []),
        ("opal", "128", ["before"]),
    ):
        (layer / "queue/nr_requests").write_text(requests)
        findings = _failed(_inspect(place.with_scene(configuration=configuration)))
        assert [finding.when for finding in findings] == whens


@pytest.mark.parametrize("row", CLOCKS, ids="-".join)
def test_a_clock_that_jumps_is_found(
    place: Machine, row: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.clock_gettime_ns

    def an_hour_on() -> None:
        hour_ns = 3600 * 10**9
        monkeypatch.setattr(
            time, "clock_gettime_ns", lambda clock: real(clock) + hour_ns * (clock == CLOCKS[row])
        )

    (finding,) = _failed(_inspect(place, an_hour_on))
    assert (finding.name, finding.when) == row
    assert finding.value == pytest.approx(3600, abs=1)


def test_a_clock_set_between_two_runs_is_found_in_the_second(
    place: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, real = Memory(), time.clock_gettime_ns
    assert _failed(_inspect(place, memory=memory)) == []
    hour_ns = 3600 * 10**9
    # Both clocks: what the machine slept between two runs does not matter.
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda clock: real(clock) + hour_ns * (clock in CLOCKS.values())
    )
    (finding,) = _failed(_inspect(place, memory=memory))
    assert finding.name == "clock" and finding.value == pytest.approx(3600, abs=1)
    assert _failed(_inspect(place, memory=memory)) == []


def test_disks_are_read_once_a_run_and_errors_between_runs_are_found(place: Machine) -> None:
    asked = place.root / "asked"
    count = f"echo >>{asked} asked; cat {place.root}/smart.json"
    place = place.with_scene(smartctl=program(place.root / "counting", count))
    memory = Memory()
    assert _failed(_inspect(place, memory=memory)) == []
    assert asked.read_text().split() == ["asked"] * 2
    _write("smart.json", _smart(media_errors=4))(place)
    (finding,) = _failed(_inspect(place, memory=memory))
    assert (finding.name, finding.when) == ("disk-errors", "during")
    assert asked.read_text().split() == ["asked"] * 3


def test_the_state_of_disks_is_recorded_before_and_after_a_run(place: Machine) -> None:
    """What data/README.md says of `disks` in run.json."""
    inspection, *_ = inspect_before(place, Memory())
    place.write(f"{DEVICE}/hwmon3/temp1_input", "38500")
    place.write(f"{Path(DEVICE).parent}/stat", "9 0 9 9 9 0 3 9 0 9 9 0 0 0 0")
    inspection.after()
    conditions = {
        "temperature_c": 35.0,
        "link": "8.0 GT/s PCIe, x4, queue of 32",
        "write_cache": "write back",
        "latency_tolerance_us": None,
        "throttled": 1,
        "kernel_written_bytes": None,
        "written_bytes": 1_024_000,
        "spare_percent": 100,
        "used_percent": None,
        "errors": 3,
    }
    warmer = conditions | {"temperature_c": 38.5, "kernel_written_bytes": 3 * 512}
    assert inspection.disks == RunDisks({DISK: conditions}, {DISK: warmer}, limit_k=5.0)


def test_both_counts_of_writes_are_read_at_the_same_time(place: Machine) -> None:
    """A disk is not asked again right after the run before; what prepares a run is written then."""
    memory, blocks = Memory(), Path(DEVICE).parent
    place.write(f"{blocks}/stat", "9 0 9 9 9 0 3 9 0 9 9 0 0 0 0")
    _inspect(place, memory=memory)
    place.write(f"{blocks}/stat", "9 0 9 9 9 0 8 9 0 9 9 0 0 0 0")
    inspection = Inspection(place.context, memory, clock=lambda: memory.health_s)
    inspection.before(lambda *_: None)
    assert inspection.disks.before[DISK]["kernel_written_bytes"] == 3 * 512


def test_a_failed_disk_is_read_again_before_the_next_run(place: Machine) -> None:
    memory = Memory()
    well = (place.root / "smart.json").read_text()
    failing = _write("smart.json", _smart(critical_warning=4))
    assert _failed(_inspect(place, lambda: failing(place), memory=memory))
    place.write("smart.json", well)
    assert _failed(_inspect(place, memory=memory)) == []


def test_smart_gives_the_used_lifetime(place: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{place.root}:{os.environ['PATH']}")
    assert smart.lifetime(DISK) == Lifetime(1_024_000, None)
    _write("smart.json", _smart(percentage_used=7))(place)
    assert smart.lifetime(DISK) == Lifetime(1_024_000, 7)
    place.write("smart.json", "{}")
    assert smart.lifetime(DISK) is None
    assert smart.lifetime(None) is None


def _ata(name: str, raw: int, **additions: object) -> dict[str, object]:
    table = [{"id": 241, "name": name, "raw": {"value": raw, "string": str(raw)}}]
    return {"smart_status": {"passed": True}, "ata_smart_attributes": {"table": table}, **additions}


def _lost(number: int, name: str) -> dict[str, object]:
    return {"ata_smart_attributes": {"table": [{"id": number, "name": name, "raw": {"value": 1}}]}}


def _statistics(page: int, offset: int, value: int, valid: bool = True) -> dict[str, object]:
    row = {"offset": offset, "value": value, "flags": {"valid": valid}}
    return {"ata_device_statistics": {"pages": [{"number": page, "table": [row]}]}}


@pytest.mark.parametrize(
    ("report", "written_bytes"),
    [
        (_ata("Total_LBAs_Written", 1000), 512_000),
        (_ata("Total_LBAs_Written", 1000, in_smartctl_database=True), 512_000),
        (_ata("Total_LBAs_Written", 1000, in_smartctl_database=False), None),
        (_ata("Total_LBAs_Written", 1000, logical_block_size=4096), None),
        (_ata("Host_Writes_32MiB", 3), 3 * 2**25),
        (_ata("TLC_Writes_32MiB", 3), 3 * 2**25),
        (_ata("Host_Writes_64KiB", 3), 3 * 2**16),
        (_ata("Total_Writes_GB", 3), 3 * 10**9),
        (_ata("Lifetime_Writes_GiB", 3), 3 * 2**30),
        (_ata("Written_TiB", 3), 3 * 2**40),
        (_ata("Unknown_SSD_Attribute", 3), None),
        (_ata("Unknown_Attribute", 3), None),
        (_ata("Total_Writes", 3), None),
        (_ata("Lifetime_Reads_GiB", 3), None),
        (_ata("Total_LBAs_Written", 9, **_statistics(1, 24, 7)), 7 * 512),
        (_ata("Total_LBAs_Written", 9, **_statistics(1, 24, 7, valid=False)), 9 * 512),
        (_ata("", 9, logical_block_size=4096, **_statistics(1, 24, 7)), 7 * 4096),
        ({"nvme_smart_health_information_log": {"data_units_written": 3}}, 1_536_000),
        ({"nvme_smart_health_information_log": {"data_units_written": 0}}, None),
        ({"nvme_smart_health_information_log": {"data_units_written": 0, "data_units_read": 1}}, 0),
        ({"scsi_error_counter_log": {"write": {"gigabytes_processed": "1.5"}}}, 1_500_000_000),
    ],
)
def test_written_bytes_are_none_if_their_unit_is_unknown(
    report: dict[str, object], written_bytes: int | None
) -> None:
    health = smart.health_of(strict_json.parse(smart.Report, json.dumps(report)))
    assert health is not None and health.written_bytes == written_bytes


@pytest.mark.parametrize(
    ("current", "expected"), [(65_262, None), (-273, None), (38, 38), (-20, -20), (151, None)]
)
def test_a_temperature_that_no_disk_can_have_is_not_reported(
    place: Machine, current: int, expected: float | None
) -> None:
    report = {**SMART, "temperature": {"current": current}}
    health = smart.health_of(strict_json.parse(smart.Report, json.dumps(report)))
    assert health is not None and health.temperature_c == expected
    place.write(f"{DEVICE}/hwmon3/temp1_input", str(current * 1000))
    assert disks.temperatures_c(place.context) == ({} if expected is None else {DISK: expected})


@pytest.mark.parametrize(
    ("report", "errors"),
    [
        ({"scsi_grown_defect_list": 7}, 7),
        (_lost(5, "Reallocated_Sector_Ct"), 1),
        # https://www.smartmontools.org/ticket/1227: it goes up and down on sound disks.
        (_lost(197, "Current_Pending_ECC_Cnt"), 0),
    ],
)
def test_errors_are_what_a_medium_lost(report: dict[str, object], errors: int) -> None:
    document = {"smart_status": {"passed": True}, **report}
    health = smart.health_of(strict_json.parse(smart.Report, json.dumps(document)))
    assert health is not None and health.errors == errors


def test_the_used_life_of_an_ata_disk_is_read_from_its_statistics() -> None:
    report = {"smart_status": {"passed": True}, **_statistics(7, 8, 4)}
    health = smart.health_of(strict_json.parse(smart.Report, json.dumps(report)))
    assert health is not None and health.used_percent == 4


def test_missing_features_of_a_machine_give_no_finding(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(FILES["proc/stat"])
    nothing = tmp_path / "nothing"
    context = CheckContext(
        *(Path("/"), 0.25, tmp_path, (DISK,), nothing, tmp_path / "proc", nothing, nothing),
        *(str(nothing), str(nothing), 0.01),
    )
    findings = _inspect(Machine(tmp_path, context))
    assert {finding.name for finding in findings} == ALWAYS
    assert [finding.name for finding in _failed(findings)] == ["powercap"]


def test_an_unreadable_value_fails_its_check_only(place: Machine) -> None:
    findings = _inspect(place.with_scene(suite_dir=place.root / "gone" / "away"))
    assert [finding.name for finding in _failed(findings)] == ["suite-room"]
    assert _failed(findings)[0].cause == "unreadable"
    assert "No such file" in _failed(findings)[0].facts["error"]
    assert _failed(findings)[0].facts["error"] in _failed(findings)[0].message


def test_a_lease_is_waited_for_and_reported_once(place: Machine) -> None:
    _held(place)
    lease = place.root / "run" / "hold.json"
    inspection, reasons, _ = inspect_before(
        place, Memory(), lambda: None, lambda: None, lease.unlink
    )
    assert reasons == ["held: the meter is silent"]
    held = inspection.findings[0]
    assert held.ok
    assert held.waited_s == 3 * place.context.poll_s


def test_a_new_reason_for_waiting_is_reported_too(place: Machine) -> None:
    lease = place.root / "run" / "hold.json"
    lock.take("one", 60, lease)
    acts = (lambda: lock.take("another", 60, lease), lambda: None, lease.unlink)
    _, reasons, _ = inspect_before(place, Memory(), *acts)
    assert reasons == ["held: one", "held: another"]


def test_waits_in_vain_get_shorter_until_one_succeeds(place: Machine) -> None:
    place = place.with_scene(load_limit=-1.0)
    memory = Memory()
    assert [inspect_before(place, memory)[2] for _ in range(3)] == [180, 90, 50]  # whole polls
    inspect_before(place.with_scene(load_limit=9.0), memory)
    assert memory.given_up["load"] == 0


def test_waits_for_a_blocker_do_not_get_shorter(place: Machine) -> None:
    full = place.with_scene(min_free_bytes=2**62)
    memory = Memory()
    for _ in range(2):
        inspection, _, waited_s = inspect_before(full, memory)
        assert waited_s == 3600
        assert blockers(inspection.findings)


def test_a_spinning_program_counts_as_load(place: Machine) -> None:
    """With a program that spins, on this very machine."""
    context = replace(place.context, proc=Path("/proc"), window_s=0.5)
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        observation = machine.load(context)
    finally:
        spinning.kill()
        spinning.wait()
    assert observation.value is not None
    assert float(observation.value) > 0.25
    assert not observation.ok


def test_allowed_and_debugging_kernel_lines_give_no_finding(place: Machine) -> None:
    lines = "4,3,9,-;hrtimer: interrupt took 5 ns\n6,4,9,-;I/O error, said in passing\n"
    assert _failed(_inspect(place, lambda: place.append("kmsg", lines))) == []


def test_repeated_kernel_lines_are_shown_once_and_cut(place: Machine) -> None:
    lines = "".join(f"4,{3 + n},9,-;odd {n // 2}\n" for n in range(10))
    (finding,) = _failed(_inspect(place, lambda: place.append("kmsg", lines)))
    assert finding.value == 10
    assert finding.facts == {"lines": "“odd 0”, “odd 1”, “odd 2”, and 2 more"}
    assert finding.facts["lines"] in finding.message


@pytest.mark.parametrize("path", [kernel_log.ALLOWED, kernel_log.GRAVE], ids=lambda p: p.stem)
def test_every_pattern_has_its_reason(path: Path) -> None:
    patterns = kernel_log.patterns(path)
    assert len(patterns) > 3
    assert all(pattern.reason for pattern in patterns)
    assert not any(pattern.expression.search("") for pattern in patterns)


GRAVE_LINES = [
    "Buffer I/O error on dev dm-0, logical block 0, lost async page write",
    "critical medium error, dev nvme0n1, sector 8 op 0x0:(READ) flags 0x0",
    "EXT4-fs error (device dm-0): ext4_find_entry:1463: inode #2: comm ls: reading directory",
    "mce: [Hardware Error]: Machine check events logged",
    "INFO: task fio:123 blocked for more than 120 seconds.",
    "Out of memory: Killed process 99 (sysbench) total-vm:1kB",
    "nvme nvme0: I/O tag 1 (1001) opcode 0x2 (Read) QID 1 timeout, aborting req_op:READ(0)",
    "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen",
]


@pytest.mark.parametrize("text", GRAVE_LINES)
def test_known_kernel_failures_are_grave(text: str) -> None:
    assert kernel_log.grave([kernel_log.Line(1, 3, text)])


def test_docs_checks_md_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), (
        "run: python -m validation.checks_page >docs/checks.md"
    )


def test_an_overwritten_kernel_record_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[bytes | OSError] = iter(
        [OSError(errno.EPIPE, ""), b"4,9,5,-;odd\n", BlockingIOError()]
    )

    def read(_fd: int, _size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        lines = kernel_log.read(Path("/dev/null"))
    assert [line.text for line in lines or ()] == ["odd"]
