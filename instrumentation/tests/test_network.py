"""Test meters on a network with servers on loopback and the recorder."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from contract.documents import RecorderStatus
from contract.places import ROOT
from contract.plan import MeterEntry
from contract.tests.refusal import refuses
from instrumentation import recorder
from instrumentation.clock import monotonic_ns
from instrumentation.decode import decode
from instrumentation.meters import registry
from instrumentation.meters.answers import Answer, Answers
from instrumentation.meters.base import Meter
from instrumentation.network import VisaTransport, recognise_plug
from instrumentation.recorder import Recorder
from instrumentation.recorder_port import RecorderError, driver_of, parse_meter
from instrumentation.tests.meter_helpers import an_entry, kinds, read_status
from instrumentation.tests.simulators.http import HttpSimulator
from instrumentation.tests.simulators.networked import Live, NetworkSimulator, Server, TcpServer
from instrumentation.tests.simulators.scpi import ScpiSimulator
from instrumentation.tests.simulators.wt310 import WT310Simulator
from instrumentation.trace import Fault
from instrumentation.transports import Transport, open_meter

HOST = "127.0.0.1"
REFRESH_S = 0.2
WATTS = 100.3
SECRET = "admin:corr&ct horse"


@contextlib.contextmanager
def on_the_network(
    simulator: NetworkSimulator, port: int = 0, secret: str = "", **tls: ssl.SSLContext | None
) -> Iterator[Server]:
    """Serve a simulator in real time."""
    server = simulator.serve(HOST, port, secret, **tls)
    live = Live(simulator, [WATTS] * len(simulator.channels))
    try:
        yield server
    finally:
        live.close()
        server.close()


def a_config(simulator: NetworkSimulator, address: str, **settings: Any) -> MeterEntry:
    named = {"name": "plug", "channels": {key: f"ch_{key}" for key in simulator.channels}}
    described = {**simulator.settings, **settings}
    return parse_meter(an_entry(address, simulator.kind, settings=described, **named))


def recorded(config: MeterEntry, out: Path, until: Callable[[RecorderStatus], bool]) -> str:
    """Record until the status meets a condition; return the recorder's summary."""

    def stopped() -> bool:
        status = read_status(out / "status.json")
        return status is not None and until(status)

    return Recorder(config, out, out / "status.json").run(stopped)


def records(count: int) -> Callable[[RecorderStatus], bool]:
    return lambda status: status.records >= count


