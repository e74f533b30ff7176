"""The agent as a service: pings, waits, leases, a full disk; and what the controller asks of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import cli, pack
from agent.readiness import NotYetError, Waits
from agent.system import lock, notify
from agent.tests.suite_lab import blocks_document
from contract import identity, journal
from contract.files import write_json
from contract.tests.refusal import refuses

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {"luks_passphrase": "tell nobody", "opal_admin_pin": "nor this"}


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Provide the socket that systemd would listen at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(str(tmp_path / "notify"))
        link.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield link


def test_the_watchdog_is_pinged_only_within_a_steps_time(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000")
    with notify.Watchdog() as dog:
        notify.tell("READY=1")
        heard: set[bytes] = set()
        while len(heard) < 2:
            heard.add(systemd.recv(100))
        assert heard == {b"WATCHDOG=1", b"READY=1"}
        dog.within(-1)
        systemd.settimeout(0.5)
        with pytest.raises(TimeoutError):  # those on their way are heard still
            for _ in range(1000):
                systemd.recv(100)
        dog.within(60)
        assert systemd.recv(100) == b"WATCHDOG=1"
    assert not [thread for thread in threading.enumerate() if thread.daemon and thread.is_alive()]


def test_outside_of_a_service_no_messages_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    before = threading.active_count()
    with notify.Watchdog():
        assert threading.active_count() == before
        notify.tell("READY=1")
    assert not notify.is_service() and not notify.going_down()


def _waits(folder: Path, sleep: Callable[[float], None]) -> tuple[journal.Journal, Waits]:
    writer = journal.Journal(folder / "journal.jsonl")
    return writer, Waits(writer, notify.Watchdog(send=False), sleep=sleep)


def test_secrets_are_waited_for_and_journalled_once_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            path.write_text(json.dumps(SECRETS))
            path.chmod(0o644)
        if len(looks) == 4:
            path.chmod(0o600)

    writer, waits = _waits(tmp_path, sleep)
    assert waits.for_secrets(path).luks_passphrase == b"tell nobody"
    writer.close()
    entries = journal.read(tmp_path / "journal.jsonl")
    assert [entry.cause for entry in entries] == ["secrets", "secrets"]
    details = [entry.detail for entry in entries]
    assert "cannot be read" in details[0] and "other users" in details[1]
    assert "tell nobody" not in (tmp_path / "journal.jsonl").read_text()


def test_a_wait_with_a_limit_raises_its_reason(tmp_path: Path) -> None:
    _, waits = _waits(tmp_path, lambda _s: None)

    def never() -> None:
        raise NotYetError("the disk x is not there: plug it in.")

    with pytest.raises(NotYetError):
        waits.until("disks", never, limit_s=0.05)


def test_a_lease_holds_until_it_ends_or_is_removed(tmp_path: Path) -> None:
    lease = tmp_path / "run" / "hold.json"
    assert lock.reason(lease) is None
    lock.take("the meter is\nsilent", 30, lease)
    assert lock.reason(lease) == "the meter is silent"
    writer, waits = _waits(tmp_path, lambda _s: lock.end(lease))
    waits.for_controller("r1", lease)
    writer.close()
    (entry,) = journal.read(tmp_path / "journal.jsonl")
    assert (entry.state, entry.run_id) == ("waiting", "r1")
    assert entry.detail == "the meter is silent"
    lock.take("over at once", 1e-6, lease)
    assert lock.reason(lease) is None
    for nonsense in ("{", "[]", '{"until_ns": 1e30, "reason": ""}', '{"reason": "x"}'):
        lease.write_text(nonsense)
        assert lock.reason(lease) is None
    for seconds in (0, -1, float("nan"), 1e9):
        with refuses("hold-too-long"):
            lock.take("x", seconds, lease)


def test_a_hold_needs_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hold", "--reason", "x"]) == 1
    assert "--for" in capsys.readouterr().err


FULL = """
import sys
from contextlib import suppress
from pathlib import Path
from contract.journal import Journal, read
folder = Path(sys.argv[1])
path = folder / "journal.jsonl"
writer = Journal(path)
writer.append("suite-started")
writer.reserve.keep()
assert (folder / ".reserve").stat().st_blocks * 512 >= 200_000
def fill():
    with (folder / "filler").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
