"""Writes the README.md of every role from its argument_specs: python ansible/readmes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent / "roles"


def readme(role: Path) -> str:
    """Return the README of a role: its description, a table of its options and an example."""
    main = entry_point(role)
    defaults = role / "defaults" / "main.yml"
    values = yaml.safe_load(defaults.read_text(encoding="utf-8")) if defaults.exists() else {}
    summary, *details = main["description"]
    lines = [f"# fde.testbed.{role.name}", "", f"{main['short_description']}. {summary}", ""]
    lines += [*details, ""] if details else []
    lines += ["## Variables", "", "| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += [*_rows(main["options"], "", values), "", "## Example playbook", ""]
    lines += [f"Run this file as `ansible-playbook -i INVENTORY {role.name}.yml`:", ""]
    return "\n".join([*lines, "```yaml", main["examples"].rstrip(), "```"]) + "\n"


def entry_point(role: Path) -> dict[str, Any]:
    """Return the specification of a role's tasks/main.yml."""
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    main: dict[str, Any] = spec["argument_specs"]["main"]
    return main


def _rows(options: Mapping[str, Any], prefix: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, option in options.items():
        kind = option["type"]
        if "elements" in option:
            kind += f" of {option['elements']}"
        default = option.get("default", values.get(name))
        if option.get("required"):
            shown = "required"
        elif name in values and "default" not in option and default is not None:
            shown = "in [defaults](defaults/main.yml)"
        else:
            shown = "" if default in (None, "", [], {}) else f"`{_plain(default)}`"
        meaning = option["description"]
        if "choices" in option:
            meaning += ": " + ", ".join(f"`{choice}`" for choice in option["choices"])
        cells = (f"`{prefix}{name}`", kind, shown, meaning)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        inner = f"{prefix}{name}{'[]' if kind.startswith('list') else ''}."
        yield from _rows(option.get("options", {}), inner, {})


def _plain(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def main() -> None:
    """Write the README of each role."""
    for role in sorted(ROLES.iterdir()):
        (role / "README.md").write_text(readme(role), encoding="utf-8")


if __name__ == "__main__":
    main()
