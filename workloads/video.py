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

# Played to the null devices, which keep real time; nobody's settings, no terminal, no remote.
PLAYER = (
    *("mplayer", "-noconfig", "all", "-noconsolecontrols", "-nolirc", "-nojoystick"),
    *("-vo", "null", "-ao", "null", "-really-quiet"),
)
# The exit status of mplayer is 0 even if it could play nothing, so its speed is looked at.
SHORTEST_SHARE = 0.9
# It ends with what its outputs hold, so much before they would have played it.
HELD_S = 0.25


class Video(Workload):
    """One phase, `play`: the first seconds of a clip that lies on the disk under test.

    The player has been run on the original beforehand, so the phase loads the clip alone.
    """

    name = "video"
    summary = "a clip played in real time"
    parameters = (Parameter("seconds", 5.0, "s", "how much of the clip is played", minimum=0.5),)
    small: ClassVar = {"seconds": 1}
    program = "mplayer"
    programs = ("mplayer",)
    assets = ("clip",)

    def needs(self, parameters: Parameters, assets: Assets) -> Needs:  # noqa: ARG002
        """The clip."""
        return Needs(disk_bytes=assets["clip"].stat().st_size)

    def prepare(self, context: Context) -> None:
        shutil.copyfile(context.assets["clip"], _clip(context))

    def run(self, context: Context) -> None:
        seconds = float(context.parameters["seconds"])
        context.drop_caches()
        _warm_up(context, seconds)
        command: programs.Command = [*PLAYER, "-endpos", f"{seconds:g}", _clip(context)]
        player = programs.held(command, timeout_s=3 * seconds + 60, home=context.scratch)
        with player as go, context.phase("play") as work:
            started_s = time.monotonic()
            go()
            elapsed_s = time.monotonic() - started_s
        work.add(video_s=seconds)
        if elapsed_s < SHORTEST_SHARE * seconds - HELD_S:
            raise WorkloadError(
                f"mplayer was done with {seconds:g} s of video after {elapsed_s:.1f} s: "
                "it did not play in real time."
            )


def _clip(context: Context) -> Path:
    return context.disk / f"clip{context.assets['clip'].suffix}"


def _warm_up(context: Context, seconds: float) -> None:
    """Decode the first frame of the original, which also tells whether it is long enough."""
    clip = context.assets["clip"]
    identify: programs.Command = [*PLAYER, "-identify", "-frames", "1", clip]
    output = programs.run(identify, timeout_s=120, home=context.scratch)
    found = re.search(r"^ID_LENGTH=([\d.]+)$", output, re.MULTILINE)
    if found is None:
        raise WorkloadError(
            f"mplayer cannot play {clip.name}: {programs.last_line(output) or 'it is silent'}"
        )
    # Containers round; half a second less is still the clip that was asked for.
    if float(found[1]) < seconds - 0.5:
        raise WorkloadError(
            f"The clip {clip.name} lasts {found[1]} s, not the {seconds:g} s asked for."
        )
