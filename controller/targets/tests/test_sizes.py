"""Sizes as people write them, in bytes or refused."""

from __future__ import annotations

import pytest

from controller.targets.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (17179869184, 16 * 2**30),
        ("17179869184", 16 * 2**30),
        ("16 GiB", 16 * 2**30),
        ("16384MiB", 16 * 2**30),
        ("0.5 TiB", 2**39),
        ("500 GB", 500 * 10**9),
        ("1.5 TB", 1500 * 10**9),
        ("600 B", 600),
        ("0", 0),
    ],
)
def test_a_size_is_read_in_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("16G", "16 gib", "16 Gb", "16 KB", "16,384 MiB", "1.5", 1.5, "0.3 B", "1e9", "-1 GiB"),
        *("", "GiB", "all", True, None, [1], "٣ GB", "16  GiB", "9 EiB", "9" * 5000, "9999999 PB"),
    ],
)
def test_another_text_is_no_size(text: object) -> None:
    assert parse_size(text) is None
