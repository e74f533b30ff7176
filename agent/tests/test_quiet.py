"""What is stopped for a suite and started again: exactly that, whoever was killed in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent import quiet
from agent.tests.check_context import program


def test_what_disturbs_is_told_by_a_rule() -> None:
    listed = """\
apt-daily.timer           loaded active waiting Daily apt download activities
somebodys-own.timer       loaded active waiting somebodys-own.timer
chrony-dnssrv@.timer      loaded active waiting chrony-dnssrv@.timer
my-watchdog.timer         loaded active waiting my-watchdog.timer
fde-agent.timer           loaded active waiting fde-agent.timer
cron.service              loaded active running Regular background program processing daemon
"""
    assert quiet.disturbing(listed) == ["apt-daily.timer", "cron.service", "somebodys-own.timer"]
    assert quiet.disturbing("") == []


def test_what_is_gone_once_stopped_is_left_alone() -> None:
    shown = "Id=cron.service\nTransient=no\n\nId=run-u7.timer\nTransient=yes\n"
    assert quiet.lasting(shown) == ["cron.service"]


class System:
    """A systemctl that keeps the state of two units in files and writes down what it was asked."""

    def __init__(self, root: Path) -> None:
        self.remembered = root / "run" / "quiet.json"
        self._log = root / "log"
        self._units = root / "units"
        self._units.mkdir()
        for name in ("cron.service", "apt-daily.timer"):
            (self._units / name).write_text("active")
        self.systemctl = program(
            root / "systemctl",
            f"""cd {self._units} || exit 1
case "$1" in
list-units)
    for unit in $(grep -l '^active$' *); do echo "$unit loaded active running something"; done
    exit;;
show)
    for unit; do
        [ -e "$unit" ] && printf 'Id=%s\\nTransient=no\\n\\n' "$unit"
    done
    exit;;
esac
echo "$@" >>{self._log}
[ "$1" = stop ] && cp {self.remembered} {root}/at-stop
state=active; [ "$1" = stop ] && state=inactive
shift
for unit; do echo "$state" >"$unit"; done""",
        )
        self.at_stop = root / "at-stop"

    def asked(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def set(self, name: str, state: str) -> None:
        (self._units / name).write_text(state)

    def off(self) -> list[str]:
        return quiet.off(self.systemctl, self.remembered)

    def back(self) -> list[str]:
        return quiet.back(self.systemctl, self.remembered)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


BOTH = ["apt-daily.timer", "cron.service"]


def test_exactly_what_was_stopped_is_started_again(system: System) -> None:
    system.set("apt-daily.timer", "inactive")
    assert system.off() == ["cron.service"]
    assert system.off() == []
    assert quiet.disturbers(system.systemctl) == []
    assert system.back() == ["cron.service"]
    assert system.back() == []
    assert system.asked() == ["stop cron.service", "start cron.service"]
    assert not system.remembered.exists()


def test_a_unit_that_came_back_by_itself_is_added(system: System) -> None:
    system.off()
    system.set("cron.service", "active")
    assert system.off() == ["cron.service"]
    assert system.back() == BOTH


def test_it_is_remembered_before_anything_stops(system: System) -> None:
    """So that whoever is killed in between leaves nothing off for good."""
    system.off()
    assert json.loads(system.at_stop.read_text()) == BOTH


def test_without_systemd_there_is_nothing_to_do(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none")
    assert quiet.disturbers(nothing) is None
    assert quiet.off(nothing, tmp_path / "quiet.json") == []
    assert quiet.back(nothing, tmp_path / "quiet.json") == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_memory_is_an_empty_one(system: System) -> None:
    system.remembered.parent.mkdir()
    system.remembered.write_text("{")
    assert system.back() == []
