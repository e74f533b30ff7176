"""`fde prove`: enters, proves and leaves every configuration of a target, and prints a table."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from contract import bounded, schema, strict_json
from contract.documents import Proof
from contract.plan import Configuration, TargetDocument
from contract.problem import Problem
from contract.strict_json import Document
from controller.planning.known_names import require_known
from controller.targets import connection, secrets, survey
from controller.targets import inventory as stacks
from controller.targets.connection import TargetError
from controller.targets.survey import write_record

HEAD = ("configuration", "disk", "enter s", "of it mkfs", "proven", "stack", "cipher driver")

Say = Callable[[str], None]


@dataclass(frozen=True)
class ProofLine:
    """A line that `agent storage prove` prints; the times are null if entering failed."""

    configuration: str
    proof: Proof
    took_s: float | None = None
    mkfs_s: float | None = None


@dataclass(frozen=True)
class RefusalLine:
    """The last line that the agent prints if it refuses."""

    problems: tuple[Problem, ...]


def run(target: TargetDocument, names: Sequence[str], say: Say) -> bool:
    """Have the agent prove the named configurations, or all; return whether all are proven.

    Each line of the table is printed as soon as its configuration is finished; the proofs are saved
    below the build folder. Raises TargetError if the agent cannot be run or ends early.
    """
    by_name = {entry.name: entry for entry in target.configurations}
    require_known("configuration", names, by_name)
    selected = list(names) or list(by_name)
    secrets.place(target)
    width = max(len(name) for name in [*selected, HEAD[0]])
    say(_row(HEAD, width))
    documents: list[Document] = []
    proofs: list[ProofLine] = []
    refusals: tuple[Problem, ...] = ()
    prove = ("-m", "agent", "storage", "prove", "--storage", target.storage.sha256)
    argv = connection.python(target, *prove, *selected)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stderr is not None
        errors = bounded.Tail(process.stderr)
        # A line for each configuration, and one with refusals.
        try:
            for line in islice(bounded.lines(process.stdout), len(selected) + 1):
                document = strict_json.loads(line)
                if "problems" in document:
                    refusals = schema.read(RefusalLine, document).problems
                    continue
                documents.append(document)
                proofs.append(schema.read(ProofLine, document))
                _print_proof(proofs[-1], by_name[proofs[-1].configuration], width, say)
        except bounded.TooLongError as error:
            process.kill()
            failed = bounded.FAILED, b"", str(error).encode()
            result = subprocess.CompletedProcess(argv, *failed)
            raise TargetError(connection.describe_failure(target, result)) from None
        stderr = errors.text().encode()
    count = sum(line.proof.ok and not line.proof.declared for line in proofs)
    declared = sum(line.proof.ok and line.proof.declared for line in proofs)
    all_ok = count + declared == len(selected)
    path = write_record(
        "proofs",
        target,
        all_proven=count == len(selected),
        configurations=target.document()["configurations"],
        proofs=documents,
    )
    not_refuted = f", {declared} declared and not refuted" if declared else ""
    say(f"{count} of {len(selected)} proven{not_refuted}; the proofs: {path}")
    # If all are proven and the agent failed, it could not leave the last configuration.
    if len(proofs) < len(selected) or (process.returncode and all_ok):
        result = subprocess.CompletedProcess(argv, process.returncode, b"", stderr)
        cause = refusals[0] if refusals else _describe_end(target, result)
        name = next(iter(selected[len(proofs) :]), "")
        facts = {**cause.facts, "configuration": name}
        end = f"{name} was not reached" if name else f"{selected[-1]} was not left"
        raise TargetError(Problem(cause.code, facts, f"{end}. {cause.sentence}", cause.remedy))
    return all_ok


def _describe_end(target: TargetDocument, result: subprocess.CompletedProcess[bytes]) -> Problem:
    """Build the problem of an agent that ended early without a refusal."""
    problem = connection.describe_failure(target, result)
    if problem.code not in ("agent", "no-agent"):
        try:
            survey.look(target, disks=False)
        except TargetError as error:  # the target's Python or its connection is the cause
            return error.problems[0]
    return problem


def _print_proof(line: ProofLine, entry: Configuration, width: int, say: Say) -> None:
    """Print the row of a proof and its mismatches."""
    times = ("" if value is None else f"{value:.2f}" for value in (line.took_s, line.mkfs_s))
    verdict = ("decl." if line.proof.declared else "yes") if line.proof.ok else "NO"
    drivers = ", ".join(layer.cipher_driver for layer in line.proof.layers if layer.cipher_driver)
    drivers = drivers or line.proof.cipher_driver or "-"
    say(_row((entry.name, entry.disk, *times, verdict, stacks.words(entry), drivers), width))
    for mismatch in line.proof.mismatches:
        say(f"    {mismatch.sentence}")


def _row(cells: Sequence[str], width: int) -> str:
    name, disk, enter, mkfs, proven, stack, driver = cells
    return f"{name:<{width}}  {disk:<5}  {enter:>7}  {mkfs:>10}  {proven:<6}  {stack:<71}  {driver}"
