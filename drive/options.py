"""The drive's command line: options, defaults and their checks."""

from __future__ import annotations

import argparse
import hashlib
import os
import pwd
import re
from pathlib import Path

from .own_files import beside

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAX_BYTES = 1 << 50
_EPILOG = """\
example:
  virtual-opal-drive disk.img --size 1G --opal
makes disk.img and, beside it, disk.img.state (verifiers and wrapped keys), disk.img.psid (the
label) and disk.img.control (commands: power-cycle, fault, …), and prints how to connect.
"""


class UsageError(Exception):
    """Options that are wrong or conflict; the message is one sentence for people."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; {self.prog} --help lists the options")


def _bytes(text: str) -> int:
    """Parse bytes, or a number with K, M, G or T, which are powers of 1024."""
    match = re.fullmatch(r"([0-9]{1,20})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 64M or 2G")
    return int(match[1]) * _UNITS[match[2].upper()]


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to 65535")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="virtual-opal-drive",
        description="Serve a file as an NVMe/TCP disk, until SIGTERM or Ctrl-C.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("image", type=Path, nargs="?", help="the medium, a sparse file; made if missing")
    add("--backing", type=Path, help="the same as IMAGE")
    add("--size", "--size-bytes", type=_bytes, dest="size_bytes", help="such as 64M, 2G")
    add(
        "--second-namespace",
        type=_bytes,
        default=0,
        metavar="SIZE",
        help="so much of the size as a second namespace, on the same security subsystem",
    )
    add("--block-size", type=int, choices=(512, 4096), default=4096)
    add("--model", help="at most 40 ASCII characters")
    add("--serial", help="at most 20 ASCII characters; made from the file's path")
    add("--nqn", help="NVMe name of the disk; made from the serial number")
    add("--port", type=_port, default=0, help="0, the default: any free one")
    add("--address", default="127.0.0.1", help="to listen on; another only in a separate network")
    add(
        "--allow-user",
        action="append",
        default=[],
        metavar="NAME",
        help="of this machine, by name or number, to connect as well; `all`: everybody. "
        "Without it root and the drive's own user may",
    )
    add("--ready-file", type=Path, help="gets port and pid once hosts may connect")
    add("--stats", type=Path, help="keep the counters in this file")
    add("--control", type=Path, help="unix socket for commands; IMAGE.control")
    add("--opal", action="store_true", help="a self-encrypting disk")
    add("--key-bits", type=int, choices=(128, 256), help="with --opal: AES key size; 256")
    add("--block-sid-feature", action="store_true", help="with --opal: offer Block SID (0x0402)")
    add("--state", type=Path, help="with --opal: verifiers, wrapped keys; IMAGE.state")
    add("--psid-file", type=Path, help="with --opal: the label; IMAGE.psid, made if missing")
    add("--verbose", action="store_true", help="log refused calls and hosts")
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options with every default filled in; raises UsageError."""
    options = _parser().parse_args(arguments)
    if (options.image is None) == (options.backing is None):
        raise UsageError("name one image file, such as: virtual-opal-drive disk.img --size 1G")
    image: Path = options.backing or options.image
    options.backing = image
    _fill(options, image)
    _check(options)
    return options


def _fill(options: argparse.Namespace, image: Path) -> None:
    if options.size_bytes is None:
        if not image.is_file():
            raise UsageError(f"{image} is not there yet; give its --size, such as 1G")
        options.size_bytes = image.stat().st_size
    if options.serial is None:
        path = hashlib.sha256(bytes(image.absolute())).hexdigest()
        options.serial = f"VD{path[:14].upper()}"
    if options.model is None:
        options.model = "virtual-drive-opal" if options.opal else "virtual-drive"
    options.users = _users(options.allow_user)
    options.nqn = options.nqn or f"nqn.2026-01.org.fde-testbed:{options.serial}"
    options.control = options.control or beside(image, "control")
    opal_only = ("state", "psid_file", "key_bits", "block_sid_feature")
    conflicting = [name for name in opal_only if getattr(options, name)]
    if conflicting and not options.opal:
        raise UsageError(f"--{conflicting[0].replace('_', '-')} needs --opal")
    options.state = options.state or beside(image, "state")
    options.psid_file = options.psid_file or beside(image, "psid")


def _users(allowed: list[str]) -> frozenset[int] | None:
    """Return the user ids whose connections are accepted; None for everybody's."""
    if "all" in allowed:
        return None
    try:
        named = [int(n) if n.isdecimal() else pwd.getpwnam(n).pw_uid for n in allowed]
    except KeyError as error:
        raise UsageError(f"--allow-user: {error.args[0]}; give a name, a number or all") from error
    return frozenset({0, os.geteuid(), *named})


def _check(options: argparse.Namespace) -> None:
    size = options.size_bytes
    if not 0 < size <= _MAX_BYTES or size % 4096:
        raise UsageError(
            f"a size of {size} bytes is not a positive multiple of 4096 up to 1024T; give another"
        )
    second = options.second_namespace
    if not 0 <= second < size or second % 4096:
        raise UsageError("--second-namespace must be a multiple of 4096 below the disk's size")
    for name, text, limit in (("model", options.model, 40), ("serial", options.serial, 20)):
        if not text.isascii() or not text.isprintable() or not 0 < len(text) <= limit:
            raise UsageError(f"--{name} must be 1 to {limit} printable ASCII characters")
    if not 0 < len(options.nqn.encode()) <= 223 or "\0" in options.nqn:
        raise UsageError("--nqn must be 1 to 223 bytes")
