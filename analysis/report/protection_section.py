"""What each kind of storage protects against, beside what it costs: templates/protection.yml."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

import yaml

from analysis.report import view
from analysis.report.render import TEMPLATES
from analysis.report.texts import catalogue, say
from analysis.report.view import Blocks
from analysis.suite.records import Suite
from contract import schema
from contract.plan import Configuration

BOTH, TAGS = "both", "tags"


@dataclass(frozen=True)
class Threat(schema.Closed):
    """What may happen, what each kind does against it, and where that can be checked."""

    threat: str
    plain: str
    opal: str
    dmcrypt: str
    both: str
    tags: str
    tcrypt: str
    source: str


@cache
def threats() -> tuple[Threat, ...]:
    """Read the table."""
    document = yaml.safe_load((TEMPLATES / "protection.yml").read_text(encoding="utf-8"))
    return schema.read(tuple[Threat, ...], document)


def kind_of(stack: Configuration) -> str:
    """Return which column of the table a configuration is."""
    if stack.kind == "dmcrypt" and stack.settings.get("integrity", "none") != "none":
        return TAGS
    return {"opal_dmcrypt": BOTH, "inlinecrypt": "dmcrypt"}.get(stack.kind, stack.kind)


def protection_section(suite: Suite) -> Blocks:
    """Return the rows of the suite's kinds, to be opened; nothing where it encrypts nothing."""
    kinds = catalogue().tables["kinds"]
    used = {kind_of(stack) for stack in suite.stacks.values()}
    columns = [kind for kind in kinds if kind in used]
    if not set(columns) - {"plain"}:
        return ()
    rows = [
        [threat.threat, kinds[kind], getattr(threat, kind)]
        for threat in threats()
        for kind in columns
    ]
    caption = say("protection.caption")
    inside = view.table(caption, ["Threat", "Kind", "Protected"], rows, words=3, group=True)
    inside += view.bullets(f"{threat.threat}: {threat.source}." for threat in threats())
    return view.folded(say("protection.title"), inside)


def markdown() -> str:
    """Return the whole table for docs/hardware.md."""
    kinds = catalogue().tables["kinds"]
    lines = [["threat", *kinds.values(), "source"], ["---"] * (len(kinds) + 2)]
    lines += [[t.threat, *(getattr(t, kind) for kind in kinds), t.source] for t in threats()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(f"{markdown()}\n")
