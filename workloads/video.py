"""Play a clip in real time with mplayer, as in Fujimoto et al., section III F."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import os
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from contract import files, schema
from contract.parameters import Parameter
from contract.strict_json import read_object
from workloads import programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import keep

MIB = 1 << 20
# Without a user's settings, terminal or remote control.
PLAYER = ("mplayer", "-noconfig", "all", "-noconsolecontrols", "-nolirc", "-nojoystick")
# mplayer's name of a driver or decoder, with options; a list of them ends in a comma.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=,-]*")
HARDWARE = ("vdpau", "vaapi", "xvmc", "crystalhd", "cuvid", "v4l2m2m")
# The exit status of mplayer is 0 even if it played nothing, and for most containers its status line
# counts no frames. For each decoded frame it prints how long the previous one is shown.
DURATION = re.compile(r"\*\*\* ftime=([\d.]+) \*\*\*")
# After half a second its status line has the percentages of the time that it spent decoding
# pictures and showing them.
BUSY = re.compile(r"(\d+)% +(\d+)% +[\d.]+% \d+ \d+")
REPORT = ("-msglevel", "all=-1:avsync=7:statusline=5")
IDENTITY = ("-msglevel", "all=-1:avsync=7:identify=6", "-identify")
AS_FAST_AS_IT_GOES = ("-benchmark", "-nosound")
# Time stamps are rounded to 1 ms, in the file and in the output.
ROUNDED_S = 0.001
# Limits for playing in real time: a clip is cut between frames, the outputs hold some data when it
# ends, and the first frame takes longer from a disk than from memory.
SHORTEST_SHARE = 0.9
LONGEST_SHARE = 1.1
HELD_S = 0.5
LATE_S = 2.0
# A busier player cannot keep time.
MOST_BUSY_SHARE = 0.95


@dataclass(frozen=True)
class Cut:
    """The part of a clip that has the requested length, found by playing it once beforehand.

    `frames` is the number of frames requested from mplayer, `decoded` the number it decodes for
    that: some containers hold empty frames. `size_bytes` is the part of the file that it reads.
    """

    frames: int
    decoded: int
    lasts_s: float
    size_bytes: int
    frames_per_s: float


class Video(Workload):
    """Phase `play`: the first seconds of a clip on the disk under test; optionally phase `read`.

    The first of a suite's runs plays its copy of the clip once beforehand, as fast as possible.
    That finds how many frames last as long as requested, independent of rate and time stamps, and
    how much of the file they are read from; each run is compared with it, and must play in real
    time. The original is played beforehand as well, so that the phase loads only the clip.

    Picture and sound go to mplayer's null devices, which keep real time, even on machines without a
    screen or a sound card; `picture` and `sound` name its drivers if the machine has both, as the
    paper's had. `decoder` names one of mplayer's (`mplayer -vc help`), `ffh264vdpau,` for one in
    the graphics processor; the actual decoder is saved with the run, and whether it is hardware.

    With `reads`, the phase `read` reads with dd as many bytes as these seconds of the clip have,
    `reads` times, past the page cache: from the disk and decrypted each time, but not played.
    """

    name = "video"
    summary = "a clip played in real time"
    parameters = (
        Parameter("seconds", 5.0, "s", "how much of the clip is played", minimum=0.5),
        Parameter("picture", "null", "", "mplayer's video output; null: no picture"),
        Parameter("sound", "null", "", "mplayer's audio output; null: no sound"),
        Parameter("decoder", "", "", "mplayer's video codec; empty: its own choice"),
        Parameter("reads", 0, "", "how often what was played is read, not played", minimum=0),
    )
    small: ClassVar = {"seconds": 1, "reads": 2}
    program = "mplayer"
    programs = ("mplayer", "dd")
    assets = ("clip",)

    def check(self, parameters: Parameters) -> None:
        for name in ("picture", "sound", "decoder"):
            value = str(parameters[name])
            if not NAME.fullmatch(value) and (value or name != "decoder"):
                raise WorkloadError("invalid-name", parameter=name, value=value)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """Return the room for the clip."""
        return Needs(disk_bytes=assets["clip"].stat().st_size)

    def prepare(self, context: Context) -> None:
        """Copy the clip; the first of a suite's runs also finds its cut."""
        with context.assets["clip"].open("rb") as source, _clip(context).open("wb") as copy:
            shutil.copyfileobj(source, copy)
            os.fsync(copy.fileno())
        if not (cut_file := _cut_file(context)).exists():
            files.write_json(cut_file, asdict(_cut(context)))

    def run(self, context: Context) -> None:
        seconds = float(context.parameters["seconds"])
        cut = schema.read(Cut, read_object(_cut_file(context)))
        context.drop_caches()
        start_s = _warm_up(context)
        command: programs.Command = [
            *_player(context.parameters),
            *(*REPORT, "-frames", str(cut.frames), _clip(context)),
        ]
        player = programs.held(command, timeout_s=3 * seconds + 60, home=context.scratch)
        with player as go, context.phase("play") as work:
            started_s = time.monotonic()
            output = go()
            elapsed_s = time.monotonic() - started_s
        durations = _durations(output, cut.frames_per_s)
        work.plan(video_s=cut.lasts_s, frames=cut.decoded)
        work.report(video_s=sum(durations), frames=len(durations))
        work.add(video_s=cut.lasts_s, bytes=cut.size_bytes)
        work.disk_reads(cut.size_bytes)
        work.disk_writes_nothing()
        if elapsed_s < SHORTEST_SHARE * cut.lasts_s - HELD_S:
            raise WorkloadError("played-too-fast", seconds=cut.lasts_s, elapsed_s=elapsed_s)
        too_long = elapsed_s > LONGEST_SHARE * cut.lasts_s + 2 * start_s + LATE_S
        busy_reports = BUSY.findall(output)
        busy_share = sum(map(int, busy_reports[-1])) / 100 if busy_reports else 0.0
        # The share of a real picture output includes waiting for the screen.
        too_busy = context.parameters["picture"] == "null" and busy_share > MOST_BUSY_SHARE
        if too_long or too_busy:
            raise WorkloadError("played-too-slowly", seconds=cut.lasts_s, elapsed_s=elapsed_s)
        if reads := int(context.parameters["reads"]):
            blocks = math.ceil(cut.size_bytes / MIB)
            size_bytes = reads * min(blocks * MIB, _clip(context).stat().st_size)
            read = ["dd", f"if={_clip(context)}", "of=/dev/null", "bs=1M", "iflag=direct"]
            command = programs.script(
                context.scratch / "read.sh", [[*read, f"count={blocks}"]], reads
            )
            programs.cold_start(context, ["dd", "--version"])
            work, output = programs.measured(context, "read", command, name="dd")
            work.plan(bytes=size_bytes)
            work.report(bytes=programs.copied(output)[1]["bytes"])
            work.add(bytes=size_bytes)
            work.disk_reads(size_bytes)
            work.disk_writes_nothing()


