"""Print the complete lines of a journal in the guest as they are written, once they are durable.

    python3 watch.py JOURNAL

The fsync comes between reading and printing: a line that was only in memory could be undone by a
power cut through no fault of the agent. A journal that became shorter (a torn line was
cut off) is printed from its beginning again. An empty line every few seconds reveals a dead link.
"""

import os
import sys
import time

PAUSE_S = 0.05
BEAT_S = 5.0


def main() -> None:
    """Print the lines of a file as they are written, and an empty one as a heartbeat."""
    path, at, beat_s = sys.argv[1], 0, 0.0
    while True:
        if time.monotonic() - beat_s > BEAT_S:
            print(flush=True)
            beat_s = time.monotonic()
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            time.sleep(PAUSE_S)
            continue
        try:
            size = os.fstat(fd).st_size
            at = 0 if size < at else at
            data = os.pread(fd, size - at, at)
            lines = data[: data.rfind(b"\n") + 1]
            if lines:
                os.fsync(fd)
                os.write(1, lines)
                at += len(lines)
        finally:
            os.close(fd)
        time.sleep(PAUSE_S)


main()
