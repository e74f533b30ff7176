"""The agent's own `hold` command with its lease in another folder: `stand_in_hold FOLDER …`."""

from __future__ import annotations

import sys
from pathlib import Path

from agent import cli, hold

if __name__ == "__main__":
    place = Path(sys.argv[1]) / "hold.json"
    for command in (hold.take, hold.end):
        command.__defaults__ = (place,)
    sys.exit(cli.main(["hold", *sys.argv[2:]]))
