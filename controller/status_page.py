"""The phone's page of a running suite, and status pages over HTTP."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from contract import files
from contract.errors import ControllerError
from contract.journal import TERMINAL
from controller.progress import counted, minutes

RELOAD_S = 5
# The session writes every 5 s, but while it starts or fetches; so much older, it is gone.
STALE_S = 120

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5f6872; --line: #d9dee3; --paper: #fff;
  --bar: #1f6f54; --warn-ink: #7a2a00; --warn: #fde8d8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4ae; --line: #363c43;
  --paper: #15181b; --bar: #4fb58f; --warn-ink: #ffc9a3; --warn: #4a2a14; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 44rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1rem; font-weight: 600; margin: 0; }
.soft, dt, time { color: var(--soft); }
.big { font-size: 1.9rem; font-weight: 650; margin: .9rem 0 0; line-height: 1.15; }
.bar { height: .6rem; border-radius: .3rem; background: var(--line); margin: .9rem 0 .3rem; }
.bar div { height: 100%; border-radius: .3rem; background: var(--bar); }
.warn { background: var(--warn); color: var(--warn-ink); border-radius: .4rem;
  padding: .6rem .8rem; margin: .9rem 0 0; }
dl { display: grid; grid-template-columns: 7.5rem 1fr; margin: 1rem 0; }
dt, dd { margin: 0; padding: .45rem 0; border-top: 1px solid var(--line); }
dd b { font-variant-numeric: tabular-nums; font-weight: 600; }
ul { list-style: none; padding: 0; margin: .3rem 0 1rem; }
li { padding: .45rem 0; border-top: 1px solid var(--line); }
[hidden] { display: none; }
"""

SCRIPT = """
for (const t of document.querySelectorAll("time"))
  t.textContent = new Date(t.dateTime).toLocaleTimeString([], {hour12: false});
const updated = new Date(document.body.dataset.updated);
function age() {
  const seconds = Math.max(0, Math.round((Date.now() - updated) / 1000));
  const text = seconds < 120 ? seconds + " s" : Math.round(seconds / 60) + " min";
  for (const e of document.querySelectorAll(".age")) e.textContent = text;
  document.getElementById("stale").hidden =
    document.body.dataset.ended === "1" || seconds < +document.body.dataset.stale;
}
age(); setInterval(age, 1000);
"""


def render(found: Mapping[str, Any]) -> str:
    """The whole page of a status document; one whose suite has ended reloads no more."""
    ended = found["state"] in TERMINAL
    reload = "" if ended else f'<meta http-equiv="refresh" content="{RELOAD_S}">'
    share = found["finished"] / found["runs"] if found["runs"] else 0.0
    title = f"{share:.0%} {found['suite_id']}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">{reload}
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>
<body data-updated="{escape(found["updated_wall"])}" data-ended="{ended:d}" data-stale="{STALE_S}">
<h1>{escape(found["suite_id"])}</h1>
<div id="stale" class="warn" hidden>Nothing new for <span class="age"></span>: the session on the
controller has ended or hangs. What is below is old.</div>
{_waiting(found)}
<p class="big">{_left(found, ended)}</p>
<div class="bar"><div style="width:{share:.1%}"></div></div>
<div class="soft">{found["finished"]} of {found["runs"]} runs</div>
<dl>{"".join(_row(label, value) for label, value in _rows(found))}</dl>
<h1>Last events</h1>
<ul>{"".join(_event(event) for event in found["events"]) or "<li>none yet</li>"}</ul>
<p class="soft">Updated at {_time(found["updated_wall"])}, <span class="age">?</span> ago,
by {escape(found["holder"])}.</p>
<script>{SCRIPT}</script></body></html>
"""


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write the page whole, so that a reload never sees half of it."""
    files.write(path, [render(found).encode()], sync=False)


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and HTML of each row."""
    rows = [("State", f"{escape(found['state'].replace('-', ' '))}, {minutes(found['since_s'])}")]
    if found["run_index"] is not None:
        rows += [
            ("Configuration", escape(found["configuration"])),
            ("Workload", escape(found["workload"])),
            ("Block", f"{found['block']} of {found['blocks']}"),
            ("Run", f"{found['run_index']} of {found['runs']}"),
        ]
    rows += [("Runs", counted(found))]
    watts = [f"{escape(name)} <b>{power_w:.2f} W</b>" for name, power_w in found["watts"].items()]
    gaps = [f"{escape(name)} {count}" for name, count in found["gaps"].items()]
    return [*rows, ("Power now", _listed(watts)), ("Meter gaps", _listed(gaps))]


def _left(found: Mapping[str, Any], ended: bool) -> str:
    if ended:
        return escape(found["state"].replace("-", " "))
    if found["left_s"] is None:
        return "time left: known after the first run"
    return f"{minutes(found['left_s'])} left, until {_time(found['ends_wall'])}"


def _waiting(found: Mapping[str, Any]) -> str:
    if not found["waiting"]:
        return ""
    return f'<div class="warn">Waiting: {escape(found["waiting"])}</div>'


def _event(event: Mapping[str, str]) -> str:
    return f"<li>{_time(event['wall'])} {escape(event['text'])}</li>"


def _row(label: str, html: str) -> str:
    return f"<dt>{label}</dt><dd>{html}</dd>"


def _time(wall: str) -> str:
    """In UTC; the page's script turns it into the reader's own time."""
    return f'<time datetime="{escape(wall)}">{escape(wall[11:19])} UTC</time>'


def _listed(parts: list[str]) -> str:
    return "<br>".join(parts) or "none"


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
        server = ThreadingHTTPServer((address, port), _handler(folders))
    except (OSError, OverflowError) as error:
        raise ControllerError(
            f"Nothing can be served at {address}:{port} ({getattr(error, 'strerror', error)}): "
            "choose another with SERVE=port or SERVE=address:port."
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    name = platform.node() if address in ("", "0.0.0.0") else address
    try:
        yield f"http://{name}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse(where: str) -> tuple[str, int]:
    """Address and port of `8080` or `0.0.0.0:8080`; without an address, this machine alone."""
    address, colon, port = where.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ControllerError(
            f"SERVE is {where!r}: give a port, or an address and a port, as 8080."
        )
    return (address if colon else LOCAL), int(port)


def _handler(folders: Mapping[str, Path]) -> type[BaseHTTPRequestHandler]:
    """`/name/` is a suite's page; `/` that of the only one, or a list of several."""
    routes = {f"{name}/{file}": folders[name] / file for name in folders for file in TYPES}
    if len(folders) == 1:
        routes |= {file: next(iter(folders.values())) / file for file in TYPES}
    links = "".join(f'<div><a href="{escape(n)}/">{escape(n)}</a></div>' for n in folders)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0].removeprefix("/")
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
            """The terminal is the view's."""

    return Handler
