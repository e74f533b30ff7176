"""The secrets on the controller: whole, closed to others, a real vault; no refusal quotes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.places import ROOT
from contract.problem import Fact
from contract.tests.programs import program
from controller.targets import secrets
from controller.targets.secrets import SecretsError

WHOLE = {
    "luks_passphrase": "tango-7431-foxtrot",
    "opal_admin_pin": "sierra-9-november",
    "sed_psid": "PSID0815",
}


def written(folder: Path, document: object = WHOLE, mode: int = 0o600) -> Path:
    """Make a secrets file."""
    path = folder / "secrets.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)
    return path


def refused(path: Path, read: Callable[[Path], object] = secrets.load) -> tuple[str, Fact]:
    """Return the code of the refusal and the key that it names; it must not hold a secret."""
    with pytest.raises(SecretsError) as raised:
        read(path)
    for secret in WHOLE.values():
        assert secret not in str(raised.value) + repr(raised.value.facts)
    return raised.value.code, raised.value.facts.get("key")


def test_a_complete_secrets_file_is_described_without_its_contents(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert secrets.load(path).values == WHOLE
    description = secrets.describe(path) + repr(secrets.load(path))
    assert "sed_psid" in description
    assert not any(secret in description for secret in WHOLE.values())


def test_the_psid_may_be_missing(tmp_path: Path) -> None:
    for psid in ({}, {"sed_psid": ""}, {"sed_psid": None}):
        document = {key: WHOLE[key] for key in secrets.NEEDED} | psid
        assert set(secrets.load(written(tmp_path, document)).values) == set(secrets.NEEDED)


@pytest.mark.parametrize(
    ("document", "mode", "code", "key"),
    [
        (WHOLE, 0o640, "secrets-open", None),
        (WHOLE, 0o604, "secrets-open", None),
        ("luks_passphrase: tango-7431", 0o600, "secrets-json", None),
        ([*WHOLE.values()], 0o600, "secrets-json", None),
        ({**WHOLE, "opal_pin": "sierra-9"}, 0o600, "secrets-unknown", "opal_pin"),
        ({"luks_passphrase": "tango-7431"}, 0o600, "secrets-line", "opal_admin_pin"),
        ({**WHOLE, "luks_passphrase": ""}, 0o600, "secrets-line", "luks_passphrase"),
        ({**WHOLE, "luks_passphrase": "tango-7431\nx"}, 0o600, "secrets-line", "luks_passphrase"),
        ({**WHOLE, "sed_psid": "x\ny"}, 0o600, "secrets-line", "sed_psid"),
        ({**WHOLE, "sed_psid": 815}, 0o600, "secrets-json", None),
    ],
)
def test_an_incomplete_file_is_refused(
    document: object, mode: int, code: str, key: str | None, tmp_path: Path
) -> None:
    assert refused(written(tmp_path, document, mode)) == (code, key)


def test_missing_files_pipes_and_files_of_other_users_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "secrets.json") == ("secrets-unread", None)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert refused(pipe) == ("secrets-no-file", None)
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user takes root")
    theirs = tmp_path / "theirs.json"
    theirs.write_text("{}", encoding="utf-8")
    theirs.chmod(0o600)
    os.chown(theirs, 65534, 65534)
    assert refused(theirs) == ("secrets-owner", None)


def test_a_tracked_secrets_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    for words in (["init", "-q"], ["add", "--force", path.name]):
        assert secrets.load(path).values == WHOLE
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert refused(path) == ("secrets-tracked", None)
    subprocess.run(["git", "rm", "-q", "--cached", path.name], cwd=tmp_path, check=True)
    assert secrets.load(path).values == WHOLE


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def tracked_repository(folder: Path) -> Path:
    folder.mkdir()
    path = written(folder)
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    git(folder, "init", "-q")
    git(folder, "add", "--force", ".")
    git(folder, "commit", "-qm", "all")
    return path


def fsmonitor(folder: Path, program: Path) -> None:
    git(folder, "config", "core.fsmonitor", str(program))
    git(folder, "update-index", "--fsmonitor")


def hooks(folder: Path, program: Path) -> None:
    for name in ("post-index-change", "fsmonitor-watchman", "pre-auto-gc", "reference-transaction"):
        (folder / ".git" / "hooks" / name).symlink_to(program)


def hooks_elsewhere(folder: Path, program: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "post-index-change").symlink_to(program)
    git(folder, "config", "core.hooksPath", "mine")


def missing_objects(folder: Path, program: Path) -> None:
    """Have git expand a sparse index, for which it fetches a tree by a program."""
    git(folder, "sparse-checkout", "set", "--cone", "--sparse-index", "one")
    (folder / ".git" / "config").open("a").write(
        '[remote "origin"]\n promisor = true\n'
        f' url = "ext::{program} %S"\n[extensions]\n partialClone = origin\n'
        '[protocol "ext"]\n allow = always\n[core]\n repositoryFormatVersion = 1\n'
    )
    listed = ["git", "rev-parse", "HEAD:two"]
    tree = subprocess.run(listed, cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / ".git" / "objects" / tree[:2] / tree[2:].strip()).unlink()


def settings(folder: Path, program: Path) -> None:
    for key in ("core.pager", "pager.ls-files", "core.editor", "core.sshCommand", "diff.external"):
        git(folder, "config", key, str(program))
    git(folder, "config", "alias.ls-files", f"!{program}")
    git(folder, "config", "filter.x.clean", str(program))
    git(folder, "config", "filter.x.process", str(program))
    (folder / ".gitattributes").write_text("* filter=x diff=x\n")


@pytest.mark.parametrize(
    "trap", [fsmonitor, hooks, hooks_elsewhere, missing_objects, settings], ids=lambda f: f.__name__
)
def test_no_program_of_a_foreign_repository_runs(
    trap: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = tmp_path / "theirs", tmp_path / "ran"
    theirs = program(tmp_path / "program", f'echo "$0" "$@" >>{ran}')
    path = tracked_repository(folder)
    trap(folder, theirs)
    ran.unlink(missing_ok=True)
    monkeypatch.setenv("GIT_PAGER", str(theirs))
    code, _ = refused(path)
    assert not ran.exists()
    assert code == "secrets-tracked"


# Of git 2.36, which takes safe.directory from no command line.
OLD_GIT = """
echo "fatal: unsafe repository ('/srv' is owned by someone else)
To add an exception for this directory, call:

