"""Serves one virtual disk over NVMe/TCP on 127.0.0.1 until it gets SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from lab.drive.aes_xts import CryptoError
from lab.drive.control import Action, ControlSocket
from lab.drive.controller import Subsystem
from lab.drive.identify import DriveConfig
from lab.drive.media import EncryptedMedia, Media, MediaError, PlainMedia, open_backing
from lab.drive.opal.core import Core, new_secret, new_state
from lab.drive.opal.locking import Locking
from lab.drive.opal.tper import Tper
from lab.drive.server import Server
from lab.drive.state import DriveState, StateError, StateFile, write_atomically
from lab.drive.stats import Stats


class UsageError(Exception):
    """Options that do not go together; the message is one sentence for people."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.drive", description=__doc__)
    parser.add_argument("--backing", type=Path, required=True, help="sparse file, the medium")
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--block-size", type=int, choices=(512, 4096), default=4096)
    parser.add_argument("--model", required=True, help="at most 40 ASCII characters")
    parser.add_argument("--serial", required=True, help="at most 20 ASCII characters")
    parser.add_argument("--nqn", required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--ready-file", type=Path, help="gets port and pid once hosts may connect")
    parser.add_argument("--stats", type=Path, required=True, help="file of counters")
    parser.add_argument("--control", type=Path, help="unix socket for commands")
    parser.add_argument("--opal", action="store_true", help="a self-encrypting disk")
    parser.add_argument("--state", type=Path, help="with --opal: file of verifiers, wrapped keys")
    parser.add_argument("--psid-file", type=Path, help="with --opal: the label; made if missing")
    parser.add_argument("--verbose", action="store_true", help="log refused calls and hosts")
    return parser


def _check(options: argparse.Namespace) -> None:
    if options.size_bytes <= 0 or options.size_bytes % 4096:
        raise UsageError(f"--size-bytes {options.size_bytes} is not a positive multiple of 4096")
    for name, text, limit in (("model", options.model, 40), ("serial", options.serial, 20)):
        if not text.isascii() or not text.isprintable() or not 0 < len(text) <= limit:
            raise UsageError(f"--{name} must be 1 to {limit} printable ASCII characters")
    if not 0 < len(options.nqn.encode()) <= 223:
        raise UsageError("--nqn must be 1 to 223 bytes")
    if options.opal and (options.state is None or options.psid_file is None):
        raise UsageError("--opal needs --state and --psid-file")


def _opal_state(options: argparse.Namespace, file: StateFile) -> DriveState:
    """The kept state, or that of a new drive whose PSID is the label's."""
    state = file.load()
    if state is None:
        if options.psid_file.exists():
            psid = options.psid_file.read_bytes().strip()
        else:
            psid = new_secret()
            write_atomically(options.psid_file, psid + b"\n")
        if not 0 < len(psid) <= 32:
            raise UsageError(f"{options.psid_file} must hold a PSID of 1 to 32 bytes")
        state = new_state(psid)
        file.save(state)
    return state


def _build(options: argparse.Namespace) -> tuple[Subsystem, Tper | None]:
    fd = open_backing(options.backing, options.size_bytes)
    stats = Stats(options.stats)
    blocks = options.size_bytes // options.block_size
    config = DriveConfig(
        options.nqn, options.model, options.serial, options.block_size, blocks, options.opal
    )
    media: Media
    if not options.opal:
        media = PlainMedia(fd, options.block_size)
        return Subsystem(config, media, stats, None), None
    file = StateFile(options.state)
    encrypted = EncryptedMedia(fd, options.block_size, stats)
    locking = Locking(_opal_state(options, file), encrypted, blocks, options.block_size)
    tper = Tper(Core(locking, file.save))
    return Subsystem(config, encrypted, stats, tper), tper


def _actions(subsystem: Subsystem, tper: Tper | None, server: Server) -> dict[str, Action]:
    def power_cycle() -> dict[str, object]:
        server.drop_connections()
        if tper is not None:
            tper.power_cycle()
        return {}

    def status() -> dict[str, object]:
        config = subsystem.config
        drive = {"model": config.model, "serial": config.serial, "opal": config.opal}
        return drive | (tper.status() if tper is not None else {})

    return {"power-cycle": power_cycle, "status": status, "stats": subsystem.stats.snapshot}


def _serve(options: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold keys and PINs
    subsystem, tper = _build(options)
    server = Server(subsystem, options.port)
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.control is not None:
        ControlSocket(options.control, _actions(subsystem, tper, server))
    threading.Thread(target=server.serve, daemon=True).start()
    if options.ready_file is not None:
        ready = {"port": server.port, "pid": os.getpid()}
        write_atomically(options.ready_file, json.dumps(ready).encode() + b"\n")
    stopped.wait()
    server.close()
    for path in (options.control, options.ready_file):
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 stopped by a signal, 1 for what went wrong, 2 for wrong options."""
    options = _parser().parse_args(arguments)
    level = logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=level)
    try:
        _check(options)
        _serve(options)
    except UsageError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 2
    except (MediaError, StateError, CryptoError, OSError) as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
