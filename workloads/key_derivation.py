"""The work of VeraCrypt's key derivation, by hash and PIM (Personal Iterations Multiplier).

Source: VeraCrypt's documentation, "Header Key Derivation, Salt, and Iteration Count", "PIM" and
"Argon2id" (veracrypt.fr/en). RIPEMD-160, removed from newer versions, as up to version 1.25.
`system` is the encryption of the boot disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from contract.parameters import Parameter
from workloads import lists
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import Child, repeat
from workloads.children.serving import Job, MissingError

# Iterations without a PIM: for a volume or container, and for system encryption.
DEFAULTS = {
    "sha512": (500_000, 500_000),
    "whirlpool": (500_000, 500_000),
    "sha256": (500_000, 200_000),
    "streebog": (500_000, 200_000),
    "ripemd160": (655_331, 327_661),
}
# Hashes that have the same formula for both.
_ALIKE = ("sha512", "whirlpool")
_DEFAULT_ARGON2_PIM = 12


@dataclass(frozen=True)
class Argon2:
    """Parameters of Argon2: passes, memory in KiB, lanes."""

    passes: int
    memory_kib: int
    lanes: int


def iterations(hash_name: str, pim: int = 0, *, system: bool = False) -> int:
    """Return the iterations of PBKDF2; a PIM of 0 means none.

    WorkloadError for a hash that VeraCrypt never had.
    """
    if hash_name not in DEFAULTS:
        raise WorkloadError("no-such-hash", hash_name=hash_name, known=", ".join(DEFAULTS))
    if pim == 0:
        return DEFAULTS[hash_name][system]
    if system and hash_name not in _ALIKE:
        return 2048 * pim
    return 15_000 + 1000 * pim


def argon2id(pim: int = 0) -> Argon2:
    """Return Argon2id's parameters for a volume; a PIM of 0 is the default."""
    pim = pim or _DEFAULT_ARGON2_PIM
    memory_mib = min(64 + 32 * (pim - 1), 1024)
    passes = 3 + (pim - 1) // 3 if pim <= 31 else 13 + pim - 31
    return Argon2(passes, memory_mib * 1024, 1)


KIB = 1 << 10
ARGON2ID = "argon2id"
FUNCTIONS = (*DEFAULTS, ARGON2ID)


class KeyDerivation(Workload):
    """Phases `pbkdf2-<hash>.<n>i` and `argon2id.t<passes>-m<memory>KiB-p<lanes>`.

    A child process derives one key after the other, for `seconds` and to the end of the last, in
    OpenSSL (SHA-2), libgcrypt (the other hashes) or libargon2; missing ones are left out. Each
    function is first checked by a known answer. PBKDF2's time grows with the length of the key, in
    units of the hash: 64 bytes are one of SHA-512 and two of SHA-256. One thread, except for the
    lanes of Argon2id. `iterations` and `argon2id` name any costs, `pims` VeraCrypt's.
    """

    name = "key_derivation"
    summary = "keys derived from passphrases with PBKDF2 and Argon2id"
    program = "OpenSSL, libgcrypt and libargon2"
    parameters = (
        lists.some_of("functions", ",".join(FUNCTIONS), "hashes of PBKDF2 and argon2id", FUNCTIONS),
        lists.some_of("iterations", "", "counts for PBKDF2"),
        lists.some_of("pims", "0", "VeraCrypt's PIMs; 0: its default"),
        Parameter("system", False, "", "whether the PIMs are those of VeraCrypt's system disk"),
        lists.some_of("argon2id", "t4-m1048576KiB-p4", "further costs of Argon2id"),
        Parameter("key_bytes", 64, "B", "length of the key", minimum=16, maximum=4096),
        Parameter("seconds", 2.0, "s", "least length of a phase"),
    )
    small: ClassVar = {
        "functions": "sha512,streebog,argon2id",
        "iterations": "10",
        "pims": "",
        "argon2id": "t1-m64KiB-p1",
        "seconds": 0.05,
    }

    def check(self, parameters: Parameters) -> None:
        planned(parameters)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        costs = [job.argon2 for job in planned(parameters)]
        return Needs(memory_bytes=max(cost.memory_kib if cost else 0 for cost in costs) * KIB)

    def run(self, context: Context) -> None:
        parameters = context.parameters
        functions = lists.words(parameters["functions"])
        if parameters["system"] and parameters["pims"] and ARGON2ID in functions:
            context.leave_out(
                "VeraCrypt's argon2id for a system disk",
                "VeraCrypt has Argon2id for volumes only: set system to false for it.",
            )
        with Child(self.name, context.disk) as child:
            for job in planned(parameters):
                try:
                    work, derived = repeat(context, child, job.phase, job)
                except MissingError as reason:
                    context.leave_out(job.phase, str(reason))
                else:
                    work.add(derivations=derived)


@dataclass(frozen=True)
class KeyJob(Job):
    """Keys of `key_bytes` by `iterations` of PBKDF2 with the hash `function`, or by Argon2id."""

    function: str
    key_bytes: int
    iterations: int = 0
    argon2: Argon2 | None = None

    @property
    def phase(self) -> str:
        if cost := self.argon2:
            return f"argon2id.t{cost.passes}-m{cost.memory_kib}KiB-p{cost.lanes}"
        return f"pbkdf2-{self.function}.{self.iterations}i"


def planned(parameters: Parameters) -> list[KeyJob]:
    """Return every derivation once, in the order of the functions.

    WorkloadError for an invalid one, or without any.
    """
    system, key_bytes = bool(parameters["system"]), int(parameters["key_bytes"])
    pims = lists.numbers("pims", parameters["pims"], least=0, optional=True)
    jobs = []
    for function in lists.words(parameters["functions"]):
        if function == ARGON2ID:
            costs = [_cost(word) for word in lists.words(parameters["argon2id"])]
            costs += [] if system else map(argon2id, pims)
            jobs += [KeyJob(function, key_bytes, argon2=cost) for cost in costs]
        else:
            counts = lists.numbers("iterations", parameters["iterations"], optional=True)
            counts += [iterations(function, pim, system=system) for pim in pims]
            jobs += [KeyJob(function, key_bytes, count) for count in counts]
    if not jobs:
        raise WorkloadError("no-derivations")
    return list(dict.fromkeys(jobs))


def _cost(word: str) -> Argon2:
    match = re.fullmatch(r"t(\d{1,4})-m(\d{1,8})KiB-p(\d{1,3})", word)
    cost = Argon2(*(int(number) for number in match.groups())) if match else None
    # The limits of RFC 9106, section 3.1.
    if not cost or cost.passes < 1 or cost.lanes < 1 or cost.memory_kib < 8 * cost.lanes:
        raise WorkloadError("invalid-argon2id", word=word)
    return cost