def secret_file(folder: Path, text: str = SECRET, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_text(text + "\n")
    path.chmod(mode)
    return str(path)


def in_no_file(secret: str, folder: Path) -> bool:
    """Return whether no file below a folder contains the secret or a half of it."""
    parts = [part.encode() for part in (secret, *secret.split(":")) if part != "admin"]
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert files
    return not any(part in data for part in parts for data in files)


@contextlib.contextmanager
def the_wire(config: MeterEntry) -> Iterator[tuple[Meter, Transport]]:
    meter = driver_of(config)
    meter.opened()
    transport = open_meter(config.port, 0, meter)
    try:
        yield meter, transport
    finally:
        transport.close()


def until_heard(
    meter: Meter, transport: Transport, condition: Callable[[list[float], list[Fault]], bool]
) -> tuple[list[float], list[Fault]]:
    """Ask and read until powers and faults meet a condition."""
    watts: list[float] = []
    faults: list[Fault] = []
    while not condition(watts, faults):
        now_ns = monotonic_ns()
        if request := meter.request(now_ns):
            transport.write(request)
            meter.on_request_sent(request, now_ns)
        t_ns, data = transport.read(0.02)
        fed = meter.feed(data, t_ns)
        watts += fed.rows.power_w[:, 0].tolist()
        faults += fed.faults
    return watts, faults


SIMULATORS: dict[str, Callable[[], NetworkSimulator]] = {
    **{
        profile: lambda profile=profile: HttpSimulator(profile, refresh_s=REFRESH_S)  # type: ignore[misc]
        for profile in (
            *("shelly-gen1", "shelly-gen1-em", "shelly-switch", "shelly-pm1", "shelly-em"),
            *("shelly-em1", "tasmota", "home-assistant", "generic"),
        )
    },
    "scpi": lambda: ScpiSimulator(refresh_s=REFRESH_S),
}


@pytest.mark.parametrize("name", SIMULATORS)
def test_every_networked_meter_is_recorded_and_decoded(name: str, tmp_path: Path) -> None:
    simulator = SIMULATORS[name]()
    with on_the_network(simulator) as server:
        summary = recorded(a_config(simulator, server.address), tmp_path / "plug", records(4))
    samples = decode(tmp_path / "plug").samples
    assert summary.startswith("plug: ") and samples.height >= 4
    step_w = 1.0 if name == "tasmota" else 0.1
    for column in samples.select("^power_w_.*$"):
        assert abs(column[-1] - WATTS) <= step_w / 2 + 1e-9
    assert set(samples["window_s"]) == {REFRESH_S}
    described = json.loads((tmp_path / "plug" / "meter.json").read_text())
    assert (described["timing"], described["arrival_delay_limit_s"]) == ("poll", REFRESH_S + 0.5)
    gain = next(term for term in described["accuracy"]["terms"] if term["name"] == "gain")
    assert (gain["limit"], gain["source"]) == (None, "not stated")


LOGINS = {
    "shelly-gen1": SECRET,
    "shelly-switch": SECRET,
    "tasmota": SECRET,
    "home-assistant": "eyJhbGciOi.long-lived.token",
}


@pytest.mark.parametrize("profile", LOGINS)
def test_logins_work_and_appear_in_no_file(profile: str, tmp_path: Path) -> None:
    plug, secret = HttpSimulator(profile, refresh_s=REFRESH_S), LOGINS[profile]
    with on_the_network(plug, secret=secret) as server:
        config = a_config(plug, server.address, secret_file=secret_file(tmp_path, secret))
        recorded(config, tmp_path / "plug", records(2))
        wrong = a_config(plug, server.address, secret_file=secret_file(tmp_path, "not:it"))
        with the_wire(wrong) as wire:
            watts, (fault,) = until_heard(*wire, lambda _, faults: bool(faults))
    assert (fault.kind, watts) == ("configuration", [])
    assert "wants a login (401 Unauthorized): check " in fault.detail
    assert in_no_file(secret, tmp_path / "plug")


def test_a_missing_login_is_refused(tmp_path: Path) -> None:
    plug = HttpSimulator("tasmota", refresh_s=REFRESH_S)
    with on_the_network(plug, secret=SECRET) as server, refuses("wiring-refused"):
        recorded(a_config(plug, server.address), tmp_path / "plug", records(1))


def test_a_wrong_profile_is_a_configuration_fault() -> None:
    plug = HttpSimulator("tasmota", refresh_s=REFRESH_S)
    with (
        on_the_network(plug) as server,
        the_wire(a_config(plug, server.address, profile="shelly-em1")) as wire,
    ):
        _, (fault,) = until_heard(*wire, lambda _, faults: bool(faults))
    assert fault.kind == "configuration"
    assert "nothing at /rpc/EM1.GetStatus?id=0 (404 Not Found): check profile" in fault.detail


def test_busy_and_silent_devices_leave_faults_and_a_gap() -> None:
    plug = HttpSimulator(refresh_s=REFRESH_S)
    with (
        on_the_network(plug) as server,
        the_wire(a_config(plug, server.address, answer_limit_s=1)) as wire,
    ):
        until_heard(*wire, lambda watts, _: len(watts) >= 2)
        plug.broken = True
        _, faults = until_heard(*wire, lambda _, faults: len(faults) >= 2)
        assert faults[0].detail == "the meter answers 503 Service Unavailable"
        plug.broken, plug.silent = False, True  # the connection closes without an answer
        _, faults = until_heard(*wire, lambda _, faults: len(faults) >= 2)
        assert any("no HTTP" in fault.detail for fault in faults)
        plug.silent, plug.delay_s = False, 2.5  # longer than is waited for
        _, faults = until_heard(*wire, lambda _, faults: bool(faults))
        assert [fault.kind for fault in faults if fault.kind != "no-data"] == ["timeout"]
        plug.delay_s = 0.0
        watts, faults = until_heard(*wire, lambda watts, _: len(watts) >= 2)
        assert "gap" in [fault.kind for fault in faults]
        assert watts[-1] == WATTS


def test_a_slow_answer_is_flagged_late_and_does_not_block() -> None:
    """A slow plug is asked one question at a time, and each answer is flagged `late`."""
    plug = HttpSimulator(refresh_s=REFRESH_S, delay_s=0.7)
    with on_the_network(plug) as server, the_wire(a_config(plug, server.address)) as wire:
        meter, transport = wire
        late = 1 << meter.flag_words.index("late")
        flags: list[int] = []
        faults: list[Fault] = []
        reads = 0
        while len(flags) < 3:
            now_ns = monotonic_ns()
            if request := meter.request(now_ns):
                transport.write(request)
                meter.on_request_sent(request, now_ns)
            t_ns, data = transport.read(0.05)
            reads += not data
            fed = meter.feed(data, t_ns)
            flags += fed.rows.flags.tolist()
            faults += fed.faults
    assert all(flag & late for flag in flags)
    assert {fault.kind for fault in faults} == {"gap"}
    assert reads > 4 * len(flags)  # the recorder was not held up for an answer


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_dribbling_answer_times_out_and_the_next_is_whole(is_tls: bool, tmp_path: Path) -> None:
    plug = HttpSimulator(refresh_s=REFRESH_S)
    context = a_certificate(tmp_path, x509.IPAddress(ip_address(HOST)))
    settings = {"answer_limit_s": 0.6, "ca_file": str(tmp_path / "ca.pem") if is_tls else ""}
    with (
        on_the_network(plug, tls=context if is_tls else None) as server,
        the_wire(a_config(plug, server.address, **settings)) as wire,
    ):
        until_heard(*wire, lambda watts, _: len(watts) >= 2)
        plug.dribbles, plug.delay_s = True, 0.2
        _, faults = until_heard(*wire, lambda _, faults: bool(faults))
        assert [fault.kind for fault in faults] == ["timeout"]
        plug.dribbles, plug.delay_s = False, 0.0
        watts, faults = until_heard(*wire, lambda watts, _: len(watts) >= 2)
    assert watts[-1] == WATTS
    assert kinds(faults).count("timeout") <= 1  # some 14 s more were to come
    assert "gap" in kinds(faults)


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    plug, other = (HttpSimulator(refresh_s=REFRESH_S) for _ in range(2))
    with on_the_network(other) as other_server, on_the_network(plug) as server:
        plug.elsewhere = other_server.address
        config = a_config(plug, server.address)
        with refuses("wiring-refused"):
            recorded(config, tmp_path / "plug", records(1))


CHALLENGES = [
    ("SHA-256", None),
    ("SHA-256", ""),
    ("SHA-256", "5ccc069c"),
    ("MD5", None),
    ("MD5", ""),
    ("Basic", None),
]


@pytest.mark.parametrize("profile", ["shelly-gen1", "shelly-pm1", "generic"])
@pytest.mark.parametrize(("challenge", "opaque"), CHALLENGES)
def test_the_requested_login_scheme_is_used(
    challenge: str, opaque: str | None, profile: str, tmp_path: Path
) -> None:
    plug = HttpSimulator(profile, refresh_s=REFRESH_S, challenge=challenge, opaque=opaque)
    with on_the_network(plug, secret=SECRET) as server:
        right = a_config(plug, server.address, secret_file=secret_file(tmp_path))
        with the_wire(right) as wire:
            watts, faults = until_heard(
                *wire, lambda watts, faults: len(watts) >= 2 or "configuration" in kinds(faults)
            )
        wrong = a_config(plug, server.address, secret_file=secret_file(tmp_path, "admin:no"))
        with the_wire(wrong) as wire:
            _, (refused,) = until_heard(*wire, lambda _, faults: bool(faults))
    if profile == "shelly-pm1" and challenge == "Basic":  # whoever asks this is no such Shelly
        assert "configuration" in kinds(faults) and not watts
    else:
        assert not set(kinds(faults)) - {"gap"}
        assert watts[-1] == pytest.approx(WATTS, abs=0.051)
    assert refused.kind == "configuration"


def answered_logins(
    folder: Path, *challenges: str, profile: str = "generic", questions: int = 1
) -> list[bytes]:
    """Return the requests that a device receives which refuses them with these challenges."""
    heard: list[bytes] = []
    # Who is not told that the connection ends may ask on it again before its end has come.
    refusal = "HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\nWWW-Authenticate: "

    def serve(listener: socket.socket) -> None:
        for challenge in challenges:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(1 << 16))
                connection.sendall(f"{refusal}{challenge}\r\n\r\n".encode())

    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(60)
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        login = {"secret_file": secret_file(folder), "answer_limit_s": 60}  # on a busy machine
        config = a_config(HttpSimulator(profile), address, **login)
        meter = driver_of(config)
        transport = open_meter(config.port, 0, meter)
        listener.accept()[0].close()  # whether it is there at all
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        for _ in range(questions):
            transport.write(meter.request(0))
            _, data = transport.read(meter.answer_limit_s)
            assert b" 401 No\n" in data
        transport.close()
        thread.join()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # and nothing more
            listener.accept()
    return heard


