"""What the command `fde` prints with --json, as shapes; `ok` is whether it exits with 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from contract.disks import DiskAnswer
from contract.measured_command import CommandDocument
from contract.notes import ContrastResult, Note

State = Literal["pass", "warn", "fail", "not_made"]


@dataclass(frozen=True)
class CheckOutcome:
    """What a check found: `state` is pass, warn, fail (no suite starts) or not_made.

    `remedy` is empty where nothing is to be done. Of a refusal, `facts` has its code as `cause`.
    """

    code: str
    state: State
    sentence: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostChecks:
    """The checks of a host; `ok` where none failed, `disks` as the agent found them."""

    host: str
    ok: bool
    checks: tuple[CheckOutcome, ...]
    disks: tuple[DiskAnswer, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """`fde check`; nothing was touched."""

    ok: bool
    inventory: str
    hosts: tuple[HostChecks, ...]


@dataclass(frozen=True)
class SuiteResult:
    """`fde plan`, `run`, `resume`: the folder of the suite, or of a group of suites."""

    ok: bool
    folder: str


AnswerTo = Literal["cost", "most", "payback", "trust", "next"]


@dataclass(frozen=True)
class AnswerLine:
    """A line of a report's first page: people read `verdict` and the `reason` behind it.

    Programs read `code` (docs/verdicts.md lists them) and `facts`, with the figures unrounded.
    """

    question: AnswerTo
    code: str
    verdict: str
    reason: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class PhaseWork:
    """The account of a phase's work in one unit on one configuration: medians over `runs` runs.

    `planned`, `reported` by the program and `counted` are amounts of `unit`, the others the
    kernel's counts; null where no run has them. `codes` are those of the differences that the check
    `work` found in any of the runs.
    """

    workload: str
    phase: str
    configuration: str
    unit: str
    runs: int
    planned: float | None
    reported: float | None
    counted: float | None
    disk_read_bytes: float | None
    disk_written_bytes: float | None
    disk_discarded_bytes: float | None
    mapping_read_bytes: float | None
    mapping_written_bytes: float | None
    codes: tuple[str, ...]


@dataclass(frozen=True)
class ReportResult:
    """`fde report`: the page; of a suite, not a group, what follows `pdf`, too.

    Its answer, contrasts, notes on the flags of its joules and on unequal work, and the account of
    the work of each phase.
    """

    ok: bool
    page: str
    origin: str | None
    contrasts: tuple[ContrastResult, ...] | None
    flags: tuple[Note, ...] | None = None
    answer: tuple[AnswerLine, ...] | None = None
    unequal_work: tuple[Note, ...] | None = None
    work: tuple[PhaseWork, ...] | None = None


@dataclass(frozen=True)
class SuiteVerified:
    """What was found in order in a suite's folder, and what was not."""

    folder: str
    checked: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class VerifyResult:
    """`fde verify`."""

    ok: bool
    suites: tuple[SuiteVerified, ...]


@dataclass(frozen=True)
class Identifying:
    """Something in a suite that identifies a person or a machine, and the files that it is in."""

    kind: str
    text: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class PublishResult:
    """`fde publish`: the bundle, its bytes and SHA-256, the suite in it, and what identifies."""

    ok: bool
    bundle: str
    suite_id: str
    size_bytes: int
    sha256: str
    identifying: tuple[Identifying, ...]


@dataclass(frozen=True)
class SuiteSummary:
    """A suite in some lines for people; no `answer` where its report is not up to date."""

    folder: str
    lines: tuple[str, ...]
    answer: tuple[AnswerLine, ...] = ()


@dataclass(frozen=True)
class SummaryResult:
    """`fde summary`."""

    ok: bool
    suites: tuple[SuiteSummary, ...]


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in both suites; None where a suite does not have it."""

    what: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Ratio:
    """B / A with its 95 % interval, from so many blocks of each; no interval from fewer than two.

    `cost_a` and `cost_b`, where it is a ratio of costs: what encryption costs in each suite.
    `p_value` for no change of joules from night to night; `p_adjusted` by Holm over all pairs.
    """

    workload: str
    configuration: str
    blocks_a: int
    blocks_b: int
    ratio: float
    low: float | None
    high: float | None
    cost_a: float | None = None
    cost_b: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True)
class PairCompared:
    """A suite beside the first, by its id and the time of its plan.

    It has what differs, B / A of joules by workload, over all workloads (`overall`), and of costs.
    `increases` are the joules that rose significantly.
    """

    b: str
    created_wall: str
    component: str
    origin: str
    differences: tuple[Difference, ...]
    joules: tuple[Ratio, ...]
    overall: tuple[Ratio, ...]
    costs: tuple[Ratio, ...]
    increases: tuple[Ratio, ...]


@dataclass(frozen=True)
class CompareResult:
    """`fde compare`: the suites beside the first, `a`, in order of time.

    With `fail_on_percent` it is `ok` where no joules rose significantly and by more, and at least
    one was `tested`.
    """

    ok: bool
    a: str
    pairs: tuple[PairCompared, ...]
    fail_on_percent: float | None
    page: str
    tested: int

    @property
    def exit_status(self) -> int:
        """1 where joules rose; 3 where nothing could be tested, which passes no job either."""
        return 1 if self.tested else 3


@dataclass(frozen=True)
class NotebookResult:
    """`fde notebook`: the copy, and the suite that it is of; with --json nothing is opened."""

    ok: bool
    notebook: str
    suite: str


@dataclass(frozen=True)
class MeterSetting:
    """A setting of a kind of meter."""

    name: str
    default: Any


@dataclass(frozen=True)
class MeterKind:
    """A kind of meter: its channels (none where its settings name them), its USB ids."""

    kind: str
    about: str
    channels: tuple[str, ...]
    usb_ids: tuple[str, ...]
    settings: tuple[MeterSetting, ...]


@dataclass(frozen=True)
class MeterPort:
    """A port of this machine; `port` is how an inventory calls it, `kinds` what it may be."""

    port: str
    device: str
    description: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class MetersResult:
    """`fde meters`: no port was opened."""

    ok: bool
    kinds: tuple[MeterKind, ...]
    ports: tuple[MeterPort, ...]


COMMANDS: dict[str, type[Any]] = {
    "check": CheckResult,
    **dict.fromkeys(("plan", "run", "resume"), SuiteResult),
    "report": ReportResult,
    "verify": VerifyResult,
    "publish": PublishResult,
    "summary": SummaryResult,
    "compare": CompareResult,
    "notebook": NotebookResult,
    "meters": MetersResult,
    "measure": CommandDocument,
}
"""The shape of each command's document; `data/schema/fde-COMMAND.json` is made from it."""
