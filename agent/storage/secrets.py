"""The secrets of the storage stacks; they reach programs through standard input only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from contract import private
from contract.errors import AgentError


class SecretsError(AgentError):
    """The secrets cannot be used."""


@dataclass(frozen=True)
class Secrets:
    """Bytes as programs take them; never shown by `repr`. `sed_psid` is printed on the drive."""

    luks_passphrase: bytes = field(repr=False)
    opal_admin_pin: bytes = field(repr=False)
    sed_psid: bytes | None = field(repr=False, default=None)


def load(path: Path) -> Secrets:
    """Read the secrets file; raises SecretsError if it is missing, open to others, or not whole."""
    private.no_core_dumps()
    try:
        if path.stat().st_mode & 0o077:
            raise SecretsError(f"{path} is open to other users: chmod 600 it.")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SecretsError(
            f"The secrets {path} cannot be read ({error.strerror}): they live in memory and are "
            "gone after a reboot. A session of the controller places them; else make resume does."
        ) from error
    except ValueError:
        # The parser's message would quote the file.
        raise SecretsError(f"The secrets {path} are not JSON: push them again.") from None
    if not isinstance(document, dict):
        raise SecretsError(f"The secrets {path} are not a JSON object: push them again.")
    psid = document.get("sed_psid")
    return Secrets(
        luks_passphrase=_line(document, "luks_passphrase", path),
        opal_admin_pin=_line(document, "opal_admin_pin", path),
        sed_psid=_line(document, "sed_psid", path) if psid else None,
    )


def _line(document: dict[str, object], key: str, path: Path) -> bytes:
    value = document.get(key)
    if not isinstance(value, str) or not value or "\n" in value:
        raise SecretsError(f"The secret {key} in {path} is missing or not one line: set it.")
    return value.encode()
