"""What the windows beside a cut window or a gap tell about it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from analysis.energy.windows import Windows
from analysis.suite.align import Floats, Ints

LASTING_S = 0.03  # what a process takes to end after its mark, by an assumption of ours
OUTLYING = 5  # standard deviations that are no scatter
FILL = 3  # whole windows on each side of a gap that tell what the power in it was


def stepped(
    held: Windows, power: Floats, edges_ns: Ints, cut: Ints, part_s: Floats
) -> tuple[Floats, Floats]:
    """What an edge `part_s` into a window has to be given beyond its share of it, and the doubt.

    Marks are where the load steps. With the power p₁ in the windows before and p₂ after, a window
    of length T cut at the share x holds, by its own mean, (p₁ − p₂) T x (1 − x) more before the
    edge than its share. In doubt are what its mean leaves beyond that step, since the load may step
    beside the mark: it lies on the one side with probability x, else on the other; and the scatter
    s of the windows beside it, as a bridge of noise: s T √(x (1 − x)). Where a neighbour is cut as
    well or missing, the share stands and the whole step is in doubt.
    """
    width_s = np.asarray((held.end_ns[cut] - held.start_ns[cut]) * 1e-9)
    share = part_s / np.where(width_s > 0, width_s, 1.0)
    lever = share * (1 - share)
    whole = np.ones(len(power) + 4, np.bool_)  # two beyond either end, which are not there
    whole[[0, 1, -2, -1]] = False
    near_edges = edges_ns[(edges_ns > held.start_ns[0]) & (edges_ns < held.end_ns[-1])]
    reached = np.searchsorted(held.end_ns, near_edges, side="right")
    whole[reached[held.start_ns[reached] < near_edges] + 2] = False
    index = np.clip(cut[:, None] + np.array([-2, -1, 1, 2]), 0, len(power) - 1)
    near = power[index]
    first, second, third, fourth = (whole[cut + k] for k in (0, 1, 3, 4))
    joined = held.start_ns[1:] == held.end_ns[:-1]
    joined = np.concatenate([[False], joined, [False]])
    known = second & third & joined[cut] & joined[cut + 1]
    before = np.where(first, (near[:, 0] + near[:, 1]) / 2, near[:, 1])
    after = np.where(fourth, (near[:, 2] + near[:, 3]) / 2, near[:, 2])
    moved_j = np.where(known, (before - after) * width_s * lever, 0.0)
    scatter = np.where(first, (near[:, 1] - near[:, 0]) ** 2, 0.0)
    scatter += np.where(fourth, (near[:, 3] - near[:, 2]) ** 2, 0.0)
    scatter /= 2 * np.maximum(first.astype(int) + fourth, 1)
    noise = scatter * width_s**2 * lever * (1 + lever)
    left_w = power[cut] - share * before - (1 - share) * after
    aside = (left_w * width_s) ** 2 * lever
    span_w = np.ptp(np.concatenate([near, power[cut, None]], axis=1), axis=1)
    unknown_j = span_w * width_s * lever / np.sqrt(3)
    return moved_j, np.where(known, np.sqrt(noise + aside), unknown_j)


def rests(power_w: Floats, quantum_w: float) -> bool:
    """Whether the first of a rest's windows, beside the edge, is at the power of those behind it.

    Where it is not, the load changed later than its mark (or sooner), and the rest tells nothing of
    the cut window. Four windows or more can tell.
    """
    first, later = power_w[0], power_w[1:]
    if len(later) < 3:
        return True
    scatter_w = max(float(np.std(later, ddof=1)), quantum_w)
    return bool(abs(first - np.mean(later)) <= OUTLYING * scatter_w)


def lasting(power_w: Floats, width_s: float, part_s: float, rest_w: float) -> float:
    """Doubt of the phase's share of a window cut where a rest begins, `part_s` into it.

    `power_w` is of the window before and of this one. What this one has beyond the power of that
    may be load that lasts beyond the mark: as likely none of it as a rectangle from none to all,
    but no longer than `LASTING_S`: a load that outlasts that shows in the rest's own windows.
    """
    swing_w = float(power_w[0]) - rest_w
    more_j = (float(power_w[-1]) - rest_w) * width_s - swing_w * part_s
    most_j = abs(swing_w) * min(width_s - part_s, LASTING_S)
    return min(max(more_j * math.copysign(1.0, swing_w), 0.0), most_j) / math.sqrt(6)


def plateau(
    held: Windows, power: Floats, after: Ints, begin_ns: Ints, end_ns: Ints
) -> tuple[Floats, Floats]:
    """Mean power in each gap behind window `after`, and its doubt, from the windows beside it.

    Only those count that lie in the stretch from `begin_ns` to `end_ns` as the gap does.
    Whole windows if there are any, else cut ones; NaN where the stretch has none. The doubt is
    that of one more value (s √(1 + 1/n)), and no less than a rectangle over what was seen.
    """
    begin, end = begin_ns[:, None], end_ns[:, None]
    index = after[:, None] + np.arange(1 - FILL, FILL + 1)
    there = (index >= 0) & (index < len(power))
    index = index.clip(0, len(power) - 1)
    inside = there & (held.start_ns[index] >= begin) & (held.end_ns[index] <= end)
    cut = there & (held.start_ns[index] < end) & (held.end_ns[index] > begin)
    use = np.where(inside.any(axis=1, keepdims=True), inside, cut)
    seen = np.where(use, power[index], 0.0)
    count = use.sum(axis=1)
    safe = np.maximum(count, 1)
    mean = seen.sum(axis=1) / safe
    squares = np.where(use, (power[index] - mean[:, None]) ** 2, 0.0).sum(axis=1)
    deviation = np.sqrt(squares / np.maximum(safe - 1, 1) * (1 + 1 / safe))
    wide = np.where(
        count[:, None] < 3, there, use
    )  # too few to tell: what is near, wherever it lies
    highest = np.where(wide, power[index], -np.inf).max(axis=1)
    lowest = np.where(wide, power[index], np.inf).min(axis=1)
    doubt = np.maximum(deviation, (highest - lowest) / np.sqrt(12))
    return np.where(count > 0, mean, np.nan), np.where(count > 0, doubt, 0.0)


def by_counter(held: Windows, name: str, after: Ints, alone: npt.NDArray[np.bool_]) -> Floats:
    """Energy of gaps by the meter's own counter, NaN where it does not tell."""
    counter, power = held.energy_j[name], held.power_w[name]
    found = np.full(len(after), np.nan)
    ok = alone & (after >= 0) & (after < len(counter) - 1)
    i = after[ok]
    j = i + 1
    step = counter[j] - counter[i]
    rest = step - power[j] * (held.end_ns[j] - held.start_ns[j]) * 1e-9
    sound = (held.epoch[i] == held.epoch[j]) & (rest >= 0)
    found[ok] = np.where(sound, rest, np.nan)
    return found
