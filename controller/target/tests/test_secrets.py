"""The secrets on the controller: whole, closed to others, a real vault; no refusal quotes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import ControllerError
from contract.places import ROOT
from controller.target import secrets

WHOLE = {
    "luks_passphrase": "tango-7431-foxtrot",
    "opal_admin_pin": "sierra-9-november",
    "sed_psid": "PSID0815",
}


def written(folder: Path, document: object = WHOLE, mode: int = 0o600) -> Path:
    """A secrets file."""
    path = folder / "secrets.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)
    return path


def refused(path: Path) -> str:
    """The words of the refusal, which must not hold a secret."""
    with pytest.raises(ControllerError) as raised:
        secrets.load(path)
    for secret in WHOLE.values():
        assert secret not in str(raised.value)
    return str(raised.value)


def test_a_whole_file_is_described_without_its_contents(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert secrets.load(path) == WHOLE
    said = secrets.described(path)
    assert "sed_psid" in said
    assert not any(secret in said for secret in WHOLE.values())


def test_the_psid_may_be_missing(tmp_path: Path) -> None:
    for psid in ({}, {"sed_psid": ""}, {"sed_psid": None}):
        document = {key: WHOLE[key] for key in secrets.NEEDED} | psid
        assert set(secrets.load(written(tmp_path, document))) == set(secrets.NEEDED)


@pytest.mark.parametrize(
    ("document", "mode", "words"),
    [
        (WHOLE, 0o640, "open to other users: chmod 600"),
        (WHOLE, 0o604, "open to other users"),
        ("luks_passphrase: tango-7431", 0o600, "not JSON"),
        ([*WHOLE.values()], 0o600, "not a JSON object"),
        ({**WHOLE, "opal_pin": "sierra-9"}, 0o600, "no secret called opal_pin"),
        ({"luks_passphrase": "tango-7431"}, 0o600, "opal_admin_pin .* is missing"),
        ({**WHOLE, "luks_passphrase": ""}, 0o600, "luks_passphrase .* is missing"),
        ({**WHOLE, "luks_passphrase": "tango-7431\nx"}, 0o600, "not one line"),
        ({**WHOLE, "sed_psid": 815}, 0o600, "sed_psid"),
    ],
)
def test_what_is_not_whole_is_refused(
    document: object, mode: int, words: str, tmp_path: Path
) -> None:
    said = refused(written(tmp_path, document, mode))
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(said)


def test_a_pipe_and_another_users_file_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(ControllerError, match="are not a file"):
        secrets.load(pipe)
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user takes root")
    theirs = tmp_path / "theirs.json"
    theirs.write_text("{}", encoding="utf-8")
    theirs.chmod(0o600)
    os.chown(theirs, 65534, 65534)
    with pytest.raises(ControllerError, match="belong to user 65534"):
        secrets.load(theirs)


def test_what_git_keeps_is_refused_unless_it_is_encrypted(tmp_path: Path) -> None:
    path = written(tmp_path)
    for words in (["init", "-q"], ["add", "--force", path.name]):
        assert secrets.load(path) == WHOLE
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert f"git rm --cached {path}" in refused(path)
    subprocess.run(["git", "rm", "-q", "--cached", path.name], cwd=tmp_path, check=True)
    assert secrets.load(path) == WHOLE


def test_git_takes_no_secrets_beside_an_inventory() -> None:
    places = ["ansible/inventory/local/secrets.json", "ansible/inventory/mine/secrets.lab.json"]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == places


def test_a_missing_file_is_told_with_what_belongs_in_it(tmp_path: Path) -> None:
    said = refused(tmp_path / "secrets.json")
    assert "luks_passphrase, opal_admin_pin, sed_psid" in said


def test_a_real_vault_is_opened_by_its_password_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(f"the {name} one\n")
    vault = str(Path(sys.executable).with_name("ansible-vault"))
    password = ["--vault-password-file", str(tmp_path / "right")]
    subprocess.run([vault, "encrypt", *password, str(path)], check=True, capture_output=True)
    assert not any(secret.encode() in path.read_bytes() for secret in WHOLE.values())
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in refused(path)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "wrong"))
    assert "no password opens it" in refused(path)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "right"))
    found = secrets.load(path)
    assert found == WHOLE
    monkeypatch.setattr(secrets, "load", lambda _: found)  # it is slow
    assert "Ansible Vault" in secrets.described(path)


@pytest.mark.parametrize("key", secrets.NEEDED)
def test_a_short_secret_is_refused_before_anything_is_owned_with_it(
    key: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {**WHOLE, key: "sierra-7431"})
    with pytest.raises(ControllerError, match=f"The secret {key} in .* is too short") as raised:
        secrets.described(path)
    assert "sierra-7431" not in str(raised.value)
    assert secrets.load(path)[key] == "sierra-7431"  # a drive that has it can be given back
    assert secrets.described(written(tmp_path, {**WHOLE, key: "sierra-74310"}))
