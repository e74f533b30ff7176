"""The kernel's ciphers in memory, one by one and in cascades, as dm-crypt would call them.

After the paper "Analiza wpływu szyfrowania na operacje odczytu i zapisu", figure 1 (VeraCrypt's
benchmark on 50 MB). `cryptsetup benchmark` uses the kernel's interface for programs (AF_ALG), which
is deprecated since Linux 7.2 and missing in hardened kernels, and runs both directions together,
so that their energy could not be separated.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import ClassVar

from contract.parameters import Parameter
from workloads import lists, programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import Child, repeat
from workloads.children.kernel_ciphers import CipherJob
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

    A child process writes through dm-crypt to a disk that discards everything, and reads zeros
    through it, for `seconds`, on each of its `threads`: one, as dm-crypt has for a single stream,
    or all, as VeraCrypt's benchmark has (eight in the paper). Nothing is copied, and each sector of
    4 KiB has its initial value. `request_kib` is large so that the child's code has a small share:
    its report, which is saved, has `user_s` for that code and `system_s` for the kernel. Each
    cipher is first checked by known answers. A cascade is one mapping on the other, as VeraCrypt's
    volumes have here; its bytes are counted once. `drivers` are measured, too, by the kernel's
    names; else the kernel takes the one of highest priority, which the report has. Ciphers and
    drivers that this kernel lacks are left out.
    """

    name = "kernel_ciphers"
    summary = "the kernel's ciphers in memory, encrypting and decrypting"
    program = "the kernel's ciphers"
    programs = ("dmsetup", "losetup")
    parameters = (
        lists.some_of("ciphers", CIPHERS, "as the kernel names them"),
        lists.some_of("modes", "xts,cbc", "of xts and cbc", MODES),
        lists.some_of("key_bits", "128,256", "sizes of the ciphers' keys; XTS has two", KEY_BITS),
        lists.some_of("cascades", PAPER_CASCADES, "in XTS, 256 bits; the first is applied last"),
        lists.some_of("drivers", "", "of a cipher in a mode, as in /proc/crypto: xts-aes-lib"),
        Parameter("request_kib", 256, "KiB", "of one request, a multiple of 4", minimum=4),
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
            programs.run(["dmsetup", "version"])
        except WorkloadError as error:
            reasons.append(f"{self.name} needs the kernel's device-mapper, and root: {error}")
        return reasons

    def check(self, parameters: Parameters) -> None:
        planned(parameters)
        if (kib := int(parameters["request_kib"])) % 4:
            raise WorkloadError("request-without-sectors", kib=kib)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        # Our buffer, and the kernel's encrypted copy.
        return Needs(memory_bytes=2 * threads(parameters) * int(parameters["request_kib"]) * KIB)

    def run(self, context: Context) -> None:
        missing: dict[str, list[str]] = {}
        request_bytes = int(context.parameters["request_kib"]) * KIB
        with Child(self.name, context.disk) as child:
            for row in planned(context.parameters):
                try:
                    for direction in DIRECTIONS:
                        requests = (direction, request_bytes, threads(context.parameters))
                        job = CipherJob(row.ciphers, row.mode, row.key_bits, row.driver, *requests)
                        work, steps = repeat(context, child, f"{row.name}.{direction}", job)
                        work.add(bytes=steps * request_bytes, operations=steps)
                except MissingError as error:
                    missing.setdefault(str(error), []).append(row.name)
        for reason, names in missing.items():
            context.leave_out(", ".join(names), reason)


@dataclass(frozen=True)
class Row:
    """A cipher, a driver of it, or a cascade; the last of `ciphers` is applied first."""

    ciphers: tuple[str, ...]
    mode: str
    key_bits: int
    driver: str = ""

    @property
    def name(self) -> str:
        return f"{self.driver or '-'.join([*self.ciphers, self.mode])}-{self.key_bits}"


def threads(parameters: Parameters) -> int:
    """Return the number of threads; 0 means all CPUs that this process may use."""
    return int(parameters["threads"]) or len(os.sched_getaffinity(0))


def planned(parameters: Parameters) -> list[Row]:
    """Return every row once, in the order of the parameters; WorkloadError without any."""
    singles = (lists.words(parameters[name]) for name in ("ciphers", "modes", "key_bits"))
    rows = [Row((name,), mode, int(bits)) for name, mode, bits in itertools.product(*singles)]
    cascades = lists.words(parameters["cascades"])
    rows += [Row(tuple(cascade.split("-")), "xts", 256) for cascade in cascades]
    for driver in lists.words(parameters["drivers"]):
        mode, *names = driver.split("-")
        if mode not in MODES or len(names) < 2:
            raise WorkloadError("not-a-driver", driver=driver)
        sizes = map(int, lists.words(parameters["key_bits"]))
        rows += [Row((names[0],), mode, bits, driver) for bits in sizes]
    if not rows:
        raise WorkloadError("no-ciphers")
    return list(dict.fromkeys(rows))
