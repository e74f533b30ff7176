"""Internal errors at each line of the storage stack, on the guest's own drives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.tests.guest import CODE, FOLDER, Target

pytestmark = [pytest.mark.lab, pytest.mark.slow]

DMCRYPT = {"cipher": "aes-xts-plain64", "key_bits": 256, "sector_size": 4096}
CONFIGURATIONS: list[dict[str, Any]] = [
    {"name": "opal", "kind": "opal", "disk": "sed"},
    {"name": "dmcrypt", "kind": "dmcrypt", "disk": "plain", **DMCRYPT},
]


@pytest.fixture(scope="module")
def target(lab: Any) -> Iterator[Target]:
    target = Target(lab, CONFIGURATIONS, 256 * 2**20)
    target.agent("prepare")
    yield target
    target.agent("teardown")


@pytest.mark.parametrize("name", ["opal", "dmcrypt"])
def test_an_internal_error_leaves_no_key_and_no_open_range(target: Target, name: str) -> None:
    done = target.lab.ssh(
        f"cd {CODE} && PYTHONPATH={CODE}:{CODE}/lib python3 -m agent.tests.injections "
        f"{FOLDER}/target.json {FOLDER}/secrets.json {name}"
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
