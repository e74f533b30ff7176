"""Joules, watts and seconds of any command on this machine: the command `fde measure`."""
