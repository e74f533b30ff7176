"""Names and columns of the tables of an Opal 2.01 drive (Core 2.01, chapter 5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table: the upper half of its rows' UIDs, and its columns by number (byte table: none)."""

    name: str
    number: int
    columns: tuple[str, ...] = ()

    @property
    def uid(self) -> bytes:
        """The UID of the table itself."""
        return self.number.to_bytes(4, "big") + bytes(4)

    @property
    def descriptor(self) -> bytes:
        """The table's row in the Table table."""
        return b"\0\0\0\1" + self.number.to_bytes(4, "big")

    def numbers(self, *names: str) -> frozenset[int]:
        """Return the column numbers of `names`."""
        return frozenset(self.columns.index(name) for name in names)


def _table(name: str, number: int, columns: str = "") -> Table:
    return Table(name, number, tuple(columns.split()))


TABLE = _table(
    "Table", 0x0001,
    "UID Name CommonName TemplateID Kind Column NumColumns Rows RowsFree RowBytes LastID MinSize "
    "MaxSize MandatoryWriteGranularity RecommendedAccessGranularity",
)  # fmt: skip
SP_INFO = _table("SPInfo", 0x0002, "UID SPID Name Size SizeInUse SPSessionTimeout Enabled")
SP_TEMPLATES = _table("SPTemplates", 0x0003, "UID TemplateID Name Version")
METHOD_ID = _table("MethodID", 0x0006, "UID Name CommonName TemplateID")
ACCESS_CONTROL = _table("AccessControl", 0x0007, "UID InvokingID MethodID CommonName ACL")
ACE = _table("ACE", 0x0008, "UID Name CommonName BooleanExpr Columns")
AUTHORITY = _table(
    "Authority", 0x0009,
    "UID Name CommonName IsClass Class Enabled Secure HashAndSign PresentCertificate Operation "
    "Credential ResponseSign ResponseExch",
)  # fmt: skip
C_PIN = _table("C_PIN", 0x000B, "UID Name CommonName PIN CharSet TryLimit Tries Persistence")
TPER_INFO = _table(
    "TPerInfo", 0x0201,
    "UID Bytes GUDID Generation FirmwareVersion ProtocolVersion SpaceForIssuance SSC "
    "ProgrammaticResetEnable",
)  # fmt: skip
TEMPLATE = _table("Template", 0x0204, "UID Name RevisionNumber Instances MaxInstances")
SP = _table("SP", 0x0205, "UID Name ORG EffectiveAuth DateOfIssue Bytes LifeCycleState Frozen")
LOCKING_INFO = _table(
    "LockingInfo", 0x0801,
    "UID Name Version EncryptSupport MaxRanges MaxReEncryptions KeysAvailableCfg "
    "AlignmentRequired LogicalBlockSize AlignmentGranularity LowestAlignedLBA",
)  # fmt: skip
LOCKING = _table(
    "Locking", 0x0802,
    "UID Name CommonName RangeStart RangeLength ReadLockEnabled WriteLockEnabled ReadLocked "
    "WriteLocked LockOnReset ActiveKey",
)  # fmt: skip
MBR_CONTROL = _table("MBRControl", 0x0803, "UID Enable Done DoneOnReset")
MBR = _table("MBR", 0x0804)
K_AES_128 = _table("K_AES_128", 0x0805, "UID Name CommonName Key Mode")
K_AES_256 = _table("K_AES_256", 0x0806, "UID Name CommonName Key Mode")
DATA_STORE = _table("DataStore", 0x1001)

ADMIN_SP_TABLES = (
    TABLE, SP_INFO, SP_TEMPLATES, METHOD_ID, ACCESS_CONTROL, ACE, AUTHORITY, C_PIN, TPER_INFO,
    TEMPLATE, SP,
)  # fmt: skip
_LOCKING_SP_TABLES = (
    TABLE, SP_INFO, SP_TEMPLATES, METHOD_ID, ACCESS_CONTROL, ACE, AUTHORITY, C_PIN, LOCKING_INFO,
    LOCKING, MBR_CONTROL, MBR,
)  # fmt: skip


def key_table(key_bits: int) -> Table:
    """Return the table that holds the media keys of this size."""
    return K_AES_128 if key_bits == 128 else K_AES_256


def locking_sp_tables(key_bits: int) -> tuple[Table, ...]:
    """Return the Locking SP's tables in order of their UIDs."""
    return (*_LOCKING_SP_TABLES, key_table(key_bits), DATA_STORE)


_BY_NUMBER = {
    table.number: table for table in {*ADMIN_SP_TABLES, *locking_sp_tables(128), K_AES_256}
}


def table_of(uid: bytes) -> Table | None:
    """Return the table that a table's or a row's UID belongs to."""
    return _BY_NUMBER.get(int.from_bytes(uid[:4], "big"))


def name_of(uid: bytes) -> str:
    """Return the name of a method's object: a table, ThisSP, or the number itself."""
    if uid == b"\0\0\0\0\0\0\0\1":
        return "ThisSP"
    table = table_of(uid)
    return table.name if table is not None else uid.hex()
