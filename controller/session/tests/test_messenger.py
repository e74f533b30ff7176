"""Messages to real receivers on loopback: good, dead, slow, lying and full ones."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import socket
import socketserver
import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from contract import strict_json
from contract.messages import Message, Notify, Receiver
from contract.plan import TargetDocument
from contract.status import SuiteStatus
from contract.tests.programs import has_ended, meanwhile, wait_until
from controller.session import delivery, messenger
from controller.session.messenger import Messenger, conditions, send_tests
from controller.session.status import Board
from controller.session.tests.test_status import ENTRIES, PLAN, document
from controller.tests.examples import ANSWER, resolved

MESSAGE = Message(
    "fde-message/1", "void-runs", "s", "target", "2 runs in a row were void", "now", document()
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limits of deliveries for a busy machine."""
    monkeypatch.setattr(delivery.deliver, "__defaults__", (120.0,))
    monkeypatch.setattr(delivery, "ANSWER_S", 60.0)
    monkeypatch.setattr(messenger, "CLOSE_S", 120.0)


class Web(ThreadingHTTPServer):
    """A server that stores what is posted to it and answers `status` once `gate` is open."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        self.posts: list[tuple[Any, bytes]] = []
        self.elsewhere = ""
        self.gate = threading.Event()
        self.gate.set()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.posts.append((self.headers, body))
                owner.gate.wait(60)
                self.send_response(status)
                self.send_header("Location", owner.elsewhere)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


@contextmanager
def served(server: socketserver.BaseServer) -> Iterator[None]:
    with server, meanwhile(lambda: server.serve_forever(0.05), server.shutdown):
        yield


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    with served(server):
        yield server
        server.gate.set()


def secret(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / f"secret-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def hook(folder: Path, url: str, **options: Any) -> Receiver:
    return Receiver(name="hook", kind="webhook", url_file=secret(folder, url), **options)


def notifying(*receivers: Receiver) -> TargetDocument:
    return replace(resolved(), notify=Notify(receivers=receivers))


def test_a_program_receives_the_message_as_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = Receiver(name="p", kind="program", argv=("sh", "-c", f"cat >{out}"))
    assert delivery.deliver(program, MESSAGE) == ""
    assert strict_json.parse(Message, out.read_bytes()) == MESSAGE


def test_a_webhook_is_signed(tmp_path: Path, web: Web) -> None:
    receiver = hook(tmp_path, web.url, key_file=secret(tmp_path, "the key of a webhook"))
    assert delivery.deliver(receiver, MESSAGE) == ""
    ((headers, body),) = web.posts
    digest = hmac.new(b"the key of a webhook", body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
    assert strict_json.parse(Message, body) == MESSAGE


ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"
PACKED = zlib.compressobj(9, wbits=31)
BOMB = b"".join([PACKED.compress(bytes(1 << 20)) for _ in range(500)]) + PACKED.flush()
FILLED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)


@pytest.mark.parametrize("first", [ENDLESS, FILLED + BOMB, b"220 a\r\n" + b"250-x\r\n" * 10])
def test_an_endless_answer_of_a_receiver_is_bounded(first: bytes, tmp_path: Path) -> None:
    """The memory of the delivery's process bounds it for any service."""
    sent: list[int] = []

    class Endless(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(first)
                self.request.recv(1 << 16)
                while first != FILLED + BOMB:
                    self.request.sendall(bytes(1 << 20))
                    sent.append(1)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    with served(server):
        address = f"127.0.0.1:{server.server_address[1]}"
        mail = f"mailto://{address}?mode=insecure&from=a@example.org&to=b@example.org"
        url = mail if first.startswith(b"220") else f"json://{address}/x"
        receiver = Receiver(name="x", kind="apprise", url_file=secret(tmp_path, url))
        assert delivery.deliver(receiver, MESSAGE)
    assert len(sent) < delivery.MOST_MEMORY_BYTES >> 20


@pytest.mark.parametrize("kind", ["webhook", "apprise"])
def test_netrc_logins_and_redirects_reach_no_other_host(
    kind: Any, tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its login in ~/.netrc nor a message that it redirects."""
    (tmp_path / ".netrc").write_text("default login me password hunter2\n", encoding="utf-8")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for answer in (200, 302, 307):
        other = Web(answer)
        other.elsewhere = web.url
        with served(other):
            url = other.url if kind == "webhook" else other.url.replace("http://", "json://")
            receiver = Receiver(name="x", kind=kind, url_file=secret(tmp_path, url))
            assert bool(delivery.deliver(receiver, MESSAGE)) == (answer != 200)
        assert other.posts and not web.posts
        assert all("Authorization" not in headers for headers, _ in other.posts)


def test_ntfy_receives_the_message_by_apprise(tmp_path: Path, web: Web) -> None:
    url = web.url.replace("http://", "ntfy://") + "topic"
    receiver = Receiver(name="phone", kind="apprise", url_file=secret(tmp_path, url))
    answered = replace(MESSAGE, status=document(answer=ANSWER))
    assert delivery.deliver(receiver, answered) == ""
    text = json.loads(web.posts[0][1])
    assert text["title"] == "target: void runs" and "AES-128 +41.0 %" in text["message"]


@pytest.mark.parametrize("kind", ["webhook", "apprise"])
def test_a_readable_secret_is_refused_and_never_shown(kind: Any, tmp_path: Path, web: Web) -> None:
    file = secret(tmp_path, f"{web.url}token-of-the-owner", 0o644)
    reason = delivery.deliver(Receiver(name="x", kind=kind, url_file=file), MESSAGE)
    assert file in reason and "token" not in reason and not web.posts
    dead = Receiver(name="x", kind=kind, url_file=secret(tmp_path, "http://[bad/token"))
    reason = delivery.deliver(dead, MESSAGE)
    assert reason and "token" not in reason


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def bad(kind: str, folder: Path, web: Web) -> Receiver:
    """Return a receiver that is dead, slow, lying, or full."""
    if kind == "dead":
        return hook(folder, f"http://127.0.0.1:{unused_port()}/")
    if kind == "slow":
        web.gate.clear()
        return hook(folder, web.url)
    if kind == "lying":
        return Receiver(name="p", kind="program", argv=("sh", "-c", "echo delivered; exit 3"))
    return Receiver(name="p", kind="program", argv=("sleep", "1000"))  # it reads nothing


BAD = ("dead", "slow", "lying", "full")


def night(folder: Path, target: TargetDocument) -> SuiteStatus:
    """Simulate ten hours of a suite, with a line each ten minutes; return its last status."""
    with Messenger(PLAN.suite_id, target) as sender:
        board = Board(PLAN, folder, lambda _: None, messenger=sender, watts={"system": 1.0})
        entries = []
        for line in range(60):
            entry = ENTRIES[line % len(ENTRIES)]
            t_ns = line * 600 * 10**9
            entries.append(replace(entry, seq=line, t_mono_ns=t_ns))
            board.entry(entries)
            board.announce("power-cycled", "off and on")
        board.close()
    return strict_json.parse(SuiteStatus, (folder / "status" / "status.json").read_bytes())


def without_times(status: SuiteStatus) -> SuiteStatus:
    return replace(status, since_s=0, updated_wall="", ends_wall="", events=(), holder="")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_receiver_changes_no_status_and_is_logged_once(
    kind: str,
    tmp_path: Path,
    web: Web,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A program that fails has failed once it ran; the others are not waited for.
    monkeypatch.setattr(messenger, "CLOSE_S", 60.0 if kind == "lying" else 0.5)
    quiet = night(tmp_path / "quiet", notifying())
    with caplog.at_level(logging.WARNING, "controller"):
        receiver = replace(bad(kind, tmp_path, web), name=kind)
        disturbed = night(tmp_path / "bad", notifying(receiver))
    assert without_times(disturbed) == without_times(quiet)
    # A receiver that was not waited for may fail during another test.
    noted = [record.args for record in caplog.records if record.name == messenger.__name__]
    failures = [args for args in noted if isinstance(args, tuple) and args[0] == kind]
    assert len(failures) == 1, "noted once, whatever failed"


def test_a_bad_receiver_delays_neither_sender_nor_others(tmp_path: Path, web: Web) -> None:
    good = Web()
    with served(good):
        receivers = [bad(kind, tmp_path, web) for kind in BAD]
        sender = Messenger("s", notifying(*receivers, hook(tmp_path, good.url)))
        sender.send("started", "6 runs")
        wait_until(lambda: len(good.posts) == 1 and len(web.posts) == 1)
        sender.send("sealed", "sealed")
        wait_until(lambda: len(good.posts) == 2)
        assert len(web.posts) == 1, "the slow one still has the first"
        events = [json.loads(body)["event"] for _, body in good.posts]
        assert events == ["started", "sealed"]
        web.gate.set()


def test_a_hanging_receiver_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = ("sh", "-c", f"sleep 1000 & echo $! >{pid}; wait")
    receiver = Receiver(name="p", kind="program", argv=hangs)
    assert delivery.deliver(receiver, MESSAGE, 1.0) == "no end in 1 s"
    wait_until(lambda: has_ended(int(pid.read_text())))


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Serve the same bytes to every connection, which is then closed; yield the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with served(server):
        yield int(server.server_address[1])


@pytest.mark.parametrize(
    ("url", "answer", "cause"),
    [
        ("{http}://127.0.0.1:1/token", b"", "connection refused"),
        ("{http}://token.invalid/token", b"", "its host name is unknown"),
        ("{https}://127.0.0.1:{port}/token", b"HTTP/1.1 200 OK\r\n\r\n", "TLS failed"),
        ("{http}://127.0.0.1:{port}/token", b"", "it closed the connection without an answer"),
        ("{http}://127.0.0.1:{port}/token", b"?" * 99, "its answer is not HTTP"),
        ("{http}://127.0.0.1:{port}/token", b"HTTP/1.1 404 No\r\n\r\n", "it answered 404"),
        ("ftp://127.0.0.1/token", b"", "URL"),
    ],
)
@pytest.mark.parametrize("kind", ["webhook", "apprise"])
def test_a_failure_names_its_cause_but_no_url(
    kind: Any, url: str, answer: bytes, cause: str, tmp_path: Path
) -> None:
    schemes = {"http": "json", "https": "jsons"} if kind == "apprise" else {"http": "http"}
    with answering(answer) as port:
        text = url.format_map({"https": "https", **schemes, "port": port})
        receiver = Receiver(name="x", kind=kind, url_file=secret(tmp_path, text))
        reason = delivery.deliver(receiver, MESSAGE)
    assert cause in reason and "token" not in reason


def test_an_untrusted_certificate_is_named() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed (_ssl.c:1)")
    error.verify_message = "self-signed certificate"
    wrapped = ConnectionError(OSError("https://secret"))
    wrapped.__cause__ = error
    assert delivery.cause_of(wrapped) == "its certificate is not trusted (self-signed certificate)"


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_program_that_cannot_be_started_is_named(mode: int | None, tmp_path: Path) -> None:
    program = tmp_path / "hook"
    if mode is not None:
        program.touch(mode)
    receiver = Receiver(name="p", kind="program", argv=(str(program),))
    cause = "was not found" if mode is None else "is not executable"
    assert delivery.deliver(receiver, MESSAGE) == f"its program {program} {cause}"
    lost = Receiver(name="p", kind="program", argv=("no-such-program",))
    assert delivery.deliver(lost, MESSAGE) == "its program no-such-program was not found"


def test_a_missing_program_fails_and_other_events_are_not_sent(tmp_path: Path, web: Web) -> None:
    lost = Receiver(name="lost", kind="program", argv=(str(tmp_path / "none"),))
    picky = hook(tmp_path, web.url, events=("failed",))
    (_, problem), second = send_tests(notifying(lost, picky))
    assert problem == f"its program {tmp_path}/none was not found" and second == ("hook", "")
    assert json.loads(web.posts.pop()[1])["event"] == "test"
    with pytest.raises(KeyError), Messenger("s", notifying(picky)) as sender:
        sender.send("started", "6 runs")
        raise KeyError("disk")
    assert [json.loads(body)["event"] for _, body in web.posts] == ["failed"]


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        ({}, set()),
        ({"void_in_a_row": 1}, set()),
        ({"void_in_a_row": 2}, {"void-runs"}),
        ({"waiting": "it is warm", "waiting_for": "temperature", "since_s": 599.0}, set()),
        ({"waiting": "it is warm", "waiting_for": "temperature", "since_s": 601.0}, {"waiting"}),
        ({"waiting": "its disk is full", "waiting_for": "room", "since_s": 16.0}, {"waiting"}),
        ({"state": "suite-finished"}, {"finished"}),
        ({"answer": ANSWER}, set()),
    ],
)
def test_events_of_a_status(changes: dict[str, Any], events: set[str]) -> None:
    assert set(conditions(document(**changes), Notify())) == events


def test_an_interruption_is_one_event() -> None:
    before, after = document(interrupted=1), document(interrupted=2)
    assert set(conditions(after, Notify(), before)) == {"interrupted"}
    assert not conditions(after, Notify(), after) and not conditions(after, Notify())


def test_a_lasting_event_is_sent_once_and_a_flapping_one_rarely(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = document()
    with Messenger("s", notifying(hook(tmp_path, web.url))) as sender:
        for silent in (True, True, False, True):
            sender.observe(status, {"meter-silent": "m"} if silent else {})
        monkeypatch.setattr(messenger, "PAUSE_S", 0.0)
        for _ in range(2):
            sender.observe(status, {"meter-silent": "again"})
        sender.observe(status, {})
        sender.observe(status, {"target-lost": "t"})
    sent = [strict_json.parse(Message, body) for _, body in web.posts]
    assert [(message.event, message.sentence) for message in sent] == [
        ("meter-silent", "m"),
        ("meter-silent", "again"),
        ("target-lost", "t"),
    ]
    assert sent[0].status == status
