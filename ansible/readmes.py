"""Writes the README.md of every role from its argument_specs: python ansible/readmes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent / "roles"


def readme(role: Path) -> str:
    """Return the README of a role: its description and a table of its options."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    main = spec["argument_specs"]["main"]
    lines = [f"# {role.name}", "", f"{main['short_description']}.", ""]
    lines += [*main.get("description", []), ""] if main.get("description") else []
    lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += list(_rows(main["options"], ""))
    return "\n".join(lines) + "\n"


def _rows(options: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, option in options.items():
        kind = option["type"]
        if "elements" in option:
            kind += f" of {option['elements']}"
        default = option.get("default")
        values = default if isinstance(default, list) else [default]
        texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values if v is not None]
        shown = " ".join(f"`{text}`" for text in texts)
        if option.get("required"):
            shown = "required"
        meaning = option["description"]
        if "choices" in option:
            meaning += ": " + ", ".join(f"`{choice}`" for choice in option["choices"])
        yield f"| `{prefix}{name}` | {kind} | {shown} | {meaning} |"
        inner = f"{prefix}{name}{'[]' if kind.startswith('list') else ''}."
        yield from _rows(option.get("options", {}), inner)


def main() -> None:
    """Write the README of each role."""
    for role in sorted(ROLES.iterdir()):
        (role / "README.md").write_text(readme(role), encoding="utf-8")


if __name__ == "__main__":
    main()
