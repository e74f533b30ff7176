"""Command line of the agent: prepare, teardown, run, follow, storage."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agent import journal
from agent.errors import AgentError

TARGET = Path("/etc/fde-testbed/target.json")
SECRETS = Path("/run/fde-testbed/secrets.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 refused or failed (one sentence on stderr), 2 usage."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except AgentError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("fde: interrupted.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m agent", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    follow = commands.add_parser("follow", help="print journal lines until the suite ends")
    follow.add_argument("--suite-dir", type=Path, required=True)
    follow.add_argument("--from", dest="start", type=int, default=0, metavar="N")
    follow.set_defaults(command=_follow)
    return parser


def _follow(options: argparse.Namespace) -> int:
    for entry in journal.follow(options.suite_dir / "journal.jsonl", options.start):
        print(json.dumps(asdict(entry), ensure_ascii=False), flush=True)
    return 0
