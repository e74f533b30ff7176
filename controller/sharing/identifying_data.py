"""What in a sealed suite identifies a person or a machine, by its form or its place.

Found are serial numbers and other names of disks, the machine's id, host and user names, addresses
and ports of meters, MAC addresses, UUIDs (of boots, too), e-mail addresses and paths of users.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from contract.command_results import Identifying
from controller.session import seal
from instrumentation.ports import SECRET_QUERY

RAW = "stream.raw"
LEAST = 4  # characters: what is shorter is no name of one machine
KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NOBODY, BY_SERIAL, VERSIONS = (set(KNOWN[key]) for key in ("nobody", "by_serial", "versions"))
PATTERNS = {kind: re.compile(pattern) for kind, pattern in KNOWN["patterns"].items()}
ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F:]*::?[0-9a-fA-F:.]+)(?![\w:])"
)
HOME = re.compile(r"/(?:home|Users)/([\w.-]+)")
# In raw bytes: what a meter's JSON says of itself, and an instrument's answer to *IDN?.
RAW_KEYS = re.compile(
    rb'"(?:mac|id|device_id|serial|serial_number|sn|hostname|ssid|ip|ip_address|device|name|uuid)"'
    rb'\s*:\s*"([^"\\]{4,80})"',
    re.IGNORECASE,
)
IDN = re.compile(rb"[A-Za-z][\w .&-]+,[\w ./-]+,([\w-]{4,}),[\w .:/-]+\r?\n")
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@\"]+:[^/\s@\"]+@"
    rb"|" + SECRET_QUERY.pattern.encode() + rb"[^&\s\"]"
    rb"|[?&;#](?:pw|psk)=[^&\s\"]|\b(?:psk|password|passwd|token)=[^\s&\"]{4}"
    rb"|\bBearer\s+[\w.~+/-]{8}|\bAuthorization:\s*Basic\s"
    rb'|"(?:[\w-]*[_-])?(?:token|psk|secret|authorization)"\s*:\s*"[^"]'
    rb'|"[\w-]*(?:passphrase|password|passwd|psid|api_key|auth_token)[\w-]*"\s*:\s*"[^"]',
    re.IGNORECASE,
)


def secrets(folder: Path) -> list[str]:
    """List the sealed files that hold what looks like a password or a private key."""
    return [
        str(path.relative_to(folder))
        for path in seal.files(folder)
        if path.suffix != ".parquet" and SECRET.search(path.read_bytes())
    ]


def identifying(folder: Path) -> list[Identifying]:
    """All that is found in the sealed files of a suite, by kind and text."""
    kinds: dict[str, str] = {}
    contents = {
        path: path.read_bytes().decode("utf-8", "surrogateescape")
        for path in seal.files(folder)
        if path.suffix != ".parquet"
    }
    for path, text in contents.items():
        if path.name == RAW:
            for mark in _of_raw(path.read_bytes()):
                kinds.setdefault(mark, "meter's own name")
            continue
        for document in _documents(path, text):
            for kind, mark in _of_document(document, ()):
                kinds.setdefault(mark, kind)
        for kind, pattern in PATTERNS.items():
            for match in pattern.finditer(text):
                kinds.setdefault(match[0], kind)
        for match in HOME.finditer(text):
            kinds.setdefault(match[1], "user name")
    named = {
        mark: kind for mark, kind in kinds.items() if len(mark) >= LEAST and mark not in NOBODY
    }
    suite_id = folder.name
    if any(kind == "host name" and mark in suite_id for mark, kind in named.items()):
        named[suite_id] = "suite's name"
    marks = []
    for mark, kind in named.items():
        files = [str(path.relative_to(folder)) for path, text in contents.items() if mark in text]
        if files:
            marks.append(Identifying(kind, mark, tuple(files)))
    return sorted(marks, key=lambda mark: (mark.kind, mark.text))


def _of_raw(data: bytes) -> Iterator[str]:
    patterns = (RAW_KEYS, IDN) if b"*IDN?" in data else (RAW_KEYS,)
    for pattern in patterns:
        for match in pattern.finditer(data):
            try:
                yield match[1].decode("ascii")
            except UnicodeDecodeError:
                continue


def _of_document(value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(kind, text) by the keys of a suite's documents."""
    if isinstance(value, dict):
        if {*place[-1:]} & BY_SERIAL or place[-2:] in (("disks", "before"), ("disks", "after")):
            yield from (("serial number", str(inner)) for inner in value)
        for name, inner in value.items():
            yield from _of_document(inner, (*place, str(name)))
    elif isinstance(value, list):
        if place[-1:] == ("uname",) and len(value) > 1:
            yield "host name", str(value[1])
        for inner in value:
            yield from _of_document(inner, place)
    elif isinstance(value, str):
        key = place[-1] if place else ""
        if key in KNOWN["kinds"]:
            yield KNOWN["kinds"][key], PurePosixPath(value).name if key == "by_id" else value
        if key == "port" and (host := urlsplit(value).hostname):
            yield "address", host
        if not VERSIONS & set(place):
            yield from (("address", m[0]) for m in ADDRESS.finditer(value) if is_address(m[0]))


def is_address(text: str) -> bool:
    """Return whether the text is an IP address that identifies a machine."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified) and len(text) > LEAST


def _documents(path: Path, text: str) -> Iterator[Any]:
    pieces = text.splitlines() if path.suffix == ".jsonl" else [text] * (path.suffix == ".json")
    for piece in pieces:
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):  # a line that a power cut has torn
            continue
