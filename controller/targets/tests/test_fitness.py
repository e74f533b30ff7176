"""Every check: the outcomes of a sound machine, and that each mistake is found with its remedy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent import preflight
from agent.system import sleep
from analysis.stats.stats import Floats
from contract import schema
from contract.command_results import CheckOutcome
from contract.disks import DiskAnswer
from contract.errors import ControllerError
from contract.examination import SleepState
from contract.messages import Notify
from contract.plan import MeterEntry
from contract.problem import Problem
from contract.tests.programs import meanwhile
from controller.targets import check as page
from controller.targets import fitness, survey
from controller.targets.answers import Examination
from controller.targets.fitness import probe, step
from controller.targets.fitness.diagnosis import Host, Scene
from controller.targets.fitness.noise import Noise, detectable_change, stretch
from controller.targets.fitness.probe import Probe
from controller.targets.fitness.step import Declared, Load, StepResponse, response
from controller.targets.survey import TargetAnswer
from controller.tests import examples
from instrumentation.tests.simulators import registry
from instrumentation.tests.simulators.player import Player

AWAKE = {"able": True, "masked": True, "idle_action": "", "lid_action": "", "desktop": ""}
DISK: dict[str, Any] = {
    "name": "nvme0n1",
    "serial": "plain",
    "model": "A1",
    "link_speed": "8.0 GT/s PCIe",
    "link_speed_max": "8.0 GT/s PCIe",
    "link_width": 4,
    "link_width_max": 4,
    "sata_link": {},
    "apst_tolerance_us": "25000",
    "alpm_policy": None,
    "temperature_c": 40.0,
    "health": {"serial": "", "passed": True, "errors": 0, "temperature_c": 40},
}
FOUND: dict[str, Any] = {"by_id": "", "refusals": [], "found": "blank", "path": "/dev/x"}
FREE = {"owned": False, "locked": False, "shadowed": False, "sid_blocked": False}
EXAMINED: dict[str, Any] = {
    "checks": [
        {
            **{"name": name, "when": "before", "severity": "warning", "ok": True, "cause": ""},
            **{"facts": {}, "value": 1, "message": ""},
        }
        for name in ("governor", "turbo", "load", "memory", "swap")
    ],
    "rapl": {"zones": ["package-0", "dram", "uncore"], "moved": ["package-0", "dram"]},
    "disks": {"plain": DISK, "sed": {**DISK, "serial": "sed"}},
    "assets": {"clip": {"state": "ok", "sentence": ""}},
    "sleep": AWAKE,
    "power": {"batteries": [], "discharging": False, "mains": None},
    "disturbers": {"timers": ["apt-daily.timer"]},
    "kernel": {"sed_opal": True, "dm_crypt": True},
    "idle_states": {"allowed": "POLL C1 C6", "off": []},
    "room_bytes": 2**33,
    "simulated_rapl": False,
}
METER = {
    "name": "meter0",
    "kind": "smartpower3",
    "port": "usb",
    "origin": "measured",
    "channels": {"0": "system", "1": "drive"},
}
HEARD = Probe("done", records=400, period_s=0.01, due_s=0.01, watts={"system": 20.0, "drive": 2.0})
FOLLOWS = StepResponse(20.0, 39.0, 40.0, 21.0, 1.0, 1.5)


@pytest.fixture
def sound(tmp_path: Path) -> Scene:
    """Make a machine at which nothing is wrong."""
    path = tmp_path / "secrets.json"
    path.write_text(
        json.dumps(
            {
                "luks_passphrase": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
                "opal_admin_pin": "f0e1d2c3b4a5968778695a4b3c2d1e0f",
                "sed_psid": "ABCDEFGH" * 4,
            }
        ),
        encoding="utf-8",
    )
    path.chmod(0o600)
    target = examples.resolved(
        origin="measured",
        secrets_file=str(path),
        meters=[METER],
        assets={"clip": {"path": "/clip", "sums": "/sums", "sha256": None}},
    )
    disks = (disk_answer(role="plain", serial="plain"), disk_answer(role="sed", serial="sed"))
    return Scene(
        target,
        TargetAnswer(examples.facts(), (), disks, None, schema.read(Examination, EXAMINED)),
        None,
        Host(tmp_path, schema.read(SleepState, AWAKE), 2**36, frozenset({"systemd"})),
        {"meter0": HEARD},
        responses={"meter0": FOLLOWS},
    )


def disk_answer(**changes: Any) -> DiskAnswer:
    """Make a disk as the agent reports it; it has Opal."""
    return schema.read(DiskAnswer, {**FOUND, "opal": FREE, **changes})


def states_of(outcomes: list[CheckOutcome], *states: str) -> list[tuple[str, str]]:
    return [(outcome.code, outcome.state) for outcome in outcomes if outcome.state in states]


def require_form(outcomes: list[CheckOutcome]) -> None:
    """Require what holds of every outcome."""
    codes = [row.code for row in fitness.TABLE]
    assert len(set(codes)) == len(codes)
    for outcome in outcomes:
        assert outcome.code in codes
        assert outcome.sentence.endswith(".") and outcome.sentence[0].isprintable()
        assert "\n" not in outcome.sentence + outcome.remedy
        assert outcome.state in page.MARKS
        assert outcome.remedy.endswith(".") or outcome.state not in ("fail", "warn"), outcome
        json.dumps(dict(outcome.facts))


def test_a_sound_machine_passes(sound: Scene) -> None:
    local = replace(sound, target=replace(sound.target, ssh=None))
    for outcomes in (fitness.judge(sound), fitness.judge(local)):
        require_form(outcomes)
        assert states_of(outcomes, "fail", "warn") == []
        assert {outcome.code for outcome in outcomes} == {row.code for row in fitness.TABLE}
        assert states_of(outcomes, "not_made") == [("resolution", "not_made")]


def test_an_unreached_target_fails_ssh_and_skips_its_checks(sound: Scene) -> None:
    unreached = Problem("no-answer", {}, "h cannot be reached.", "Switch it on.")
    outcomes = fitness.judge(replace(sound, answer=None, unreached=unreached))
    require_form(outcomes)
    (ssh,) = fitness.blockers(outcomes)
    assert (ssh.code, ssh.facts["cause"]) == ("ssh", "no-answer")
    needing = {row.code for row in fitness.TABLE if row.needs_target}
    assert {code for code, _ in states_of(outcomes, "not_made")} == needing | {"resolution"}


@pytest.mark.parametrize("part", sorted(EXAMINED))
def test_a_missing_part_of_the_examination_does_not_pass(sound: Scene, part: str) -> None:
    before = states_of(fitness.judge(sound), "pass")
    outcomes = fitness.judge(examined("errors", {part: "No such file"}, without=part)(sound))
    require_form(outcomes)
    assert len(states_of(outcomes, "pass")) < len(before)


def answered(**changes: Any) -> Callable[[Scene], Scene]:
    def change(scene: Scene) -> Scene:
        assert scene.answer is not None
        return replace(scene, answer=replace(scene.answer, **changes))

    return change


def examined(part: str, value: Any, without: str = "") -> Callable[[Scene], Scene]:
    document = {key: entry for key, entry in EXAMINED.items() if key != without}
    return answered(examined=schema.read(Examination, {**document, part: value}))


def disk(**changes: Any) -> Callable[[Scene], Scene]:
    return examined("disks", {"plain": {**DISK, **changes}})


def rapl(zones: str, moved: str, steady: str = "") -> Callable[[Scene], Scene]:
    words = {"zones": zones.split(), "moved": moved.split()}
    words["steady"] = steady.split()
    return examined("rapl", words)


def battery(discharging: bool) -> Callable[[Scene], Scene]:
    state = {"batteries": ["BAT0"], "discharging": discharging, "mains": not discharging}
    return examined("power", state)


def asset(**assets: dict[str, str]) -> Callable[[Scene], Scene]:
    return examined("assets", assets)


def check(name: str) -> Callable[[Scene], Scene]:
    rows = [
        {**row, "ok": False, "cause": name} for row in EXAMINED["checks"] if row["name"] == name
    ]
    return examined("checks", rows)


def refused(cause: str) -> Callable[[Scene], Scene]:
    problem = Problem(cause, {}, "It is not right there.", "Set it right.")
    return answered(facts=examples.facts(sed_transport="ata"), refusals=(problem,))


def on_disk(**changes: Any) -> Callable[[Scene], Scene]:
    plain = disk_answer(role="plain", serial="plain")
    return answered(disks=(plain, disk_answer(**{"role": "sed", "serial": "sed", **changes})))


def heard(**changes: Any) -> Callable[[Scene], Scene]:
    return lambda scene: replace(scene, probes={"meter0": replace(HEARD, **changes)})


def stepped(**changes: Any) -> Callable[[Scene], Scene]:
    return lambda scene: replace(scene, responses={"meter0": replace(FOLLOWS, **changes)})


def on_host(**changes: Any) -> Callable[[Scene], Scene]:
    return lambda scene: replace(scene, host=replace(scene.host, **changes))


def entry(**changes: Any) -> MeterEntry:
    return schema.read(MeterEntry, {**METER, **changes})


def meter(**changes: Any) -> Callable[[Scene], Scene]:
    return lambda scene: replace(scene, target=replace(scene.target, meters=(entry(**changes),)))


def two_meters(scene: Scene) -> Scene:
    meters = tuple(entry(name=name) for name in ("meter0", "meter1"))
    probes = {meter.name: HEARD for meter in meters}
    return replace(scene, target=replace(scene.target, meters=meters), probes=probes)


def asleep(**changes: Any) -> Callable[[Scene], Scene]:
    return on_host(sleep=schema.read(SleepState, {**AWAKE, "masked": False, **changes}))


def secret(**changes: Any) -> Callable[[Scene], Scene]:
    def change(scene: Scene) -> Scene:
        path = Path(scene.target.secrets_file)
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return scene

    return change


def rights(scene: Scene) -> Scene:
    Path(scene.target.secrets_file).chmod(0o644)
    return scene


def beside_hosts(scene: Scene) -> Scene:
    Path(scene.target.secrets_file).with_name("hosts.yml").touch()
    return scene


def receiver(**described: Any) -> Callable[[Scene], Scene]:
    notify = {"receivers": [{"name": "phone", **described}]}
    return lambda scene: replace(
        scene, target=replace(scene.target, notify=schema.read(Notify, notify))
    )


ASLEEP = {**AWAKE, "masked": False, "idle_action": "suspend"}
SAVING = {**DISK, "apst_tolerance_us": "0"}
REFUSAL = {"code": "in-use", "facts": {}, "sentence": "It is in use.", "remedy": "Unmount it."}
MISTAKES: dict[str, tuple[Callable[[Scene], Scene], str, str]] = {
    "secrets open": (rights, "secrets", "fail"),
    "secrets next to hosts": (beside_hosts, "secrets", "warn"),
    "weak PIN": (secret(opal_admin_pin="1234"), "secrets", "fail"),
    "no PSID": (secret(sed_psid=None), "psid", "warn"),
    "mistyped PSID": (secret(sed_psid="ABCD-EFGH"), "psid", "fail"),
    "full": (on_host(free_bytes=2**20), "controller-room", "fail"),
    "nearly full": (on_host(free_bytes=2**30), "controller-room", "warn"),
    "idle": (asleep(idle_action="suspend"), "controller-sleep", "fail"),
    "lid": (asleep(lid_action="suspend"), "controller-sleep", "warn"),
    "desktop": (asleep(desktop="gdm.service"), "controller-sleep", "warn"),
    "modems": (on_host(names=frozenset({"ModemManager"})), "port-takers", "warn"),
    "braille": (on_host(names=frozenset({"brltty"})), "port-takers", "warn"),
    "no program": (receiver(argv=["/none"]), "messages", "fail"),
    "not root": (refused("not-root"), "rights", "fail"),
    "distribution": (refused("distribution"), "system", "fail"),
    "cryptsetup": (refused("cryptsetup"), "cryptsetup", "fail"),
    "old blocks": (refused("cryptsetup-blocks"), "cryptsetup", "fail"),
    "allow_tpm": (refused("allow-tpm"), "allow-tpm", "fail"),
    "no package": (refused("no-package"), "packages", "fail"),
    "kernel": (examined("kernel", {"sed_opal": False, "dm_crypt": True}), "kernel", "fail"),
    "asset": (asset(clip={"state": "missing", "sentence": "It is not there"}), "assets", "fail"),
    "no assets": (asset(), "assets", "warn"),
    "room": (examined("room_bytes", 2**20), "target-room", "fail"),
    "still": (rapl("package-0", ""), "rapl", "fail"),
    "memory still": (rapl("package-0 dram", "package-0"), "rapl", "warn"),
    "steady": (rapl("package-0", "package-0", steady="package-0"), "rapl", "fail"),
    "no RAPL": (examined("errors", {"rapl": "No RAPL zone."}, without="rapl"), "rapl", "fail"),
    "simulated": (examined("simulated_rapl", True), "origin", "fail"),
    "governor": (check("governor"), "governor", "warn"),
    "turbo": (check("turbo"), "turbo", "warn"),
    "busy": (check("load"), "load", "warn"),
    "memory": (check("memory"), "memory", "warn"),
    "swap": (check("swap"), "swap", "warn"),
    "c-states": (examined("idle_states", {"allowed": "POLL", "off": ["C6"]}), "c-states", "warn"),
    "database": (examined("disturbers", {"databases": ["mariadb.service"]}), "services", "warn"),
    "battery": (battery(discharging=True), "power", "fail"),
    "charging": (battery(discharging=False), "power", "warn"),
    "target idle": (
        examined("sleep", {**ASLEEP, "idle_action": "suspend"}),
        "target-sleep",
        "fail",
    ),
    "in use": (on_disk(refusals=[REFUSAL]), "disks", "fail"),
    "no Opal": (on_disk(opal=None), "opal", "fail"),
    "Block SID": (on_disk(opal={**FREE, "sid_blocked": True}), "opal", "fail"),
    "failing": (disk(health={**DISK["health"], "passed": False}), "smart", "fail"),
    "errors": (disk(health={**DISK["health"], "errors": 3}), "smart", "warn"),
    "hot": (disk(temperature_c=70.0), "smart", "warn"),
    "slow": (disk(link_speed="2.5 GT/s PCIe"), "disk-link", "fail"),
    "narrow": (disk(link_width=1), "disk-link", "fail"),
    "APST": (examined("disks", {"plain": DISK, "sed": SAVING}), "disk-saving", "warn"),
    "entry": (heard(stage="settings", error="It has no pattern."), "meter-settings", "fail"),
    "port": (heard(stage="port", errno=13, error="It may not be opened."), "meter-port", "fail"),
    "silent": (heard(stage="heard", error="It is silent."), "meter-heard", "fail"),
    "rate": (heard(period_s=0.1), "meter-rate", "fail"),
    "frozen": (stepped(peak_w=20.0, begin_w=20.0), "meter-follows", "fail"),
    "within a step": (stepped(least_rise_w=25.0), "meter-follows", "fail"),
    "late": (stepped(begin_w=22.0), "meter-follows", "fail"),
    "long": (stepped(after_w=38.0), "meter-follows", "fail"),
    "gaps": (heard(gaps=3), "meter-rate", "warn"),
    "swapped": (heard(watts={"system": 2.0, "drive": 20.0}), "meter-channels", "fail"),
    "unplugged": (heard(watts={"system": 0.0}), "meter-channels", "fail"),
    "two supplies": (two_meters, "meter-channels", "fail"),
    "no system": (heard(watts={"drive": 2.0}), "meter-channels", "warn"),
    "over range": (heard(over_range=4), "meter-channels", "fail"),
    "numbered": (meter(port="/dev/ttyUSB0"), "meter-name", "warn"),
    "own range": (meter(kind="wt310", channels={"1": "system"}), "meter-range", "warn"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_fails_only_its_own_check(sound: Scene, name: str) -> None:
    change, code, state = MISTAKES[name]
    outcomes = fitness.judge(change(sound))
    require_form(outcomes)
    assert set(states_of(outcomes, "fail", "warn")) == {(code, state)}


def test_complete_receivers_pass(sound: Scene) -> None:
    scene = receiver(argv=["true"])(sound)
    outcomes = fitness.judge(scene)
    require_form(outcomes)
    assert states_of(outcomes, "fail", "warn") == []


def test_every_check_can_fail() -> None:
    tried = {code for _, code, _ in MISTAKES.values()} | {"ssh", "resolution"}
    assert tried == {row.code for row in fitness.TABLE}


@contextmanager
def played(folder: Path, watts: list[float], **settings: Any) -> Iterator[Path]:
    """Make a smartpower3 that sends, on a pseudo-terminal."""
    link, ended = folder / "meter", threading.Event()
    player = Player(registry.load("smartpower3")(**settings), link, watts)
    with closing(player), meanwhile(lambda: player.run(ended.is_set), ended.set):
        yield link


def test_probing_a_meter_measures_its_watts_and_period(tmp_path: Path) -> None:
    with played(tmp_path, [20.0, 2.0], interval_ms=100) as link:
        right = probe.probe(entry(port=str(link), origin="modelled", settings={"interval_ms": 100}))
        wrong = probe.probe(entry(port=str(link), origin="modelled"))
    assert right.stage == wrong.stage == "done", (right, wrong)
    assert right.watts == pytest.approx({"system": 20.0, "drive": 2.0}, rel=0.01)
    assert (right.due_s, wrong.due_s) == (0.1, 0.01)
    assert right.period_s == pytest.approx(0.1, rel=0.2)
    assert wrong.period_s == pytest.approx(0.1, rel=0.2)


def test_a_missing_or_invalid_meter_is_not_opened(tmp_path: Path) -> None:
    port = str(tmp_path / "none")
    assert probe.probe(entry(port=port)).stage == "port"
    assert probe.probe(entry(port=port, kind="line")).stage == "settings"
    assert probe.probe(entry(port=port, settings={"colour": 1})).stage == "settings"


def test_sleep_state_is_read_from_its_files(tmp_path: Path) -> None:
    for path, text in {
        "sys/power/state": "freeze mem disk\n",
        "etc/systemd/logind.conf": "[Login]\nIdleAction=ignore\n",
        "run/systemd/logind.conf.d/90.conf": "[Login]\n#IdleAction=ignore\nIdleAction=suspend\n",
        "proc/acpi/button/lid/LID0/state": "state: open\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    state = sleep.read_state(tmp_path)
    assert (state.able, state.masked) == (True, False)
    assert (state.idle_action, state.lid_action) == ("suspend", "suspend")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/suspend.target").symlink_to("/dev/null")
    assert sleep.read_state(tmp_path).masked


def test_without_a_meter_the_check_warns_what_is_not_counted(sound: Scene) -> None:
    target = replace(sound.target, meters=())
    outcomes = fitness.judge(replace(sound, target=target, probes={}))
    require_form(outcomes)
    assert states_of(outcomes, "fail", "warn") == [("meter-channels", "warn")]
    (outcome,) = [outcome for outcome in outcomes if outcome.code == "meter-channels"]
    assert "disks" in outcome.sentence and "losses of the power supply" in outcome.sentence
    assert "holds memory" not in outcome.sentence  # the target has a zone dram


def test_noise_of_simulated_power_is_recovered() -> None:
    generator = np.random.default_rng(1)
    times = np.arange(0, 1200, 0.1)
    noise = stretch(times, 20 * (1 + 0.05 * generator.standard_normal(len(times))))
    assert noise.power_w == pytest.approx(20, rel=0.01)
    assert noise.scatter(60) == pytest.approx(0.05 * np.sqrt(0.1 / 60), rel=0.1)
    with pytest.raises(ValueError, match="too few"):
        stretch(times[:50], times[:50] + 1)


def test_more_blocks_and_longer_runs_detect_smaller_changes() -> None:
    times = np.arange(0, 120, 0.1)
    noise = stretch(times, 20 + np.random.default_rng(2).standard_normal(len(times)))
    sizes = ((60, 5), (60, 20), (240, 20))
    changes = [detectable_change(noise, *size) or 0.0 for size in sizes]
    assert changes == sorted(changes, reverse=True) and changes[-1] > 0
    assert detectable_change(noise, 60, 1) is None


def test_the_resolution_is_given_by_workload(sound: Scene) -> None:
    times = np.arange(0, 120, 0.1)
    noise = stretch(times, 20 + np.random.default_rng(2).standard_normal(len(times)))
    outcomes = fitness.judge(replace(sound, noise=Noise("meter0", noise, noise)))
    require_form(outcomes)
    (outcome,) = [outcome for outcome in outcomes if outcome.code == "resolution"]
    assert outcome.state == "pass", outcome.sentence
    assert outcome.facts["changes"]["idle"]["change"] > 0


def test_a_failed_check_prevents_the_start_of_a_suite(
    sound: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitness, "examine", lambda *_, **__: heard(period_s=0.1)(sound))
    with pytest.raises(ControllerError, match="gives a record each 100 ms"):
        fitness.require_ready([sound.target], sound.host.out, print)
    monkeypatch.setattr(fitness, "examine", lambda *_, **__: sound)
    fitness.require_ready([sound.target], sound.host.out, print)


def test_a_meter_that_does_not_follow_prevents_a_session(
    sound: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "measure", lambda _: stepped()(sound).responses)
    fitness.require_following(sound.target)
    monkeypatch.setattr(step, "measure", lambda _: stepped(peak_w=20.0)(sound).responses)
    with pytest.raises(ControllerError, match="does not follow the load"):
        fitness.require_following(sound.target)


def true_power_w(t_s: Floats) -> Floats:
    """Return 60 W, and 160 W under the load from second 11 to 21."""
    return np.where((t_s >= 11) & (t_s < 21), 160.0, 60.0)


def mean_w(t_s: Floats, window_s: float) -> Floats:
    """Return the means of the true power over the windows that end at `t_s`."""
    parts = np.linspace(0, window_s, 101)[1:]
    return np.asarray(np.mean([true_power_w(t_s - part) for part in parts], axis=0))


# Shown power at each second, of a meter that declares a period of 1 s and a delay of 1.5 s.
SHOWN: dict[str, tuple[Callable[[Floats], Floats], str]] = {
    "sound": (lambda t: mean_w(t, 1.0), ""),
    "as late as declared": (lambda t: mean_w(t - 1.5, 1.0), ""),
    "steps of 10 W": (lambda t: np.round(mean_w(t, 1.0), -1), ""),
    "with fans that slow down": (lambda t: mean_w(t, 1.0) + np.where(t > 15, 20.0, 0.0), ""),
    "frozen": (lambda t: 0 * t + 61.3, "does not follow"),
    "the last value of a dead service": (lambda t: 60 + np.sin(7 * t), "does not follow"),
    "4 s late": (lambda t: mean_w(t - 4, 1.0), "too late"),
    "a mean of 10 s": (lambda t: mean_w(t, 10.0), "too late"),
    "a mean of 30 s": (lambda t: mean_w(t, 30.0), "too late"),
    "renewed once in 10 s": (lambda t: mean_w(t // 10 * 10, 1.0), "too l"),
    "a peak that is held": (
        lambda t: np.maximum.accumulate(mean_w(t, 1.0)),
        "shows the load for too long",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_step_of_load_shows_what_a_meter_is(name: str) -> None:
    shown_w, fault = SHOWN[name]
    times_s = np.arange(1.0, 30.0)
    noise_w = np.random.default_rng(3).normal(0, 0.0 if name == "frozen" else 0.3, len(times_s))
    load = Load(round(10.2e9), round(21.2e9), 10.0)  # it takes 0.8 s to begin
    result = response(times_s * 1e9, shown_w(times_s) + noise_w, load, Declared(1.5, 1.0, 0.1))
    assert result is not None
    assert fault in result.fault if fault else not result.fault, result


def test_the_load_of_a_target_is_stepped_while_its_meter_is_recorded(
    sound: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A meter that follows passes, one that repeats its last answer fails."""
    shown = {"power_w": 20.0, "frozen_w": 20.0}

    def load(_: object, seconds: float) -> float:
        shown["power_w"] = 40.0
        time.sleep(seconds)
        shown["power_w"] = 20.0
        return 1.0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(shown).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    for name, value in {"LEAST_S": 1.0, "PERIODS": 3, "START_S": 0.2}.items():
        monkeypatch.setattr(step, name, value)
    monkeypatch.setattr(survey, "load", load)
    settings = {"profile": "generic", "path": "/", "period_s": 0.1, "resolution_w": 0.1}
    settings |= {"averaged_s": 0.1, "power_unit_w": 1}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    meters = [
        entry(
            **{"name": name, "kind": "http", "port": f"http://127.0.0.1:{server.server_port}"},
            **{"channels": {"0": "system"}, "settings": {**settings, "power": f"/{name}"}},
        )
        for name in shown
    ]
    target = replace(sound.target, meters=tuple(meters))
    probes = dict.fromkeys(shown, HEARD)
    responses: Mapping[str, step.StepResponse | None] = {}
    with server, meanwhile(server.serve_forever, server.shutdown):
        for _attempt in range(5):  # on a busy machine there may be too few readings
            scene = fitness.step_load(replace(sound, target=target, probes=probes))
            responses = scene.responses or {}
            if None not in responses.values():
                break
    assert responses.keys() == shown.keys()
    # Two meters of the whole system are refused for that as well.
    failed = states_of(fitness.judge(scene), "fail")
    assert failed == [("meter-follows", "fail"), ("meter-channels", "fail")]
    faults = {name: response.fault for name, response in responses.items() if response}
    assert not faults["power_w"] and "does not follow" in faults["frozen_w"]


def test_a_load_that_began_too_late_shows_nothing() -> None:
    times_s = np.arange(1.0, 30.0)
    load = Load(round(3e9), round(21e9), 10.0)
    assert response(times_s * 1e9, true_power_w(times_s), load, Declared(1.5, 1.0, 0.1)) is None


def test_a_load_that_the_target_hardly_received_judges_no_meter() -> None:
    times_s = np.arange(1.0, 30.0)
    load = Load(round(9e9), round(20e9), 10.0, received=0.3)
    assert response(times_s * 1e9, np.full(29, 20.0), load, Declared(1.5, 1.0, 0.1)) is None
    received = response(
        times_s * 1e9, np.full(29, 20.0), replace(load, received=1.0), Declared(1.5, 1.0, 0.1)
    )
    assert received is not None and received.fault


def test_every_refusal_of_the_preflight_belongs_to_a_check() -> None:
    causes = {cause for row in fitness.TABLE for cause in row.refusals}
    assert causes == set(preflight.WORDINGS)
