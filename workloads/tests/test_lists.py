"""Lists in parameters: separated by commas, stripped, each word once."""

from __future__ import annotations

import pytest

from contract.tests.refusal import refuses
from workloads import lists, registry


def test_words_are_separated_by_commas_only() -> None:
    assert lists.words("cbc, ecb ,cbc,,") == ["cbc", "ecb"]
    assert lists.words(" , ") == []
    assert lists.words("a b") == ["a b"]


def test_numbers_may_have_names_and_are_bounded() -> None:
    assert lists.numbers("sizes", "10, large,10", names={"large": 1 << 20}) == [10, 1 << 20]
    assert lists.numbers("pims", "0,0", least=0) == [0]
    assert lists.numbers("pims", "", optional=True) == []
    for text in ("2k", "0", "1 2", "²"):
        with refuses("invalid-number", what="sizes", least=1, others=" or large", word=text):
            lists.numbers("sizes", text, names={"large": 1})
    with refuses("list-empty", what="sizes"):
        lists.numbers("sizes", "", names={"large": 1})


@pytest.mark.parametrize("name", registry.names())
def test_a_default_with_commas_is_declared_as_list(name: str) -> None:
    for parameter in registry.load(name).parameters:
        if isinstance(parameter.default, str) and "," in parameter.default:
            assert parameter.several, parameter.name
        if parameter.several:
            assert isinstance(parameter.default, str)
            assert parameter.default == ",".join(lists.words(parameter.default))
