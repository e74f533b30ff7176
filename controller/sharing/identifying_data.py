"""Search of a sealed suite for secrets and for texts that identify a person or a machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from contract.command_results import Identifying
from controller.session import seal
from instrumentation.ports import SECRET_QUERY

LEAST = 4  # characters; shorter texts identify no machine
_FORMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _FORMS["patterns"].items()}
SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@\"]+:[^/\s@\"]+@"
    rb"|" + SECRET_QUERY.pattern.encode() + rb"[^&\s\"]"
    rb"|[?&;#](?:pw|psk)=[^&\s\"]|\b(?:psk|password|passwd|token)=[^\s&\"]{4}"
    rb"|\bBearer\s+[\w.~+/-]{8}|\bAuthorization:\s*Basic\s"
    rb'|"(?:[\w-]*[_-])?(?:token|psk|secret|authorization)"\s*:\s*"[^"]'
    rb'|"[\w-]*(?:passphrase|password|passwd|psid|api_key|auth_token)[\w-]*"\s*:\s*"[^"]',
    re.IGNORECASE,
)


def files_with_secrets(folder: Path) -> list[str]:
    """List the sealed files that seem to contain a password or a private key."""
    return [
        str(path.relative_to(folder))
        for path in seal.files(folder)
        if path.suffix != ".parquet" and SECRET.search(path.read_bytes())
    ]


def find_identifying(folder: Path) -> list[Identifying]:
    """List identifying texts in the sealed files of a suite, with the files that contain them."""
    contents = {
        str(path.relative_to(folder)): path.read_bytes().decode("utf-8", "surrogateescape")
        for path in seal.files(folder)
        if path.suffix != ".parquet"
    }
    kinds: dict[str, str] = {}
    for text in contents.values():
        for kind, pattern in _PATTERNS.items():
            for match in pattern.finditer(text):
                kinds.setdefault(match[match.lastindex or 0], kind)
    return [
        Identifying(kind, mark, tuple(name for name, text in contents.items() if mark in text))
        for mark, kind in sorted(kinds.items(), key=lambda item: (item[1], item[0]))
        if len(mark) >= LEAST and mark not in _FORMS["nobody"]
    ]
