"""Test what differs between the WT210 and other Yokogawa meters."""

from __future__ import annotations

import numpy as np

from fde_instruments.meters.wt210 import WT210
from fde_instruments.simulators.wt210 import WT210Simulator
from instrumentation.tests.test_yokogawa import FIXED, set_up


def test_closing_enables_the_keys() -> None:
    meter, simulator = WT210({"1": "system"}, FIXED), WT210Simulator()
    set_up(meter, simulator)
    assert simulator.remote
    simulator.advance(np.array([[10.0]]))
    simulator.receive(meter.stop_command())
    assert not simulator.remote
