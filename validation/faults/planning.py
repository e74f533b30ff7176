"""The small suites that faults are done to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.files import write_json
from controller.compile import compile_plan
from validation.scene import Scene

CONFIGURATIONS = ("plain", "opal", "dmcrypt-aes256")
LOADS: tuple[dict[str, Any], ...] = (
    {"name": "idle", "parameters": {"seconds": 2}},
    {
        "name": "file_io",
        "parameters": {
            "small_files": 1,
            "small_mib": 1,
            "large_mib": 4,
            "source": "zero",
            "fsync": True,
        },
    },
)


@dataclass(frozen=True)
class Small:
    """What differs from suite to suite."""

    blocks: int = 2
    attempts: int = 5
    run_limit_s: float = 600.0
    loads: tuple[dict[str, Any], ...] = LOADS
    configurations: tuple[str, ...] = CONFIGURATIONS
    more: dict[str, Any] = field(default_factory=dict)

    def document(self, what: str) -> dict[str, Any]:
        """As a suite's file would say it. No load pattern: it is played at every start again."""
        return {
            "summary": f"short runs, for the trial of {what} in the lab",
            "blocks": self.blocks,
            "workloads": list(self.loads),
            "configurations": list(self.configurations),
            "rapl_hz": 10,
            "settle_s": 0.2,
            "tail_s": 0.2,
            "watermark": False,
            "drift_check": False,
            "attempts": self.attempts,
            "run_limit_s": self.run_limit_s,
            **self.more,
        }


def write(scene: Scene, name: str, small: Small, seed: int, out: Path) -> Path:
    """Freeze the plan into a new folder below `out`; returns that."""
    plan = compile_plan(f"fault-{name}", small.document(name), scene.target, seed=seed)
    folder: Path = out / plan["suite_id"]
    folder.mkdir(parents=True)
    write_json(folder / "plan.json", plan)
    return folder
