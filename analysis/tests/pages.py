"""Whole pages, and a suite of many configurations, for the tests of pages and pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar

import pytest

from analysis.report import render
from analysis.report.render import TEMPLATES
from analysis.report.sections import Report
from analysis.report.view import Block, Table
from analysis.stats.results import Results
from contract.plan import digest
from validation.synthetic.folder import write_manifest
from validation.synthetic.suite import SLOWER, STACKS, Options, write_suite

Piece = TypeVar("Piece", bound=Block)
# A figure that is none, and the words that no verdict here has.
UNWANTED = re.compile(r"(?<![A-Za-z])(nan|NaN|inf|None)(?![A-Za-z])|Traceback|no significant")
VOID = frozenset({"meta", "img", "br", "hr"})
LOADING = frozenset({"src", "href", "srcset", "data", "action", "poster"})
# Calls a function with a new folder, once for all processes; that folder, and what it returned.
Shared = Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]
CIPHERS = ("aes", "serpent", "twofish", "camellia", "cast6", "aria", "sm4")


def many(count: int) -> dict[str, dict[str, object]]:
    """So many configurations, none of them with a name that says what it is."""
    written: dict[str, dict[str, object]] = {
        "c00": dict(STACKS["plain"]),
        "c01": dict(STACKS["opal"]),
    }
    for i in range(2, count):
        cipher, bits = CIPHERS[i % 7], 128 if i % 2 else 256
        written[f"c{i:02d}"] = {
            "kind": "dmcrypt",
            "encrypted_by": "processor",
            "label": f"dm-crypt {cipher.upper() if cipher == 'aes' else cipher.capitalize()}-{bits}"
            + (", 512 B sectors" if i >= 14 else "")
            + (", on the SED" if i > 9 else ""),
            "disk": "sed" if i > 9 else "plain",
            "cipher": f"{cipher}-xts-plain64",
            "key_bits": bits,
            "sector_size": 4096 if i < 14 else 512,
        }
    return written


def write_wide(folder: Path) -> None:
    """Seventeen configurations, each slower than the last by 3 %; two workloads, three blocks."""
    stacks = many(17)
    with pytest.MonkeyPatch.context() as patch:
        for i, (name, stack) in enumerate(stacks.items()):
            patch.setitem(STACKS, name, stack)
            patch.setitem(SLOWER, name, 1 + 0.03 * i)
        options = Options(configurations=tuple(stacks), workloads=("sql", "idle"), interval_ms=100)
        write_suite(folder, options)


def change_plan(folder: Path, **changes: object) -> None:
    """Change the plan of a suite as if it had been planned so."""
    plan = {**json.loads((folder / "plan.json").read_text(encoding="utf-8")), **changes}
    plan["sha256"] = digest(plan)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    for path in (folder / "runs").glob("*/run.json"):
        run = {**json.loads(path.read_text(encoding="utf-8")), "plan_sha256": plan["sha256"]}
        path.write_text(json.dumps(run), encoding="utf-8")
    write_manifest(folder)


def whole_page(derived: Results) -> str:
    """Return the page's HTML."""
    return render.html(Report(derived).page())


def text_of(shown: object) -> str:
    """All texts of what a page shows, one a line."""
    if isinstance(shown, str):
        return shown
    if is_dataclass(shown):
        return text_of([getattr(shown, field.name) for field in fields(shown)])
    return "\n".join(map(text_of, shown)) if isinstance(shown, tuple | list) else ""


def pieces(kind: type[Piece], shown: object) -> list[Piece]:
    """All blocks of a kind, whatever they stand in."""
    if isinstance(shown, kind):
        return [shown]
    if is_dataclass(shown) and not isinstance(shown, Table):
        return pieces(kind, tuple(getattr(shown, field.name) for field in fields(shown)))
    if isinstance(shown, tuple | list):
        return [piece for block in shown for piece in pieces(kind, block)]
    return []


def cells(shown: object) -> list[str]:
    """Return what stands in the rows of all tables."""
    return [text for table in pieces(Table, shown) for row in table.rows for text in row]


class Parsed(HTMLParser):
    """What a page's HTML holds, and the tags that were left open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.scopes: list[str | None] = []
        self.pictures: list[str] = []
        self.tables: list[str | None] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> does not close <{self.open[-1:]}>"
        self.open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.anchors += [attributes["id"] or ""] if attributes.get("id") else []
        self.links += [attributes.get("href") or ""] if tag == "a" else []
        self.sources += [value or "" for name, value in attrs if name in LOADING]
        self.scopes += [attributes.get("scope")] if tag == "th" else []
        self.pictures += [attributes.get("alt") or ""] if tag == "img" else []
        self.tables += [attributes.get("aria-label")] if tag == "table" else []


OWN_SCRIPTS = frozenset(path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.js"))


class _Guests(HTMLParser):
    """Markup that none of our pages has: scripts too, but for our own to the letter."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.intruders: list[str] = []
        self.script: list[str] | None = None

    def handle_data(self, data: str) -> None:
        if self.script is not None:
            self.script.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self.script is not None:
            text = "".join(self.script)
            self.intruders += [f"<script>{text[:200]}"] * (text not in OWN_SCRIPTS)
            self.script = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script" and not attrs:
            self.script = []
        elif tag in ("script", "iframe", "object", "embed", "base", "form", "svg", "math"):
            self.intruders.append(f"<{tag}>")
        for name, value in attrs:
            leads = name in ("href", "src", "style", "srcset", "action", "formaction")
            within_page = ("#", "data:image/svg+xml,%3Csvg")
            if name.startswith("on") or (leads and not str(value).startswith(within_page)):
                self.intruders.append(f"<{tag} {name}={value!r}>"[:200])


def live_markup(page: str) -> str:
    """Markup that runs, loads or leads away from one of our pages; empty where there is none."""
    guests = _Guests()
    guests.feed(page)
    guests.close()
    if guests.script is not None:
        return "<script> that does not end"
    return guests.intruders[0] if guests.intruders else ""


def without_own(page: str) -> str:
    """Return a page's HTML less our own scripts."""
    for script in OWN_SCRIPTS:
        page = page.replace(f"<script>{script}</script>", "")
    return page
