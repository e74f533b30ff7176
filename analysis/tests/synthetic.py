"""What tests take from `analysis.synthetic`."""

from analysis.synthetic.folder import RANGE_UJ, write_manifest
from analysis.synthetic.suite import (
    ASSUMPTIONS,
    CONFIGURATIONS,
    PHASES,
    Options,
    Truth,
    write_suite,
)

__all__ = [
    "ASSUMPTIONS",
    "CONFIGURATIONS",
    "PHASES",
    "RANGE_UJ",
    "Options",
    "Truth",
    "write_manifest",
    "write_suite",
]
