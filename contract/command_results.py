"""Documents that `fde COMMAND --json` prints; `ok` is whether the command exits with 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from contract.disks import DiskAnswer
from contract.estimates import Estimate
from contract.measured_command import CommandDocument
from contract.notes import ContrastResult, Note
from contract.problem import Problem

State = Literal["pass", "warn", "fail", "not_made"]


@dataclass(frozen=True)
class Failure:
    """Why a command failed before it had a result; the first problem is the one to start with."""

    ok: Literal[False]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class CheckOutcome:
    """Outcome of a check; `state` is pass, warn, fail (no suite starts) or not_made.

    `remedy` is empty if there is nothing to do. The `facts` of a refusal have its code as `cause`.
    """

    code: str
    state: State
    sentence: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostChecks:
    """Checks of a host; `ok` if none failed, `disks` as reported by the agent."""

    host: str
    ok: bool
    checks: tuple[CheckOutcome, ...]
    disks: tuple[DiskAnswer, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """Result of `fde check`, which changes nothing."""

    ok: bool
    inventory: str
    hosts: tuple[HostChecks, ...]


@dataclass(frozen=True)
class SuiteResult:
    """Result of `fde plan`, `run` and `resume`: the folder of a suite or group of suites."""

    ok: bool
    folder: str


AnswerTo = Literal["cost", "most", "payback", "battery", "trust", "next"]


@dataclass(frozen=True)
class AnswerLine:
    """A line of a report's first page: `verdict` and `reason` are for people.

    Programs read `code` (docs/verdicts.md lists them) and `facts`, with the figures unrounded.
    """

    question: AnswerTo
    code: str
    verdict: str
    reason: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class HereCost:
    """Energy with an encryption as a ratio to that without, for a workload or over all of them."""

    workload: str
    configuration: str
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    n: int


@dataclass(frozen=True)
class HereResult:
    """Result of `fde here`: suite, report and answer; `lines` are the answer for people."""

    ok: bool
    folder: str
    page: str
    origin: str
    costs: tuple[HereCost, ...]
    answer: tuple[AnswerLine, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class PhaseWork:
    """The account of a phase's work in one unit on one configuration: medians over `runs` runs.

    `planned`, `reported` by the program and `counted` are amounts of `unit`, the others the
    kernel's counts; null if no run has them. `codes` are those of the differences that the check
    `work` reports in any of the runs.
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
class ClaimResult:
    """A ratio of a claim of a published paper, with the claim's verdict and its own.

    `threshold` is the source of the predicate's percentage, `published` the paper's ratio, if it
    prints one; `differs` are the conditions that differ from the paper's.
    """

    paper: str
    place: str
    claim: str
    verdict: str
    quantity: str
    component: str
    workload: str
    phases: str
    against_phases: str
    configuration: str
    against: str
    medium: str
    predicate: str
    threshold: str
    published: float | None
    n: int
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    ratio_verdict: str
    differs: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class Saving:
    """What a self-encrypting drive saves against one software, on `component`, with intervals.

    `at_most` is the extra price that it repays within its life. If the drive is `assumed`, none was
    measured, and it is taken to cost what no encryption costs. `battery_min` are minutes more on a
    charge. `fleet_per_year` is money for all machines, and `fleet_net` that of their drives' life,
    less the extra price; `years` until it is repaid are null if no saving is shown or interest
    exceeds it.
    """

    against: str
    drive: str
    assumed: bool
    work: str
    component: str
    origin: str
    blocks: int
    kwh_per_year: Estimate
    per_year: Estimate
    fleet_per_year: Estimate
    fleet_net: Estimate
    at_most: Estimate
    years: Estimate | None
    probability: float | None
    battery_min: Estimate | None


@dataclass(frozen=True)
class PaybackResult:
    """Result of `fde payback`: the answer and the savings, at the prices of `assumptions`."""

    ok: bool
    suite_id: str
    origin: str
    assumptions: Mapping[str, Any]
    answer: AnswerLine
    savings: tuple[Saving, ...]


