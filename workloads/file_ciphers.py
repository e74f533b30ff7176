"""Whole files encrypted and decrypted, as in Panda, section III."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from contract.parameters import Parameter
from contract.strict_json import Document
from workloads import lists
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import Child, keep, measure
from workloads.crypt import catalogue, samples
from workloads.crypt.catalogue import MIB

OAEP = "rsa-2048-oaep"
PAPER_RECIPES = ("aes-128-cbc", "des-cbc", "blowfish-128-cbc", "rsa-2048-wrap", OAEP)
RECIPES = (*PAPER_RECIPES, "rsa-1024-wrap", "rsa-3072-wrap", "rsa-4096-wrap")
KINDS = tuple(samples.KINDS)
PAPER_SIZES = "1048576,2097152,5242880,10485760,20971520"
# Plaintext bytes in a block of OAEP, as `workloads.crypt.recipes` counts them.
CHUNK_BYTES = 190
# The child's Python and its libraries; 30 MiB were observed.
CHILD_BYTES = 64 * MIB


@dataclass(frozen=True)
class Job:
    """A file and a recipe: two phases."""

    recipe: str
    kind: str
    size_bytes: int

    def phase(self, verb: str) -> str:
        return f"{self.recipe}.{verb}.{self.kind}.{self.size_bytes}B"

    @property
    def sample(self) -> str:
        return f"{self.kind}-{self.size_bytes}"


class FileCiphers(Workload):
    """Phases `RECIPE.encrypt.KIND.SIZEB` and `RECIPE.decrypt.KIND.SIZEB`.

    A phase repeats one file for at least `seconds`: open it and read it whole, encrypt with a fresh
    key schedule and vector, overwrite the other file. The page cache is emptied before, so that the
    first read is from the disk; the others are from memory, and so are the writes, unless `fsync`,
    until the kernel writes back. The paper does not state whether its times include reading and
    writing; `file_io` chooses.

    Nor does it state RSA's key (here 2048 bits), or how files longer than a key were encrypted. Its
    encryption times grow with the file, as if chunk after chunk were encrypted: `rsa-2048-oaep`.
    Its decryption times are some 4 ms for any size, too short even to decrypt the file with AES:
    one private operation, as in unwrapping a key. `rsa-2048-wrap` does that, and decrypts the file;
    so do those with keys from 1024 to 4096 bits, which the paper names as RSA's.
    """

    name = "file_ciphers"
    summary = "text, binary and image files encrypted and decrypted whole"
    program = "OpenSSL through Python's cryptography, and PyCryptodome for what that lacks"
    parameters = (
        lists.some_of(
            "ciphers", ",".join(PAPER_RECIPES), "which ciphers, with their mode or use", RECIPES
        ),
        lists.some_of("kinds", ",".join(KINDS), "which kinds of files", KINDS),
        lists.some_of("sizes", PAPER_SIZES, "the files' bytes"),
        Parameter("seconds", 1.0, "s", "how long a phase repeats its file", minimum=0.01),
        Parameter("file_io", True, "", "whether files are read and written within the phases"),
        Parameter("fsync", False, "", "whether a file is on the drive before the next repetition"),
        Parameter(
            "oaep_max_bytes",
            MIB,
            "B",
            "longest file all of which is decrypted with RSA; longer ones are encrypted alone",
        ),
    )
    small: ClassVar = {
        "ciphers": "rsa-2048-wrap,rsa-2048-oaep",
        "kinds": "text",
        "sizes": "5000",
        "seconds": 0.05,
    }

    def requires(self, parameters: Parameters, assets: Assets) -> list[str]:
        return super().requires(parameters, assets) + catalogue.missing_libraries(self.name)

    def check(self, parameters: Parameters) -> None:
        list(planned(parameters))

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        sizes = {job.sample: job.size_bytes for job in planned(parameters)}
        largest = max(sizes.values())
        # Besides the samples, an encrypted file, with OAEP a third longer, and a decrypted one.
        return Needs(
            disk_bytes=sum(sizes.values()) + 3 * largest, memory_bytes=3 * largest + CHILD_BYTES
        )

    def prepare(self, context: Context) -> None:
        for job in {job.sample: job for job in planned(context.parameters)}.values():
            samples.write(context.disk / job.sample, job.kind, job.size_bytes, context.seed)

    def run(self, context: Context) -> None:
        jobs = list(planned(context.parameters))
        recipes: list[Document] = []
        rows: list[Document] = []
        with Child(self.name, context.disk, catalogue.environment(True)) as child:
            for recipe in dict.fromkeys(job.recipe for job in jobs):
                answer = child.ask("recipe", recipe=recipe, seed=context.seed)
                recipes.append({"cipher": recipe, **answer})
                if recipe == OAEP:
                    _leave_out_long(context, jobs, float(answer["unwrap_s"]))
            for job in jobs:
                rows += _measure(context, child, job)
        names = (job.recipe.removesuffix("-cbc") for job in jobs if job.recipe.endswith("-cbc"))
        content: Document = {"ciphers": recipes, "unsafe": catalogue.unsafe(names), "phases": rows}
        keep(context, "ciphers", content)


def planned(parameters: Parameters) -> Iterator[Job]:
    """Yield the jobs that the parameters request, in the order of their phases."""
    sizes = lists.numbers("sizes", parameters["sizes"])
    if min(sizes) < samples.SMALLEST_BYTES:
        raise WorkloadError(
            "sizes-too-small", smallest_bytes=samples.SMALLEST_BYTES, size=min(sizes)
        )
    for size in sizes:
        for kind in lists.words(parameters["kinds"]):
            for recipe in lists.words(parameters["ciphers"]):
                yield Job(recipe, kind, size)


def _too_long(job: Job, parameters: Parameters) -> bool:
    return job.recipe == OAEP and job.size_bytes > int(parameters["oaep_max_bytes"])


def _leave_out_long(context: Context, jobs: list[Job], unwrap_s: float) -> None:
    """Leave out files, with figures, that would take too long to decrypt with RSA."""
    limit = int(context.parameters["oaep_max_bytes"])
    long = (job.size_bytes for job in jobs if _too_long(job, context.parameters))
    for size in dict.fromkeys(long):
        operations = -(-size // CHUNK_BYTES)
        context.leave_out(
            f"decrypting {OAEP} of {size} B",
            f"Decrypting it takes {operations} private operations of {1000 * unwrap_s:.2f} ms, "
            f"{operations * unwrap_s:.0f} s; raise oaep_max_bytes above {limit} to have it.",
        )


def _measure(context: Context, child: Child, job: Job) -> list[Document]:
    """Return the phases of a file; a decrypted file must equal the original."""
    original = context.disk / job.sample
    encrypted, decrypted = context.disk / "encrypted", context.disk / "decrypted"
    rows: list[Document] = []
    ways = (("encrypt", original, encrypted), ("decrypt", encrypted, decrypted))
    directions = ways[:1] if _too_long(job, context.parameters) else ways
    for verb, source, target in directions:
        child.ask(
            "file",
            recipe=job.recipe,
            encrypt=verb == "encrypt",
            source=str(source),
            target=str(target),
            seconds=float(context.parameters["seconds"]),
            file_io=bool(context.parameters["file_io"]),
            fsync=bool(context.parameters["fsync"]),
        )
        context.drop_caches()
        work, report = measure(context, child, job.phase(verb))
        steps = int(report["steps"])
        work.add(operations=steps, files=steps, bytes=steps * job.size_bytes)
        rows.append({"phase": job.phase(verb), **report})
    if directions == ways:
        child.ask("same", first=str(original), second=str(decrypted))
    encrypted.unlink()
    decrypted.unlink(missing_ok=True)
    return rows