@pytest.mark.parametrize(
    ("challenge", "is_answered"),
    [
        ('qop="auth", algorithm=SHA-256', True),
        ('qop="auth-int, auth", algorithm=MD5', True),
        ('qop="auth", algorithm=SHA-512-256', False),  # not known to the library
        ('qop="auth-int", algorithm=MD5', False),
    ],
)
def test_a_digest_challenge_never_gets_the_password(
    challenge: str, is_answered: bool, tmp_path: Path
) -> None:
    """The password is never sent by Basic, neither before the challenge nor after it."""
    challenges = [f'Digest realm="r", nonce="n", {challenge}'] * (1 + is_answered)
    heard = answered_logins(tmp_path, *challenges)
    assert [b"response=" in request for request in heard] == [False, *[True] * is_answered]
    assert not any(in_clear(request) for request in heard)


def in_clear(request: bytes) -> bool:
    return b"Basic" in request or SECRET.partition(":")[2].encode() in request


def test_basic_after_digest_never_gets_the_password(tmp_path: Path) -> None:
    """Digest is required by the profile or was asked for: an impostor then asks for Basic."""
    digest, basic = 'Digest realm="r", nonce="n", qop="auth"', 'Basic realm="r"'
    changed = answered_logins(tmp_path, digest, digest, basic, questions=2)
    assert not any(in_clear(request) for request in changed)
    (shelly,) = answered_logins(tmp_path, basic, profile="shelly-switch")
    assert not in_clear(shelly)
    assert in_clear(answered_logins(tmp_path, basic, basic)[1])  # where nothing else is known


