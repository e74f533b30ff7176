"""`python -m validation.synthetic DIR`: write the synthetic paper suite into DIR, print where."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from validation.synthetic.paper import SUITE_ID, write_paper_suite


def main(arguments: list[str]) -> int:
    """Make the suite in place of an earlier one; return 0, or 1 if it cannot be written."""
    if len(arguments) != 1:
        print("usage: python -m validation.synthetic DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0]) / SUITE_ID
    unfinished = folder.with_name(f".{SUITE_ID}.part")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        write_paper_suite(unfinished)
        shutil.rmtree(folder, ignore_errors=True)  # from the same seed, by this name no other
        unfinished.rename(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        print(f"fde: Cannot write the synthetic suite: {error.strerror}.", file=sys.stderr)
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
