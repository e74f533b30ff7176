"""Direct I/O by one thread up to one on every processor, and with more requests in flight, by fio.

Whether more threads cost joules or save them (the machine is done sooner, and rests) depends on
the disk and on who encrypts: dm-crypt spreads its work over the processors, or does not
(`no_read_workqueue`, `no_write_workqueue`, `submit_from_crypt_cpus` of the kind dmcrypt).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from contract.parameters import Parameter
from workloads import fio, lists
from workloads.base import Context, Parameters, WorkloadError

ALL = "all"


class Scaling(fio.OnOneFile):
    """Phases `write.<n>t` and `read.<n>t` by threads, then `write.<n>q` and `read.<n>q` by depth.

    Each thread goes over another part of one file, again and again for `seconds`, with `depth`
    requests in flight; the depths are those of one thread on the whole file. `all` is the number of
    processors that the target has online. fio is started before each phase.
    """

    name = "scaling"
    summary = "direct I/O by 1 to all threads and by queue depth"
    parameters = (
        Parameter("file_mib", 256, "MiB", "size of the test file", minimum=4),
        Parameter("block_kib", 128, "KiB", "size of a request", minimum=4),
        lists.some_of("threads", "1,2,4,all", "numbers of threads; all: one a CPU"),
        lists.some_of("depths", "1,4,16", "requests in flight of one thread"),
        Parameter("seconds", 5.0, "s", "length of each phase", minimum=0.1),
        *fio.io_parameters("libaio", 1),
    )
    small: ClassVar = {"file_mib": 4, "threads": "1,2", "depths": "2", "seconds": 0.1}

    def check(self, parameters: Parameters) -> None:
        super().check(parameters)
        if parameters["engine"] == "psync" and max(_depths(parameters), default=1) > 1:
            raise WorkloadError("depths-of-psync")
        most = fio.file_bytes(parameters) // _block_bytes(parameters)
        if max(_threads(parameters)) > most:
            raise WorkloadError("too-many-threads", most=most)

    def run(self, context: Context) -> None:
        for step, job in steps(context.parameters):
            for way in ("write", "read"):
                writes = way == "write"
                fresh = writes and bool(context.parameters["fresh"])
                step_job = replace(job, pattern=way, fsync=writes, fresh=fresh)
                fio.measure(context, f"{way}.{step}", fio.test_file(context), step_job)


def steps(parameters: Parameters) -> Iterator[tuple[str, fio.Job]]:
    """Yield the number of each step with its unit, and what fio does in it, reading."""
    block_bytes, file_bytes = _block_bytes(parameters), fio.file_bytes(parameters)
    seconds = float(parameters["seconds"])
    base = fio.planned(parameters, "read", block_bytes, seconds=seconds, repeat=True)
    for threads in _threads(parameters):
        part_bytes = file_bytes // threads // block_bytes * block_bytes
        yield f"{threads}t", replace(base, area_bytes=part_bytes, threads=threads)
    for depth in _depths(parameters):
        yield f"{depth}q", replace(base, depth=depth)


def _threads(parameters: Parameters) -> list[int]:
    names = {ALL: os.cpu_count() or 1}
    return sorted(lists.numbers("threads of scaling", parameters["threads"], names=names))


def _depths(parameters: Parameters) -> list[int]:
    return sorted(lists.numbers("depths of scaling", parameters["depths"], optional=True))


def _block_bytes(parameters: Parameters) -> int:
    return int(parameters["block_kib"]) * fio.KIB
