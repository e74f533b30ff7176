"""dm-crypt's cost on a file disk and on the whole disk below it, in the same guest."""

from __future__ import annotations

import json
from dataclasses import dataclass

from validation.own_machine.faults import CLEAR, FILE_SYSTEMS, FOLDER, OWN, UNMOUNT
from validation.own_machine.machine import OwnMachine, Sudo

EXTENT_BYTES = 640 * 2**20
# The file has the extent and room for its partition table and LUKS's header.
FILE_BYTES = EXTENT_BYTES + 18 * 2**20
EDIT = f"""python3 -c '
import sys, yaml
from pathlib import Path
path = Path(sys.argv[1], "hosts.yml")
inventory = yaml.safe_load(path.read_text())
for variables in inventory["targets"]["hosts"].values():
    variables["fde_extent_bytes"] = {EXTENT_BYTES}
    if sys.argv[1] == "file":
        file = {{"file": "{FOLDER}/fde.disk", "size_bytes": {FILE_BYTES}}}
        variables["fde_disks"] = {{"plain": file}}
path.write_text(yaml.safe_dump(inventory))' """
OVER_ALL = "over all"
RUN = "fde run --suite here --scale lab --blocks {blocks} -c plain,dmcrypt-aes256"

# In the environment of `fde`: the changes of energy by workload and over all in the newest suite.
COSTS = f"""python - "$(ls -td ~/fde-suites/*/ | head -1)" <<'END'
import json, sys
from pathlib import Path
import fde_testbed
from analysis.stats.results import results
family = results(Path(sys.argv[1])).family
pairs = {{key[0]: pair for key, pair in family.versus.items() if key[3] == family.component}}
pairs["{OVER_ALL}"] = family.contrasts[0].comparison
print(json.dumps({{name: (pair.ratio, pair.low, pair.high) for name, pair in pairs.items()}}))
END
"""


@dataclass(frozen=True)
class Cost:
    """dm-crypt's energy over that without it, with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return it in percent."""
        return f"{self.ratio - 1:+.1%} [{self.low - 1:+.1%}, {self.high - 1:+.1%}]"

    def has(self, other: Cost) -> bool:
        """Return whether the other's figure is within this one's interval."""
        return self.low <= other.ratio <= self.high


def compare(machine: OwnMachine, blocks: int) -> dict[str, tuple[Cost, Cost]]:
    """Return dm-crypt's cost by workload, on the whole disk and on the file.

    The disk's contents are lost. Raises RuntimeError with a failed command's messages.
    """
    machine.permit(Sudo.FREE)
    machine.root("umount -q /sys/class/power_supply || true")  # a suite requires mains
    serial = machine.guest.state["drives"]["plain"]["serial"]
    machine.root(CLEAR)
    chosen = f"--disk plain={serial} --give-up {serial}"
    _type(machine, f"rm -rf whole file; fde init whole --local {chosen} --modelled --yes")
    _type(machine, f"cp -r whole file; {EDIT} whole; {EDIT} file")
    disk_costs = _measure(machine, "whole", f"--confirm {serial}", blocks)
    machine.root(f"{CLEAR}{FILE_SYSTEMS['ext4']}{OWN}")
    try:
        file_costs = _measure(machine, "file", "", blocks)
    finally:
        machine.root(UNMOUNT)
    return {workload: (cost, file_costs[workload]) for workload, cost in disk_costs.items()}


def _measure(machine: OwnMachine, inventory: str, confirmed: str, blocks: int) -> dict[str, Cost]:
    """Provision, run and tear down; return dm-crypt's cost by workload."""
    run = RUN.format(blocks=blocks)
    steps = f"fde provision {confirmed} && {run} && fde teardown"
    _type(machine, f"export FDE_INVENTORY={inventory}; {steps}")
    return {name: Cost(*figures) for name, figures in json.loads(_type(machine, COSTS)).items()}


def _type(machine: OwnMachine, line: str) -> str:
    """Type a line and return its output; raises RuntimeError if it fails."""
    result = machine.typed(line)
    if result.returncode:
        raise RuntimeError(f"{line}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout
