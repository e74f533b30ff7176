"""Secrets of the storage stacks, and the limit of wrong PINs tried on a drive."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from agent.storage import devices
from agent.system.lock import RUN
from contract import private, system_text
from contract.errors import AgentError
from contract.files import write_json
from contract.places import command_line
from contract.problem import wordings_of
from contract.strict_json import read_object

PLACE = RUN / "pin-tries.json"
# Drives are sold with limits of five and more; what is left is for their owner.
MOST = 2
# A C_PIN's PIN (TCG Storage Opal SSC 2.01, 4.2.1.8), and what drives have printed on their labels.
MOST_PIN_BYTES, PSID_LENGTH = 32, 32
ADMIN1, SID, PSID = "Admin1", "SID", "PSID"


class PinTriesError(AgentError):
    """The drive refused as many PINs as may be tried; this one was not tried."""

    WORDINGS = wordings_of("agent/storage", "PinTriesError")


@dataclass(frozen=True)
class Login:
    """An authority of a drive; `diskseq` changes as the drive is plugged in."""

    device: str
    serial: str
    diskseq: str
    authority: str

    @property
    def _key(self) -> str:
        return f"{self.serial or self.device} {self.diskseq} {self.authority}"

    @property
    def refused(self) -> int:
        """Count of PINs that the drive refused since it or the target was started."""
        return int(read_object(PLACE).get(self._key, 0))

    def check(self) -> None:
        """Raise PinTriesError, with the limit and the remedy, if no further PIN may be tried."""
        if self.refused >= MOST:
            named = {"device": self.device, "authority": self.authority}
            raise PinTriesError("refused", **named, refused=self.refused, way_out=self.way_out)

    def count(self) -> None:
        """Count one more refused PIN."""
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        write_json(PLACE, {**read_object(PLACE), self._key: self.refused + 1})

    def forget(self) -> None:
        """Forget the refusals: the drive took the PIN, and sets its own count back."""
        if self.refused:
            others = {key: n for key, n in read_object(PLACE).items() if key != self._key}
            write_json(PLACE, others)

    @property
    def way_out(self) -> str:
        """The remedy, as a sentence for people."""
        off = "power the target off and on again"
        if self.authority == PSID:
            return f"Compare sed_psid with the drive's label, {off}, then try again."
        return (
            f"Put the PIN it was owned with into the secrets and {off}, or erase the drive by its "
            f"PSID: {command_line('teardown', psid_revert=self.serial or '<serial>')}."
        )


def login(device: str, authority: str) -> Login:
    """Return an authority of the drive that a disk or a partition belongs to."""
    name = devices.kernel_name(device)
    if name is not None and (devices.BLOCK / name / "partition").exists():
        name = (devices.BLOCK / name).resolve().parent.name
    if name is None:
        return Login(device, "", "", authority)
    diskseq = devices.BLOCK / name / "diskseq"
    return Login(
        device,
        devices.serial(name),
        system_text.read(diskseq).strip() if diskseq.exists() else "",
        authority,
    )


class SecretsError(AgentError):
    """The secrets cannot be used."""

    WORDINGS = wordings_of("agent/storage", "SecretsError")


@dataclass(frozen=True)
class Secrets:
    """Bytes as programs take them; never shown by `repr`. `sed_psid` is printed on the drive."""

    luks_passphrase: bytes = field(repr=False)
    opal_admin_pin: bytes = field(repr=False)
    sed_psid: bytes | None = field(repr=False, default=None)


def load(path: Path) -> Secrets:
    """Read the secrets file; raises SecretsError if it is missing, open to others, invalid."""
    private.no_core_dumps()
    try:
        if path.stat().st_mode & 0o077:
            raise SecretsError("open", path=str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SecretsError("unreadable", path=str(path), error=error.strerror) from error
    except ValueError:
        # The parser's message would quote the file.
        raise SecretsError("not-json", path=str(path)) from None
    if not isinstance(document, dict):
        raise SecretsError("not-object", path=str(path))
    pin = _line(document.get("opal_admin_pin"), "opal_admin_pin", path)
    if len(pin) > MOST_PIN_BYTES:
        raise SecretsError("long-pin", path=str(path), found=len(pin), most=MOST_PIN_BYTES)
    psid = None
    if printed := document.get("sed_psid"):
        # Labels print it in groups, and people write it in small letters. The drive would count
        # what cannot be one as a try.
        psid = re.sub(rb"[\s-]", b"", _line(printed, "sed_psid", path)).upper()
        if not re.fullmatch(rb"[A-Z0-9]{%d}" % PSID_LENGTH, psid):
            raise SecretsError("psid-form", path=str(path), found=len(psid), length=PSID_LENGTH)
    return Secrets(
        luks_passphrase=_line(document.get("luks_passphrase"), "luks_passphrase", path),
        opal_admin_pin=pin,
        sed_psid=psid,
    )


def _line(value: object, key: str, path: Path) -> bytes:
    if not isinstance(value, str) or value.splitlines() != [value] or "\0" in value:
        raise SecretsError("not-line", path=str(path), key=key)
    return value.encode()
