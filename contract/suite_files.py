"""Which files a suite's folder and a bundle have, by their paths in it (data/README.md)."""

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
    "power.jsonl",
    "timing.json",
)
SEALED_FOLDERS = ("runs", "meters", "provenance", "precondition")
DERIVED = ("energy.parquet", "summary.parquet", "summary.csv", "budget.csv")
_BESIDE = ("manifest.json", "bundle.json", "LICENSE", "CITATION.cff")
_NAME = f"(?:{PATTERN})"
# What a program of a workload may leave for a bundle: nothing that a browser or Python would run.
_KEPT = re.compile(
    rf"runs/{_NAME}/kept/(?:{_NAME}/)*{_NAME}\.(?:json|jsonl|txt|log|csv|tsv|dat|gz|parquet)"
)
_INNER = re.compile(
    rf"runs/{_NAME}/(?:run\.json|rapl\.jsonl|failure\.txt|kept/.+)"
    rf"|meters/{_NAME}/(?:meter\.json|stream\.raw|samples\.parquet|status\.json)"
    rf"|(?:provenance|precondition)/{_NAME}\.json"
)
_SCHEMA = re.compile(rf"schema/{_NAME}\.json")
# Of sessions on this machine, neither sealed nor packed.
_SESSIONS = re.compile(
    r"controller\.log|status/.+|\.(?:lock|reserve|session\.log|derived\.json|ansible-\w+\.log)"
)


def is_sealed(path: str) -> bool:
    """Whether a path is that of a file which a seal covers."""
    return path in SEALED or _INNER.fullmatch(path) is not None


def is_packed(path: str) -> bool:
    """Whether a file is taken out of a bundle: never a page, which another machine wrote."""
    if path.startswith("runs/") and "/kept/" in path:
        return _KEPT.fullmatch(path) is not None
    known = path in (*DERIVED, *_BESIDE) or _SCHEMA.fullmatch(path) is not None
    return known or is_sealed(path)


def is_known(path: str) -> bool:
    """Whether a path is that of a file which a suite's folder may have."""
    known = path == "report.html" or _SESSIONS.fullmatch(path) is not None
    return known or is_sealed(path) or is_packed(path)
