from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from analysis.published import reference
from analysis.published.reference import CONDITIONS, FOLDER, Published, citations, published

PAPERS = Path(__file__).parents[3] / "shared" / "papers"
NAMES = [citation.paper for citation in citations()]
COLUMNS = (
    *("paper", "entry", "place", "page", "subject"),
    *CONDITIONS,
    *("workload", "phase", "configuration"),
    *("quantity", "value", "fitting", "half_width_95", "unit", "doubtful", "note", "counterparts"),
)
UNITS = {
    *("s", "ms", "min", "h", "years", "J", "Wh", "J/kWh", "USD", "USD/kWh"),
    *("MB", "GB", "TB", "bit", "GHz", "C"),
    *("B/s", "KB/s", "MB/s", "GB/s", "KB/ms", "Mb/s", "Gb/s", "IO/s", "kIO/s"),
    *("runs", "iterations", "thousand iterations", "rank", "x", "%", "none"),
}
OPERATIONS = {"", "read", "write", "read and write", "encrypt", "decrypt", "both", "derive key"}
REASON = re.compile(r"(^|[.;] )(value|half width|unit|size|machine|label|claim|copy): \S")
QUANTITY = re.compile(r"[a-z_]+")


def rows(paper: str) -> list[dict[str, str]]:
    with (FOLDER / f"{paper}.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return list(reader)


def faults(row: dict[str, str]) -> list[str]:
    """Return what the schema does not allow in a row, in a few words each."""
    problems = []
    if row["unit"] not in UNITS:
        problems.append("unit")
    if row["operation"] not in OPERATIONS:
        problems.append("operation")
    if not QUANTITY.fullmatch(row["quantity"]) or not row["entry"] or not row["place"]:
        problems.append("name")
    if row["doubtful"] not in {"", "yes"}:
        problems.append("doubtful")
    if row["doubtful"] and not REASON.search(row["note"]):
        problems.append("doubtful without its reason")
    if row["configuration"] and row["configuration"] not in reference.configurations():
        problems.append("configuration")
    if bool(row["phase"]) > bool(row["workload"]):
        problems.append("phase without workload")
    if any(text != text.strip() for text in row.values()):
        problems.append("space")
    return problems


@pytest.mark.parametrize("paper", NAMES)
def test_schema(paper: str) -> None:
    for row in rows(paper):
        assert row["paper"] == paper
        assert not faults(row), row
    assert all(p.value >= 0 for p in published(paper))
    keys = Counter(p.key for p in published(paper))
    assert [key for key, count in keys.items() if count > 1] == []


def test_a_mark_without_its_reason_is_a_fault() -> None:
    row = next(row for row in rows("panda") if row["doubtful"])
    assert faults({**row, "note": ""}) == ["doubtful without its reason"]
    assert faults({**row, "note": "looks odd"}) == ["doubtful without its reason"]
    assert faults({**row, "unit": "parsec", "operation": "juggle"}) == ["unit", "operation"]


@pytest.mark.parametrize(
    ("paper", "entry", "subject", "printed"),
    [
        ("panda", "table-iii", "RSA", "664.1"),
        ("panda", "table-vi", "DES", "156.5"),
        ("panda", "table-ix", "AES", "118.8"),
        ("panda", "table-iii", "DES", "4663.4"),
        ("panda", "table-ii", "RSA", "3.8"),
        ("verma", "table-iii", "Blowfish", "10176"),
        ("verma", "table-iv", "DES", "24"),
        ("verma", "ranking", "DES or 3DES", "2"),
        ("sassani", "figure-11", "AES-256", "53.03"),
        ("sassani", "table-2", "SSHD", "1"),
        ("analiza", "figure-1", "AES(Twofish)", "093"),
        ("fujimoto", "untar", "AES-128", "100.279"),
    ],
)
def test_known_errors_are_marked_and_stand_as_printed(
    paper: str, entry: str, subject: str, printed: str
) -> None:
    errors = [
        p for p in published(paper) if (p.entry, p.subject, p.printed) == (entry, subject, printed)
    ]
    assert errors
    assert all(p.doubtful and p.note for p in errors)


def test_a_figure_that_fits_is_not_marked() -> None:
    """Table II of Verma et al. processes 64 MB in 6.499 s: fewer MB, but 9.848 MB/s."""
    row = [p for p in published("verma") if p.subject == "DES-EDE3"]
    assert len(row) == 3
    assert not any(p.doubtful for p in row)


@pytest.mark.parametrize("paper", NAMES)
def test_every_figure_occurs_in_the_text(paper: str) -> None:
    citation = next(c for c in citations() if c.paper == paper)
    path = PAPERS / citation.copy
    if not path.is_file():
        pytest.skip(f"the text of the paper is not there: {path.name} beside this checkout")
    texts = spellings(path.read_text(encoding="utf-8"))
    for p in published(paper):
        wanted = [p.printed, p.printed_half, str(p.iterations or "")]
        if paper == "verma" and p.entry.startswith("table-") and p.entry not in {"table-ii"}:
            wanted.append(str(p.size_bytes or ""))
        missing = [text for text in wanted if text and not occurs(text, texts)]
        assert not missing, p


def spellings(text: str) -> list[str]:
    """Return the text, without marks between thousands, and with decimal points for commas."""
    joined = re.sub(r"(?<=\d)[, ](?=\d)", "", text)
    return [text, joined, re.sub(r"(?<=\d),(?=\d)", ".", text)]


def occurs(printed: str, texts: list[str]) -> bool:
    """Whether it stands there as a number of its own.

    One copy reads `IO/s` as `10/s`, with the number before it, and once as `10/5`.
    """
    before, after = r"(?:(?<!\d)(?<!\d[.,])|(?<=10/5))", r"(?=10/|(?!\d|[.,]\d))"
    pattern = re.compile(before + re.escape(printed) + after)
    return any(pattern.search(text) for text in texts)


def test_a_number_that_is_not_printed_does_not_occur() -> None:
    texts = spellings("took 1,234 ms and 37510/s, or 0,728 s; 5.25")
    assert all(occurs(text, texts) for text in ("1234", "375", "0.728", "5.25"))
    assert not any(occurs(text, texts) for text in ("123", "234", "5.2", "25", "5"))


def test_papers_are_cited_and_unknown_ones_refused() -> None:
    assert NAMES[0] == "fujimoto"
    assert len(NAMES) == len(set(NAMES)) == 5
    for citation in citations():
        assert citation.title in citation.text
        assert citation.copy
    assert len(published()) == sum(len(published(name)) for name in NAMES)
    with pytest.raises(KeyError, match="there are fujimoto"):
        published("nobody")


def test_numbers_are_kept_digit_by_digit() -> None:
    figure: Published = next(p for p in published("fujimoto") if p.entry == "grep")
    assert (figure.value, figure.printed, figure.half_width) == (5.175, "5.175", 0.09)
    assert figure.printed_half == "0.090"
    assert any(p.printed == "58.70" and p.value == 58.7 for p in published("sassani"))


def test_the_readme_counts_the_figures() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        figures = published(name)
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}.csv`"))
        doubtful = sum(p.doubtful for p in figures)
        assert row.endswith(f"| {len(figures)} | {doubtful} |")
