"""Parameters that are lists: words or whole numbers, separated by commas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contract.parameters import Parameter
from workloads.base import WorkloadError


def some_of(name: str, default: str, about: str, choices: Iterable[str] = ()) -> Parameter:
    """Return a parameter that is a list of words; of `choices`, if there are any."""
    return Parameter(name, default, "", about, choices=tuple(choices), several=True)


def words(text: object) -> list[str]:
    """Return the words between the commas, each once and stripped."""
    stripped = (word.strip() for word in str(text).split(","))
    return list(dict.fromkeys(word for word in stripped if word))


MOST = 2**30  # bytes of an input, iterations of a key derivation: more takes no sensible time


def numbers(
    list_name: str,
    text: object,
    least: int = 1,
    names: Mapping[str, int] | None = None,
    *,
    optional: bool = False,
) -> list[int]:
    """Return whole numbers from `least` to `MOST`, each once; `names` are words for numbers.

    Raises WorkloadError for another word or, unless `optional`, for an empty list; `list_name` is
    the list's name in the error.
    """
    values = names or {}
    chosen = []
    for word in words(text):
        if word in values:
            chosen.append(values[word])
        elif word.isascii() and word.isdigit() and len(word) < 12 and least <= int(word) <= MOST:
            chosen.append(int(word))
        else:
            alternatives = "".join(f" or {name}" for name in values)
            bounds = {"least": least, "most": MOST}
            raise WorkloadError(
                "invalid-number", what=list_name, **bounds, others=alternatives, word=word
            )
    if not chosen and not optional:
        raise WorkloadError("list-empty", what=list_name)
    return list(dict.fromkeys(chosen))
