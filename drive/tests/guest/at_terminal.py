"""Runs a program at a terminal of its own and answers what it asks there.

Standard input: {"command": [words], "answers": [[end of the prompt, answer], …]}. Standard output:
{"code": exit status, "output": all that stood on the terminal, "unasked": number of answers that
were not asked for}. Standard library only.
"""

from __future__ import annotations

import json
import os
import pty
import select
import sys

_PATIENCE_S = 60


def converse(command: list[str], answers: list[list[str]]) -> dict[str, object]:
    """Give each answer when its prompt has appeared; ends when the program has ended."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    waiting, output, read_up_to = list(answers), "", 0
    while select.select([terminal], [], [], _PATIENCE_S)[0]:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the program has closed the terminal
            break
        output += chunk.decode(errors="replace")
        if waiting and (place := output.find(waiting[0][0], read_up_to)) >= 0:
            read_up_to = place + len(waiting[0][0])
            os.write(terminal, waiting.pop(0)[1].encode() + b"\n")
    else:
        os.kill(pid, 9)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"code": code, "output": output, "unasked": len(waiting)}


if __name__ == "__main__":
    request = json.load(sys.stdin)
    json.dump(converse(request["command"], request["answers"]), sys.stdout)
