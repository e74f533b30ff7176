"""Frames gathered to records: the mean over a number of frames that follow one another."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from instrumentation.meters.rows import GAP, RESTART, Flags, Floats, Ints, Rows


@dataclass(frozen=True, eq=False)
class Samples:
    """n frames: when each arrived, its own time (µs), the time it stands for (µs), the power of c
    channels [n, c] and flags.
    """

    t_ns: Ints
    t_us: Ints
    step_us: Ints
    power_w: Floats
    flags: Flags

    @classmethod
    def none(cls, channels: int) -> Samples:
        """No frames."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, np.zeros((0, channels)), np.zeros(0, np.uint16))

    def from_(self, start: int) -> Samples:
        """The frames from one on."""
        return Samples(
            self.t_ns[start:],
            self.t_us[start:],
            self.step_us[start:],
            self.power_w[start:],
            self.flags[start:],
        )

    def then(self, more: Samples) -> Samples:
        """These and others behind them."""
        if not len(self.t_ns):
            return more
        return Samples(
            np.concatenate([self.t_ns, more.t_ns]),
            np.concatenate([self.t_us, more.t_us]),
            np.concatenate([self.step_us, more.step_us]),
            np.concatenate([self.power_w, more.power_w]),
            np.concatenate([self.flags, more.flags]),
        )


def _starts(flags: Flags, size: int) -> Ints:
    """Where windows begin: every `size` frames, and anew behind each gap."""
    breaks = np.flatnonzero(flags & (GAP | RESTART))
    if not len(breaks):
        return np.arange(0, len(flags), size)
    runs = np.concatenate([[0], breaks[breaks > 0], [len(flags)]])
    return np.concatenate([np.arange(a, b, size) for a, b in pairwise(runs)])


def gathered(samples: Samples, size: int) -> tuple[Rows, Samples]:
    """Records of `size` frames each, fewer where a gap follows, and the frames of an open window.

    A record's arrival is that of its last frame; its flags are those of all its frames.
    """
    count = len(samples.t_ns)
    starts = _starts(samples.flags, size)
    whole = int(starts[-1]) if count and count - int(starts[-1]) < size else count
    if whole < count:
        starts = starts[:-1]
    done = Samples(
        samples.t_ns[:whole],
        samples.t_us[:whole],
        samples.step_us[:whole],
        samples.power_w[:whole],
        samples.flags[:whole],
    )
    return _means(done, starts), samples.from_(whole)


def _means(done: Samples, starts: Ints) -> Rows:
    count = len(done.t_ns)
    if len(starts) == count:
        window_s, power_w, flags = done.step_us / 1e6, done.power_w, done.flags
        last = starts
    else:
        last = np.append(starts[1:], count) - 1
        window_s = np.add.reduceat(done.step_us, starts) / 1e6
        sums_w = np.add.reduceat(done.power_w, starts, axis=0)
        power_w = sums_w / (last - starts + 1)[:, None]
        flags = np.bitwise_or.reduceat(done.flags, starts)
    return Rows(
        t_mono_ns=done.t_ns[last],
        t_device_us=done.t_us[last],
        window_s=window_s,
        power_w=power_w,
        energy_j=None,
        flags=flags,
    )
