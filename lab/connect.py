"""Connects to HOST PORT and hands its caller the socket, as ssh's ProxyUseFdpass wants it.

    python connect.py HOST PORT

Imports nothing but `socket`: ssh starts it for every connection.
"""

import socket
import sys


def main() -> None:
    """End with 1 where nothing listens."""
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=8)
    except OSError as error:
        sys.exit(f"{sys.argv[1]} port {sys.argv[2]}: {error}")
    connection.settimeout(None)
    with socket.socket(fileno=1) as caller:
        socket.send_fds(caller, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    main()
