"""Joules, watts and seconds of any command on this machine: the command `fde measure`."""

from controller.measured_command.measure import run
from controller.measured_command.options import (
    Command,
    MeasureOptions,
    named,
    of_strings,
    of_words,
)

__all__ = ["Command", "MeasureOptions", "named", "of_strings", "of_words", "run"]