def test_a_tasmota_with_a_password_is_recognised_as_locked() -> None:
    class Locked(HttpSimulator):
        def answer(self, request: str) -> tuple[str, bytes]:
            if "/cm?" not in request:
                return "404 Not Found", b""
            return "200 OK", b'{"WARNING": "Need user=<username>&password=<password>"}'

    with on_the_network(Locked("tasmota")) as server, pytest.raises(OSError, match="wants a login"):
        recognise_plug(server.address)


def a_certificate(folder: Path, name: x509.GeneralName) -> ssl.SSLContext:
    """Return a server's TLS context; write its certificate to `ca.pem` in the folder.

    A certificate that it has signed itself.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plug")])
    start = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(start - timedelta(days=1))
        .not_valid_after(start + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


def test_a_self_signed_certificate_needs_ca_file(tmp_path: Path) -> None:
    plug = HttpSimulator(refresh_s=REFRESH_S)
    context = a_certificate(tmp_path, x509.IPAddress(ip_address(HOST)))
    with on_the_network(plug, tls=context) as server:
        assert server.address.startswith("https://")
        with refuses("address-refused"):
            recorded(a_config(plug, server.address), tmp_path / "wrong", records(1))
        ca_file = str(tmp_path / "ca.pem")
        recorded(a_config(plug, server.address, ca_file=ca_file), tmp_path / "plug", records(2))


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    plug = HttpSimulator(refresh_s=REFRESH_S)
    context = a_certificate(tmp_path, x509.DNSName("plug.example"))
    with on_the_network(plug, tls=context) as server:
        config = a_config(plug, server.address, ca_file=str(tmp_path / "ca.pem"))
        with refuses("address-refused"):
            recorded(config, tmp_path / "plug", records(1))


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("empty.pem", "none.pem"):
        with refuses("no-certificates"):
            a_config(HttpSimulator(), "https://plug.invalid", ca_file=str(tmp_path / name))


@pytest.mark.parametrize(
    ("settings", "answer", "part"),
    [
        ({}, b"<!DOCTYPE html><html>Please log in</html>", "Please log in"),
        ({}, b'{"state": "12,5"}', "12,5"),
        ({"counter": False}, b'{"errors": ["power_meter_failure"]}', "power_meter_failure"),
    ],
)
def test_an_unreadable_answer_is_refused_with_the_drivers_reason(
    settings: dict[str, Any], answer: bytes, part: str, tmp_path: Path
) -> None:
    class Odd(HttpSimulator):
        def answer(self, request: str) -> tuple[str, bytes]:  # noqa: ARG002 - always the same
            return "200 OK", answer

    plug = Odd("generic", refresh_s=REFRESH_S)
    power = {"power": "/state", "stamp": None, "energy": None, "path": "/"}
    with on_the_network(plug) as server, pytest.raises(RecorderError) as refused:
        config = a_config(plug, server.address, **power, **settings)
        recorded(config, tmp_path / "plug", records(1))
    assert part in str(refused.value)
    assert str(refused.value).startswith(f"plug at {server.address} gives no readings: ")
    assert "@" not in str(refused.value)  # our envelope


@pytest.mark.parametrize("name", ["shelly-switch", "scpi"])
def test_a_device_that_vanishes_is_lost_and_reopened(name: str, tmp_path: Path) -> None:
    plug, out = SIMULATORS[name](), tmp_path / "plug"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(on_the_network(plug))
        port = int(re.findall(r"\d+", server.address)[-1])
        times: list[int] = []

        def until(status: RecorderStatus) -> bool:
            if status.records >= 2 and not times:
                stack.close()
                times.append(status.records)
            if status.state == "lost" and len(times) == 1:
                times.append(0)
                stack.enter_context(on_the_network(plug, port))
            return len(times) == 2 and status.records > times[0] + 2

        recorded(a_config(plug, server.address), out, until)
    samples = decode(out).samples
    assert samples["epoch"].max() >= 2  # type: ignore[operator]


def test_an_unreachable_address_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: the connection is refused
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        addresses = {
            "shelly-switch": f"http://{HOST}:{port}",
            "scpi": f"TCPIP::{HOST}::{port}::SOCKET",
        }
        for name, address in addresses.items():
            with refuses("no-answer") as refused:
                recorded(a_config(SIMULATORS[name](), address), tmp_path / name, records(1))
            assert "is it on, and its address right?" in str(refused.value)
            assert "Ports here" not in str(refused.value)


def test_a_device_without_answers_is_silent(tmp_path: Path) -> None:
    meter = ScpiSimulator(refresh_s=REFRESH_S)
    meter.silent = True
    with on_the_network(meter) as server, refuses("address-silent"):
        recorded(a_config(meter, server.address), tmp_path / "plug", records(1))


def test_scpi_commands_are_sent_at_both_ends(tmp_path: Path) -> None:
    meter = ScpiSimulator(refresh_s=REFRESH_S)
    with on_the_network(meter) as server:
        assert not meter.running
        recorded(a_config(meter, server.address), tmp_path / "plug", records(3))
        while meter.running:  # the command is on its way
            pass
    assert not meter.running


@contextlib.contextmanager
def an_instrument(answers: Callable[[bytes], bytes]) -> Iterator[VisaTransport]:
    """Connect to an instrument that answers each line."""
    server = TcpServer(answers, HOST, 0)
    try:
        with contextlib.closing(VisaTransport(server.address, framed=True, limit_s=0.2)) as wire:
            yield wire
    finally:
        server.close()


def ask(wire: VisaTransport, query: bytes = b":MEAS?\n") -> list[str]:
    wire.write(query)
    return [a.body.decode() for a in Answers().add(wire.read(0)[1], 0) if isinstance(a, Answer)]


@pytest.mark.parametrize("knows_opc", [True, False])
def test_answers_to_another_client_are_discarded(*, knows_opc: bool) -> None:
    count = itertools.count(60)
    stale = [b"1.0\n2.0\n"]

    def answer(line: bytes) -> bytes:
        answered = b"1\n" if knows_opc and line == b"*OPC?\n" else b"%d\n" % next(count)
        return (stale.pop() if stale else b"") + answered

    with an_instrument(answer) as wire:
        (first,), (second,) = ask(wire), ask(wire)
    assert int(first) >= 60
    assert int(second) == int(first) + 1 == next(count) - 1


def test_the_answer_to_a_query_with_a_parameter_is_read() -> None:
    with an_instrument(lambda line: b"1\n" if line == b"*OPC?\n" else b"61.3\n") as wire:
        assert ask(wire, b":MEAS:ALL? CH1\n") == ["61.3"]


def test_a_late_answer_is_not_that_of_the_next_question() -> None:
    count = itertools.count(60)

    def answer(line: bytes) -> bytes:
        if line == b"*OPC?\n":
            return b"1\n"
        power_w = next(count)
        time.sleep(0.3 if power_w == 60 else 0)
        return b"%d\n" % power_w

    with an_instrument(answer) as wire:
        assert [ask(wire), ask(wire), ask(wire)] == [[], ["61"], ["62"]]


def test_an_instrument_whose_answers_are_one_question_late_is_refused() -> None:
    answers = collections.deque([b"60.0\n"])

    def answer(line: bytes) -> bytes:
        answers.append(b"1\n" if line == b"*OPC?\n" else b"61.0\n")
        return answers.popleft()

    with pytest.raises(OSError, match="belong to earlier questions"), an_instrument(answer):
        pass


def test_a_yokogawa_is_recorded_over_a_socket(tmp_path: Path) -> None:
    """The serial driver reads the unchanged bytes of a socket with a VISA name."""
    meter = WT310Simulator(rate_s=0.1)
    lock = threading.Lock()

    def respond(line: bytes) -> bytes:
        with lock:
            return meter.receive(line)

    server = TcpServer(respond, HOST, 0)
    over = threading.Event()

    def play() -> None:
        periods = 0
        while not over.wait(meter.period_s):
            periods += 1
            with lock:
                server.send(meter.advance(np.array([[WATTS * periods * meter.period_s]])))

    thread = threading.Thread(target=play)
    thread.start()
    try:
        named = {"channels": {"1": "system"}, "settings": dict(meter.settings)}
        config = parse_meter(an_entry(server.address, "wt310", **named))
        recorded(config, tmp_path / "mains", records(5))
    finally:
        over.set()
        thread.join()
        server.close()
    assert abs(decode(tmp_path / "mains").samples["power_w_system"][-1] - WATTS) < 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"port": "http://admin:secret@plug"}, "put it into secret_file"),
        ({"port": "http://plug/?token=secret@"}, "put it into secret_file"),
        (
            {"settings": {"profile": "generic", "path": "/w?id=1&api_key=secret@"}},
            "put it into secret_file",
        ),
        ({"port": "http://plug/status"}, "names no meter"),
        ({"port": "ftp://plug"}, "is not at ftp://plug"),
        ({"port": "TCPIP::plug"}, "names no meter"),
        ({"port": "ipmi://plug"}, "name http://HOST or https://HOST as its port"),
        ({"port": "/dev/ttyUSB0"}, "is not at /dev/ttyUSB0"),
        ({"kind": "smartpower3", "settings": {}}, "name a serial port as its port"),
        ({"settings": {}}, "profile"),
        ({"settings": {"profile": "generic", "path": "/x"}}, "period_s"),
        ({"settings": {"profile": "tasmota", "secret_file": "/dev/null/none"}}, "cannot be read"),
    ],
)
def test_wrong_entries_are_refused_without_a_request(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual: dict[str, Any] = {"port": "http://plug.invalid", "kind": "http", "origin": "measured"}
    usual |= {"channels": {"0": "system"}, "settings": {"profile": "tasmota"}}
    out = tmp_path / "plug"
    assert recorder.main(["--meter", an_entry(**{**usual, **changes}), "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("fde: ") and error.count("\n") == 1
    assert "secret@" not in error
    assert not out.exists()


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    plug = HttpSimulator("tasmota")
    with refuses("secret-unusable"):
        a_config(plug, "http://plug", secret_file=secret_file(tmp_path, mode=0o640))


def test_every_networked_kind_has_a_simulated_server() -> None:
    """Each kind with only network addresses is tested above."""
    tried = {make().kind for make in SIMULATORS.values()}
    assert tried == {
        kind
        for kind in registry.kinds()
        if "port" not in registry.load(kind).addresses
        and registry.load(kind).__module__.startswith("instrumentation.")
    }


def test_a_missing_library_is_named_with_its_extra() -> None:
    """Run a Python without the library."""
    described = {"channels": {"0": "system"}, "settings": {"profile": "shelly-switch"}}
    entry = an_entry("http://127.0.0.1:1", "http", origin="measured", **described)
    program = (
        "import sys; sys.modules['requests'] = None\n"
        "from instrumentation.network import open_network_meter\n"
        "from instrumentation.recorder_port import driver_of, parse_meter\n"
        "entry = parse_meter(sys.argv[1])\n"
        "try: open_network_meter(entry.port, driver_of(entry))\n"
        "except OSError as error: print(error)"
    )
    words = [sys.executable, "-c", program, entry]
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "lacks requests" in process.stdout and "run `" in process.stdout
