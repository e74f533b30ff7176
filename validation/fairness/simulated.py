"""A suite on modelled disks in simulated time: effects of the disks, and none of encryption.

The order of runs is the planner's own, the disks are those of `drive.behaviour`, the joules
those of the lab's power model plus scatter. All is modelled; nothing here was measured on a disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from agent.checks.context import CheckContext
from agent.checks.table import TABLE
from analysis.stats.comparison import Comparison, compare, judge_comparisons
from controller.planning.schedule import Turn, order
from drive.behaviour import Timing
from lab.devices import DiskModel
from lab.power_model import DRIVE, Activity, DriveActivity, PowerModel

_MIB = 1 << 20
EXTENT_MIB, REQUEST_MIB = 2048, 4
WORKLOADS = {"write": (320, 0), "read": (0, 640), "mixed": (160, 160)}  # MiB written and read
CPU_SHARE = 0.3  # of the time of a run, with no encryption at all
TAIL_S = 1.0
PREPARED_MIB = 64  # written by a workload before it is measured
# Seconds to make each stack; as in the lab, where LUKS2 takes longest.
ENTRY_S = {"plain": 1.0, "opal": 2.5, "dmcrypt-aes128": 4.0, "dmcrypt-aes256": 4.0}
BASE = "plain"
RUN_SD, ENTRY_SD = 0.003, 0.001  # scatter of the logarithm of joules, by run and by entry
MARGIN = 0.02
DISK_C = CheckContext.disk_c
HEAT_LIMIT_S = next(c.wait.limit_s for c in TABLE if c.wait and c.name == "disk-temperature")
ATTEMPTS = 3
POWER = PowerModel.load()


@dataclass(frozen=True)
class Rules:
    """Countermeasures of the testbed; all are on by default.

    `discard_first`: every entry discards the whole extent, else mkfs discards where the stack lets
    it through (not dm-crypt). `await_temperature`: a run waits for its disk to be as warm as at
    first. `void_throttled`: a throttled run does not count and is repeated. `one_disk`: all stacks
    on one disk, else the self-encrypting one has a separate disk. `settle_s`: before every run.
    """

    discard_first: bool = True
    await_temperature: bool = True
    void_throttled: bool = True
    one_disk: bool = True
    settle_s: float = 2.0


BEFORE = Rules(discard_first=False, await_temperature=False, void_throttled=False, one_disk=False)


@dataclass
class Suite:
    """One running suite; `ratio` is the true effect on the joules of the dm-crypt stacks.

    `throttled` counts runs during which a disk throttled, `counted` those of them that count.
    """

    rules: Rules
    model: DiskModel
    seed: int
    blocks: int = 10
    ratio: float = 1.0
    throttled: int = 0
    counted: int = 0
    place_mib: int = 0
    first_c: dict[str, float] = field(default_factory=dict)
    joules: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def run(self) -> None:
        """Simulate all runs."""
        scatter = np.random.default_rng(self.seed)
        disks = {role: Timing(b, EXTENT_MIB * _MIB) for role, b in self.model.behaviours.items()}
        now_s, entered, entry = 0.0, ("", -1), 0.0
        turns = [Turn(name, tuple(ENTRY_S)) for name in WORKLOADS]
        for run in order(tuple(ENTRY_S), turns, blocks=self.blocks, seed=self.seed):
            name, block = run.configuration, run.block
            role = "sed" if self.rules.one_disk or name == "opal" else "plain"
            if entered != (name, block):
                now_s = self._enter(name, disks[role], now_s + ENTRY_S[name])
                entered, entry = (name, block), float(scatter.normal(0, ENTRY_SD))
            effect = math.log(self.ratio) if name.startswith("dmcrypt") else 0.0
            for _ in range(ATTEMPTS):
                joules, now_s = self._measure(disks[role], role, run.workload, now_s)
                if joules is not None:
                    log = math.log(joules) + effect + entry + float(scatter.normal(0, RUN_SD))
                    joules_of_block = self.joules.setdefault(name, {}).setdefault(block, [])
                    joules_of_block.append(math.exp(log))
                    break

    def _measure(
        self, disk: Timing, role: str, workload: str, now_s: float
    ) -> tuple[float | None, float]:
        """Return the joules of one attempt, None if it is void, and its end."""
        now_s = self._transfer(disk, PREPARED_MIB, 0, now_s)
        now_s = self._wait(disk, self.first_c.get(role), now_s)
        self.first_c.setdefault(role, disk.temperature_c(now_s))
        before, start_s = disk.throttlings, now_s
        written, read = WORKLOADS[workload]
        now_s = self._transfer(disk, written, read, now_s) + TAIL_S
        throttled = disk.throttlings > before or disk.throttling
        self.throttled += throttled
        if throttled and self.rules.void_throttled:
            return None, now_s
        self.counted += throttled
        cpu_ns = round(CPU_SHARE * 1e9)  # of work that takes no longer on a slow disk
        moved = DriveActivity(bytes_read=read * _MIB, bytes_written=written * _MIB)
        duration_s = now_s - start_s
        power = POWER.power(Activity(cpu_ns, (moved,)), duration_s, [DRIVE])
        return power.system_w * duration_s, now_s

    def comparisons(self) -> dict[str, Comparison]:
        """Compare each stack with the plain one, over all workloads, judged as one family."""
        joules = {
            name: {
                block: math.exp(float(np.mean(np.log(values))))
                for block, values in blocks.items()
                if len(values) == len(WORKLOADS)
            }
            for name, blocks in self.joules.items()
        }
        results = {}
        for name in list(ENTRY_S)[1:]:
            common_blocks = sorted(joules[BASE].keys() & joules[name].keys())
            comparison = compare(
                [joules[BASE][b] for b in common_blocks],
                [joules[name][b] for b in common_blocks],
                MARGIN,
            )
            if comparison is not None:
                results[name] = comparison
        return dict(zip(results, judge_comparisons(list(results.values())), strict=True))

    def _enter(self, name: str, disk: Timing, now_s: float) -> float:
        """Discard by the rules, then write as mkfs does."""
        self.place_mib = 0
        if self.rules.discard_first or not name.startswith("dmcrypt"):
            disk.deallocate(0, EXTENT_MIB * _MIB)
        return self._transfer(disk, 32, 0, now_s)

    def _transfer(self, disk: Timing, write_mib: int, read_mib: int, now_s: float) -> float:
        """Send requests one by one, new files after older ones; return the end."""
        size_bytes = REQUEST_MIB * _MIB
        for _ in range(write_mib // REQUEST_MIB):
            now_s += disk.write(self.place_mib % EXTENT_MIB * _MIB, size_bytes, now_s)[0]
            self.place_mib += REQUEST_MIB
        for number in range(read_mib // REQUEST_MIB):
            offset_bytes = number * REQUEST_MIB % EXTENT_MIB * _MIB
            now_s += disk.read(offset_bytes, size_bytes, now_s)[0]
        return now_s

    def _wait(self, disk: Timing, first_c: float | None, now_s: float) -> float:
        end_s = now_s + HEAT_LIMIT_S
        while (
            self.rules.await_temperature
            and first_c is not None
            and now_s < end_s
            and abs(disk.temperature_c(now_s) - first_c) > DISK_C
        ):
            now_s += 1.0
        return now_s + self.rules.settle_s