def _player(parameters: Parameters) -> tuple[str, ...]:
    """Return mplayer's command, with its outputs and its decoder."""
    outputs = ("-vo", str(parameters["picture"]), "-ao", str(parameters["sound"]))
    decoder = ("-vc", str(parameters["decoder"])) if parameters["decoder"] else ()
    return (*PLAYER, *outputs, *decoder)


def _clip(context: Context) -> Path:
    return context.disk / f"clip{context.assets['clip'].suffix}"


def _cut_file(context: Context) -> Path:
    """Return the file of the cut for later runs of the suite with the same parameters."""
    names = [str(context.parameters[name]) for name in ("seconds", "decoder")]
    return context.shared / f"video-{'-'.join(names)}.json"


def _durations(output: str, frames_per_s: float) -> list[float]:
    """Return for each decoded frame how long in s the previous one is shown, as mplayer prints it.

    A value near a multiple of half a frame's time by the clip's rate is rounded to it.
    """
    durations = [float(text) for text in DURATION.findall(output)]
    if not frames_per_s:
        return durations
    exact = [round(2 * time_s * frames_per_s) / (2 * frames_per_s) for time_s in durations]
    return [
        snapped_s if abs(snapped_s - time_s) <= ROUNDED_S else time_s
        for time_s, snapped_s in zip(durations, exact, strict=True)
    ]