fill()
text = "y" * 5000  # more than what is left of the page that the journal has
writer.append("void", "r1", text, "failed")
assert not (folder / ".reserve").exists()
fill()
size = path.stat().st_size
for _ in range(3):
    with suppress(OSError):
        writer.append("void", "r2", text, "failed")
        raise SystemExit("there was room")
assert path.stat().st_size == size
(folder / "filler").unlink()
writer.append("suite-failed", "", "no room")
states = [(e.seq, e.state) for e in read(path)]
assert states == [(0, "suite-started"), (1, "void"), (2, "suite-failed")], states
"""


def test_the_journal_reports_a_full_disk(tmp_path: Path) -> None:
    """On a real file system of 2 MiB, mounted in a namespace of its own."""
    mount = f"mount -t tmpfs -o size=2m none {tmp_path}"

    def run(command: str) -> subprocess.CompletedProcess[str]:
        argv = ["unshare", "-rm", "sh", "-c", command]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)

    if shutil.which("unshare") is None or run(mount).returncode:
        pytest.skip("this machine does not let anyone mount in a namespace of his own")
    output = run(f"{mount} && exec {shlex.quote(sys.executable)} -c '{FULL}' {tmp_path}")
    assert output.returncode == 0, output.stderr


def test_the_holder_of_a_suite_is_found_without_the_lock(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    with lock.suite(tmp_path):
        assert lock.holder(tmp_path) == os.getpid()
        assert lock.holder(tmp_path.parent) is None
    assert lock.holder(tmp_path) is None
    assert lock.holder(tmp_path / "gone") is None


def test_following_ends_if_no_agent_can_close_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    writer = journal.Journal(path)
    writer.append("suite-started")
    looks: list[bool] = []
    seconds: list[float] = []

    def held() -> bool:
        looks.append(len(looks) == 1)
        return looks[-1]

    entries = journal.follow(path, 0, sleep=seconds.append, held=held, clock=lambda: sum(seconds))
    assert next(entries).state == "suite-started"
    with refuses("agent-gone"):
        next(entries)
    # Somebody seen in between makes the patience begin again.
    assert looks == [False, True, False, False, False]
    assert sum(seconds) == 25
    # A suite that is closed ends in order, whoever is there.
    writer.append("suite-failed")
    writer.close()
    states = [e.state for e in journal.follow(path, 0, held=lambda: False)]
    assert states == ["suite-started", "suite-failed"]


def test_records_of_runs_are_sent_before_the_next_switch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as the run finishes: the next one may be measured when it is noticed."""
    lines = [("suite-started", "")]
    lines += [("switching", "a"), ("running", "a"), ("finished", "a")]
    lines += [("running", "b"), ("void", "b"), ("running", "c"), ("finished", "c")]
    lines += [("switching", "d"), ("finished", "d"), ("finished", "gone"), ("suite-finished", "")]
    writer = journal.Journal(tmp_path / "journal.jsonl")
    for state, run_id in lines:
        cause = journal.FAILED if state == "void" else ""
        writer.append(state, run_id, cause=cause)
    writer.close()
    for run_id in "abcd":
        record = {"run_id": run_id, "phases": ["a\nb\u2028c"]}
        (tmp_path / "runs" / run_id).mkdir(parents=True)
        write_json(tmp_path / "runs" / run_id / "run.json", record)

    def followed(start: int) -> list[str]:
        assert cli.main(["follow", "--suite-dir", str(tmp_path), "--from", str(start)]) == 0
        printed = [json.loads(line) for line in capsys.readouterr().out.split("\n")[:-1]]
        assert all(
            document.get("phases", ["a\nb\u2028c"]) == ["a\nb\u2028c"] for document in printed
        )
        return [document.get("state", document["run_id"]) for document in printed]

    states = [state for state, _ in lines]
    assert followed(0) == [*states[:8], "a", "c", *states[8:]]
    assert followed(6) == [*states[6:8], "a", "c", *states[8:]]
    assert followed(8) == ["a", "c", *states[8:]]
    assert followed(9) == states[9:]


