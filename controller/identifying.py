"""What in a sealed suite identifies a person or a machine, and pseudonyms in its place.

Found are serial numbers and other names of disks, the machine's id, host and user names, addresses
and ports of meters, MAC addresses, UUIDs (of boots, too), e-mail addresses and paths of users. A
pseudonym is an HMAC-SHA256 under a key that is the sum of the suite's own manifest: the same name
has the same pseudonym throughout a bundle, another one in another suite's, and nobody computes it
without the whole original.

In text the pseudonym says what it stands for. In a meter's raw bytes it has the length of what it
replaces, so that no frame moves.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from analysis.suite.manifest import canonical_sha256
from contract import strict_json
from contract.command_results import Identifying
from contract.errors import ControllerError
from contract.files import sha256_of, write, write_json
from controller import seal
from instrumentation.trace import StreamError, frame_spans

RAW = "stream.raw"
# Host names that every lab's guest has, and users that every system has, name nobody.
NOBODY = {"target", "fde-target", "localhost", "local", "synthetic", "root", "user"}
LEAST = 4  # characters: what is shorter is no name of one machine
KINDS = {
    **dict.fromkeys(("serial", "wwid", "wwn", "eui", "nguid", "erase"), "serial number"),
    "by_id": "disk name",
    "machine_id": "machine id",
    "host": "host name",
    "port": "port",
    "topic": "port",
}
BY_SERIAL = {"firmware", "medium_errors", "locked_reads"}
VERSIONS = {"versions", "packages", "firmware", "kernel", "uname", "os_release", "about"}
PATTERNS = {
    "UUID": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    "MAC address": re.compile(r"\b[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}\b"),
    "e-mail address": re.compile(
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.(?!service|timer|socket|target|mount)[A-Za-z]{2,}\b"
    ),
    "path": re.compile(
        r"(?<![\w.:/-])/(?!dev/|sys/|proc/|usr/|etc/|lib/|lib64/|bin/|sbin/|boot/"
        r"|(?:var/lib|opt|run|mnt)/fde)[\w.+@~-]+(?:/[\w.+@~-]+)+"
    ),
}
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
ANSWER = re.compile(rb"@(\d{1,5}) ([0-9a-f]{8}) ([ -~]{0,200})\n")
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@\"]+:[^/\s@\"]+@|[?&]password=[^&\s\"]"
    rb'|"[\w-]*(?:passphrase|password|passwd|psid|api_key|auth_token)[\w-]*"\s*:\s*"[^"]',
    re.IGNORECASE,
)


def secrets(folder: Path) -> list[str]:
    """The sealed files that hold what looks like a password or a private key."""
    return [
        str(path.relative_to(folder))
        for path in seal.files(folder)
        if path.suffix != ".parquet" and SECRET.search(path.read_bytes())
    ]


def identifying(folder: Path) -> list[Identifying]:
    """All that is found in the sealed files of a suite, by kind and text."""
    kinds: dict[str, str] = {}
    contents = {
        path: _decoded(path.read_bytes())
        for path in seal.files(folder)
        if path.suffix != ".parquet"
    }
    for path, text in contents.items():
        if path.name == RAW:
            for one in _of_raw(path.read_bytes()):
                kinds.setdefault(one, "meter's own name")
            continue
        for document in _documents(path, text):
            for kind, one in _of_document(document, ()):
                kinds.setdefault(one, kind)
        for kind, pattern in PATTERNS.items():
            for match in pattern.finditer(text):
                kinds.setdefault(match[0], kind)
        for match in HOME.finditer(text):
            kinds.setdefault(match[1], "user name")
    named = {one: kind for one, kind in kinds.items() if len(one) >= LEAST and one not in NOBODY}
    suite_id = folder.name
    if any(kind == "host name" and one in suite_id for one, kind in named.items()):
        named[suite_id] = "suite's name"
    found = []
    for one, kind in named.items():
        files = [str(path.relative_to(folder)) for path, text in contents.items() if one in text]
        if files:
            found.append(Identifying(kind, one, tuple(files)))
    return sorted(found, key=lambda one: (one.kind, one.text))


class Pseudonyms:
    """One for each of the texts that were found."""

    def __init__(self, found: Sequence[Identifying], key: bytes) -> None:
        self._key = key
        self._kinds = {one.text: one.kind for one in found}
        longest = sorted(self._kinds, key=len, reverse=True)
        self._texts = re.compile("|".join(map(self._pattern, longest)) or r"(?!)")
        raw = [re.escape(one.encode()) for one in longest if len(one) >= 6 and self._in_raw(one)]
        self._raw = re.compile(b"|".join(raw) or rb"(?!)")

    def _pattern(self, one: str) -> str:
        if self._kinds[one] in ("host name", "user name"):  # may be a word, or a key of ours
            return rf'(?<![\w-]){re.escape(one)}(?![\w-])(?!"\s*:)'
        return re.escape(one)

    def _in_raw(self, one: str) -> bool:
        return self._kinds[one] not in ("path", "port", "suite's name", "user name")

    def _hex(self, one: str) -> str:
        return hmac.new(self._key, one.encode(), hashlib.sha256).hexdigest()

    def of(self, one: str) -> str:
        """The pseudonym of a text that was found."""
        kind, digest = self._kinds[one], self._hex(one)
        if kind == "suite's name":
            hosts = [text for text, of in self._kinds.items() if of == "host name"]
            for host in sorted(hosts, key=len, reverse=True):
                one = one.replace(host, self.of(host))
            return one
        if kind == "UUID":
            return "-".join(digest[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        if kind == "machine id":
            return digest[: len(one)]
        if kind == "path":
            return f"/path-{digest[:12]}"
        return f"{kind.split()[0].lower().removesuffix(chr(39) + 's')}-{digest[:12]}"

    def text(self, text: str) -> str:
        """With pseudonyms."""
        return self._texts.sub(lambda match: self.of(match[0]), text)

    def raw(self, data: bytes) -> bytes:
        """A meter's bytes with pseudonyms of the same length, and the sums of answers made anew."""

        def same_length(match: re.Match[bytes]) -> bytes:
            one = match[0].decode()
            return (self._hex(one) * (len(match[0]) // 64 + 1))[: len(match[0])].encode()

        replaced = bytearray(self._raw.sub(same_length, data))
        if bytes(replaced) != data:
            for answer in ANSWER.finditer(bytes(replaced)):
                body = replaced[answer.end() : answer.end() + int(answer[1])]
                old = data[answer.end() : answer.end() + int(answer[1])]
                label = data[answer.start(3) : answer.end(3)]
                if zlib.crc32(label + b"\n" + old) == int(answer[2], 16):
                    crc = zlib.crc32(answer[3] + b"\n" + body)
                    replaced[answer.start(2) : answer.end(2)] = b"%08x" % crc
        return bytes(replaced)


def anonymise(folder: Path, found: Sequence[Identifying]) -> Path:
    """Put pseudonyms in place of what was found in a suite's folder, a copy; its new path.

    Sums within it (of the plan, of runs) are made anew, and so is the manifest, which says so.
    Raises ControllerError.
    """
    made = Pseudonyms(found, hashlib.sha256((folder / seal.MANIFEST).read_bytes()).digest())
    sums: dict[str, str] = {}
    plan = made.text((folder / "plan.json").read_text(encoding="utf-8"))
    document = strict_json.loads(plan)
    sums[str(document["sha256"])] = canonical_sha256(document)
    write(
        folder / "plan.json",
        [plan.replace(str(document["sha256"]), canonical_sha256(document)).encode()],
    )
    rest = [path for path in seal.files(folder) if path.name != "plan.json"]
    for path in sorted(rest, key=_depends):
        if path.name == RAW:
            _raw(path, made)
        elif path.suffix != ".parquet":
            before = path.read_bytes()
            text = made.text(_decoded(before))
            text = re.sub(r"\b[0-9a-f]{64}\b", lambda match: sums.get(match[0], match[0]), text)
            after = text.encode("utf-8", "surrogateescape")
            if after != before:
                sums[hashlib.sha256(before).hexdigest()] = hashlib.sha256(after).hexdigest()
                write(path, [after], sync=False)
    seal.decode(folder)
    files = {str(path.relative_to(folder)): sha256_of(path) for path in seal.files(folder)}
    why = "by fde publish --anonymous: the sums are of the files with pseudonyms"
    write_json(folder / seal.MANIFEST, {"format": seal.FORMAT, "made_anew": why, "files": files})
    place = folder.with_name(str(document["suite_id"]))
    return folder.rename(place) if place != folder else folder


def _depends(path: Path) -> int:
    """Files whose sums stand in others come before these: what a run names, it, the journal."""
    return {"run.json": 1, "journal.jsonl": 2, "requests.jsonl": 3}.get(path.name, 0)


def _raw(path: Path, made: Pseudonyms) -> None:
    """What came is one stream, whatever the reads were that it came in."""
    data = bytearray(path.read_bytes())
    try:
        spans = list(frame_spans(path))
    except StreamError as error:
        raise ControllerError(f"{error}: the suite cannot be made anonymous.") from None
    stream = b"".join(data[begin:end] for begin, end in spans)
    replaced = made.raw(stream)
    if replaced == stream:
        return
    at = 0
    for begin, end in spans:
        data[begin:end] = replaced[at : at + end - begin]
        at += end - begin
    write(path, [bytes(data)])
    (path.parent / "samples.parquet").unlink(missing_ok=True)


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
            yield from (("serial number", str(one)) for one in value)
        for name, one in value.items():
            yield from _of_document(one, (*place, str(name)))
    elif isinstance(value, list):
        if place[-1:] == ("uname",) and len(value) > 1:
            yield "host name", str(value[1])
        for one in value:
            yield from _of_document(one, place)
    elif isinstance(value, str):
        key = place[-1] if place else ""
        if key in KINDS:
            yield KINDS[key], PurePosixPath(value).name if key == "by_id" else value
        if key == "port" and (host := urlsplit(value).hostname):
            yield "address", host
        if not VERSIONS & set(place):
            yield from (("address", m[0]) for m in ADDRESS.finditer(value) if _is_address(m[0]))


def _is_address(text: str) -> bool:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_unspecified) and len(text) > LEAST


def _documents(path: Path, text: str) -> Iterator[Any]:
    pieces = text.splitlines() if path.suffix == ".jsonl" else [text] * (path.suffix == ".json")
    for piece in pieces:
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):  # a line that a power cut has torn
            continue


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
