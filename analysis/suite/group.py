"""A group: the suites of one plan on several hosts; group.json (`fde-group/1`)."""

from __future__ import annotations

from pathlib import Path

from analysis.suite.records import SuiteError
from contract import names, strict_json
from contract.documents import GroupDocument

FILE = "group.json"


def is_group(folder: Path) -> bool:
    """Return whether a folder is that of a group, not of a suite."""
    return (folder / FILE).exists()


def members(folder: Path) -> list[Path]:
    """Return the folders of a group's suites, which are its siblings. Raises SuiteError."""
    try:
        if strange := names.stranger(folder):
            raise ValueError(strange)
        document = strict_json.parse(GroupDocument, (folder / FILE).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SuiteError("group-unread", path=folder / FILE, reason=reason) from None
    return [folder.parent / suite_id for suite_id in document.suites]
