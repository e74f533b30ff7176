"""The kernel's ciphers in memory, one by one and in cascades, as dm-crypt would call them.

After the paper "Analiza wpływu szyfrowania na operacje odczytu i zapisu", figure 1 (VeraCrypt's
benchmark on 50 MB), and like `cryptsetup benchmark`, which uses the same interface but runs both
directions together for a fixed time, so that their energy could not be separated.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from dataclasses import dataclass
from typing import ClassVar

from contract.parameters import Parameter
from workloads import lists
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import Child, repeat
from workloads.children.kernel_ciphers import CipherJob, restriction
from workloads.children.serving import MissingError

KIB = 1 << 10
MODES = ("xts", "cbc")
KEY_BITS = ("128", "256")
DIRECTIONS = ("encrypt", "decrypt")
CIPHERS = "aes,camellia,twofish,serpent,kuznyechik,cast6"
# The rows of the paper's figure 1; the first cipher is applied last.
PAPER_CASCADES = (
    "aes-twofish,serpent-aes,kuznyechik-aes,camellia-serpent,twofish-serpent,camellia-kuznyechik,"
    "serpent-twofish-aes,aes-twofish-serpent,kuznyechik-twofish,kuznyechik-serpent-camellia"
)


class KernelCiphers(Workload):
    """Phases `<cipher>-<mode>-<bits>.encrypt` and `.decrypt`, then the cascades in XTS.

    A child process sends the kernel one request after the other (AF_ALG), for `seconds`, on each of
    its `threads`: one, as dm-crypt has for a single stream, or all, as VeraCrypt's benchmark has
    (eight in the paper). Each request is copied into the kernel once, which is part of the figure,
    and has one initial value; dm-crypt takes one for each sector and copies nothing. `request_kib`
    is large so that the child's code has a small share: its report, which is saved, has `user_s`
    for that code and `system_s` for the kernel. Each cipher is first checked by known answers. The
    kernel has no cascade as one cipher: a cascade is one pass for each of its ciphers, as in
    stacked mappings; its bytes are counted once. Ciphers that this kernel lacks are left out.
    """

    name = "kernel_ciphers"
    summary = "the kernel's ciphers in memory, encrypting and decrypting"
    program = "the kernel's ciphers"
    parameters = (
        lists.some_of("ciphers", CIPHERS, "as the kernel names them"),
        lists.some_of("modes", "xts,cbc", "of xts and cbc", MODES),
        lists.some_of(
            "key_bits", "128,256", "sizes of the ciphers' keys; XTS has two of them", KEY_BITS
        ),
        lists.some_of(
            "cascades", PAPER_CASCADES, "in XTS with 256 bits; the first is applied last"
        ),
        Parameter("request_kib", 256, "KiB", "what the kernel is given at a time", minimum=4),
        Parameter("seconds", 2.0, "s", "least length of a phase"),
        Parameter("threads", 1, "", "how many requests at a time; 0: as many as CPUs", minimum=0),
    )
    small: ClassVar = {
        "ciphers": "aes",
        "modes": "xts",
        "key_bits": "128",
        "cascades": "aes-serpent",
        "request_kib": 16,
        "seconds": 0.05,
    }

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        reasons = super().requires(parameters, assets)
        try:
            with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as probe:
                probe.bind(("skcipher", "cbc(aes)"))
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, str(error))
            reasons.append(
                f"{self.name} needs the kernel's interface to its ciphers (AF_ALG), which answers "
                f"{reason}: load the module algif_skcipher, or take a kernel that has it "
                f"(CONFIG_CRYPTO_USER_API_SKCIPHER).{restriction()}"
            )
        return reasons

    def check(self, parameters: Parameters) -> None:
        planned(parameters)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        # Two of our buffers, and the kernel's copy.
        return Needs(memory_bytes=3 * threads(parameters) * int(parameters["request_kib"]) * KIB)

    def run(self, context: Context) -> None:
        missing: dict[str, list[str]] = {}
        request_bytes = int(context.parameters["request_kib"]) * KIB
        with Child(self.name, context.disk) as child:
            for row in planned(context.parameters):
                try:
                    for direction in DIRECTIONS:
                        requests = (direction, request_bytes, threads(context.parameters))
                        job = CipherJob(row.ciphers, row.mode, row.key_bits, *requests)
                        work, steps = repeat(context, child, f"{row.name}.{direction}", job)
                        work.add(bytes=steps * request_bytes, operations=steps)
                except MissingError as error:
                    missing.setdefault(str(error), []).append(row.name)
        for reason, names in missing.items():
            context.leave_out(", ".join(names), reason)


@dataclass(frozen=True)
class Row:
    """A cipher or cascade; the last of `ciphers` is applied first."""

    ciphers: tuple[str, ...]
    mode: str
    key_bits: int

    @property
    def name(self) -> str:
        return f"{'-'.join(self.ciphers)}-{self.mode}-{self.key_bits}"


def threads(parameters: Parameters) -> int:
    """Return the number of threads; 0 means all CPUs that this process may use."""
    return int(parameters["threads"]) or len(os.sched_getaffinity(0))


def planned(parameters: Parameters) -> list[Row]:
    """Return every row once, in the order of the parameters; WorkloadError without any."""
    singles = (lists.words(parameters[name]) for name in ("ciphers", "modes", "key_bits"))
    rows = [Row((name,), mode, int(bits)) for name, mode, bits in itertools.product(*singles)]
    cascades = lists.words(parameters["cascades"])
    rows += [Row(tuple(cascade.split("-")), "xts", 256) for cascade in cascades]
    if not rows:
        raise WorkloadError("no-ciphers")
    return list(dict.fromkeys(rows))
