"""Block ciphers and their modes in memory, as in Verma et al., tables II to VI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from contract import schema
from contract.parameters import Parameter
from contract.strict_json import Document
from workloads import lists
from workloads.base import Assets, Context, Needs, Parameters, Workload
from workloads.child import Child, keep, measure
from workloads.children.serving import MissingError
from workloads.crypt import catalogue
from workloads.crypt.catalogue import CIPHERS, MIB, MODES

PAPER_CIPHERS = "des,3des,aes-128,aes-192,aes-256,blowfish-448"
PAPER_SIZES = "20527,36002,45911,59852,69545,137325,158959,166364,191383,232398"
# The child's Python, its libraries and the data that it compares; 40 MiB were observed.
CHILD_BYTES = 64 * MIB


@dataclass(frozen=True)
class Job:
    """One phase: a cipher in a mode, applied to an input in one direction."""

    cipher: str
    mode: str
    size_bytes: int
    encrypt: bool

    @property
    def phase(self) -> str:
        verb = "encrypt" if self.encrypt else "decrypt"
        return f"{self.cipher}-{self.mode}.{verb}.{self.size_bytes}B"


class CipherModes(Workload):
    """Phases `CIPHER-MODE.encrypt.SIZEB` and `….decrypt.SIZEB`, each on separate buffers.

    A phase repeats one input for at least `seconds`, on one stream: the key schedule is before it,
    the chaining value continues. `ecb`, `cbc` and `cfb` pad the input to whole blocks; the
    bytes counted are those of the input. Both meanings of CFB in the paper are available. Its table
    II comes from Crypto++, which feeds back whole blocks: `cfb`. In its tables V and VI, CFB takes
    8 times as long as ECB with 64-bit blocks and 16 times with 128-bit ones, so there a block is
    encrypted for every byte: `cfb8`.
    """

    name = "cipher_modes"
    summary = "block ciphers and their modes in memory"
    program = "OpenSSL through Python's cryptography, and PyCryptodome for what that lacks"
    parameters = (
        lists.some_of("ciphers", PAPER_CIPHERS, "which ciphers, by name and key size", CIPHERS),
        lists.some_of("modes", "ecb,cbc,cfb,ofb,ctr", "which modes; cfb8 is there besides", MODES),
        lists.some_of("sizes", f"{PAPER_SIZES},large", "the inputs' bytes, and the word large"),
        Parameter("large_mib", 256, "MiB", "what large stands for", minimum=1),
        Parameter("seconds", 1.0, "s", "how long a phase repeats its input", minimum=0.01),
        Parameter("aes_instructions", True, "", "whether OpenSSL may use the processor's for AES"),
    )
    small: ClassVar = {
        "ciphers": "des,aes-128",
        "modes": "cbc",
        "sizes": "large",
        "large_mib": 1,
        "seconds": 0.05,
    }

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        return super().requires(parameters, assets) + catalogue.missing_libraries(self.name)

    def check(self, parameters: Parameters) -> None:
        list(planned(parameters))

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        largest = max(job.size_bytes for job in planned(parameters))
        return Needs(memory_bytes=2 * largest + CHILD_BYTES)

    def run(self, context: Context) -> None:
        jobs = list(planned(context.parameters))
        aes_instructions = bool(context.parameters["aes_instructions"])
        seconds = float(context.parameters["seconds"])
        environment = catalogue.environment(aes_instructions)
        with Child(self.name, context.disk, environment) as child:
            instructions = _instructions(context, child, jobs, aes_instructions)
            answers = _answers(context, child, jobs)
            jobs = [job for job in jobs if "reason" not in answers[job.cipher, job.mode]]
            rows = [_measure(context, child, job, seconds) for job in jobs]
        report: Document = {
            "aes_instructions": instructions,
            "ciphers": [{"cipher": "-".join(pair), **answer} for pair, answer in answers.items()],
            "unsafe": catalogue.unsafe(dict.fromkeys(job.cipher for job in jobs)),
            "phases": rows,
        }
        keep(context, "ciphers", report)


def planned(parameters: Parameters) -> Iterator[Job]:
    """Yield the jobs that the parameters request, in the order of their phases."""
    large = {"large": int(parameters["large_mib"]) * MIB}
    for size in lists.numbers("sizes", parameters["sizes"], names=large):
        for cipher in lists.words(parameters["ciphers"]):
            for mode in lists.words(parameters["modes"]):
                for encrypt in (True, False):
                    yield Job(cipher, mode, size, encrypt)


def _is_aes(job: Job) -> bool:
    return CIPHERS[job.cipher].algorithm == "AES"


def _instructions(
    context: Context, child: Child, jobs: list[Job], aes_instructions: bool
) -> Document:
    """Remove AES from the jobs if it cannot run as requested; return data on AES instructions."""
    if not any(_is_aes(job) for job in jobs):
        return {}
    reason = catalogue.reason_against(aes_instructions)
    answer: Document = {}
    if not reason:
        answer = child.ask("instructions")
        if not aes_instructions and catalogue.present():
            with Child("cipher_modes", context.disk, catalogue.environment(True)) as other:
                with_them = other.ask("instructions")
            reports = (schema.read(catalogue.Instructions, part) for part in (answer, with_them))
            reason = catalogue.mask_problem(*reports)
            answer = {"without": answer, "with": with_them}
    if reason:
        context.leave_out("AES", reason)
        jobs[:] = [job for job in jobs if not _is_aes(job)]
    return {"allowed": aes_instructions, **answer}


def _answers(context: Context, child: Child, jobs: list[Job]) -> Mapping[tuple[str, str], Document]:
    """Check the library of each cipher and mode; leave out missing ones with a `reason`."""
    answers: dict[tuple[str, str], Document] = {}
    for cipher, mode in dict.fromkeys((job.cipher, job.mode) for job in jobs):
        try:
            answers[cipher, mode] = child.ask("answers", cipher=cipher, mode=mode)
        except MissingError as reason:
            answers[cipher, mode] = {"reason": str(reason)}
            context.leave_out(f"{cipher}-{mode}", str(reason))
    return answers


def _measure(context: Context, child: Child, job: Job, seconds: float) -> Document:
    laid_out = child.ask(
        "stream",
        cipher=job.cipher,
        mode=job.mode,
        bytes=job.size_bytes,
        encrypt=job.encrypt,
        seconds=seconds,
        seed=context.seed,
    )
    work, report = measure(context, child, job.phase)
    steps = int(report["steps"])
    work.add(operations=steps, bytes=steps * job.size_bytes)
    spent_s = float(report["user_s"] + report["system_s"])  # 0 where the kernel counts in ticks
    share = steps * float(laid_out["call_s"]) / spent_s if spent_s else 1.0
    return {"phase": job.phase, **report, "python_share_at_most": round(min(1.0, share), 5)}
