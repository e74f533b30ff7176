"""A first evening: from an empty inventory to a finished suite `one-disk`, by typed lines.

Every line is typed into a shell as a user would type it, with `fde` for this checkout's command; no
file is edited. The drive's PSID, which is asked for at a terminal, is answered there. One block at
the lab's sizes: it shows that the steps lead to a report; the times are reported, not judged.
"""

from __future__ import annotations

import os
import pty
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab.state import REPOSITORY
from validation.bench import Figure, at_most
from validation.first_use.guest import Guest, foreign


def measure(quick: bool = False) -> list[Figure]:  # noqa: ARG001 - one evening is as short as it can be
    """Count the lines typed until the report is made and the disk returned, and time each."""
    with foreign() as guest, tempfile.TemporaryDirectory(prefix="fde-evening-") as name:
        folder = Path(name)
        took = [(line, *_typed(line, guest, folder)) for line in _lines(guest)]
        for line, status, seconds in took:
            print(f"{seconds:7.1f} s  status {status}  {line}")
        reports = list(folder.glob("fde-suites/*/report.html"))
    failed = sum(status != 0 for _, status, _ in took)
    return [
        at_most(
            "typed lines from an empty inventory to a report of one-disk and back", len(took), "", 8
        ),
        at_most("of them that failed", failed + (not reports), "", 0),
        *(Figure(f"took: {' '.join(line.split()[:2])}", s, "s") for line, _, s in took),
    ]


def _lines(guest: Guest) -> Iterator[str]:
    sed, link = guest.state["drives"]["sed"]["serial"], guest.state["ssh"]
    yield (
        f"fde init mine --host root@{link['host']}:{link['port']} --disk sed={sed} --give-up {sed} "
        f"--modelled --meter smartpower3@{guest.state['meter']['port']}=0:system,1:drive"
    )
    yield "export FDE_INVENTORY=mine"
    yield "fde check"
    yield f"fde provision --confirm {sed}"
    yield f"fde run --suite one-disk --scale lab --blocks 1 --confirm {sed}"
    yield "fde report"
    yield "fde teardown"


def _typed(line: str, guest: Guest, folder: Path) -> tuple[int, float]:
    """Run a line at a terminal, which shows its output; return exit status and seconds."""
    link = guest.state["ssh"]
    known_hosts = f'UserKnownHostsFile="{link["known_hosts"]}"'
    config = [f'IdentityFile="{link["key"]}"', known_hosts, *link["options"]]
    (folder / "ssh_config").write_text("\n".join(config), encoding="utf-8")
    programs = {
        "fde": f"{sys.executable} -P -m controller",
        "ssh": f"/usr/bin/ssh -F {folder}/ssh_config",  # in place of ~/.ssh/config
    }
    for name, words in programs.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    exported = "export FDE_INVENTORY=mine; " if (folder / "mine").exists() else ""
    environment = [
        f"PYTHONPATH={REPOSITORY}",
        f"FDE_BUILD={folder}/build",
        f"PATH={folder}:/usr/bin:/bin",
    ]
    psid = Path(guest.state["drives"]["sed"]["psid_file"]).read_bytes().strip()

    def answer(terminal: int) -> bytes:
        text = os.read(terminal, 65536)
        if b"PSID from the drive" in text:
            os.write(terminal, psid + b"\n")
        return text

    started_s = time.monotonic()
    shown = ["env", "-C", str(folder), "-u", "PYTHONDONTWRITEBYTECODE", *environment]
    status = os.waitstatus_to_exitcode(pty.spawn([*shown, "sh", "-c", exported + line], answer))
    return status, time.monotonic() - started_s
