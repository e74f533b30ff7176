"""Lists in parameters: commas between, spaces around them do no harm, each word once."""

from __future__ import annotations

import pytest

from workloads import lists, registry
from workloads.base import WorkloadError


def test_words_are_divided_by_commas_alone() -> None:
    assert lists.words("cbc, ecb ,cbc,,") == ["cbc", "ecb"]
    assert lists.words(" , ") == []
    assert lists.words("a b") == ["a b"]


def test_numbers_may_have_names_and_are_bounded() -> None:
    assert lists.numbers("sizes", "10, large,10", names={"large": 1 << 20}) == [10, 1 << 20]
    assert lists.numbers("pims", "0,0", least=0) == [0]
    assert lists.numbers("pims", "", optional=True) == []
    for text, message in (
        ("2k", "The sizes are whole numbers from 1 on or large, with commas .*, not '2k'"),
        ("0", "not '0'"),
        ("1 2", "not '1 2'"),
        ("²", "not '²'"),
        ("", "The sizes are empty: name at least one"),
    ):
        with pytest.raises(WorkloadError, match=message):
            lists.numbers("sizes", text, names={"large": 1})


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ("cbc ecb", "modes of cipher_modes takes words with commas between them, not 'cbc ecb'"),
        ("ecb,ctx", r"modes of cipher_modes knows no 'ctx'; did you mean ctr\?"),
        ("xxx", "knows no 'xxx'; there are: ecb, cbc"),
        (" ,", "modes of cipher_modes is empty: choose from ecb, cbc"),
    ],
)
def test_a_wrong_word_is_refused_when_the_plan_is_made(modes: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        registry.complete("cipher_modes", {"modes": modes})


@pytest.mark.parametrize("name", registry.names())
def test_what_looks_like_a_list_is_declared_as_one(name: str) -> None:
    for parameter in registry.load(name).parameters:
        if isinstance(parameter.default, str) and "," in parameter.default:
            assert parameter.several, parameter.name
        if parameter.several:
            assert isinstance(parameter.default, str)
            assert parameter.default == ",".join(lists.words(parameter.default))
