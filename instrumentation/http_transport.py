"""The connection to a meter that answers HTTP, with the logins that such devices ask for."""

from __future__ import annotations

import base64
import contextlib
import http.client
import queue
import re
import socket
import threading
from urllib.parse import quote, urlsplit

from requests.auth import HTTPDigestAuth
from requests.utils import parse_dict_header

from instrumentation.clock import monotonic_ns
from instrumentation.endpoints import OPEN_LIMIT_S, endpoint, explain_certificates, tls_context
from instrumentation.meters.answers import MOST_BODY_BYTES, envelope


class HttpTransport:
    """A meter that answers HTTP; each request has one connection, for small devices allow few.

    A thread sends the requests, so that a device that answers slowly, or byte by byte, blocks no
    caller. An answer that is incomplete after `limit_s`, or arrives after a later question, is
    discarded. Redirections are not followed: they might send the secret elsewhere.
    """

    def __init__(
        self,
        address: str,
        *,
        login: str,
        secret: str = "",
        ca_file: str = "",
        limit_s: float = 10.0,
    ) -> None:
        self.limit_s = limit_s
        self._host, self._port, is_tls = endpoint(address)
        self._context = tls_context(ca_file) if is_tls else None
        self._login, self._secret = login, secret
        self._only_digest = login == "digest"  # or once the device asked for it
        self._authorization = f"Bearer {secret}" if secret and login == "bearer" else ""
        with explain_certificates():
            self._connect(OPEN_LIMIT_S).close()
        self._count = 0  # questions so far
        self._questions: queue.SimpleQueue[tuple[int, int, str] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, int, bytes | OSError]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport`."""
        with contextlib.suppress(queue.Empty):
            number, t_ns, answer = self._answers.get(timeout=wait_s)
            if isinstance(answer, OSError):
                raise answer
            if number == self._count:
                return t_ns, answer
        return monotonic_ns(), b""

    def write(self, data: bytes) -> None:
        for line in data.decode("ascii").splitlines():
            self._count += 1
            self._questions.put((self._count, monotonic_ns(), line.removeprefix("GET ")))

    def close(self) -> None:
        self._questions.put(None)

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            number, asked_ns, path = question
            if number < self._count:
                continue  # given up for a later one
            answer: bytes | OSError
            try:
                answer = self._answer(path, asked_ns + round(self.limit_s * 1e9))
            except OSError as error:
                answer = error
            if answer:
                self._answers.put((number, monotonic_ns(), answer))

    def _answer(self, path: str, until_ns: int) -> bytes:
        """Return the whole answer in its envelope; empty if it does not arrive in time.

        Raises OSError if the device cannot be reached.
        """
        user, _, password = self._secret.partition(":")
        if self._secret and self._login == "tasmota":
            path += f"&user={quote(user, safe='')}&password={quote(password, safe='')}"
        label, body, challenge = self._get(path, until_ns)
        if "digest" in challenge.lower():
            self._only_digest = True
        asks = self._login in ("password", "digest") and label.startswith("401 ")
        if asks and self._secret and not self._authorization:
            login = _digest(challenge, user, password, path)
            if not login and not self._only_digest:  # else the password is never sent as it is
                encoded = base64.b64encode(f"{user}:{password}".encode())
                login = self._authorization = f"Basic {encoded.decode()}"
            if login:
                label, body, _ = self._get(path, until_ns, login)
        return envelope(label, body) if label else b""

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        """Return an open connection. Raises OSError."""
        host, port, wait_s = self._host, self._port, min(limit_s, OPEN_LIMIT_S)
        connection = (
            http.client.HTTPConnection(host, port, wait_s)
            if self._context is None
            else http.client.HTTPSConnection(host, port, timeout=wait_s, context=self._context)
        )
        connection.connect()
        return connection

    def _get(self, path: str, until_ns: int, authorization: str = "") -> tuple[str, bytes, str]:
        """Ask once; return status, body and challenge, all empty if the time is over.

        Raises OSError if the device cannot be reached. No text of an exception is used: it may
        contain the address with the secret that was added to it.
        """
        limit_s = max((until_ns - monotonic_ns()) / 1e9, 0.001)
        headers = {"Connection": "close", "Accept": "*/*"}
        if authorization or self._authorization:
            headers["Authorization"] = authorization or self._authorization
        try:
            connection = self._connect(limit_s)
        except TimeoutError:
            return "", b"", ""
        wire = connection.sock  # which the connection hands over to its response

        def end() -> None:
            """End the connection under its reader: its own timeout is from byte to byte.

            As a plain socket: that of TLS would drop what its reader is about to use.
            """
            with contextlib.suppress(OSError):
                socket.socket.shutdown(wire, socket.SHUT_RDWR)

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            connection.sock.settimeout(limit_s)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            label, body = f"{response.status} {response.reason}", _body(response)
            target = urlsplit(response.headers.get("Location", ""))
            if target.netloc:
                label += f" to {target.scheme}://{target.netloc}"
            challenge = ", ".join(response.headers.get_all("WWW-Authenticate", []))
        except (OSError, ValueError, http.client.HTTPException) as error:
            label, body, challenge = f"no HTTP: {type(error).__name__}", b"", ""
        finally:
            timer.cancel()
            connection.close()
        return ("", b"", "") if monotonic_ns() > until_ns else (label, body, challenge)


def _body(response: http.client.HTTPResponse) -> bytes:
    """Return the body up to the size limit. Raises HTTPException if it is not whole."""
    body = b""
    if response.chunked:  # one part at a time: `read` takes a chunk of size -1 for endless
        while len(body) <= MOST_BODY_BYTES and (part := response.read1(MOST_BODY_BYTES)):
            body += part
    else:
        body = response.read(MOST_BODY_BYTES + 1)
        if len(body) <= MOST_BODY_BYTES and response.length:
            raise http.client.IncompleteRead(body)
    return body


def _digest(challenge: str, user: str, password: str, path: str) -> str:
    """Return the answer to a Digest challenge (RFC 7616); empty if the library has none.

    Two faults of the library are corrected: it does not accept spaces in a list of qualities of
    protection, and omits an empty `opaque` that must be returned all the same. Each request gets a
    fresh answer, for some firmware requires nc=00000001.
    """
    match = re.search(r"digest (.*)", challenge, re.IGNORECASE)
    fields = parse_dict_header(match[1]) if match else {}
    if not {"realm", "nonce"} <= fields.keys():
        return ""
    if qualities := fields.get("qop"):
        fields["qop"] = qualities.replace(" ", "")
    digest = HTTPDigestAuth(user, password)
    digest._thread_local.__dict__.update(chal=fields, last_nonce="", nonce_count=0)
    answer = digest.build_digest_header("GET", f"http://{path}") or ""
    return answer + ', opaque=""' if answer and fields.get("opaque") == "" else answer
