"""`python -m analysis.synthetic DIR`: write the synthetic paper suite into DIR, say where."""

from __future__ import annotations

import sys
from pathlib import Path

from analysis.synthetic.paper import SUITE_ID, write_paper_suite


def main(arguments: list[str]) -> int:
    """0 where the suite stands in the folder, made now or before; 1 where it cannot be written."""
    if len(arguments) != 1:
        print("usage: python -m analysis.synthetic DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0]) / SUITE_ID
    if not folder.exists():
        unfinished = folder.with_name(f".{SUITE_ID}.part")
        try:
            write_paper_suite(unfinished)
            unfinished.rename(folder)
        except OSError as error:
            print(
                f"fde: Cannot write the synthetic suite: {error.strerror} ({unfinished}): "
                "remove that folder and repeat.",
                file=sys.stderr,
            )
            return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
