"""Search a kernel source tree for a word, as in Fujimoto et al., section III E."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs, trees
from workloads.base import Assets, Context, Needs, Parameters, WorkloadError, one_of

# grep says 1 where no line matches.
FOUND_OR_NOT = (0, 1)


class KernelGrep(trees.OnTree):
    """Phases `grep-1` ... `grep-n`, each over a fresh copy of the tree with an empty page cache.

    The matching lines go through a pipe to `wc`: with /dev/null as its output GNU grep would stop
    at the first match. Their number is recorded; it must be above zero, the same for every copy.
    With `cache` warm, each copy has been searched once before.
    """

    name = "kernel_grep"
    summary = "recursive search over the Linux source, a fresh copy each time"
    parameters = (
        Parameter("copies", 1, "", "separate copies of the tree, one search each", minimum=1),
        trees.ONLY,
        Parameter("word", "module", "", "what is searched for"),
        one_of(
            "cache",
            "whether the page cache is empty or holds the copy when it is searched",
            *("cold", "warm"),
        ),
    )
    small: ClassVar = {"copies": 2}
    program = "grep -r, and wc -l"
    programs = ("grep", "tar", "wc")
    assets = ("kernel_grep",)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:
        """Room for every copy; memory for one where the page cache is to hold it."""
        copy_bytes = trees.room_bytes(assets["kernel_grep"], str(parameters["only"]))
        return Needs(
            disk_bytes=int(parameters["copies"]) * copy_bytes,
            memory_bytes=copy_bytes if parameters["cache"] == "warm" else 0,
        )

    def prepare(self, context: Context) -> None:
        archive, only = context.assets["kernel_grep"], str(context.parameters["only"])
        for tree in _copies(context):
            tree.mkdir()
            programs.run(trees.unpack_command(archive, tree, only))

    def run(self, context: Context) -> None:
        word = str(context.parameters["word"])
        copies = _copies(context)
        amounts = trees.size(copies[0])
        counts: list[int] = []
        for number, tree in enumerate(copies, start=1):
            programs.cold_start(context, ["grep", "--version"], ["wc", "--version"])
            search: list[programs.Command] = [["grep", "-r", "-e", word, tree], ["wc", "-l"]]
            if context.parameters["cache"] == "warm":
                programs.run(*search, ok=FOUND_OR_NOT)
            work, lines = programs.measured(context, f"grep-{number}", *search, ok=FOUND_OR_NOT)
            counts.append(int(lines))
            work.add(**amounts, matches=counts[-1])
        if not all(counts):
            raise WorkloadError("word-absent", word=word)
        if len(set(counts)) > 1:
            raise WorkloadError("copies-differ", counts=counts, word=word)


def _copies(context: Context) -> list[Path]:
    count = int(context.parameters["copies"])
    return [context.disk / f"copy-{number:03d}" for number in range(1, count + 1)]
