"""A self-encrypting disk by cryptsetup's `--hw-opal-only`: the drive encrypts, the host unlocks.

Its range is `locked`, `unlocked` or `off` (it never locks): the kind `opal` needs the first two,
every other kind on the same disk the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from agent.storage import msid, opal_ioctl
from agent.storage.base import DRIVE, Evidence, Expectation, Kind, Layer, Place
from agent.storage.dmcrypt import CHEAP_PBKDF, open_luks
from agent.storage.facts import LUKS_LABEL
from agent.storage.guard import MAPPING
from agent.storage.opal_ioctl import OpalError
from agent.storage.secrets import SID, Secrets, login
from agent.system.command import CommandError, run
from contract import strict_json
from contract.errors import AgentError
from contract.plan import Configuration, EncryptedBy
from contract.problem import wordings_of

NO_HEADER, NO_PERMISSION = 1, 2  # of cryptsetup's exit codes
OPAL_KEY_BITS = 256  # of the range's key, which a keyslot holds next to a volume key


class NotTakenError(AgentError):
    """The drive did not take our PIN, and is as it was."""

    WORDINGS = wordings_of("agent/storage", "NotTakenError")


class NotReady(StrEnum):
    """The part that a provisioned self-encrypting disk lacks, as a clause."""

    LOCKING_OFF = "locking is not enabled"
    NO_HEADER = "there is no LUKS2 header that our passphrase opens"
    OTHER_RANGE = "the LUKS2 header describes another range"
    NO_LOCKS = "the range does not lock"


@dataclass(frozen=True)
class Header:
    """A LUKS2 header above a locking range: cryptsetup's arguments, and its segment's contents."""

    arguments: tuple[str, ...] = ("--hw-opal-only",)
    segment: str = "hw-opal"
    encryption: str | None = None
    sector_size: int | None = None
    key_bits: int = OPAL_KEY_BITS


DRIVE_ALONE = Header()


class Opal(Kind):
    """The drive encrypts; ownership and range are made once, when the target is provisioned."""

    name: ClassVar[str] = "opal"
    encrypted_by: ClassVar[EncryptedBy] = DRIVE
    range_state = "unlocked"

    def header(self, configuration: Configuration) -> Header:
        """Return the arguments that make a configuration's LUKS2 header, and its contents."""
        del configuration
        return DRIVE_ALONE

    def label(self, configuration: Configuration) -> str:
        del configuration
        return "Opal drive"

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        del configuration
        return Expectation(
            layers=(Layer(MAPPING, "CRYPT-LUKS2", (place.segment("linear"),)),),
            luks_segment="hw-opal",
            range_state=self.range_state,
            plaintext_on_medium=True,
        )

    def before_attach(
        self, place: Place, configuration: Configuration, secrets: Secrets
    ) -> Evidence:
        """Make range and header again if another kind used their place.

        The drive is asked whether the range is locked; no read is tried, since a refused one
        disturbs the link that is about to be measured (`agent.runner.read_locked`).
        """
        header = self.header(configuration)
        if why_not_ready(place, secrets, header, try_passphrase=False) is not None:
            make_range(place, secrets, header)
        locking_range = range_found(place, secrets)
        return Evidence(locking_range.state if locking_range else None)

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        del configuration
        open_luks(place, secrets, [])
        return Evidence()


def range_found(place: Place, secrets: Secrets) -> opal_ioctl.RangeStatus | None:
    """Return the locking range of the place.

    None if the disk has no Opal or locking is not enabled. Raises AgentError if the drive does not
    take our PIN.
    """
    status = opal_ioctl.find_status(place.partition)
    if status is None or not status.locking_enabled:
        return None
    return opal_ioctl.range_status(place.partition, place.number, secrets.opal_admin_pin)


