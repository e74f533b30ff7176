"""Which names and sentences are counted, and how a room's number may change."""

from __future__ import annotations

import pytest

from validation.wording import Finding, check_python, check_text, compare_counts, count_findings


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("found = 1", ["names"]),
        ("def run(own, disks):\n    pass", ["names"]),
        ("def _told():\n    pass", ["names"]),
        ("print(x.found, 'found')", []),
        ("raise ValueError('The disk tells nothing.')", ["sentences"]),
        ("raise ValueError(f'Disk {x} is to be had by itself.')", ["sentences"] * 2),
        ('"""Return the disks.\n\nThe kernel says so."""', ["sentences"]),
        ("key = 'tells'", []),  # no sentence
    ],
)
def test_names_and_sentences_are_found(text: str, kinds: list[str]) -> None:
    assert [finding.kind for finding in check_python("agent/x.py", text)] == kinds


def test_texts_of_tests_and_the_changelog_are_not_checked() -> None:
    text = "one\nThe report says so.\n```\n$ say it\n```"
    assert [finding.line for finding in check_text("docs/x.md", text)] == [2]
    assert not list(check_text("drive/tests/x.py", text))
    assert not list(check_text("CHANGELOG.md", text))


def test_a_number_may_only_fall() -> None:
    findings = [
        Finding("names", path, 1, "own") for path in ("a/x.py", "a/y.py", "a/tests/x.py", "x.py")
    ]
    counts = count_findings(findings)
    assert counts == {"a": {"names": 2}, "a/tests": {"names": 1}, ".": {"names": 1}}
    failures, lowered = compare_counts(counts, {"a": {"names": 1}, "a/tests": {"names": 3}})
    assert [failure.split()[0] for failure in failures] == [".", "a"]
    assert lowered == {"a": {"names": 1}, "a/tests": {"names": 1}}
    assert compare_counts({}, {"a": {"names": 1}}) == ([], {})
