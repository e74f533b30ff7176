"""Kinds of configurations by name; each is loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module

from agent.storage.base import Kind
from contract.errors import AgentError

_KINDS = {
    "plain": "agent.storage.plain:Plain",
    "dmcrypt": "agent.storage.dmcrypt:DmCrypt",
    "opal": "agent.storage.opal:Opal",
    "tcrypt": "agent.storage.tcrypt:TrueCrypt",
}


def names() -> list[str]:
    """All kinds."""
    return sorted(_KINDS)


def load(name: str) -> Kind:
    """The kind of that name; raises AgentError."""
    if name not in _KINDS:
        raise AgentError(f"There is no storage kind {name!r}: choose one of {', '.join(names())}.")
    module, _, attribute = _KINDS[name].partition(":")
    kind: Kind = getattr(import_module(module), attribute)()
    return kind
