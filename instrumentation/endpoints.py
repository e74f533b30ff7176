"""Addresses of meters on a network, and the certificates that are trusted there."""

from __future__ import annotations

import contextlib
import errno
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from contract.installation import with_extra
from contract.private import expanded
from instrumentation.ports import PortError

OPEN_LIMIT_S = 2.0  # for a connection
_USUAL_PORTS = {"http": 80, "https": 443}


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities, or only those of a file.

    Raises OSError, of which ssl.SSLError is one.
    """
    context = ssl.create_default_context(cafile=expanded(ca_file) if ca_file else None)
    if ca_file:  # certificates that small devices sign themselves lack what strictness asks for
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@contextlib.contextmanager
def explain_certificates() -> Iterator[None]:
    """Raise PortError, with the remedy, for a certificate that is not accepted."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        way = "give the file of its authority's certificates, or its own, as ca_file"
        if "mismatch" in error.verify_message:
            way = "name the host as its certificate does"
        cause = f"its certificate is not accepted ({error.verify_message.rstrip('.')}): {way}"
        raise PortError(errno.EPROTO, cause) from None


@contextlib.contextmanager
def explain_missing(extra: str) -> Iterator[None]:
    """Raise PortError, with the remedy, if a library of this extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        cause = f"this Python lacks {error.name}, which it needs: {with_extra(extra)}"
        raise PortError(errno.ENOPKG, cause) from None


def endpoint(address: str) -> tuple[str, int, bool]:
    """Return host and port of a URL, and whether it uses TLS."""
    url = urlsplit(address)
    return url.hostname or "", url.port or _USUAL_PORTS[url.scheme], url.scheme.endswith("s")
