"""The reader of the papers' figures."""

from __future__ import annotations

import pytest

from analysis.published.reference import Published, citations, published

NAMES = [citation.paper for citation in citations()]


def test_papers_are_cited_and_unknown_ones_refused() -> None:
    assert NAMES[0] == "fujimoto"
    assert len(NAMES) == len(set(NAMES)) == 5
    assert all(citation.title in citation.text and citation.copy for citation in citations())
    assert len(published()) == sum(len(published(name)) for name in NAMES)
    with pytest.raises(KeyError, match="there are fujimoto"):
        published("nobody")


def test_numbers_are_kept_digit_by_digit() -> None:
    figure: Published = next(p for p in published("fujimoto") if p.entry == "grep")
    assert (figure.value, figure.printed, figure.half_width) == (5.175, "5.175", 0.09)
    assert figure.printed_half == "0.090"
    assert any(p.printed == "58.70" and p.value == 58.7 for p in published("sassani"))
