"""Delivery of one message to one receiver, by a separate process that has a time limit.

A webhook gets the message as JSON by POST; with a key, `X-Hub-Signature-256` is the HMAC-SHA256 of
the body as GitHub's webhooks have it (docs.github.com, Validating webhook deliveries). All other
services are Apprise's: ntfy, SMTP and some hundred more, by one URL each (appriseit.com).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract import names, private, schema, strict_json, system_text
from contract.errors import AgentError
from contract.installation import with_extra
from contract.messages import Message, Receiver
from contract.places import module_command
from controller.session.progress_text import changes, compact

LIMIT_S = 30.0
ANSWER_S = 10.0
MOST_MEMORY_BYTES = 300 << 20  # of a delivery's process, with Apprise's own modules
MOST_ANSWER_BYTES = 1 << 20


def deliver(receiver: Receiver, message: Message, limit_s: float = LIMIT_S) -> str:
    """Deliver a message to a receiver; return why that failed, empty if it did not.

    timeout(1) enforces the limit, as it outlives this process.
    """
    # It contains no secret: these are in the files that it names.
    described = strict_json.dumps(schema.write(receiver), None)
    program = receiver.argv[0] if receiver.argv else "timeout"
    if not shutil.which(program):
        is_present = "/" in program and Path(program).exists()
        return f"its program {program} {'is not executable' if is_present else 'was not found'}"
    argv = receiver.argv or module_command("controller.session.delivery", described)
    completed = subprocess.run(
        ["timeout", "--signal=KILL", f"{limit_s:g}", *argv],
        input=strict_json.dumps(schema.write(message)).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if receiver.argv else subprocess.PIPE,
        start_new_session=True,
        check=False,
    )
    if not completed.returncode:
        return ""
    if completed.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"no end in {limit_s:g} s"
    lines = system_text.decode(completed.stderr or b"").splitlines()
    return lines[-1] if lines else f"it ended with {completed.returncode}"


@functools.cache
def _confine_requests() -> None:
    """Make requests follow no redirect, send no login of ~/.netrc and read a short answer only.

    For all of this process, because Apprise's services have no such options.
    """
    import requests

    read = requests.Response.iter_content

    def read_little(self: requests.Response, *args: Any, **options: Any) -> Iterator[Any]:
        read_bytes = 0
        for part in read(self, *args, **options):
            read_bytes += len(part)
            if read_bytes > MOST_ANSWER_BYTES:
                raise requests.ConnectionError("the answer is too long")
            yield part

    requests.Response.iter_content = read_little  # type: ignore[method-assign]
    requests.Session.get_redirect_target = lambda *_: None  # type: ignore[method-assign]
    requests.sessions.get_netrc_auth = lambda *_, **__: None  # type: ignore[attr-defined]


def _post(receiver: Receiver, message: Message, url: str) -> str:
    import requests

    _confine_requests()
    body = strict_json.dumps(schema.write(message)).encode()
    headers = {"Content-Type": "application/json"}
    if receiver.key_file:
        key = private.read_secret(Path(receiver.key_file)).encode()
        digest = hmac.new(key, body, hashlib.sha256).hexdigest()
        headers["X-Hub-Signature-256"] = f"sha256={digest}"
    try:
        with requests.post(
            url, body, headers=headers, timeout=ANSWER_S, allow_redirects=False, stream=True
        ) as response:
            status = response.status_code
    except (requests.RequestException, ValueError) as error:
        return cause_of(error)
    return "" if 200 <= status < 300 else f"it answered {status}"


_CAUSES = {  # by the name of a class in Python, requests and urllib3
    "SSLCertVerificationError": "its certificate is not trusted ({})",
    "SSLError": "TLS failed ({})",
    "gaierror": "its host name is unknown, or no name server answers ({})",
    "ConnectionRefusedError": "connection refused: nothing listens on its port",
    "TimeoutError": "no answer in time",
    "Timeout": "no answer in time",
    "ReadTimeoutError": "no answer in time",
    "ConnectionResetError": "it closed the connection without an answer",
    "RemoteDisconnected": "it closed the connection without an answer",
    "SMTPServerDisconnected": "it closed the connection without an answer",
    "SMTPAuthenticationError": "it refused the login",
    "HTTPException": "its answer is not HTTP",
    "HeaderParsingError": "its answer is not HTTP",
    "InvalidSchema": "its URL is invalid: it must begin with https:// or http://",
    "MissingSchema": "its URL is invalid: it must begin with https:// or http://",
    "InvalidURL": "its URL is invalid",
    "LocationParseError": "its URL is invalid",
    "OSError": "no connection ({})",
}


def cause_of(error: BaseException) -> str:
    """Return the cause of an error in words, without its text, which may quote a secret URL.

    It is that of the innermost error which has one: libraries wrap those of sockets several times.
    """
    chain: list[BaseException] = []
    following: list[object] = [error]
    for entry in following:
        if isinstance(entry, BaseException) and entry not in chain:
            chain.append(entry)
            following += [*entry.args, getattr(entry, "reason", None)]
            following += [entry.__cause__, entry.__context__]
    names_of = [[kind.__name__ for kind in type(entry).__mro__] for entry in chain]
    by_proxy = "at the proxy: " if any("ProxyError" in kinds for kinds in names_of) else ""
    for name, words in _CAUSES.items():
        for entry, kinds in zip(chain, names_of, strict=True):
            detail = getattr(entry, "verify_message", "") or getattr(entry, "strerror", "")
            detail = detail or getattr(entry, "reason", "")
            if name in kinds and ((isinstance(detail, str) and detail) or "{}" not in words):
                return by_proxy + words.format(str(detail).partition(",")[0])
    return f"no answer ({type(error).__name__})"


class _Causes(logging.Handler):
    """Keep the causes of Apprise's failures, which it only logs while it handles an error.

    The records themselves are dropped, because they quote URLs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.causes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        status = re.search(r"error=(\d{3})\b", record.getMessage())
        if error is not None:
            self.causes.append(cause_of(error))
        elif status:
            self.causes.append(f"it answered {status[1]}")


def _send_by_apprise(message: Message, url: str) -> str:
    from apprise import Apprise

    _confine_requests()
    logger, handler = logging.getLogger("apprise"), _Causes()
    logger.propagate, logger.handlers = False, [handler]
    service = Apprise()
    if not service.add(url):
        return "its URL is none that Apprise knows"
    status = message.status
    lines = [message.sentence, *([compact(status)] if status else [])]
    lines += [f"so far {changes(status.answer)}"] if status and status.answer else []
    title = f"{message.host}: {message.event.replace('-', ' ')}"
    body = "\n".join(map(names.sentence, lines))
    if service.notify(title=title, body=body):
        return ""
    return next(iter(handler.causes), "it was not accepted")


def main(described: str) -> int:
    """Deliver the message on standard input; if that fails, print the reason and return 1."""
    private.no_core_dumps()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    receiver = strict_json.parse(Receiver, described)
    message = strict_json.parse(Message, sys.stdin.buffer.read())
    try:
        url = private.read_secret(Path(receiver.url_file))
        if receiver.kind == "webhook":
            reason = _post(receiver, message, url)
        else:
            reason = _send_by_apprise(message, url)
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed: {with_extra('notify')}"
    except AgentError as error:
        reason = str(error)
    except MemoryError:
        reason = f"its answer takes more than {MOST_MEMORY_BYTES >> 20} MiB of memory"
    if reason:
        print(reason, file=sys.stderr)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
