"""A security provider: its objects, and who may invoke which method on them.

The specification's preconfiguration tables become three dictionaries: objects, ACEs, and the
access control list of each pair of object and method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from . import schema, uids
from .access import Ace, encode_expression, is_satisfied
from .byte_table import ByteTable
from .core import Logins
from .packets import Value
from .schema import Table
from .uids import MethodError, Status

Row = dict[int, Value]
_OBJECT, _BYTE = 1, 2  # table_kind
_PASSWORD = 1  # auth_method
_NULL_UID = bytes(8)


@dataclass(frozen=True)
class Writer:
    """The logins of a writing session, and the Locking SP's key if one of them has it."""

    logins: Logins
    kek: bytes | None


@dataclass(frozen=True)
class Object:
    """A row: `read` returns its columns; `write` changes some or raises MethodError."""

    read: Callable[[], Row]
    write: Callable[[Row, Writer], None] | None = None


@dataclass
class Provider:
    """A security provider as sessions see it; `admins` are the members of the class Admins."""

    uid: bytes
    tables: Sequence[Table]
    admins: frozenset[bytes]
    authorities: frozenset[bytes]
    changed_rules: Callable[[], dict[str, list[str]]]
    objects: dict[bytes, Object] = field(default_factory=dict)
    byte_tables: dict[bytes, ByteTable] = field(default_factory=dict)
    aces: dict[bytes, Ace] = field(default_factory=dict)
    acl: dict[tuple[bytes, bytes], tuple[bytes, ...]] = field(default_factory=dict)

    def grant(self, method: bytes, aces: Sequence[bytes], *rows: bytes) -> None:
        """Let those who satisfy one of `aces` invoke `method` on `rows`."""
        for row in rows:
            self.acl[row, method] = tuple(aces)

    def rule(self, ace: bytes) -> Sequence[str]:
        """Return an ACE's present BooleanExpr."""
        return self.changed_rules().get(ace.hex(), self.aces[ace].expression)

    def present(self, logins: Iterable[bytes]) -> frozenset[bytes]:
        """Return those logged in, the classes that they belong to, and Anybody."""
        who = {uids.ANYBODY, *logins}
        if not who.isdisjoint(self.admins):
            who.add(uids.ADMINS_CLASS)
        if not who.isdisjoint(uids.USER_AUTHORITIES):
            who.add(uids.USERS_CLASS)
        return frozenset(who)

    def permitted(self, row: bytes, method: bytes, logins: Iterable[bytes]) -> frozenset[int]:
        """Return the columns that `method` may use; raises NOT_AUTHORIZED if not granted."""
        present = self.present(logins)
        columns: set[int] = set()
        satisfied = False
        for name in self.acl.get((row, method), ()):
            if is_satisfied(self.rule(name), present):
                satisfied = True
                of_ace = self.aces[name].columns
                columns |= set(range(64)) if of_ace is None else of_ace
        if not satisfied:
            raise MethodError(Status.NOT_AUTHORIZED)
        return frozenset(columns)

    def rows(self, table: bytes) -> list[bytes]:
        """Return the rows of an object table in order."""
        return sorted(row for row in self.objects if row[:4] == table[:4])


def static(row: Row) -> Object:
    """Return an object whose row never changes."""
    return Object(lambda: row)


