"""The wire to a meter that answers HTTP, with the logins that such devices ask for."""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import queue
import socket
import threading
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth, HTTPDigestAuth
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError, ReadTimeoutError

from contract.private import expanded
from instrumentation.clock import monotonic_ns
from instrumentation.endpoints import OPEN_LIMIT_S, certificates_explained, endpoint, trusted
from instrumentation.meters.answers import MOST_BODY_BYTES, envelope

_UNAUTHORIZED = 401
_MOST_BYTES = 4 * MOST_BODY_BYTES  # of an answer with its headers and what encodes it


class HttpTransport:
    """One request, one connection: small devices have few.

    A thread asks, so that a device that answers slowly, or byte by byte, blocks no caller. An
    answer that is not whole within `limit_s`, or comes after another question, is none. A
    redirection is not followed: it might lead the secret elsewhere.
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
        self._base = address.rstrip("/")
        self._login, self._secret = login, secret
        self._basic: HTTPBasicAuth | None = None
        self._only_digest = login == "digest"  # or once it was asked for
        self._session = requests.Session()
        self._session.trust_env = False  # a device beside us: no proxy, no .netrc
        self._session.headers.update({"Connection": "close", "Accept": "*/*"})
        host, port, is_tls = endpoint(address)
        context = trusted(ca_file) if is_tls else None
        self._session.mount(address.partition(":")[0] + "://", _Adapter(context))
        if context is not None:
            self._session.verify = str(expanded(ca_file)) if ca_file else True
        with (
            certificates_explained(),
            socket.create_connection((host, port), OPEN_LIMIT_S) as connection,
        ):
            if context is not None:
                context.wrap_socket(connection, server_hostname=host).close()
        self._asked = 0  # questions so far
        self._paths: queue.SimpleQueue[tuple[int, int, str] | None] = queue.SimpleQueue()
        self._came: queue.SimpleQueue[tuple[int, int, bytes | OSError]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def read(self, wait_s: float) -> tuple[int, bytes]:
        """See `Transport`."""
        with contextlib.suppress(queue.Empty):
            number, t_ns, answer = self._came.get(timeout=wait_s)
            if isinstance(answer, OSError):
                raise answer
            if number == self._asked:
                return t_ns, answer
        return monotonic_ns(), b""

    def write(self, data: bytes) -> None:
        for line in data.decode("ascii").splitlines():
            self._asked += 1
            self._paths.put((self._asked, monotonic_ns(), line.removeprefix("GET ")))

    def close(self) -> None:
        self._paths.put(None)

    def _work(self) -> None:
        while (asked := self._paths.get()) is not None:
            number, asked_ns, path = asked
            if number < self._asked:
                continue  # given up for a later one
            until_ns = asked_ns + round(self.limit_s * 1e9)
            answer: bytes | OSError
            try:
                answer = self._answer(path, until_ns)
            except OSError as error:
                answer = error
            if answer:
                self._came.put((number, monotonic_ns(), answer))
        self._session.close()

    def _answer(self, path: str, until_ns: int) -> bytes:
        """Return the whole answer in its envelope, nothing where it does not come in time.

        Raises OSError where there is no connection. No text of an exception is kept: it may have
        the address with what was added to it.
        """
        try:
            response = self._ask(path, until_ns)
            with contextlib.closing(response):
                body = _body(response, until_ns)
            label = f"{response.status_code} {response.reason}"
            target = urlsplit(response.headers.get("Location", ""))
            if target.netloc:
                label += f" to {target.scheme}://{target.netloc}"
        except (requests.Timeout, ReadTimeoutError):
            return b""
        except Exception as error:  # noqa: BLE001 - the libraries' parsers raise what they meet
            reason = getattr(error.args[0] if error.args else None, "reason", None)
            if isinstance(reason, NewConnectionError):
                cause = reason.__cause__
                raise cause if isinstance(cause, OSError) else _gone() from None
            if isinstance(error, requests.exceptions.SSLError):
                raise _gone() from None
            return envelope(f"no HTTP: {type(_innermost(error)).__name__}", b"")
        return b"" if body is None else envelope(label, body)

    def _ask(self, path: str, until_ns: int) -> requests.Response:
        auth: Any = None
        headers = {}
        if self._secret and self._login == "bearer":
            headers["Authorization"] = f"Bearer {self._secret}"
        user, _, password = self._secret.partition(":")
        if self._secret and self._login == "tasmota":
            path += f"&user={quote(user, safe='')}&password={quote(password, safe='')}"
        elif self._secret and self._login in ("password", "digest"):
            auth = self._basic or _Digest(user, password)
        response = self._get(path, headers, auth, until_ns)
        challenge = response.headers.get("WWW-Authenticate", "").lower()
        self._only_digest = self._only_digest or "digest" in challenge
        if (
            response.status_code == _UNAUTHORIZED
            and isinstance(auth, _Digest)
            and not self._only_digest  # else the password is not sent as it is
        ):
            response.close()
            self._basic = HTTPBasicAuth(user.encode(), password.encode())
            response = self._get(path, headers, self._basic, until_ns)
        return response

    def _get(
        self, path: str, headers: dict[str, str], auth: Any, until_ns: int
    ) -> requests.Response:
        left_s = max((until_ns - monotonic_ns()) / 1e9, 0.001)
        return self._session.get(
            self._base + path,
            headers=headers,
            auth=auth,
            timeout=(min(left_s, OPEN_LIMIT_S), left_s),
            allow_redirects=False,
            stream=True,
        )


class _Digest(HTTPDigestAuth):
    """Answers a challenge (RFC 7616) as the library does, with two of its faults corrected.

    The library knows no spaces in a list of qualities of protection, and leaves out an `opaque`
    that is empty but must come back all the same. A fresh one for each request: some firmware wants
    nc=00000001.
    """

    def build_digest_header(self, method: str, url: str) -> str | None:
        challenge = self._thread_local.chal
        if "qop" in challenge:
            challenge["qop"] = challenge["qop"].replace(" ", "")
        header = super().build_digest_header(method, url)
        if header is not None and challenge.get("opaque") == "":
            header += ', opaque=""'
        return header


class _BoundedReader(io.RawIOBase):
    """The bytes of one answer: `_MOST_BYTES` at most, all within the socket's timeout.

    The libraries read on for as long as anything comes, and count the timeout from byte to byte.
    """

    def __init__(self, connection: socket.socket, file: io.BufferedIOBase) -> None:
        self._connection, self._file = connection, file
        self._until_ns = monotonic_ns() + round((connection.gettimeout() or OPEN_LIMIT_S) * 1e9)
        self._left_bytes = _MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read once; raises TimeoutError, or HTTPException where there is too much."""
        left_ns = self._until_ns - monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError
        if self._left_bytes <= 0:
            raise http.client.LineTooLong("answer")
        with contextlib.suppress(OSError):  # closed by now; what it still holds is read
            self._connection.settimeout(left_ns / 1e9)
        data = self._file.read1(min(len(buffer), self._left_bytes))
        buffer[: len(data)] = data
        self._left_bytes -= len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.fp = io.BufferedReader(_BoundedReader(sock, self.fp))


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    """With the authorities to trust, and answers that are bounded."""

    def __init__(self, context: Any) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        if self._context is not None:
            more["ssl_context"] = self._context
        super().init_poolmanager(*arguments, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


def _body(response: requests.Response, until_ns: int) -> bytes | None:
    """Return what came of the body, no more than is kept; None where it did not end in time."""
    body = b""
    while len(body) <= MOST_BODY_BYTES:
        part = response.raw.read1(MOST_BODY_BYTES, decode_content=True)
        if not part:
            return body
        body += part
        if monotonic_ns() > until_ns:
            return None
    return body


def _innermost(error: BaseException) -> BaseException:
    """Return the exception of a library's library, of which others are made."""
    inner = next((each for each in error.args if isinstance(each, BaseException)), None)
    return error if inner is None else _innermost(inner)


def _gone() -> OSError:
    return OSError(errno.ECONNREFUSED, "no connection")