def test_a_pack_begins_with_the_sums_of_its_files(tmp_path: Path) -> None:
    suite = tmp_path / "s-1"
    (suite / "runs" / "r1").mkdir(parents=True)
    (suite / "plan.json").write_text("{}")
    (suite / "runs" / "r1" / "run.json").write_bytes(b"\xff" * 3_000_000)
    for hidden in (".reserve", "runs/r1/.run.json.new"):
        (suite / hidden).write_text("x")
    (suite / "link").symlink_to("/etc/passwd")
    packed = tmp_path / "s-1.tar"
    assert cli.main(["pack", "--suite-dir", str(suite), "--out", str(packed)]) == 0
    with tarfile.open(packed) as tar:
        names = tar.getnames()
        content = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    assert names == ["s-1/sums.json", "s-1/plan.json", "s-1/runs/r1/run.json"]
    sums = json.loads(content.pop("s-1/sums.json"))
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}


def test_a_growing_journal_is_packed_with_its_first_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "s-1"
    suite.mkdir()
    path = suite / "journal.jsonl"
    path.write_text("one\n")
    summed = pack._sum

    def sum_before(change: Callable[[], object]) -> None:
        def sums_then_change(file: Path) -> tuple[str, int]:
            sums = summed(file)
            change()
            return sums

        monkeypatch.setattr(pack, "_sum", sums_then_change)

    sum_before(lambda: path.write_text("one\ntwo\n"))
    out = io.BytesIO()
    pack.pack(suite, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert tar.extractfile("s-1/journal.jsonl").read() == b"one\n"  # type: ignore[union-attr]
    sum_before(path.unlink)
    with refuses("packed-file-changed"):
        pack.pack(suite, io.BytesIO())


def test_the_identity_is_unique_and_hides_the_machine_id(tmp_path: Path) -> None:
    id_file = tmp_path / "machine-id"
    id_file.write_text("0123456789abcdef0123456789abcdef\n")
    suite = tmp_path / "suites" / "s-1"
    suite.mkdir(parents=True)
    writer = journal.Journal(suite / "journal.jsonl")
    writer.append("suite-started")
    writer.append("suite-finished")
    writer.close()
    answer = identity.read_identity(tmp_path / "suites", id_file)
    assert answer.journal_lines == {"s-1": 2}
    assert answer.boot_id == journal.boot_id()
    assert id_file.read_text().strip() not in answer.machine_id
    id_file.write_text("another\n")
    assert identity.read_identity(tmp_path / "suites", id_file).machine_id != answer.machine_id
    id_file.write_text("\n")
    with refuses("identity-empty"):
        identity.read_identity(tmp_path / "suites", id_file)


def agent(suite: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the real command, as the service calls it."""
    secrets = ["--secrets", str(suite / "none")]
    argv = [sys.executable, "-m", "agent", "run", "--suite-dir", str(suite), *secrets]
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run(argv, env={**os.environ, **environment}, check=False, **options)


def test_exit_codes_tell_systemd_whether_to_start_again(tmp_path: Path) -> None:
    refused = agent(tmp_path)
    assert refused.returncode == 1 and "cannot be read" in refused.stderr
    (tmp_path / "plan.json").write_text(json.dumps(blocks_document()))
    with lock.suite(tmp_path):
        assert agent(tmp_path).returncode == 1
        assert agent(tmp_path, NOTIFY_SOCKET="/dev/null/none").returncode == cli.BUSY
    # Something that nobody foresaw: the journal is a folder.
    (tmp_path / "journal.jsonl").mkdir()
    by_hand = agent(tmp_path)
    assert by_hand.returncode == cli.UNFORESEEN
    assert "Traceback" not in by_hand.stderr and len(by_hand.stderr.splitlines()) == 1
    service = agent(tmp_path, NOTIFY_SOCKET="/dev/null/none")
    assert service.returncode == cli.UNFORESEEN and "Traceback" in service.stderr
