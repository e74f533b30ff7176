"""What is stopped for a suite and started again: exactly that, whoever was killed in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.system import command, frequency, quiet
from agent.system.command import Output
from agent.tests.check_context import program
from contract.plan import Quiet
from contract.tests.refusal import refuses


def test_rules_name_the_disturbing_units() -> None:
    listed = """\
apt-daily.timer           loaded active waiting Daily apt download activities
somebodys-own.timer       loaded active waiting somebodys-own.timer
chrony-dnssrv@.timer      loaded active waiting chrony-dnssrv@.timer
my-watchdog.timer         loaded active waiting my-watchdog.timer
fde-agent.timer           loaded active waiting fde-agent.timer
cron.service              loaded active running Regular background program processing daemon
mariadb.service           loaded active running MariaDB database server
postgresql@17-main.service loaded active running PostgreSQL Cluster 17-main
"""
    by_group = quiet.disturbing(listed)
    assert by_group["timers"] == ["apt-daily.timer", "cron.service", "somebodys-own.timer"]
    assert by_group["databases"] == ["mariadb.service", "postgresql@17-main.service"]
    assert not any(quiet.disturbing("").values())


def test_transient_units_are_not_stopped() -> None:
    shown = "Id=cron.service\nTransient=no\n\nId=run-u7.timer\nTransient=yes\n"
    assert quiet.lasting(shown) == ["cron.service"]


class System:
    """A systemctl that keeps the state of units and what it was asked."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.remembered = root / "run" / "quiet.json"
        self.states = dict.fromkeys(("cron.service", "apt-daily.timer", "mariadb.service"), True)
        self.asked: list[str] = []
        self.at_stop: dict[str, object] = {}
        patch.setattr(quiet, "run", self._run)

    def _run(self, argv: list[str], **_: object) -> Output:
        if argv[0] != "systemctl":
            return command.run(argv)
        verb, units, lines = argv[1], [word for word in argv[2:] if word in self.states], []
        if verb == "list-units":
            lines = [f"{unit} loaded active running it" for unit, on in self.states.items() if on]
        elif verb == "show":
            lines = [f"Id={unit}\nTransient=no\n" for unit in units]
        else:
            self.asked.append(" ".join([verb, *units]))
            self.states |= dict.fromkeys(units, verb == "start")
            if verb == "stop":
                self.at_stop = json.loads(self.remembered.read_text())
        return Output(0, "\n".join(lines), "")

    def off(
        self, settings: Quiet | None = None, processor: frequency.Processor | None = None
    ) -> list[str]:
        return quiet.stop(settings, path=self.remembered, processor=processor)

    def back(self, processor: frequency.Processor | None = None) -> list[str]:
        return quiet.restart(path=self.remembered, processor=processor)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


BOTH = ["apt-daily.timer", "cron.service"]


def test_exactly_the_stopped_units_are_started_again(system: System) -> None:
    system.states["apt-daily.timer"] = False
    assert system.off() == ["cron.service"]
    assert system.off() == []
    assert quiet.disturbers() == {"databases": ["mariadb.service"]}
    assert system.back() == ["cron.service"]
    assert system.back() == []
    assert system.asked == ["stop cron.service", "start cron.service"]
    assert not system.remembered.exists()


def test_a_restarted_unit_is_added_to_the_note(system: System) -> None:
    system.off()
    system.states["cron.service"] = True
    assert system.off() == ["cron.service"]
    assert system.back() == BOTH


def test_units_are_noted_before_they_are_stopped(system: System) -> None:
    """So that whoever is killed in between leaves nothing off for good."""
    system.off()
    assert system.at_stop == {"units": BOTH, "processor": None}


def test_without_systemd_nothing_is_stopped(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none")
    assert quiet.disturbers(nothing) is None
    assert quiet.stop(None, nothing, tmp_path / "quiet.json") == []
    assert quiet.restart(nothing, tmp_path / "quiet.json") == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_note_counts_as_empty(system: System) -> None:
    system.remembered.parent.mkdir()
    system.remembered.write_text("{")
    assert system.back() == []


def test_only_groups_allowed_by_the_inventory_are_stopped(system: System) -> None:
    system.states["apt-daily.timer"] = False
    by_group = quiet.disturbers() or {}
    assert quiet.describe_disturbers(by_group, ["timers"]) == [
        "stopped while a suite runs: timers (cron.service)",
        "will disturb, and fde_stop does not allow to stop them: databases (mariadb.service)",
    ]
    assert system.off(Quiet(stop=("databases",))) == ["mariadb.service"]
    assert quiet.disturbers() == {"timers": ["cron.service"]}
    assert system.back() == ["mariadb.service"]


CPUPOWER = """cd {cpus} || exit 1
cpus="0 1 2"
[ "$1" = -c ] && {{ cpus=$(echo "$2" | tr , " "); shift 2; }}
case "$1" in
frequency-set)
    for cpu in $cpus; do
        echo "$3" >cpu$cpu/cpufreq/scaling_governor
    done;;
set) echo $((1 - $3)) >intel_pstate/no_turbo;;
esac
"""


@pytest.fixture
def processor(tmp_path: Path) -> frequency.Processor:
    """Three CPUs of two governors, with turbo, and a cpupower that sets them."""
    cpus = tmp_path / "cpus"
    for number, governor in enumerate(("powersave", "powersave", "schedutil")):
        place = cpus / f"cpu{number}" / "cpufreq" / "scaling_governor"
        place.parent.mkdir(parents=True)
        place.write_text(f"{governor}\n")
    (cpus / "intel_pstate").mkdir()
    (cpus / "intel_pstate" / "no_turbo").write_text("0\n")
    return frequency.Processor(cpus, program(tmp_path / "cpupower", CPUPOWER.format(cpus=cpus)))


def test_governor_and_turbo_are_set_and_restored(
    system: System, processor: frequency.Processor
) -> None:
    first = processor.state()
    assert first == frequency.Settings({"powersave": "0,1", "schedutil": "2"}, True)
    settings = Quiet(stop=(), governor="performance", turbo=False)
    set_to = frequency.Settings({"performance": "0,1,2"}, False)
    for _ in range(2):  # an agent that was killed sets them again, and knows what was first
        system.off(settings, processor)
        assert processor.state() == set_to
    system.back(processor)
    assert processor.state() == first
    assert not system.remembered.exists()


def test_a_processor_that_cannot_be_set_is_an_error(
    system: System, processor: frequency.Processor, tmp_path: Path
) -> None:
    """The units are stopped all the same, and what was is remembered."""
    deaf = frequency.Processor(processor.cpus, program(tmp_path / "deaf", "exit 1"))
    governors = {"governors": "powersave, schedutil", "governor": "performance"}
    with refuses("other-governor", **governors):
        system.off(Quiet(governor="performance"), deaf)
    with refuses("other-turbo", actual="on", wanted="off"):
        system.off(Quiet(turbo=False), deaf)
    assert system.back(deaf) == BOTH
    bare = frequency.Processor(tmp_path / "none", deaf.cpupower)
    with refuses("other-governor", governors="none: this machine offers none"):
        bare.set("performance", None)