@dataclass(frozen=True)
class ReportResult:
    """Result of `fde report`: the page; the other fields are for a suite, not a group.

    These are notes on the flags of its joules and on unequal work, its answer, the account of the
    work of each phase, the ratios of the papers' claims, and what a self-encrypting drive saves.
    """

    ok: bool
    page: str
    origin: str | None
    contrasts: tuple[ContrastResult, ...] | None
    flags: tuple[Note, ...] | None = None
    answer: tuple[AnswerLine, ...] | None = None
    unequal_work: tuple[Note, ...] | None = None
    work: tuple[PhaseWork, ...] | None = None
    claims: tuple[ClaimResult, ...] | None = None
    savings: tuple[Saving, ...] | None = None


@dataclass(frozen=True)
class SuiteVerified:
    """Checks that a suite's folder passed, and its problems."""

    folder: str
    checked: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class VerifyResult:
    """Result of `fde verify`."""

    ok: bool
    suites: tuple[SuiteVerified, ...]


@dataclass(frozen=True)
class Identifying:
    """Text in a suite that identifies a person or a machine, and the files that contain it."""

    kind: str
    text: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class PublishResult:
    """Result of `fde publish`: the bundle, its suite, and identifying texts in it."""

    ok: bool
    bundle: str
    suite_id: str
    size_bytes: int
    sha256: str
    identifying: tuple[Identifying, ...]


@dataclass(frozen=True)
class SuiteSummary:
    """Summary of a suite in a few lines; no `answer` if its report is out of date."""

    folder: str
    lines: tuple[str, ...]
    answer: tuple[AnswerLine, ...] = ()


@dataclass(frozen=True)
class SummaryResult:
    """Result of `fde summary`."""

    ok: bool
    suites: tuple[SuiteSummary, ...]


@dataclass(frozen=True)
class Difference:
    """A property that differs between two suites; None if a suite does not have it."""

    what: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Ratio:
    """B / A with its 95 % interval over the blocks of each; no interval from fewer than two blocks.

    `cost_a` and `cost_b` are set for a ratio of costs: what encryption costs in each suite.
    `p_value` is for no change of joules from night to night; `p_adjusted` by Holm over all pairs.
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
    """Comparison of a suite, named by id and time of its plan, with the first one.

    It has the differences, B / A of joules by workload, over all workloads (`overall`), and of
    costs. `increases` are the joules that rose significantly.
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
    """Result of `fde compare`: the suites compared with the first, `a`, in order of time.

    With `fail_on_percent` it is `ok` if no joules rose significantly and by more, and at least one
    comparison was `tested`.
    """

    ok: bool
    a: str
    pairs: tuple[PairCompared, ...]
    fail_on_percent: float | None
    page: str
    tested: int

    @property
    def exit_status(self) -> int:
        """Return 1 if joules rose; 3 if nothing could be tested, which must fail a job too."""
        return 1 if self.tested else 3


@dataclass(frozen=True)
class NotebookResult:
    """Result of `fde notebook`: the copy and its suite; --json opens nothing."""

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
    """A kind of meter; no `channels` if its settings name them."""

    kind: str
    about: str
    channels: tuple[str, ...]
    usb_ids: tuple[str, ...]
    settings: tuple[MeterSetting, ...]


@dataclass(frozen=True)
class MeterPort:
    """A port of this machine; `port` is its name in an inventory, `kinds` what it may be."""

    port: str
    device: str
    description: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class MetersResult:
    """Result of `fde meters`, which opens no port."""

    ok: bool
    kinds: tuple[MeterKind, ...]
    ports: tuple[MeterPort, ...]


COMMANDS: dict[str, type[Any]] = {
    "check": CheckResult,
    "here": HereResult,
    **dict.fromkeys(("plan", "run", "resume"), SuiteResult),
    "report": ReportResult,
    "verify": VerifyResult,
    "publish": PublishResult,
    "summary": SummaryResult,
    "compare": CompareResult,
    "notebook": NotebookResult,
    "payback": PaybackResult,
    "meters": MetersResult,
    "measure": CommandDocument,
}
"""The shape of each command's document; `data/schema/fde-COMMAND.json` is this or `Failure`."""
