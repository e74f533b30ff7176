"""Search a kernel source tree for a word, as in Fujimoto et al., section III E."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs, trees
from workloads.base import Assets, Context, Needs, Parameters, WorkloadError, one_of

# grep exits with 1 if no line matches.
GREP_STATUSES = (0, 1)


class KernelGrep(trees.OnTree):
    """Phases `grep-1` ... `grep-n`, each over a fresh copy of the tree with an empty page cache.

    The matching lines go through a pipe to `wc`: with /dev/null as its output GNU grep would stop
    at the first match. Their number must equal the archive's lines with the word, which is a fixed
    string; all files count as text. With `cache` warm, each copy has been searched before.
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

    def check(self, parameters: Parameters) -> None:
        if not str(parameters["word"]):
            raise WorkloadError("word-empty")

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:
        """Return the room for every copy, and memory for one if the page cache must hold it."""
        copy_bytes = _listed(parameters, assets).room_bytes
        return Needs(
            disk_bytes=int(parameters["copies"]) * copy_bytes,
            memory_bytes=copy_bytes if parameters["cache"] == "warm" else 0,
        )

    def prepare(self, context: Context) -> None:
        archive, only = context.assets["kernel_grep"], str(context.parameters["only"])
        listed = _listed(context.parameters, context.assets)
        for tree in _copies(context):
            tree.mkdir()
            programs.run(trees.unpack_command(archive, tree, only))
            if (unpacked := trees.size(tree).amounts) != listed.amounts:
                raise WorkloadError("tree-differs", **unpacked, listed=listed.files)
        if not listed.matches:
            raise WorkloadError("word-absent", word=context.parameters["word"])

    def run(self, context: Context) -> None:
        word, warm = str(context.parameters["word"]), context.parameters["cache"] == "warm"
        listed = _listed(context.parameters, context.assets)
        for number, tree in enumerate(_copies(context), start=1):
            programs.cold_start(context, ["grep", "--version"], ["wc", "--version"])
            search: list[programs.Command] = [["grep", "-raFe", word, tree], ["wc", "-l"]]
            if warm:
                programs.run(*search, ok=GREP_STATUSES)
            work, lines = programs.measured(context, f"grep-{number}", *search, ok=GREP_STATUSES)
            work.plan(**listed.amounts, matches=listed.matches)
            work.report(matches=int(lines))
            work.add(**listed.amounts, matches=int(lines))
            (work.disk_reads_none_of if warm else work.disk_reads)(listed.size_bytes)
            work.disk_writes_nothing()


def _listed(parameters: Parameters, assets: Assets) -> trees.Contents:
    return trees.listed(assets["kernel_grep"], str(parameters["only"]), str(parameters["word"]))


def _copies(context: Context) -> list[Path]:
    count = int(context.parameters["copies"])
    return [context.disk / f"copy-{number:03d}" for number in range(1, count + 1)]
