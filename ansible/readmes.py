"""Writes every role's README.md from its argument_specs, so that the two cannot differ.

python ansible/readmes.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent / "roles"


def readme(role: Path) -> str:
    """Return the README of a role: what it does, and a table of its options."""
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
        default = "required" if option.get("required") else _shown(option.get("default"))
        meaning = option["description"]
        if "choices" in option:
            meaning += ": " + ", ".join(f"`{choice}`" for choice in option["choices"])
        yield f"| `{prefix}{name}` | {kind} | {default} | {meaning} |"
        inner = f"{prefix}{name}{'[]' if kind.startswith('list') else ''}."
        yield from _rows(option.get("options", {}), inner)


def _shown(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, list):
        return " ".join(f"`{entry}`" for entry in default)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def main() -> None:
    """Write the README of each role."""
    for role in sorted(ROLES.iterdir()):
        (role / "README.md").write_text(readme(role), encoding="utf-8")


if __name__ == "__main__":
    main()
