"""A suite with the workloads of all five papers, whose figures follow from made-up speeds.

For tests of the report: entries with other names, repeats within a block,
extra blocks, declared comparisons, a skipped workload, a part left out. Nothing in it is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from validation.synthetic.folder import (
    CPUS,
    FinishedRun,
    Line,
    Marks,
    Power,
    Record,
    write_manifest,
    write_meter,
)
from validation.synthetic.suite import IDLE_W, STACKS, frozen

BLOCKS, EXTRA_BLOCKS = 3, 2
BUSY_W = (30.0, 2.6, 10.0, 1.4)
PHASE_S, PAUSE_S, TAIL_S = 0.2, 0.05, 0.3
KIB, MIB = 2**10, 2**20
TCRYPT = {
    f"tcrypt-{cipher}256": {
        **{"kind": "tcrypt", "disk": "plain", "encrypted_by": "processor"},
        **{"cipher": cipher, "key_bits": 256, "label": f"TrueCrypt {label}-256"},
    }
    for cipher, label in (("aes", "AES"), ("serpent", "Serpent"), ("twofish", "Twofish"))
}
FOUR = ("plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256")
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {name: STACKS[name] for name in FOUR} | TCRYPT
# How many times as long the same work takes on a configuration.
COST = {
    **{"plain": 1.0, "opal": 1.01, "dmcrypt-aes128": 1.2, "dmcrypt-aes256": 1.25},
    **{"tcrypt-aes256": 1.3, "tcrypt-serpent256": 1.8, "tcrypt-twofish256": 1.5},
}
# MB/s of the ciphers, whatever their mode.
SPEED = {
    **{"aes": 2000.0, "des": 60.0, "3des": 20.0, "blowfish": 110.0, "serpent": 300.0},
    **{"twofish": 350.0, "camellia": 320.0, "rsa": 0.1, "aes without its instructions": 90.0},
}
FILE_BYTES = (MIB, 2 * MIB)
MODE_BYTES, LARGE_BYTES = (20_527, 36_002), 256 * MIB
STEPS = (512, 4 * KIB, MIB, 64 * MIB)
ALONE = ("plain",)

Phases = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Entry:
    """An entry of the suite; `phases` is the work of each by unit, in `PHASE_S` on plain."""

    name: str
    workload: str
    phases: Phases
    configurations: tuple[str, ...] = ALONE
    repeat: int = 1
    program: str = "a program that never ran"
    left_out: tuple[tuple[str, str], ...] = field(default=())


def entries() -> list[Entry]:
    """Return small entries of all five papers."""
    small = {"bytes": 20.0 * 10 * MIB, "files": 20.0}
    large = {"bytes": 1024.0 * MIB, "files": 1.0}
    files = {"write-small": small, "read-small": small, "write-large": large, "read-large": large}
    tree = {name: {"bytes": 900.0 * MIB, "files": 60000.0} for name in ("copy", "untar", "tar")}
    grep = {f"grep-{i}": {"bytes": 900.0 * MIB, "files": 60000.0} for i in (1, 2)}
    query = {"query": {"queries": 4000.0, "transactions": 200.0}}
    video = {"play": {"video_s": 60.0}}
    every = tuple(CONFIGURATIONS)
    return [
        Entry("file_io", "file_io", files, FOUR, program="dd (coreutils)"),
        Entry("file_io-warm", "file_io", {"read-small": {**small}}, FOUR, program="dd (coreutils)"),
        Entry("kernel_tree", "kernel_tree", tree, FOUR, repeat=2),
        Entry("kernel_grep", "kernel_grep", grep, FOUR),
        Entry("sql-small", "sql", query, FOUR),
        Entry("sql-large", "sql", query, FOUR),
        Entry("video", "video", video, FOUR),
        Entry("access_patterns", "access_patterns", _patterns(), every, program="fio"),
        Entry("block_sizes", "block_sizes", _steps(), ("plain", "tcrypt-aes256"), program="fio"),
        Entry("kernel_ciphers", "kernel_ciphers", _kernel(), left_out=(NO_CAMELLIA,)),
        Entry("key_derivation", "key_derivation", _derivations()),
        Entry("file_ciphers", "file_ciphers", _files()),
        Entry("cipher_modes", "cipher_modes", _modes(CIPHERS, MODE_BYTES)),
        Entry("cipher_modes-large", "cipher_modes", _modes(CIPHERS, (LARGE_BYTES,))),
        Entry("cipher_modes-no-aes", "cipher_modes", _modes(NO_AES, (*MODE_BYTES, LARGE_BYTES))),
        Entry("cascades", "kernel_ciphers", {}),  # cannot be made: every run is skipped
    ]


NO_CAMELLIA = ("camellia-xts-256", "This kernel has no camellia: load its module.")
NO_CASCADES = "kernel_ciphers needs the program cryptsetup: install its package."
COMPARISONS: list[dict[str, Any]] = [
    {
        "name": "caching",
        "question": "Does a warm page cache save energy?",
        "first": {"workload": "file_io", "phase": "read-small"},
        "second": {"workload": "file_io-warm", "phase": "read-small"},
        "per": "bytes",
    },
    {
        "name": "sql-size",
        "question": "Does a database larger than the buffer pool cost more?",
        "first": {"workload": "sql-large", "phase": "all"},
        "second": {"workload": "sql-small", "phase": "all"},
        "per": None,
        "configurations": ["plain", "dmcrypt-aes256"],
    },
    {
        "name": "delayed-writes",
        "question": "What is left to write when the program has ended?",
        "first": {"workload": "file_io", "phase": "tail"},
        "second": {"workload": "file_io", "phase": "all"},
    },
]


def _patterns() -> Phases:
    mb = {"sequential": 40.0, "random": 0.5}
    return {
        f"{way}-{order}": {"bytes": mb[order] * MIB, "operations": mb[order] * MIB / size}
        for order, size in (("sequential", 4 * MIB), ("random", 4 * KIB))
        for way in ("write", "read")
    }


def _steps() -> Phases:
    steps = {
        f"{way}.{size}B": {"bytes": size * 40.0, "operations": 40.0}
        for size in STEPS
        for way in ("write", "read")
    }
    return {**steps, "access.read": {"operations": 1000.0}, "burst.read": {"bytes": 60.0 * MIB}}


def _of_cipher(cipher: str) -> dict[str, float]:
    return {"bytes": SPEED[cipher] * MIB * PHASE_S, "operations": 10.0}


def _kernel() -> Phases:
    seconds = {
        f"{cipher}-xts-256.{way}": _of_cipher(cipher)
        for cipher in ("aes", "serpent", "twofish")
        for way in ("encrypt", "decrypt")
    }
    work = {"bytes": 160.0 * MIB * PHASE_S, "operations": 10.0}
    return {**seconds, **{f"aes-twofish-xts-256.{way}": work for way in ("encrypt", "decrypt")}}


def _derivations() -> Phases:
    rate = {"sha256": 900_000.0, "sha512": 600_000.0, "whirlpool": 300_000.0, "ripemd160": 5e5}
    return {
        f"pbkdf2-{name}.{count}i": {"derivations": each * PHASE_S / count, "keys": 1.0}
        for name, each in rate.items()
        for count in (1000, 500_000)
    }


def _files() -> Phases:
    ciphers = {"aes-128-cbc": "aes", "des-cbc": "des", "blowfish-128-cbc": "blowfish"}
    totals = {
        f"{name}.{way}.{kind}.{size}B": _of_cipher(cipher)
        for (name, cipher), way, kind, size in product(
            ciphers.items(), ("encrypt", "decrypt"), ("text", "image"), FILE_BYTES
        )
    }
    wrapped = {
        f"rsa-2048-{how}.{way}.text.{size}B": _of_cipher("aes" if how == "wrap" else "rsa")
        for how, way, size in product(("wrap", "oaep"), ("encrypt", "decrypt"), FILE_BYTES)
    }
    return {**totals, **wrapped}


CIPHERS = {"aes-128": "aes", "des": "des", "3des": "3des", "blowfish-448": "blowfish"}
NO_AES = {"aes-128": "aes without its instructions"}


def _modes(ciphers: Mapping[str, str], sizes: tuple[int, ...]) -> Phases:
    return {
        f"{name}-{mode}.encrypt.{size}B": _of_cipher(cipher)
        for (name, cipher), mode, size in product(ciphers.items(), ("ecb", "cfb"), sizes)
    }


def write_papers_suite(folder: Path, seed: int = 5, flags: tuple[str, ...] = ("aes",)) -> None:
    """Make the sealed suite folder; `flags` are those of its processor."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    record = Record(_plan(seed), rapl_step_s=0.5)
    power = record.power
    power.add(2.0, IDLE_W)
    record.state("suite-started")
    by_name = {entry.name: entry for entry in entries()}
    for run in record.plan["runs"]:
        entry = by_name[run["workload"]]
        if entry.phases:
            marks = _enact(entry, str(run["configuration"]), power, generator)
            record.finish(_finished_run(run, entry, marks))
        else:
            record.skipped[run["run_id"]] = NO_CASCADES
            record.state("void", run["run_id"])
    power.add(2.0, IDLE_W)
    record.state("suite-finished")
    provenance = {"cpu": {"model": "Made-up CPU", "flags": list(flags)}, "synthetic": __doc__}
    record.write(folder, generator, provenance)
    limits = {"relative_limit": 0.01, "absolute_limit_w": 0.0005, "source": "-"}
    write_meter(folder, record, Line(limits), generator)
    write_manifest(folder)


