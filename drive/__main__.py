"""Serve one virtual disk over NVMe/TCP on 127.0.0.1 until it gets SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import logging
import os
import resource
import shlex
import signal
import sys
import threading
from types import FrameType

from . import factory
from .actions import Actions
from .aes_xts import CryptoError
from .control import ControlError, ControlSocket
from .media import MediaError
from .options import UsageError, parse
from .own_files import ForeignFileError, check_ready_file
from .peers import unknown_hosts
from .server import Server
from .state import StateError, write_atomically
from .subsystem import Subsystem

_PR_SET_DUMPABLE = 4
_M_MMAP_THRESHOLD = -3
_log = logging.getLogger("drive")
_LIBC = ctypes.CDLL(None)


def _open_server(options: argparse.Namespace, subsystem: Subsystem) -> Server:
    try:
        return Server(subsystem, options.port, options.address, options.users)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is in use" if error.errno == errno.EADDRINUSE else "is not allowed"
        raise UsageError(
            f"port {options.port} {reason}; choose another with --port, or leave it out"
        ) from error


def _greet(options: argparse.Namespace, port: int) -> None:
    """Print how to use the drive; the PSID itself is never shown."""
    kind = f"Opal 2, PSID in {options.psid_file}" if options.opal else "plain"
    control = shlex.quote(str(options.control))
    print(
        f"virtual-opal-drive: {options.backing}, {options.size_bytes} bytes in sectors of "
        f"{options.block_size}, {kind}\n"
        f"  connect     sudo nvme connect -t tcp -a 127.0.0.1 -s {port} -n {options.nqn}\n"
        f"  disconnect  sudo nvme disconnect -n {options.nqn}\n"
        f"  command     {shlex.quote(sys.executable)} -m {__package__}.control {control} status\n"
        f"  stop        Ctrl-C here, or kill {os.getpid()}",
        flush=True,
    )


def _serve(options: argparse.Namespace) -> None:
    # No core dump, to a file or a pipe, and no debugger: memory holds keys and PINs.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if hasattr(_LIBC, "mallopt"):  # the GNU library's
        # Buffers of connections are mapped one by one: used as they fill, returned when freed.
        # By default the allocator raises this limit to 32 MiB and keeps what hosts once needed.
        _LIBC.mallopt(_M_MMAP_THRESHOLD, 128 << 10)
    os.umask(0o077)
    if options.ready_file is not None:
        check_ready_file(options.ready_file)
    subsystem = factory.build(options)
    server = _open_server(options, subsystem)
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    actions = Actions(subsystem, server)
    subsystem.on_power_loss = actions.power_cycle
    if warning := unknown_hosts(options.address, options.users):
        _log.warning(warning)
    control = ControlSocket(options.control, actions.by_name())
    threading.Thread(target=server.serve, daemon=True).start()
    if options.ready_file is not None:
        ready = {"port": server.port, "pid": os.getpid()}
        write_atomically(options.ready_file, json.dumps(ready).encode() + b"\n")
    _greet(options, server.port)
    stopped.wait()
    server.close()
    control.close()
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the drive; return 0 when stopped by a signal, 1 after a failure, 2 for wrong options."""
    try:
        options = parse(arguments)
        level = logging.INFO if options.verbose else logging.WARNING
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=level)
        _serve(options)
    except UsageError as error:
        print(f"fde: {error}", file=sys.stderr)
        return 2
    except (ForeignFileError, MediaError, StateError, CryptoError, ControlError) as error:
        print(f"fde: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"fde: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