def switch_off(place: Place, secrets: Secrets) -> None:
    """Make a self-encrypting disk's range never lock; other disks are left unchanged.

    The drive continues encrypting with its own key, but asks for no PIN.
    """
    locking_range = range_found(place, secrets)
    if locking_range is None or (locking_range.off and locking_range.state == "unlocked"):
        return
    pin = secrets.opal_admin_pin
    opal_ioctl.enable_locks(place.partition, place.number, pin, enabled=False)
    opal_ioctl.unlock(place.partition, place.number, pin)


def relock(place: Place, secrets: Secrets) -> bool:
    """Lock the range if it locks and is open; return whether it had to be locked.

    cryptsetup reports success even if a range stayed open, so the drive is asked. Raises OpalError
    if it stays open.
    """
    locking_range = range_found(place, secrets)
    if locking_range is None or locking_range.off or locking_range.state == "locked":
        return False
    pin = secrets.opal_admin_pin
    opal_ioctl.lock(place.partition, place.number, pin)
    if opal_ioctl.range_status(place.partition, place.number, pin).state != "locked":
        raise OpalError("stays-unlocked", by_id=place.disk.by_id)
    return True


@dataclass(frozen=True)
class LuksIntegrity:
    """The algorithm of a segment's tags."""

    type: str


@dataclass(frozen=True)
class LuksSegment:
    """A segment of LUKS2 metadata; `offset` and `size` in bytes are text there."""

    type: str
    offset: str
    size: str = ""
    encryption: str | None = None
    sector_size: int | None = None
    integrity: LuksIntegrity | None = None


@dataclass(frozen=True)
class LuksHeader:
    """LUKS2 metadata without salts and digests; `key_bits` are the sizes of its keys."""

    segments: Mapping[str, LuksSegment]
    key_bits: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Keyslot:
    key_size: int


@dataclass(frozen=True)
class _Dump:
    segments: Mapping[str, LuksSegment]
    keyslots: Mapping[str, _Keyslot]


def luks_header(partition: str) -> LuksHeader:
    """Read the LUKS2 metadata of a partition; raises CommandError if it is not LUKS2."""
    printed = run(["cryptsetup", "luksDump", "--dump-json-metadata", partition]).out
    try:
        dump = strict_json.parse(_Dump, printed)
    except ValueError as error:
        raise CommandError("header-unread", partition=partition, error=error) from error
    key_bits = {8 * keyslot.key_size for keyslot in dump.keyslots.values()}
    return LuksHeader(dump.segments, tuple(sorted(key_bits)))


def why_not_ready(
    place: Place, secrets: Secrets, header: Header | None = None, *, try_passphrase: bool = True
) -> NotReady | None:
    """Return the part that a provisioned self-encrypting disk lacks; None if it is ready.

    Without a `header`, that of any configuration is accepted.

    Raises AgentError if the drive is ours by its header but does not take our PIN, or does not
    answer: formatting would spoil a good header before the drive refuses.
    """
    status = opal_ioctl.status(place.partition)
    if not status.locking_enabled:
        return NotReady.LOCKING_OFF
    try:
        luks = luks_header(place.partition)
        segment = luks.segments["0"]
        if try_passphrase:
            argv = ["cryptsetup", "open", "--type", "luks2", "--test-passphrase", "--key-file", "-"]
            run([*argv, place.partition], stdin=secrets.luks_passphrase)
        state = opal_ioctl.range_status(place.partition, place.number, secrets.opal_admin_pin)
    except CommandError as error:
        # That it has none, or another passphrase, are answers; nothing else is.
        if error.facts.get("exit_code") not in (NO_HEADER, NO_PERMISSION):
            raise
        return NotReady.NO_HEADER
    actual = (segment.type, segment.encryption, segment.sector_size, luks.key_bits)
    is_made_so = header is None or actual == (
        *(header.segment, header.encryption, header.sector_size),
        (header.key_bits,),
    )
    lies = (segment.offset, segment.size)
    is_there = lies == (str(place.extent.offset_bytes), str(place.extent.size_bytes))
    if not (segment.type.startswith("hw-opal") and is_there and is_made_so):
        return NotReady.OTHER_RANGE
    if not (state.read_lock_enabled and state.write_lock_enabled):
        return NotReady.NO_LOCKS
    return None


