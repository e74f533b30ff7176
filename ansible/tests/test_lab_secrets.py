"""The lab's passphrase, PIN, PSID and a volume key show nowhere, and the search would find them.

Everything is done once under watch: torn down, provisioned, proven, and the micro suite of
test_lab_suite.py with its report. Then one search is made for the secrets and for decoys that were
put on purpose wherever one might be careless.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.targets.secrets import PLACE
from lab.machines.base import OVERLAY

pytestmark = pytest.mark.lab

NEEDLES = "/run/fde-watch/needles"
# On the target all that may hold text; the secrets' own file is the only one left out.
FOLDERS = "/etc /home /opt /root /run /srv /tmp /usr/local /var"
HELD_SECRETS = ("secrets.json", "sed.psid")
# One of each kind that is given a secret; all of them are proven in a test of their own.
PROVEN = ("opal", "truecrypt-aes256", "dmcrypt-aes256-on-sed", "dmcrypt-aes256")
FIGURES = Path(__file__).resolve().parents[2] / "build" / "bench" / "secrets.json"
PIECE = 12  # characters: who shows as much of a secret has shown it


def needles(secret: bytes) -> list[bytes]:
    """Return what a secret looks like.

    As it stands, and in hexadecimal and base64 within anything.
    """
    encoded = [secret.hex().encode(), secret.hex().upper().encode()]
    encoded += [secret[:PIECE], secret[-PIECE:]] if secret.isascii() else []
    for shift in range(3):
        # Its neighbours have a say in the first and last characters.
        inner = base64.b64encode(bytes(shift) + secret + bytes(2))[4:-8]
        encoded += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return sorted(set(encoded))


@dataclass
class Scene:
    """The folders to search, the witness of processes, and the outputs of all programs."""

    controller: Any
    witness: Any
    folders: list[Path]
    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def play(self, playbook: str, **variables: str) -> None:
        result = self.controller.play(playbook, "-vvv", "--diff", **variables)
        assert result.returncode == 0
        self.outputs[playbook] = result.stdout + result.stderr

    def command(self, *arguments: str) -> None:
        result = self.controller.python("controller", *arguments)
        assert result.returncode == 0
        self.outputs[arguments[0]] = result.stdout + result.stderr

    def agent(self, arguments: str, code: int = 0) -> None:
        result = self.controller.agent(arguments, check=False)
        assert result.returncode == code, result.stdout + result.stderr
        self.outputs[arguments] = result.stdout + result.stderr

    def places(self, patterns: Mapping[str, list[bytes]], tmp_path: Path) -> dict[str, set[str]]:
        """Return the places in which any pattern of each name occurs."""
        texts = {name: text.encode() for name, text in self.outputs.items()}
        for place, sightings in self.witness.observed().items():
            for kind in ("argv", "environ"):
                texts[f"{kind} on the {place}"] = "".join(sightings[kind]).encode("latin-1")
        file = tmp_path / "needles"
        file.touch(mode=0o600)
        file.write_bytes(b"\n".join(needle for each in patterns.values() for needle in each))
        shown = [*self._on_the_controller(file), *self._in_the_guest(file)]
        return {
            name: {place for place, text in texts.items() if any(n in text for n in each)}
            | {place for place, text in shown if text in each}
            for name, each in patterns.items()
        }

    def search(
        self, after: str, patterns: Mapping[str, list[bytes]], tmp_path: Path
    ) -> dict[str, set[str]]:
        """Search all places and save the numbers of searched files, processes and hits."""
        hits = self.places(patterns, tmp_path)
        controller_files = sum(
            path.is_file() for folder in self.folders for path in folder.rglob("*")
        )
        target_files = self.controller.lab.ssh(f"find {FOLDERS} -type f 2>/dev/null | wc -l").stdout
        processes = sum(len(sightings["argv"]) for sightings in self.witness.observed().values())
        self.figures[after] = {
            "files_on_the_controller": controller_files,
            "files_on_the_target": int(target_files),
            "command_lines_and_environments": processes,
            "outputs_of_programs": len(self.outputs),
            "logs": 2,  # the journal and the kernel's own
            **{f"{name}_found": len(places) for name, places in hits.items()},
        }
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
        return hits

    def _on_the_controller(self, pattern_file: Path) -> list[tuple[str, bytes]]:
        """Return the suite, its report, the build folder, and the lab: logs, console, all disks."""
        left_out = [f"--exclude={name}" for name in HELD_SECRETS]
        # -z: what no NUL divides is a line, so that a medium is not one, and holes are passed over.
        argv = ["grep", "-raozFHZ", "-D", "skip", *left_out, "-f", str(pattern_file)]
        argv += map(str, self.folders)
        result = subprocess.run(
            argv, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
        assert result.returncode < 2, result.stderr
        return _shown(result.stdout)

    def _in_the_guest(self, pattern_file: Path) -> list[tuple[str, bytes]]:
        """Return the files, the journal and the kernel log of the guest that contain a pattern."""
        lab = self.controller.lab
        lab.ssh(f"umask 077; cat > {NEEDLES}", stdin=pattern_file.read_bytes())
        grep = f"LC_ALL=C grep -aozFHZ -f {NEEDLES}"
        script = (
            f"{grep} -rs -D skip --exclude=secrets.json --exclude=needles {FOLDERS}; "
            f"journalctl --no-pager --output=export | {grep} --label=journal; "
            f"dmesg | {grep} --label=dmesg; rm {NEEDLES}"
        )
        return _shown(lab.ssh(script).stdout.encode())


def _shown(output: bytes) -> list[tuple[str, bytes]]:
    """Of what grep printed: the places, and which of the needles each shows."""
    words = output.split(b"\0")
    return [(place.decode(), text) for place, text in zip(words[:-1:2], words[1::2], strict=True)]


@pytest.fixture(scope="module")
def quick_writeback(provisioned: Any) -> Iterator[None]:
    """Provide what the target writes to its system disk gets there, however soon it is removed."""
    names = ("dirty_expire_centisecs", "dirty_writeback_centisecs")
    files = " ".join(f"/proc/sys/vm/{name}" for name in names)
    before = provisioned.lab.ssh(f"cat {files}").stdout.split()
    provisioned.lab.ssh(f"for f in {files}; do echo 10 > $f; done")
    yield
    for name, value in zip(names, before, strict=True):
        provisioned.lab.ssh(f"echo {value} > /proc/sys/vm/{name}")


@pytest.fixture(scope="module")
def scene(
    provisioned: Any, witness: Any, quick_writeback: None, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """After everything has been done that needs the secrets."""
    del quick_writeback
    scene = Scene(provisioned, witness, [provisioned.build, provisioned.lab.directory])
    # By the PSID, which otherwise never leaves the controller.
    scene.play(
        "teardown.yml",
        fde_keep=True,
        fde_psid_revert=provisioned.lab.state["drives"]["sed"]["serial"],
    )
    scene.command("check", "--inventory", "ansible/inventory/lab")
    scene.play("site.yml")
    scene.command("prove", "--target", str(provisioned.target), *PROVEN)
    torn = json.dumps(_secrets(provisioned)).removesuffix("}")
    provisioned.lab.ssh("umask 077; cat > /run/fde-watch/secrets.json", stdin=torn.encode())
    scene.agent("storage leave --secrets /run/fde-watch/secrets.json", code=1)
    scene.folders.append(request.getfixturevalue("suite"))
    yield scene
    witness.close()


def _secrets(controller: Any) -> dict[str, str]:
    values: dict[str, str] = json.loads(Path(controller.lab.state["secrets"]).read_text())
    return values


def _secret_needles(scene: Scene) -> dict[str, list[bytes]]:
    held = _secrets(scene.controller).values()
    return {"secrets": [needle for secret in held for needle in needles(secret.encode())]}


def test_the_watch_was_awake(scene: Scene) -> None:
    """It saw the programs that are given secrets, and those that bring them there."""
    sightings = scene.witness.observed()
    commands = {
        place: "".join(sighting["argv"]).split("\0") for place, sighting in sightings.items()
    }
    expected_programs = {
        "cryptsetup",
        "luksFormat",
        "--hw-opal-only",
        "sfdisk",
        "mkfs.ext4",
        "mount",
    }
    assert expected_programs <= set(commands["guest"])
    assert {"ansible", "playbook"} <= set(commands["controller"])
    assert "ssh" in commands["controller"]
    started, missed = sightings["guest"]["started"], sightings["guest"]["missed"]
    print(f"of {started} programs started in the guest, {missed} had ended before a look")
    assert missed < started / 20


@pytest.fixture(scope="module")
def sightings_of_secrets(
    scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, set[str]]:
    """One search, for all: it takes a minute."""
    lab, decoy, dumped = scene.controller.lab, secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    key = _volume_key(scene)
    try:
        _plant(lab, decoy)
        _crashes(lab, "decoy", dumped.encode())
        patterns = {
            **_secret_needles(scene),
            "volume_key": needles(key),
            "decoy": needles(decoy.encode()),
            "dumped_decoy": needles(dumped.encode()),
        }
        return scene.search("suite", patterns, tmp_path_factory.mktemp("search"))
    finally:
        lab.ssh(
            f"rm -rf /run/fde-watch/decoy {CORES}; echo core > /proc/sys/kernel/core_pattern; "
            "journalctl --rotate --vacuum-time=1s; dmesg --clear"
        )


def _plant(lab: Any, decoy: str) -> None:
    """Put a decoy once wherever one might be careless, in the ways that it might look."""
    packed = base64.b64encode(f'{{"pin": "{decoy}"}}'.encode()).decode()
    planted = (
        "cat > /run/fde-watch/decoy; "
        f"D={packed} sh -c 'sleep 1'; env D={decoy} sleep 1; "
        f"echo {decoy.encode().hex()} | logger; echo {packed} > /dev/kmsg; "
        f"echo {decoy} > /var/decoy; sync; rm /var/decoy"
    )
    lab.ssh(planted, stdin=decoy.encode())
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1)", decoy], check=True)


def _volume_key(scene: Scene) -> bytes:
    """Of dm-crypt, whose configuration has been entered and left."""
    scene.agent("storage prove dmcrypt-aes256")
    lab = scene.controller.lab
    plain = json.loads(scene.controller.target.read_text())["disks"]["plain"]["by_id"]
    passphrase = _secrets(scene.controller)["luks_passphrase"]
    dump = "cryptsetup luksDump --batch-mode --dump-volume-key --key-file -"
    key = "/run/fde-watch/key"
    lab.ssh(f"{dump} --volume-key-file {key} {plain}-part1", stdin=passphrase.encode())
    return base64.b64decode(lab.ssh(f"base64 -w0 {key}; rm {key}").stdout)


def test_a_secret_that_leaks_is_found(
    scene: Scene, sightings_of_secrets: dict[str, set[str]]
) -> None:
    planted_in = {
        *("argv on the guest", "environ on the guest", "argv on the controller"),
        *("journal", "dmesg", "/run/fde-watch/decoy"),
        str(scene.controller.lab.directory / OVERLAY),
    }
    assert planted_in - sightings_of_secrets["decoy"] == set()


def test_a_secret_in_a_core_dump_is_found(sightings_of_secrets: dict[str, set[str]]) -> None:
    dumps = {place for place in sightings_of_secrets["dumped_decoy"] if place.startswith(CORES)}
    assert len(dumps) == 3, dumps  # SIGKILL dumps none


def test_no_secret_shows_anywhere(sightings_of_secrets: dict[str, set[str]]) -> None:
    assert sightings_of_secrets["secrets"] == set()


def test_no_volume_key_shows_anywhere(sightings_of_secrets: dict[str, set[str]]) -> None:
    """dm-crypt's key is in the kernel's memory and, encrypted, in the header; nowhere else."""
    assert sightings_of_secrets["volume_key"] == set()


def test_the_secrets_lie_in_memory_only(scene: Scene) -> None:
    """The one file that holds them, and root alone can read it."""
    look = f"find / -xdev -name secrets.json; cd {Path(PLACE).parent}; stat -c '%a %U' secrets.json"
    listing = scene.controller.lab.ssh(f"{look}; stat -f -c %T .").stdout
    assert listing.split() == ["600", "root", "ramfs"]


# With the secrets in its memory it is ended as a crash or the service's watchdog would.
CRASH = """
import os, sys
from pathlib import Path
from agent.storage import secrets
held = secrets.load(Path(sys.argv[1])) if sys.argv[1] != "decoy" else sys.stdin.read()
os.kill(os.getpid(), int(sys.argv[2]))
"""
CORES = "/var/fde-cores"


def _crashes(lab: Any, program_name: str, decoy: bytes = b"") -> None:
    """By every signal that dumps a core, where cores are dumped and nothing limits them."""
    lab.ssh(f"mkdir -p {CORES}; echo {CORES}/core.%p > /proc/sys/kernel/core_pattern")
    python = f"cd {CORES} && PYTHONPATH=/opt/fde-testbed:/opt/fde-testbed/lib python3 -c"
    for number in (3, 6, 9, 11):
        script = f"ulimit -c unlimited; {python} {shlex.quote(CRASH)} {program_name} {number}"
        assert lab.ssh(script, check=False, stdin=decoy).returncode != 0
    lab.ssh("sync")


def test_neither_a_crash_nor_a_teardown_leaves_a_secret(scene: Scene, tmp_path: Path) -> None:
    lab, folder = scene.controller.lab, Path(PLACE).parent
    try:
        _crashes(lab, PLACE)
        assert lab.ssh(f"ls {CORES}").stdout == ""
        # The agent itself, killed while it is at work on a stack.
        agent = f"{scene.controller.AGENT} storage prove dmcrypt-aes256"
        lab.ssh(
            f"({agent}) >/dev/null 2>&1 & sleep 2; kill -KILL $!; pkill -KILL -P $!", check=False
        )
        limit = lab.ssh("systemctl show -p LimitCORE,LimitCORESoft fde-agent@x.service").stdout
        assert limit.split() == ["LimitCORE=1", "LimitCORESoft=1"]
        lab.ssh(f"cp {PLACE} {folder}/.new.broken")  # a link that broke while they were sent
        scene.play("teardown.yml", fde_keep=True)
        assert lab.ssh(f"ls -A {folder}; findmnt {folder}", check=False).stdout == ""
        assert lab.ssh("find / -xdev -name secrets.json").stdout == ""
        assert scene.search("teardown", _secret_needles(scene), tmp_path) == {"secrets": set()}
    finally:
        lab.ssh(f"rm -rf {CORES}; echo core > /proc/sys/kernel/core_pattern")
        scene.controller.prepare()  # as the tests after it find it
