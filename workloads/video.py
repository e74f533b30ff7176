"""Play a clip in real time with mplayer, as in Fujimoto et al., section III F."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import ClassVar

from contract.parameters import Parameter
from workloads import programs
from workloads.base import Assets, Context, Needs, Parameters, Workload, WorkloadError
from workloads.child import keep

MIB = 1 << 20
# Nobody's settings, no terminal, no remote.
PLAYER = ("mplayer", "-noconfig", "all", "-noconsolecontrols", "-nolirc", "-nojoystick")
# A driver or decoder as mplayer names it, with its options; a list of them ends in a comma.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=,-]*")
HARDWARE = ("vdpau", "vaapi", "xvmc", "crystalhd", "cuvid", "v4l2m2m")
# The exit status of mplayer is 0 even if it could play nothing, so what it counts is looked at: its
# line of status ends with frames played, and after shares of CPU time dropped frames and a quality.
STATUS = re.compile(r"\bV: *-?[\d.]+ .*?(\d+)/ *\d+ .* (\d+) \d+ *$")
ONLY_STATUS = ("-msglevel", "all=-1:statusline=5")
MOST_DROPPED_SHARE = 0.1
# Real time, but for what its outputs hold when it ends.
SHORTEST_SHARE = 0.9
HELD_S = 0.5


class Video(Workload):
    """Phase `play`: the first seconds of a clip that lies on the disk under test; `read` beside it.

    They are counted in frames: the time stamps of many clips do not begin at 0. The player has been
    run on the original beforehand, so the phase loads the clip alone. Picture and sound go to
    mplayer's null devices, which keep real time, on machines without a screen or a sound card as on
    others; `picture` and `sound` name its drivers where the machine has both, as the paper's had.
    `decoder` names one of mplayer's (`mplayer -vc help`), `ffh264vdpau,` for one in the graphics
    processor; what decoded is kept with the run, and whether that is hardware.

    With `reads`, `read` reads by dd as many bytes as these seconds of the clip have, so often, past
    the page cache: from the disk and decrypted each time, but not played.
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
        """Return the clip."""
        return Needs(disk_bytes=assets["clip"].stat().st_size)

    def prepare(self, context: Context) -> None:
        shutil.copyfile(context.assets["clip"], _clip(context))

    def run(self, context: Context) -> None:
        seconds = float(context.parameters["seconds"])
        context.drop_caches()
        length_s, frames_per_s = _warm_up(context, seconds)
        frames = round(seconds * frames_per_s)
        command: programs.Command = [
            *_player(context.parameters),
            *(*ONLY_STATUS, "-frames", str(frames), _clip(context)),
        ]
        player = programs.held(command, timeout_s=3 * seconds + 60, home=context.scratch)
        with player as go, context.phase("play") as work:
            started_s = time.monotonic()
            output = go()
            elapsed_s = time.monotonic() - started_s
        clip_bytes = _clip(context).stat().st_size
        blocks = max(1, round(clip_bytes * min(1.0, seconds / length_s) / MIB))
        work.add(video_s=seconds, bytes=min(blocks * MIB, clip_bytes))
        _require_played(output, frames)
        if elapsed_s < SHORTEST_SHARE * seconds - HELD_S:
            raise WorkloadError("played-too-fast", seconds=seconds, elapsed_s=elapsed_s)
        if reads := int(context.parameters["reads"]):
            read = ["dd", f"if={_clip(context)}", "of=/dev/null", "bs=1M", "iflag=direct"]
            command = programs.script(
                context.scratch / "read.sh", [[*read, f"count={blocks}"]], reads
            )
            programs.cold_start(context, ["dd", "--version"])
            work, _ = programs.measured(context, "read", command, name="dd")
            work.add(bytes=reads * min(blocks * MIB, clip_bytes))


def _require_played(output: str, frames: int) -> None:
    """Raise WorkloadError unless mplayer's last status has all frames, and hardly any dropped."""
    lines = output.replace("\r", "\n").splitlines()
    status = next((match for line in reversed(lines) if (match := STATUS.search(line))), None)
    if status is None:
        raise WorkloadError("played-nothing", output=programs.last_line(output) or "no output")
    played, dropped = int(status[1]), int(status[2])
    if played + dropped < frames - 1:  # the last one may be missing in the status
        raise WorkloadError("frames-missing", played=played, frames=frames)
    if dropped > MOST_DROPPED_SHARE * frames:
        raise WorkloadError("frames-dropped", dropped=dropped, frames=frames)


def _player(parameters: Parameters) -> tuple[str, ...]:
    """How mplayer is called, with its outputs and its decoder."""
    outputs = ("-vo", str(parameters["picture"]), "-ao", str(parameters["sound"]))
    decoder = ("-vc", str(parameters["decoder"])) if parameters["decoder"] else ()
    return (*PLAYER, *outputs, *decoder)


def _clip(context: Context) -> Path:
    return context.disk / f"clip{context.assets['clip'].suffix}"


def _warm_up(context: Context, seconds: float) -> tuple[float, float]:
    """Decode the first frame of the original, which also shows whether it is long enough.

    Returns its length in s and its frames per second.
    """
    clip = context.assets["clip"]
    identify: programs.Command = [
        *_player(context.parameters),
        *("-really-quiet", "-identify", "-frames", "1", clip),
    ]
    output = programs.run(identify, timeout_s=120, home=context.scratch)
    match = re.search(r"^ID_LENGTH=([\d.]+)$", output, re.MULTILINE)
    if match is None:
        raise WorkloadError(
            "not-played", clip=clip.name, output=programs.last_line(output) or "it is silent"
        )
    decoder = re.search(r"^ID_VIDEO_CODEC=(\S+)$", output, re.MULTILINE)
    name = decoder[1] if decoder else ""
    hardware = any(word in name for word in HARDWARE)
    keep(context, "decoder", {"decoder": name, "in_hardware": hardware if name else None})
    wanted = str(context.parameters["decoder"]).rstrip(",").split(",")
    if wanted != [""] and name not in wanted:
        raise WorkloadError(
            "wrong-decoder",
            clip=clip.name,
            decoder=name or "nothing that it names",
            wanted=" or ".join(wanted),
        )
    # Containers round; half a second less is still the clip that was asked for.
    if float(match[1]) < seconds - 0.5:
        raise WorkloadError("clip-too-short", clip=clip.name, lasts_s=match[1], seconds=seconds)
    rate = re.search(r"^ID_VIDEO_FPS=([\d.]+)$", output, re.MULTILINE)
    if rate is None or float(rate[1]) <= 0:
        raise WorkloadError("no-frame-rate", clip=clip.name)
    return float(match[1]), float(rate[1])
