"""What rests tell of the edges of a command's runs, and what of a rest still tells of a run."""

from __future__ import annotations

from controller.measured_command.meters import _quiet, _rest_behind_ns

S = 1_000_000_000


def test_the_rest_that_follows_at_once_lies_beside_a_run_s_end() -> None:
    rests = [(0, 6 * S), (11 * S + 1_000_000, 17 * S), (30 * S, 36 * S)]
    assert _rest_behind_ns(11 * S, rests) == 6 * S
    assert _rest_behind_ns(22 * S, rests) == 0


def test_a_rest_counts_from_where_the_meter_tells_no_more_of_the_run() -> None:
    assert _quiet((10 * S, 16 * S), 1.5) == (11_500_000_000, 16 * S)
    assert _quiet((10 * S, 12 * S), 1.5) == (11 * S, 12 * S)