def _cut(context: Context) -> Cut:
    """Return the number of frames that last as long as requested, with related figures."""
    seconds, clip = float(context.parameters["seconds"]), context.assets["clip"].name
    cut, durations = _play_fast(context, math.ceil(30 * seconds))
    decoded_before = 0
    while cut.lasts_s < seconds and cut.decoded > decoded_before:
        decoded_before = cut.decoded
        cut, durations = _play_fast(context, 2 * cut.frames)
    while (frames := math.ceil(cut.frames * _share(durations, seconds))) < cut.frames:
        cut, durations = _play_fast(context, frames)
    if cut.lasts_s < SHORTEST_SHARE * seconds:
        raise WorkloadError("clip-too-short", clip=clip, lasts_s=cut.lasts_s, seconds=seconds)
    if cut.lasts_s > LONGEST_SHARE * seconds:
        raise WorkloadError("clip-not-cut", clip=clip, lasts_s=cut.lasts_s, seconds=seconds)
    return cut


def _share(durations: list[float], seconds: float) -> float:
    """Return the share of the decoded frames that last `seconds`."""
    sums = itertools.accumulate(durations)
    shorter = sum(elapsed_s < seconds - ROUNDED_S for elapsed_s in sums)
    return min(1.0, (shorter + 1) / len(durations))


def _play_fast(context: Context, frames: int) -> tuple[Cut, list[float]]:
    """Play the copy of the clip without its sound and without waiting.

    The file is the player's standard input, so that nothing is read ahead: the page cache then
    holds only what the player requested.
    """
    seconds, clip = float(context.parameters["seconds"]), context.assets["clip"].name
    command = [*_player(context.parameters), *AS_FAST_AS_IT_GOES, *IDENTITY]
    command += ["-frames", str(frames), "-"]
    with _clip(context).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        output = programs.run(
            command, timeout_s=20 * seconds + 120, home=context.scratch, stdin=file
        )
        rate = re.search(r"^ID_VIDEO_FPS=([\d.]+)$", output, re.MULTILINE)
        frames_per_s = float(rate[1]) if rate else 0.0
        durations = _durations(output, frames_per_s)
        if not durations:
            raise WorkloadError("not-played", clip=clip)
        size_bytes = _bytes_in_memory(file.fileno())
    return Cut(frames, len(durations), sum(durations), size_bytes, frames_per_s), durations


def _bytes_in_memory(descriptor: int) -> int:
    """Return how many bytes of a file the page cache holds."""
    size_bytes = os.fstat(descriptor).st_size
    held = (ctypes.c_ubyte * math.ceil(size_bytes / mmap.PAGESIZE))()
    with mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_COPY) as memory:
        start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
        if ctypes.CDLL(None).mincore(start, ctypes.c_size_t(size_bytes), held):
            raise WorkloadError("pages-not-counted")
    return min(size_bytes, sum(flags & 1 for flags in held) * mmap.PAGESIZE)


def _warm_up(context: Context) -> float:
    """Decode the first frame of the original twice, and return the time of the second run in s.

    The decoder is saved with the run, and compared with the requested one.
    """
    clip = context.assets["clip"]
    command: programs.Command = [*_player(context.parameters), *(*IDENTITY, "-frames", "1", clip)]
    output = programs.run(command, timeout_s=120, home=context.scratch)
    decoder = re.search(r"^ID_VIDEO_CODEC=(\S+)$", output, re.MULTILINE)
    name = decoder[1] if decoder else ""
    hardware = any(word in name for word in HARDWARE)
    keep(context, "decoder", {"decoder": name, "in_hardware": hardware if name else None})
    decoders = str(context.parameters["decoder"]).rstrip(",").split(",")
    if decoders != [""] and name not in decoders:
        raise WorkloadError(
            "wrong-decoder",
            clip=clip.name,
            decoder=name or "nothing that it names",
            wanted=" or ".join(decoders),
        )
    started_s = time.monotonic()
    programs.run(command, timeout_s=120, home=context.scratch)
    return time.monotonic() - started_s
