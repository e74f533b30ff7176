"""Private folders, fixed paths in shared folders, and core dumps."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from contract import private
from contract.errors import AgentError
from contract.tests.refusal import refuses

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = "agent analysis contract controller drive instrumentation lab workloads"


@pytest.mark.parametrize("mode", [0o700, 0o701, 0o710, 0o770, 0o1777])
def test_only_a_folder_of_mode_0700_is_accepted(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    with nullcontext() if mode == 0o700 else refuses("folder-open"):
        private.require(folder)


def test_a_link_a_file_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    mine, link, file = (tmp_path / name for name in ("mine", "link", "file"))
    mine.mkdir(mode=0o700)
    link.symlink_to(mine)
    file.touch(mode=0o600)
    for path in (link, file, tmp_path / "none"):
        with pytest.raises(AgentError):
            private.require(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with refuses("folder-of-other", user=12345):
        private.require(folder)


def test_no_code_has_a_fixed_path_in_a_shared_folder() -> None:
    """Tests may have them in a guest, where nobody else is."""
    fixed_names = []
    for package in PRODUCT.split():
        for path in (ROOT / package).rglob("*.py"):
            if "tests" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Constant):
                    continue
                text = node.value
                if isinstance(text, str) and text.startswith(("/tmp/", "/var/tmp/", "/dev/shm/")):
                    fixed_names.append(f"{path}:{node.lineno}: {text}")
    assert not fixed_names


CRASH = """
import os, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
from controller.targets import secrets as of_controller
from agent.storage import secrets
if sys.argv[1] != "decoy":
    {"target": secrets.load, "controller": of_controller.load}[sys.argv[1]](Path(sys.argv[2]))
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize("side", ["target", "controller"])
def test_a_process_with_secrets_dumps_no_core(side: str, tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.touch(mode=0o600)
    path.write_text('{"luks_passphrase": "p", "opal_admin_pin": "q"}', encoding="utf-8")
    limits = [
        subprocess.run(
            [sys.executable, "-c", CRASH, who, str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for who in (side, "decoy")
    ]
    assert limits[0] in {"(1, 1)", "(0, 0)"}
    assert limits[1] != limits[0] or resource.getrlimit(resource.RLIMIT_CORE)[1] <= 1
