"""The drive's measurement of its own power, as a host reads it from the log of health."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from drive import power
from drive.initiator import Initiator
from drive.power import PowerError
from drive.tests.process import Drive, until

LOG, IDENTIFY = 127 << 16 | 2, 1
POWER_MEASUREMENT = 1 << 21
SCALES_W = {1: 1e-4, 2: 1e-2}


def reported(host: Initiator) -> tuple[int, float | None]:
    """Watt-hours of the lifetime, and W of the last interval; None where there is none."""
    log = host.run(0x02, 0xFFFFFFFF, read_bytes=512, cdw10=LOG).data
    energy_wh, word = struct.unpack_from("<QI", log, 232)
    scale_w = SCALES_W.get(word >> 16)
    return energy_wh, scale_w and (word & 0xFFFF) * scale_w


def measures(host: Initiator) -> bool:
    page = host.run(0x06, 0, read_bytes=4096, cdw10=IDENTIFY).data
    return bool(struct.unpack_from("<I", page, 96)[0] & POWER_MEASUREMENT)


def test_without_coefficients_it_measures_none(plain: Drive) -> None:
    host = plain.connect()
    assert not measures(host)
    assert reported(host) == (0, None)


@pytest.mark.parametrize("idle_w", [0.03, 6.1, 40.0])
def test_at_rest_it_takes_its_idle_power(plain: Drive, idle_w: float) -> None:
    plain.ask("measure-power", idle_w=idle_w)
    host = plain.connect()
    assert measures(host)
    until(lambda: bool(reported(host)[1]))
    energy_wh, power_w = reported(host)
    assert energy_wh == 1  # rounded up
    assert power_w == pytest.approx(idle_w, rel=0.01)
    plain.ask("measure-power")
    assert reported(host) == (0, None)


def test_a_write_raises_the_power_for_a_second(plain: Drive) -> None:
    plain.ask("measure-power", idle_w=1.0, j_per_byte_written=1e-4)
    queue, host = plain.io(), plain.connect()
    until(lambda: bool(reported(host)[1]))
    assert queue.write(0, bytes(16384)).status == 0
    begin_s, most_w = time.monotonic(), 0.0
    while time.monotonic() - begin_s < 1.0:
        most_w = max(most_w, reported(host)[1] or 0.0)
    assert most_w > 2.0  # 1.6 J in a second of 1 W at rest
    until(lambda: reported(host)[1] == pytest.approx(1.0, rel=0.01))


@pytest.mark.parametrize("parameters", [{"x": 1}, {"idle_w": -1}, {"idle_w": "1"}, {"idle_w": 1e4}])
def test_an_invalid_coefficient_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(PowerError):
        power.parse(parameters)