def _finished_run(run: Mapping[str, Any], entry: Entry, marks: Marks) -> FinishedRun:
    run_fields = {
        "program": entry.program,
        "cpus": CPUS,
        "left_out": [{"what": part, "reason": reason} for part, reason in entry.left_out],
        "kept": {},
    }
    busy = 0.001 if entry.workload == "video" else 0.6
    return FinishedRun(run, marks, work=entry.phases, extra=run_fields, busy=busy)


def _enact(entry: Entry, configuration: str, power: Power, generator: np.random.Generator) -> Marks:
    cost = 1.0 if entry.workload in ("video", "sql") else COST[configuration]
    if entry.name == "sql-large":
        cost = 1.4
    if entry.name == "file_io-warm":
        cost = 0.5
    phases = [
        (phase, PHASE_S * cost * float(np.exp(generator.normal(0, 0.01))), BUSY_W)
        for phase in entry.phases
    ]
    return power.add_run(phases, IDLE_W, (0.3, PAUSE_S), (TAIL_S, IDLE_W))


def _plan(seed: int) -> dict[str, Any]:
    return frozen(
        {
            "suite_id": "papers-synthetic-20260101T000000Z",
            "suite": "papers",
            "scale": "made-up speeds",
            "seed": seed,
            "blocks": BLOCKS,
            "extra_blocks": {"first": BLOCKS, "count": EXTRA_BLOCKS},
            "origin": "modelled",
            "configurations": [{"name": n, **stack} for n, stack in CONFIGURATIONS.items()],
            "workloads": [
                {"name": e.name, "workload": e.workload, "parameters": {}} for e in entries()
            ],
            "runs": list(_runs()),
            "settle_s": 0.3,
            "analysis": {
                "contrasts": [["plain", "opal"], ["dmcrypt-aes128", "dmcrypt-aes256"]],
                "margin": 0.02,
                "comparisons": COMPARISONS,
            },
        }
    )


def _runs() -> Iterator[dict[str, Any]]:
    """Yield all entries in the full blocks, the kernel tree with AES in the extra ones."""
    index = 0
    for block in range(BLOCKS + EXTRA_BLOCKS):
        for entry, name in product(entries(), CONFIGURATIONS):
            extra = block >= BLOCKS
            part = entry.name == "kernel_tree" and name.startswith("dmcrypt")
            if name not in entry.configurations or (extra and not part):
                continue
            for repeat in range(entry.repeat):
                run = {"block": block, "configuration": name, "workload": entry.name}
                repeat_key = {"repeat": repeat} if entry.repeat > 1 else {}
                end = f".{repeat}" if repeat_key else ""
                run_id = f"{index:04d}-b{block:02d}-{name}-{entry.name}{end}"
                yield {"run_id": run_id, "index": index, **run, **repeat_key}
                index += 1
