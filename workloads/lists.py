"""Parameters that are lists: words or whole numbers with commas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contract.parameters import Parameter
from workloads.base import WorkloadError


def some_of(name: str, default: str, about: str, choices: Iterable[str] = ()) -> Parameter:
    """Return a parameter that is such a list; of `choices`, if there are any."""
    return Parameter(name, default, "", about, choices=tuple(choices), several=True)


def words(text: object) -> list[str]:
    """Return the words between the commas, each once and without the spaces around it."""
    stripped = (word.strip() for word in str(text).split(","))
    return list(dict.fromkeys(word for word in stripped if word))


MOST = 2**30  # bytes of an input, iterations of a key derivation: more takes no sensible time


def numbers(
    what: str,
    text: object,
    least: int = 1,
    names: Mapping[str, int] | None = None,
    *,
    optional: bool = False,
) -> list[int]:
    """Whole numbers from `least` to `MOST`, some of which may have names, each once.

    Raises WorkloadError for another word or, unless they are `optional`, for none; `what` is the
    list's name in it.
    """
    known = names or {}
    chosen = []
    for word in words(text):
        if word in known:
            chosen.append(known[word])
        elif word.isascii() and word.isdigit() and len(word) < 12 and least <= int(word) <= MOST:
            chosen.append(int(word))
        else:
            others = "".join(f" or {name}" for name in known)
            bounds = {"least": least, "most": MOST}
            raise WorkloadError("invalid-number", what=what, **bounds, others=others, word=word)
    if not chosen and not optional:
        raise WorkloadError("list-empty", what=what)
    return list(dict.fromkeys(chosen))
