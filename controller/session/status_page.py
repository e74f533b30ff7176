"""The phone's page of a running suite, and status pages over HTTP."""

from __future__ import annotations

import ipaddress
import platform
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from contract import files, strict_json
from contract.errors import ControllerError
from contract.journal import TERMINAL
from contract.places import with_extra
from contract.status import SuiteStatus
from controller.session.metrics import exposition
from controller.session.progress_text import about, answers, counted, minutes, scope
from controller.templates import load_template

RELOAD_S = 5
# The session writes every 5 s, but while it starts or fetches; so much older, it is gone.
STALE_S = 120


def render(status: SuiteStatus) -> str:
    """Return the page of a status; one whose suite has ended reloads no more."""
    filters = minutes, about, counted, answers, scope
    return load_template(Path(__file__).with_name("status.html.j2"), *filters).render(
        status=status,
        state=status.state.replace("-", " "),
        ended=status.state in TERMINAL,
        share=status.finished / status.runs if status.runs else 0.0,
        reload_s=RELOAD_S,
        stale_s=STALE_S,
    )


def write(path: Path, status: SuiteStatus) -> None:
    """Write the page whole, so that a reload never sees half of it."""
    files.write(path, [render(status).encode()], sync=False)


LOCAL = "127.0.0.1"
TYPES = {"index.html": "text/html; charset=utf-8", "status.json": "application/json"}
LIST = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Suites</title>
<style>body {{ font: 18px/2 system-ui, sans-serif; margin: 1rem }}</style>{links}</html>"""


@contextmanager
def served(folders: Mapping[str, Path], where: str) -> Iterator[str]:
    """Serve the suites' status folders, by name, while the context is open; yields the URL.

    `where` is a port, or `address:port`. Raises ControllerError where that cannot be.
    """
    address, port = parse(where)
    try:
        server = _Server((address, port), _handler(folders))
    except (OSError, OverflowError) as error:
        raise ControllerError(
            "page-not-served", address=address, port=port, error=getattr(error, "strerror", error)
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    name = platform.node() if address == "0.0.0.0" else address
    try:
        yield f"http://{name}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse(where: str) -> tuple[str, int]:
    """Address and port of `8080` or `0.0.0.0:8080`; without an address, this machine alone."""
    address, _, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ControllerError("invalid-serve", serve=where)
    return address or LOCAL, int(port)


MOST_CLIENTS = 16
LIMIT_S = 10.0  # for a whole request and its answer


class _Server(ThreadingHTTPServer):
    """Answers so many clients at a time, none for longer than `LIMIT_S`."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.Semaphore(MOST_CLIENTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        limit = threading.Timer(LIMIT_S, _cut, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Ignore a client that went away or was cut; the terminal is the view's."""


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _is_ours(host: str) -> bool:
    """Whether a Host header names this machine.

    By an address, which no other site's page can have as its name, or by its own name.
    """
    name = host.rsplit(":", 1)[0] if re.search(r":\d{1,5}$", host) else host
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    hostname = platform.node().lower()
    return name.lower() in {"localhost", hostname, hostname.partition(".")[0], f"{hostname}.local"}


def _handler(folders: Mapping[str, Path]) -> type[BaseHTTPRequestHandler]:
    """`/name/` is a suite's page; `/` that of the only one, or a list; `/metrics` for programs."""
    routes = {f"{name}/{file}": folders[name] / file for name in folders for file in TYPES}
    if len(folders) == 1:
        routes |= {file: next(iter(folders.values())) / file for file in TYPES}
    links = "".join(f'<div><a href="{escape(n)}/">{escape(n)}</a></div>' for n in folders)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not _is_ours(self.headers.get("Host", "")):
                self.send_error(421)
                return
            path = self.path.partition("?")[0].removeprefix("/")
            if path == "metrics":
                loaded = (
                    strict_json.load(SuiteStatus, at / "status.json") for at in folders.values()
                )
                try:
                    self._send(*exposition(status for status in loaded if status))
                except ModuleNotFoundError:
                    self.send_error(501, f"prometheus-client is missing: {with_extra('metrics')}")
                return
            if not path and len(folders) > 1:
                self._send(LIST.format(links=links).encode(), TYPES["index.html"])
                return
            file = routes.get(path if path.endswith(tuple(TYPES)) else f"{path}index.html")
            try:
                content = file.read_bytes() if file else None
            except OSError:
                content = None
            if file is None or content is None:
                self.send_error(404)
            else:
                self._send(content, TYPES[file.name])

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing: the terminal is the view's."""

    return Handler