def add_base(
    provider: Provider, name: bytes, templates: Sequence[bytes], methods: Sequence[bytes]
) -> None:
    """Add the Base template's read-only tables: Table, SPInfo, SPTemplates, MethodID."""
    objects = provider.objects
    objects[uids.SP_INFO] = static({0: uids.SP_INFO, 1: provider.uid, 2: name, 6: 1})
    for number, template in enumerate(templates, 1):
        row = uids.uid(0x0000000300000000 + number)
        label = TEMPLATE_NAMES[template]
        objects[row] = static({0: row, 1: template, 2: label, 3: b"\0\0\0\2"})
    for method in methods:
        objects[method] = static({0: method, 1: uids.METHOD_NAMES[method].encode()})
    for table in provider.tables:
        objects[table.descriptor] = Object(partial(_descriptor, provider, table))
    for table in provider.tables:
        if table.columns and table not in (schema.SP_INFO, schema.ACCESS_CONTROL):
            provider.grant(uids.NEXT, [uids.ACE_ANYBODY], table.uid)
    public = (schema.TABLE, schema.SP_INFO, schema.SP_TEMPLATES, schema.METHOD_ID)
    for table in public:
        provider.grant(uids.GET, [uids.ACE_ANYBODY], *provider.rows(table.uid))
    provider.grant(uids.AUTHENTICATE, [uids.ACE_ANYBODY], uids.THIS_SP)
    provider.grant(uids.RANDOM, [uids.ACE_ANYBODY], uids.THIS_SP)
    provider.grant(uids.GET_ACL, [uids.ACE_ANYBODY], uids.ACCESS_CONTROL)


def _descriptor(provider: Provider, table: Table) -> Row:
    row: Row = {0: table.descriptor, 1: table.name.encode(), 13: 0, 14: 0}
    if not table.columns:
        return row | {4: _BYTE, 7: provider.byte_tables[table.uid].size_bytes, 13: 1, 14: 1}
    is_acl = table is schema.ACCESS_CONTROL
    count = len(provider.acl) if is_acl else len(provider.rows(table.uid))
    return row | {4: _OBJECT, 6: len(table.columns), 7: count}


def add_aces(provider: Provider, set_rule: Callable[[bytes, Value], None]) -> None:
    """Add rows for the ACEs; `set_rule` stores a new BooleanExpr."""

    def row(ace: bytes) -> Object:
        def read() -> Row:
            columns = provider.aces[ace].columns
            shown: list[Value] = [*sorted(columns)] if columns is not None else []
            name = provider.aces[ace].name.encode()
            return {0: ace, 1: name, 3: encode_expression(provider.rule(ace)), 4: shown}

        return Object(read, lambda values, _: set_rule(ace, values[3]))

    provider.objects.update({ace: row(ace) for ace in provider.aces})


def authority_row(who: bytes, name: bytes, enabled: bool, common_name: bytes, owner: bytes) -> Row:
    """Build an Authority row; `owner` is the class that it belongs to, or the null UID."""
    is_class = who in (uids.ADMINS_CLASS, uids.USERS_CLASS)
    by_pin = who != uids.ANYBODY and not is_class
    return {
        0: who, 1: name, 2: common_name, 3: int(is_class), 4: owner, 5: int(enabled), 6: 0, 7: 0,
        8: 0, 9: _PASSWORD if by_pin else 0, 10: uids.c_pin(who) if by_pin else _NULL_UID,
        11: _NULL_UID, 12: _NULL_UID,
    }  # fmt: skip


def flag(value: Value) -> bool:
    """Return a boolean column's value; raises INVALID_PARAMETER."""
    if not isinstance(value, int) or value not in (0, 1):
        raise MethodError(Status.INVALID_PARAMETER)
    return bool(value)


def reset_events(value: Value) -> list[int]:
    """Return the value of LockOnReset or DoneOnReset; raises INVALID_PARAMETER."""
    events = value if isinstance(value, list) else [None]
    known_events = [event for event in events if isinstance(event, int) and 0 <= event <= 3]
    if len(known_events) != len(events):
        raise MethodError(Status.INVALID_PARAMETER)
    return known_events


BASE_TEMPLATE, ADMIN_TEMPLATE, LOCKING_TEMPLATE = (
    uids.uid(0x0000020400000000 + number) for number in (1, 2, 6)
)
TEMPLATE_NAMES = {BASE_TEMPLATE: b"Base", ADMIN_TEMPLATE: b"Admin", LOCKING_TEMPLATE: b"Locking"}
