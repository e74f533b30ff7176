"""Meter drivers by kind."""

from __future__ import annotations

from collections.abc import Callable

from contract.extensions import Group
from instrumentation.meters.base import Meter

_GROUP = Group("kind of meter", "fde.meters", "instrumentation.meters", "kind", Meter)
kinds = _GROUP.names
load: Callable[[str], type[Meter]] = _GROUP.load