\tgit config --global --add safe.directory /srv" >&2
exit 128
"""


def test_an_old_git_in_a_foreign_repository_gives_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tracked_repository(tmp_path / "kept")
    program(tmp_path / "git", OLD_GIT)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert refused(path)[0] == "secrets-git-owner"


def test_tracking_is_judged_for_the_file_behind_links_and_git_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns its repository, whatever repository a hook is at work on, through a link too."""
    path = tracked_repository(tmp_path / "kept")
    (tmp_path / "link.json").symlink_to(path)
    assert refused(tmp_path / "link.json")[0] == "secrets-tracked"
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert refused(path)[0] == "secrets-tracked"
    monkeypatch.delenv("GIT_DIR")
    broken = tracked_repository(tmp_path / "broken")
    (broken.parent / ".git" / "index").write_bytes(b"no index")
    assert refused(broken)[0] == "secrets-git"
    if os.geteuid() != 0:
        pytest.skip("giving a repository to another user takes root")
    for place in (path.parent, path.parent / ".git"):
        os.chown(place, 65534, 65534)
    assert refused(path)[0] == "secrets-tracked"


def test_secrets_next_to_an_inventory_are_ignored_by_git() -> None:
    places = [
        *("ansible/inventory/local/.secrets.json", "ansible/inventory/mine/secrets.lab.json"),
        "ansible/inventory/bench/.secrets/birch/secrets.json",
    ]
    result = subprocess.run(
        ["git", "check-ignore", "--no-index", *places],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.split() == places


def test_a_vault_opens_only_with_its_password(
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
    assert refused(path) == ("secrets-vault", None)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "wrong"))
    assert refused(path) == ("secrets-vault", None)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "right"))
    assert "Ansible Vault" in secrets.describe(path)


@pytest.mark.parametrize("weak", ["sierra-7431", "aaaaaaaaaaaa", "1234512345123451"])
@pytest.mark.parametrize("key", secrets.NEEDED)
def test_a_short_or_uniform_secret_is_refused_by_describe_only(
    key: str, weak: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {**WHOLE, key: weak})
    assert refused(path, secrets.describe) == ("secrets-short", key)
    assert secrets.load(path).values[key] == weak  # to give back a drive that has it
    assert secrets.describe(written(tmp_path, {**WHOLE, key: "sierra-74310"}))
