"""The ruler: what counts as a line of code, and which files it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import code_lines

SOURCE = '''"""A module,

described in three lines."""

# A comment.
TEXT = """one
two"""


class A:
    """A class."""

    async def b(self) -> None:
        """A function."""
        return None  # with a comment
'''


def test_blank_lines_comments_and_docstrings_are_not_counted() -> None:
    assert code_lines.python_lines(SOURCE) == 5
    assert code_lines.text_lines("a = 1\n\n# b\n  c: 2\n/* d\n") == 2


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("agent/runner.py", "core"),
        ("setup.py", "core"),
        ("agent/tests/guest.py", ""),
        ("validation/bench.py", ""),
        ("instrumentation/simulators/base.py", "core"),
        ("instrumentation/simulators/wt310.py", ""),
        ("ansible/playbooks/site.yml", "text"),
        ("ansible/inventory/lab/hosts.yml", ""),
        ("analysis/report/templates/page.min.js", ""),
        ("workloads/suites/smoke.yml", ""),
        ("plugins/fde-instruments/fde_instruments/wt210.py", ""),
    ],
)
def test_files_belong_to_a_part_of_the_product(name: str, part: str) -> None:
    assert code_lines.part_of(Path(name)) == part


def test_a_part_beyond_its_limit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = tmp_path / "limits.toml"
    monkeypatch.setattr(code_lines, "LIMITS", limits)
    monkeypatch.chdir(Path(code_lines.__file__).parents[1])
    for core, code in ((10**6, 0), (10, 1)):
        limits.write_text(f"core = {core}\n", encoding="utf-8")
        assert code_lines.main() == code
    assert "at most 10 allowed" in capsys.readouterr().out
