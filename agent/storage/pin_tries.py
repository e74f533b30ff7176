"""Wrong PINs that a drive was given: few are allowed before it locks out whoever owns it.

Only its owner may read a drive's limit and count (TryLimit and Tries of C_PIN; TCG Opal SSC 2.01,
4.2 and 4.3), so whoever was refused cannot. Refused tries are counted here, by drive and authority;
in memory, for drives forget theirs without power, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from agent.lock import RUN
from agent.storage import devices
from contract.errors import AgentError
from contract.files import write_json

PLACE = RUN / "pin-tries.json"
# Drives are sold with limits of five and more; what is left is for their owner.
MOST = 2
ADMIN1, SID, PSID = "Admin1", "SID", "PSID"


class PinTriesError(AgentError):
    """The drive refused as many PINs as we dare to try: this one was not."""


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
        """How many PINs the drive refused since it or the target was started."""
        return _counts().get(self._key, 0)

    def check(self) -> None:
        """Raises PinTriesError, with the limit and the way out, where no more is to be tried."""
        if self.refused >= MOST:
            raise PinTriesError(
                f"{self.device} refused {self.refused} logins as {self.authority}, so nothing was "
                "tried: a drive locks out after a few (often 5, its TryLimit) until it has been "
                f"without power. {self.way_out}"
            )

    def count(self) -> None:
        """One more was refused."""
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        write_json(PLACE, {**_counts(), self._key: self.refused + 1})

    def forget(self) -> None:
        """The drive took the PIN, and sets its own count back."""
        if self.refused:
            write_json(PLACE, {key: n for key, n in _counts().items() if key != self._key})

    @property
    def way_out(self) -> str:
        """One sentence for people."""
        off = "power the target off and on again"
        if self.authority == PSID:
            return f"Compare sed_psid with the drive's label, {off}, then try again."
        return (
            f"Put the PIN it was owned with into the secrets and {off}, or erase the drive by its "
            f"PSID: make teardown PSID_REVERT={self.serial or '<serial>'}."
        )


def login(device: str, authority: str) -> Login:
    """An authority of the drive that a disk or a partition belongs to."""
    name = devices.kernel_name(device)
    if name is not None and (devices.BLOCK / name / "partition").exists():
        name = (devices.BLOCK / name).resolve().parent.name
    if name is None:
        return Login(device, "", "", authority)
    diskseq = devices.BLOCK / name / "diskseq"
    return Login(
        device,
        devices.serial(name),
        diskseq.read_text().strip() if diskseq.exists() else "",
        authority,
    )


def _counts() -> dict[str, int]:
    try:
        counts: dict[str, int] = json.loads(PLACE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return counts
