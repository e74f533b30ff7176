"""The processor's governor and turbo, read from cpufreq and set by cpupower.

cpufreq: https://docs.kernel.org/admin-guide/pm/cpufreq.html. Turbo is `cpufreq/boost` (1: allowed)
or `intel_pstate/no_turbo` (1: not allowed); cpupower-set(1) sets either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.system.command import CommandError, run
from contract import system_text


@dataclass(frozen=True)
class Settings:
    """CPUs of each governor, as cpupower takes them; `turbo` is None where it is not offered."""

    governors: Mapping[str, str]
    turbo: bool | None = None


@dataclass(frozen=True)
class Processor:
    """The CPUs below `cpus`, set by the program `cpupower`."""

    cpus: Path = Path("/sys/devices/system/cpu")
    cpupower: str = "cpupower"

    def state(self) -> Settings:
        """Return the settings as they are now."""
        governors: dict[str, list[str]] = {}
        for place in sorted(self.cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")):
            number = place.parents[1].name.removeprefix("cpu")
            name = system_text.read(place).strip()
            governors.setdefault(name, []).append(number)
        cpus_of = {name: ",".join(cpus) for name, cpus in governors.items()}
        return Settings(cpus_of, self._turbo())

    def _turbo(self) -> bool | None:
        for place, allowed in (("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")):
            try:
                return system_text.read(self.cpus / place).strip() == allowed
            except OSError:
                continue
        return None

    def set(self, governor: str | None, turbo: bool | None) -> None:
        """Set on all CPUs what is not None; raises CommandError if it did not take effect."""
        if governor is not None:
            run([self.cpupower, "frequency-set", "-g", governor], ok=range(256))
            if (names := list(self.state().governors)) != [governor]:
                raise CommandError(
                    "other-governor",
                    governors=", ".join(names) or "none: this machine offers none",
                    governor=governor,
                )
        if turbo is not None:
            run([self.cpupower, "set", "--turbo-boost", str(int(turbo))], ok=range(256))
            if (actual := self._turbo()) != turbo:
                words = {True: "on", False: "off", None: "not offered by this machine"}
                raise CommandError("other-turbo", actual=words[actual], wanted=words[turbo])

    def restore(self, before: Settings) -> None:
        """Set what `state` returned earlier; raises CommandError if it did not take effect."""
        if self.state() == before:
            return
        for governor, cpus in before.governors.items():
            argv = [self.cpupower, "-c", cpus, "frequency-set", "-g", governor]
            run(argv, ok=range(256))
        if before.turbo is not None and before.turbo != self._turbo():
            self.set(None, before.turbo)
        if self.state() != before:
            raise CommandError("processor-not-restored", before=before)
