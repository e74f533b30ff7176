"""Copy, unpack, pack again and delete a kernel tree, as in Fujimoto et al., section III C."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from contract.parameters import Parameter
from workloads import programs, trees
from workloads.base import Assets, Context, Needs, Parameters, Work, one_of

AS_ARCHIVE = "as-archive"


class KernelTree(trees.OnTree):
    """Phases `copy` (archive from the system disk), `untar`, `tar` and `delete`.

    The page cache is emptied before each phase. `copy` counts the archive's bytes, `untar` and
    `tar` the files of the tree and their bytes, and `delete` both archives with them.
    """

    name = "kernel_tree"
    summary = "copy, unpack, pack again and delete the Linux source"
    parameters = (
        trees.ONLY,
        one_of("recompress", "how the tree is packed again", AS_ARCHIVE, *trees.COMPRESSORS),
        Parameter("sync", True, "", "whether a phase ends when the drive has all data"),
    )
    program = "cp, tar with its compressor, rm"
    programs = ("cp", "tar", "rm", "sync")
    assets = ("kernel_tree",)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:
        """Return the room for the archive, the tree, and the repacked archive, at most as large."""
        tree = trees.listed(assets["kernel_tree"], str(parameters["only"]))
        return Needs(disk_bytes=assets["kernel_tree"].stat().st_size + 2 * tree.room_bytes)

    def prepare(self, context: Context) -> None:
        _listed(context)

    def run(self, context: Context) -> None:
        asset = context.assets["kernel_tree"]
        archive, tree = context.disk / asset.name, context.disk / "tree"
        choice = str(context.parameters["recompress"])
        suffix = trees.compression(asset) if choice == AS_ARCHIVE else choice
        packed = context.disk / ("again.tar" + (f".{suffix}" if suffix else ""))
        tree.mkdir()
        asset_bytes, listed = asset.stat().st_size, _listed(context)
        # Read the asset once beforehand, so that the system disk's speed does not matter.
        preload = ["dd", f"if={asset}", "of=/dev/null", "bs=1M", "status=none"]
        copied = _measure(context, "copy", ["cp", asset, archive], preload)
        copied.plan(bytes=asset_bytes, files=1)
        copied.add(bytes=programs.size_bytes(archive), files=1)
        _wrote(context, copied, asset_bytes)

        only = str(context.parameters["only"])
        unpack = trees.unpack_command(archive, tree, only)
        unpacked = _measure(context, "untar", unpack, *_warm_ups(asset))
        tree_contents = trees.size(tree)
        unpacked.plan(**listed.amounts, entries=listed.entries)
        unpacked.add(**tree_contents.amounts)
        unpacked.report(entries=tree_contents.entries)
        unpacked.disk_reads(asset_bytes)
        _wrote(context, unpacked, listed.size_bytes)

        pack: programs.Command = ["tar", "-caf", packed, "--format=gnu", "-C", tree, "."]
        repacked = _measure(context, "tar", pack, *_warm_ups(packed))
        repacked.plan(**listed.amounts, entries=listed.entries)
        packed_contents = trees.read(packed)
        repacked.add(**packed_contents.amounts)
        repacked.report(entries=packed_contents.entries)
        repacked.disk_reads(listed.size_bytes)
        packed_bytes = programs.size_bytes(packed)
        _wrote(context, repacked, packed_bytes)

        # Count on the whole file system, where files that were only moved would remain.
        before = trees.size(context.disk.parent)
        delete: programs.Command = ["rm", "-r", archive, packed, tree]
        deleted = _measure(context, "delete", delete)
        after = trees.size(context.disk.parent)
        deleted_bytes = listed.size_bytes + asset_bytes + packed_bytes
        # Both archives, and the tree with its own folder.
        deleted.plan(files=listed.files + 2, bytes=deleted_bytes, entries=listed.entries + 3)
        deleted.report(entries=before.entries - after.entries)
        deleted.add(files=before.files - after.files, bytes=before.size_bytes - after.size_bytes)


def _listed(context: Context) -> trees.Contents:
    return trees.listed(context.assets["kernel_tree"], str(context.parameters["only"]))


def _wrote(context: Context, work: Work, size_bytes: int) -> None:
    if context.parameters["sync"]:
        work.disk_writes(size_bytes)


def _warm_ups(archive: Path) -> list[list[str]]:
    suffix = trees.compression(archive)
    return [[trees.COMPRESSORS[suffix], "--version"]] if suffix else []


def _measure(
    context: Context, phase: str, command: programs.Command, *warm_ups: programs.Command
) -> Work:
    programs.cold_start(context, [command[0], "--version"], ["sync", "--version"], *warm_ups)
    flush: programs.Command = ["sync", "-f", context.disk]
    commands = [command, flush] if context.parameters["sync"] else [command]
    with ExitStack() as stack:
        steps = [stack.enter_context(programs.held(argv)) for argv in commands]
        with context.phase(phase) as work:
            for go in steps:
                go()
    return work
