"""Ciphers in memory and on files, run by a child program, so that the agent only waits."""
