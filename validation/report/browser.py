"""The report in a browser: time to the first paint, and the findings of axe-core.

axe-core is fetched by npm at its pinned version and checksum, once, to the cache; Chromium is the
system's. Both are needed by this benchmark alone. Looked at are the widths of a phone and a desk,
light and dark, with a table sorted and filtered.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from analysis.report.build import build
from validation.bench import Figure, at_most
from validation.synthetic.suite import Options, write_suite

AXE = "4.14.1"
AXE_SHA512 = (
    "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b73"
    "4f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)
CACHE = Path.home() / ".cache" / "fde-testbed"
WIDTHS = {"desk": (1280, 900), "phone": (390, 844)}
MOST_ANSWER_S = 1.0
SHOWN = 400  # characters of a finding

OPENED = """
document.querySelectorAll("details").forEach((one) => { one.open = true; });
document.querySelector(".sort").click();
document.querySelector(".tools input").value = "a";
document.querySelector(".tools input").dispatchEvent(new Event("input"));
"""
# When the first sentence of the answer was painted: the browser's own first contentful paint.
PAINTED = """
new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const entry = list.getEntriesByName("first-contentful-paint")[0];
    if (entry) resolve(entry.startTime);
  }).observe({ type: "paint", buffered: true });
})
"""


@dataclass
class Tab:
    """A page of Chromium, controlled by its DevTools protocol."""

    socket: Connection
    asked: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol. Raises RuntimeError if the browser refuses."""
        self.asked += 1
        request = {"id": self.asked, "method": method, "params": parameters}
        self.socket.send(json.dumps(request))
        while True:
            answer: dict[str, Any] = json.loads(self.socket.recv(timeout=300))
            if answer.get("id") == self.asked:
                break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, awaited. Raises RuntimeError if it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"])[:1000])
        return answer["result"].get("value")

    def open(self, page: Path | str, width: int, height: int, dark: bool = False) -> None:
        """Load a file or an address at this size; returns when it has loaded."""
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)
        loaded = f"complete{address.partition(':')[0]}:"
        while self.evaluate("document.readyState + location.protocol") != loaded:
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """Save the screen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def chromium() -> Iterator[Tab]:
    """Yield a fresh headless browser. Raises RuntimeError if Chromium is not installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise RuntimeError("There is no chromium: install it (apt install chromium).")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += [f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
        process = subprocess.Popen([program, *options], stderr=subprocess.DEVNULL)
        try:
            with connect(_address(Path(profile), process), max_size=None) as socket:
                tab = Tab(socket)
                # As a window that somebody looks at: JupyterLab asks for it.
                tab.call("Emulation.setFocusEmulationEnabled", enabled=True)
                yield tab
        finally:
            process.terminate()
            process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the only page; the system chooses the port."""
    port_file = profile / "DevToolsActivePort"
    while not port_file.exists() or "\n" not in port_file.read_text():
        if process.poll() is not None:
            raise RuntimeError(f"chromium ended with {process.returncode}.")
        time.sleep(0.05)
    port = int(port_file.read_text().splitlines()[0])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
        pages = [page for page in json.load(answer) if page["type"] == "page"]
    return str(pages[0]["webSocketDebuggerUrl"])


def axe() -> str:
    """Return the script. Raises RuntimeError if it cannot be fetched or its sum differs."""
    package = CACHE / f"axe-core-{AXE}.tgz"
    if not package.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"axe-core@{AXE}"]
        npm = shutil.which("npm")
        if npm is None or subprocess.run(command, cwd=CACHE, check=False).returncode:
            raise RuntimeError(f"axe-core {AXE} cannot be fetched: {' '.join(command)} needs npm.")
    content = package.read_bytes()
    if hashlib.sha512(content).hexdigest() != AXE_SHA512:
        raise RuntimeError(f"{package} is not axe-core {AXE}: remove it, and run this again.")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def findings(tab: Tab) -> list[str]:
    """Return axe-core's findings in the tab, a line each."""
    tab.evaluate(axe())
    result = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{violation['impact']}: {violation['id']}: {violation['help']}: {node['html']}"[:SHOWN]
        for violation in result["violations"]
        for node in violation["nodes"]
    ]


def measure(quick: bool = False) -> list[Figure]:
    """Measure the report of a small suite; in full at both widths and in both colours."""
    with tempfile.TemporaryDirectory() as folder, chromium() as tab:
        suite = Path(folder) / "suite"
        write_suite(suite, Options(blocks=2, interval_ms=100) if quick else Options())
        return of_page(tab, build(suite).page, quick)


def of_page(tab: Tab, page: Path, quick: bool) -> list[Figure]:
    """Return the figures of one page, looked at before and after the script `OPENED`."""
    violations: list[str] = []
    painted_s = 0.0
    for width, height in list(WIDTHS.values())[: 1 if quick else None]:
        for dark in (False, True)[: 1 if quick else None]:
            tab.open(page, width, height, dark)
            painted_s = max(painted_s, float(tab.evaluate(PAINTED)) / 1000)
            violations += findings(tab)
            tab.evaluate(OPENED)
            violations += findings(tab)
    for line in dict.fromkeys(violations):
        print(line)
    return [
        at_most("findings of axe-core in the report", len(violations), "", 0),
        at_most("to the first paint of the report", painted_s, "s", MOST_ANSWER_S),
    ]
