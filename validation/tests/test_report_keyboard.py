"""The report by keyboard: Tab reaches every part, Enter and the space bar open sections."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report.build import build
from validation.report.browser import Tab, chromium
from validation.synthetic.suite import Options, write_suite

# The visible parts that a mouse could use, numbered.
PARTS = """
(() => {
  const all = [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")];
  const shown = all.filter((part) => part.checkVisibility() && !part.closest("[popover]"));
  shown.forEach((part, i) => { part.dataset.part = i; });
  return shown.length;
})()
"""
FOCUSED = "Number(document.activeElement.dataset.part ?? -1)"
OPEN = 'document.querySelectorAll("details.section[open]").length'
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "Escape": (27, "")}


def press(tab: Tab, key: str) -> None:
    code, text = KEYS[key]
    event = {"key": key, "windowsVirtualKeyCode": code}
    tab.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
    tab.call("Input.dispatchKeyEvent", type="keyUp", **event)


def reached(tab: Tab, parts: int) -> set[int]:
    """Return the parts that Tab reaches in one round, wherever the browser begins it."""
    focused = set()
    for _ in range(parts + 2):  # the round goes through the browser's own bar
        press(tab, "Tab")
        focused.add(tab.evaluate(FOCUSED))
    return focused - {-1}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keyboard") / "suite"
    write_suite(folder, Options(blocks=2, interval_ms=100))
    return build(folder).page


@pytest.fixture
def tab(page: Path) -> Iterator[Tab]:
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("there is no chromium: apt install chromium")
    with chromium() as opened:
        opened.open(page, 1280, 900)
        yield opened


def test_tab_reaches_every_part_of_the_closed_and_of_the_opened_page(tab: Tab) -> None:
    closed = tab.evaluate(PARTS)
    assert closed > 8 and reached(tab, closed) == set(range(closed))
    tab.evaluate('document.querySelectorAll("details").forEach((one) => { one.open = true; })')
    opened = tab.evaluate(PARTS)
    assert opened > closed and reached(tab, opened) == set(range(opened))


@pytest.mark.parametrize("key", ["Enter", " "])
def test_a_key_opens_and_closes_each_section(tab: Tab, key: str) -> None:
    count = tab.evaluate('document.querySelectorAll("details.section").length')
    assert count == 6
    for i in range(count):
        tab.evaluate(f'document.querySelectorAll("details.section > summary")[{i}].focus()')
        press(tab, key)
        assert tab.evaluate(OPEN) == 1
        press(tab, key)
        assert tab.evaluate(OPEN) == 0


def test_a_term_is_explained_until_escape(tab: Tab) -> None:
    tab.evaluate('document.querySelector(".term").focus()')
    for key, count in (("Enter", 1), ("Escape", 0)):
        press(tab, key)
        assert tab.evaluate('document.querySelectorAll(":popover-open").length') == count
