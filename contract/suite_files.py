"""Classify the files of a suite's folder and of a bundle by their paths (data/README.md)."""

from __future__ import annotations

import re

from contract.names import PATTERN

SEALED = (
    "plan.json",
    "journal.jsonl",
    "watermark.jsonl",
    "clock.jsonl",
    "identity.json",
    "requests.jsonl",
    "sessions.jsonl",
    "timing.json",
)
SEALED_FOLDERS = ("runs", "meters", "provenance", "precondition")
DERIVED = (
    *("energy.parquet", "summary.parquet", "summary.csv", "contrasts.csv"),
    *("budget.csv", "claims.csv", "published.csv"),
)
_ADDED = ("manifest.json", "bundle.json", "LICENSE", "CITATION.cff")
_NAME = f"(?:{PATTERN})"
# Files that a workload's program may add to a bundle: none that a browser or Python would run.
_KEPT = re.compile(
    rf"runs/{_NAME}/kept/(?:{_NAME}/)*{_NAME}\.(?:json|jsonl|txt|log|csv|tsv|dat|gz|parquet)"
)
_INNER = re.compile(
    rf"runs/{_NAME}/(?:run\.json|rapl\.jsonl|failure\.txt|kept/.+)"
    rf"|meters/{_NAME}/(?:meter\.json|stream\.raw|samples\.parquet|status\.json)"
    rf"|(?:provenance|precondition)/{_NAME}\.json"
)
_SCHEMA = re.compile(rf"schema/{_NAME}\.json")
# Files of sessions on this machine, neither sealed nor packed.
_SESSIONS = re.compile(
    r"controller\.log|status/.+|\.(?:lock|reserve|session\.log|derived\.json|ansible-\w+\.log)"
)


def is_sealed(path: str) -> bool:
    """Return whether a path is that of a sealed file."""
    return path in SEALED or _INNER.fullmatch(path) is not None


def is_packed(path: str) -> bool:
    """Return whether a file is taken from a bundle: never a page from another machine."""
    if path.startswith("runs/") and "/kept/" in path:
        return _KEPT.fullmatch(path) is not None
    if path in (*DERIVED, *_ADDED) or _SCHEMA.fullmatch(path):
        return True
    return is_sealed(path)


def is_known(path: str) -> bool:
    """Return whether a path is that of a file that a suite's folder may have."""
    if path == "report.html" or _SESSIONS.fullmatch(path):
        return True
    return is_sealed(path) or is_packed(path)
