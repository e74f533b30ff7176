"""Start fio and hold it before its first request, so that a phase has none of its start or end.

fio runs a shell command of ours before it begins and another when it is done (`exec_prerun`,
`exec_postrun`): the first says so and waits for a word, the second says so. Both pipes end with
whoever holds their other end, so that neither side waits for a dead one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from workloads import programs
from workloads.base import WorkloadError


class Held:
    """One fio with one job, alive within a `with` block, which begins when it is ready.

    Each of the job's `threads` runs both commands, and waits for a line of its own.
    `folder` is for the output of the commands. Raises WorkloadError with fio's last words.
    """

    def __init__(self, argv: Sequence[str], folder: Path, threads: int = 1) -> None:
        self._argv, self._folder, self._threads = argv, folder, threads

    def __enter__(self) -> Self:
        self._reports, say = os.pipe()
        hear, self._word = os.pipe()
        # fio sends the standard output of what it runs to a file, of the last command alone.
        hooks = (
            f"--exec_prerun=echo ready > /proc/self/fd/{say}; read go < /proc/self/fd/{hear}",
            f"--exec_postrun=echo done > /proc/self/fd/{say}; true",
        )
        self._errors = os.fdopen(os.memfd_create("stderr"), "w+b")
        try:
            self._process = subprocess.Popen(
                # As a thread: a process of its own would leave the group by which it is killed.
                [*self._argv, "--thread=1", *hooks],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(say, hear),
                cwd=self._folder,
                env=programs.environment(),
                start_new_session=True,
            )
        except OSError as error:
            self._close()
            raise WorkloadError(f"fio cannot be started: {error.strerror}.") from error
        finally:
            os.close(say)
            os.close(hear)
        try:
            self._expect(b"ready\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def go(self) -> None:
        """Let it begin, and wait until it is done."""
        with suppress(BrokenPipeError):
            os.write(self._word, b"go\n" * self._threads)
        self._expect(b"done\n")

    def report(self) -> str:
        """What it prints in the end, without the lines before its JSON."""
        output = self._process.communicate()[0].decode(errors="replace")
        self._check(output)
        return output[max(output.find("{\n"), 0) :]

    def __exit__(self, *_: object) -> None:
        programs.kill_group(self._process)
        assert self._process.stdout
        self._process.stdout.close()
        self._close()

    def _expect(self, word: bytes) -> None:
        # The end in place of a word: fio, or what it runs, is gone.
        for _ in range(self._threads):
            if os.read(self._reports, len(word)) != word:
                self._check(self._process.communicate()[0].decode(errors="replace"))
                raise WorkloadError("fio ended before its time, without an error.")

    def _check(self, output: str) -> None:
        status = self._process.returncode
        if status:
            reason = programs.last_line(programs.whole_text(self._errors))
            rest = [line for line in output.splitlines() if "Saving output of" not in line]
            reason = reason or programs.last_line("\n".join(rest)) or "it printed no reason"
            raise WorkloadError(f"fio failed (status {status}): {reason}")

    def _close(self) -> None:
        self._errors.close()
        os.close(self._reports)
        os.close(self._word)
