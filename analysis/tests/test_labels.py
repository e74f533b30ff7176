"""Names for people, from the plan's entries and never from a configuration's name."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.suite import records
from analysis.suite.records import configuration_label

AES = {"kind": "dmcrypt", "disk": "plain", "cipher": "aes-xts-plain64", "key_bits": 256}


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        ({"kind": "plain", "disk": "plain"}, "plain"),
        ({"kind": "plain", "disk": "sed"}, "SED, locking off"),
        ({"kind": "opal", "disk": "sed"}, "Opal drive"),
        ({**AES, "sector_size": 4096}, "dm-crypt AES-256"),
        ({**AES, "sector_size": 512}, "dm-crypt AES-256, 512 B sectors"),
        ({**AES, "header": "none"}, "dm-crypt AES-256, no header"),
        ({**AES, "no_write_workqueue": True}, "dm-crypt AES-256, no queues"),
        ({**AES, "disk": "sed"}, "dm-crypt AES-256, on the SED"),
        ({**AES, "cipher": "serpent-xts-plain64", "key_bits": 128}, "dm-crypt Serpent-128"),
        (
            {"kind": "tcrypt", "disk": "plain", "cipher": "aes-twofish-serpent", "key_bits": 256},
            "TrueCrypt AES–Twofish–Serpent-256",
        ),
        ({}, "c1"),
        ({"kind": "dmcrypt"}, "c1"),
    ],
)
def test_a_configuration_is_called_by_what_it_is(entry: dict[str, Any], label: str) -> None:
    assert configuration_label("c1", entry) == label


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["measured", "measured"], "measured"),
        (["measured", "modelled"], "modelled"),
        (["modelled", "synthetic", "measured"], "synthetic"),
        (["measured", "who knows"], "modelled"),
        ([], "measured"),
    ],
)
def test_what_rests_on_several_origins_is_the_worst_of_them(parts: list[str], whole: str) -> None:
    assert records.joint(parts) == whole