def take(device: str, secrets: Secrets, sid: opal_ioctl.Sid | None) -> None:
    """Give a drive that locks nothing our PIN and enable locking, or finish an interrupted try.

    It comes before anything is cleared. Raises NotTakenError if the drive refused, AgentError if
    that is unknown.
    """
    free = sid is None or not sid.taken
    try:
        if free:
            opal_ioctl.take(device, secrets.opal_admin_pin)
    except OpalError as error:
        if not error.status:
            raise
        if error.status != opal_ioctl.NOT_AUTHORISED:
            raise NotTakenError("refused", error=str(error)) from error
        # Where the owner's PIN is the MSID, or this cannot be read, none was tried.
        if sid is not None or msid.is_refused(device):
            raise NotTakenError("no-msid", error=str(error)) from error
        login(device, SID).count()
        free = False
    # An interrupted try may have set the PIN: then it is ours, and this is what is left to do.
    try:
        opal_ioctl.activate(device, secrets.opal_admin_pin)
    except OpalError as error:
        if error.status and not free:
            code = "refused" if sid else "maybe-blocked"
            raise NotTakenError(code, error=str(error)) from error
        raise


def make_range(place: Place, secrets: Secrets, header: Header = DRIVE_ALONE) -> None:
    """Make the locking range and the LUKS2 header of a drive that we own; ends locked.

    Raises OpalError if the drive has no owner, or another one, if it shadows its start, or if
    cryptsetup fails.
    """
    status = opal_ioctl.status(place.partition)
    named = {"by_id": place.disk.by_id, "serial": place.disk.serial}
    if not status.locking_enabled:
        raise OpalError("not-owned", **named)
    if status.mbr_enabled and not status.mbr_done:
        raise OpalError("shadowed", **named)
    # Formatting spoils the header before it asks the drive for its PIN.
    opal_ioctl.range_status(place.partition, 1, secrets.opal_admin_pin)
    argv = ["cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2", *header.arguments]
    argv += ["--label", LUKS_LABEL, "--offset", str(place.offset_sectors), *CHEAP_PBKDF]
    # The order is cryptsetup's: passphrase, then Admin PIN; it would not notice a swap.
    keys = secrets.luks_passphrase + b"\n" + secrets.opal_admin_pin + b"\n"
    try:
        run([*argv, place.partition], stdin=keys)
    except CommandError as error:
        raise OpalError("not-formatted", error=str(error), **named) from error


def disown(device: str, secrets: Secrets, *, by_psid: bool = False) -> str | None:
    """Revert the drive to its factory state, by PIN or, only if asked, by PSID.

    Returns how, None if the drive has no owner. Raises AgentError if it refuses.
    """
    # Asked for by name, it is done even where locking is off: an ownership taken by half shows so.
    pin = secrets.sed_psid if by_psid else secrets.opal_admin_pin
    if pin is None:
        raise OpalError("no-psid", device=device)
    if not by_psid and not opal_ioctl.status(device).locking_enabled:
        return None
    opal_ioctl.revert(device, pin, psid=by_psid)
    if opal_ioctl.status(device).locking_enabled:
        raise OpalError("still-owned", device=device)
    return "reverted by PSID" if by_psid else "reverted by PIN"


@dataclass(frozen=True)
class OpalFindings:
    """Opal's part of a proof: discovery flags, the range, its state now and before it was opened.

    `state` is `off` if nothing ever locks.
    """

    status: opal_ioctl.Status
    range: opal_ioctl.RangeStatus | None
    state: str
    state_before: str | None


def findings(place: Place, secrets: Secrets, evidence: Evidence) -> OpalFindings | None:
    """Return Opal's part of a proof; None where the disk has no Opal."""
    status = opal_ioctl.find_status(place.partition)
    if status is None:
        return None
    locking_range = range_found(place, secrets)
    state = "off" if locking_range is None or locking_range.off else locking_range.state
    return OpalFindings(status, locking_range, state, evidence.state_before)
