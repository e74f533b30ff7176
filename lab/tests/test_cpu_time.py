"""CPU time of a process tree: ended children count exactly once."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.host_time import TICK_NS, Delay, HostPage, PowerLostError, ProcessTree, Threads

# A parent that burns 0.1 s, then starts children one after another which burn as much and end; it
# says what all have used by its own account, then waits for a word before it ends.
PARENT = """
import os, resource, subprocess, sys, time

def burn():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

burn()
for _ in range(5):
    child = os.fork()
    if not child:
        burn()
        os._exit(0)
    os.waitpid(child, 0)
used = sum(
    usage.ru_utime + usage.ru_stime
    for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
)
print(used, flush=True)
sys.stdin.readline()
"""


def cpu_ns(tree: ProcessTree) -> int:
    return tree.read(time.monotonic_ns()).cpu_ns


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_ended_children_count_exactly_once(parent: subprocess.Popen[str]) -> None:
    tree = ProcessTree(parent.pid)
    assert parent.stdout is not None
    os.set_blocking(parent.stdout.fileno(), False)
    seen_ns = [cpu_ns(tree)]
    while not (output := parent.stdout.readline()):
        seen_ns.append(cpu_ns(tree))
        time.sleep(0.002)
    used_ns = float(output) * 1e9
    assert seen_ns == sorted(seen_ns)
    assert abs(cpu_ns(tree) - used_ns) < 3 * TICK_NS
    tree.close()


def test_an_ended_process_raises_power_lost(parent: subprocess.Popen[str]) -> None:
    tree = ProcessTree(parent.pid)
    cpu_ns(tree)
    parent.kill()
    while Path(f"/proc/{parent.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    with pytest.raises(PowerLostError):
        cpu_ns(tree)
    parent.wait()
    with pytest.raises(PowerLostError):
        cpu_ns(tree)
    with pytest.raises(OSError):
        ProcessTree(parent.pid)


# Burns until it is told to end, beside another on the same processor.
BURN = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
while True:
    pass
"""


@pytest.fixture
def rivals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield two processes that share one processor."""
    processor = str(min(os.sched_getaffinity(0)))
    processes = [subprocess.Popen([sys.executable, "-c", BURN, processor]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_that_shares_a_processor_waits_for_it(
    rivals: list[subprocess.Popen[bytes]],
) -> None:
    delay = Delay(rivals[0].pid)
    first_ns = delay.read_ns()
    while delay.read_ns() - first_ns < 100_000_000:
        time.sleep(0.01)
    rivals[0].kill()
    rivals[0].wait()
    at_its_end_ns = delay.read_ns()
    assert delay.read_ns() == at_its_end_ns >= first_ns + 100_000_000
    delay.close()


def test_time_neither_used_nor_slept_is_stolen(
    rivals: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    file = tmp_path / "page"
    HostPage.create(file)
    page = HostPage(file)
    tree = ProcessTree(rivals[0].pid, page)
    first_ns = time.monotonic_ns()
    tree.read(first_ns)
    while (reading := tree.read(time.monotonic_ns())).stolen_ns < 100_000_000:
        time.sleep(0.01)
    assert reading.idle_ns == 0
    # It is asleep from now on, as its kernel says, whatever it does.
    asleep_ns = time.monotonic_ns()
    with file.open("r+b") as written:
        written.write(struct.pack("<q", 5 - asleep_ns))
    now_ns = asleep_ns + 10**12
    slept = tree.read(now_ns)
    assert slept.idle_ns == 5 + now_ns - asleep_ns
    assert slept.stolen_ns >= reading.stolen_ns
    tree.close()


def test_the_page_has_the_stolen_times(tmp_path: Path) -> None:
    file = tmp_path / "page"
    HostPage.create(file)
    page = HostPage(file)
    page.publish(3, 4)
    assert struct.unpack("<3Q", file.read_bytes()[:24]) == (0, 3, 4)
    page.close()


PUBLISH = """
import sys
from pathlib import Path
from lab.host_time import HostPage
page = HostPage(Path(sys.argv[1]))
while True:
    for stolen_ns in (2**32 - 1, 2**32):
        page.publish(stolen_ns, stolen_ns)
"""


def test_the_guest_never_reads_half_a_number(tmp_path: Path) -> None:
    """Half a number once made the modelled counter jump by 21 J."""
    file = tmp_path / "page"
    HostPage.create(file)
    with subprocess.Popen([sys.executable, "-c", PUBLISH, str(file)]) as writer:
        with file.open("r+b") as shared, mmap.mmap(shared.fileno(), HostPage.SIZE_BYTES) as memory:
            numbers = memoryview(memory).cast("Q")
            while not numbers[2]:
                time.sleep(0.001)
            values = [numbers[2]]
            while len(values) < 100:  # each once it has changed, on one processor or on two
                if (value := numbers[2]) != values[-1]:
                    values.append(value)
            numbers.release()
        writer.kill()
    assert set(values) == {2**32 - 1, 2**32}


def test_threads_wait_for_a_processor(rivals: list[subprocess.Popen[bytes]]) -> None:
    pid = rivals[0].pid
    threads = Threads(pid, [pid])
    first = threads.read(time.monotonic_ns())
    while (reading := threads.read(time.monotonic_ns())).stolen_ns - first.stolen_ns < 100_000_000:
        time.sleep(0.01)
    assert reading.cpu_ns > first.cpu_ns
    threads.close()
