"""Internal errors at each line of the storage stack, on the guest's own drives."""

from __future__ import annotations

import json

import pytest

from agent.tests.guest import AES, CODE, FOLDER, OPAL, Target

pytestmark = [pytest.mark.lab, pytest.mark.slow]

EXTENT_BYTES = 256 * 2**20
CONFIGURATIONS = [OPAL, {"name": "dmcrypt", "kind": "dmcrypt", "disk": "plain", **AES}]


@pytest.mark.parametrize("name", ["opal", "dmcrypt"])
def test_an_internal_error_leaves_no_key_and_no_open_range(target: Target, name: str) -> None:
    output = target.lab.ssh(
        f"cd {CODE} && PYTHONPATH={CODE}:{CODE}/lib python3 -m agent.tests.injections "
        f"{FOLDER}/target.json {FOLDER}/secrets.json {name}"
    )
    assert json.loads(output.stdout.splitlines()[-1]) == []
