"""Connect to HOST PORT and pass the socket to the caller, as ssh's ProxyUseFdpass requires.

    python connect.py HOST PORT

Imports only `socket` and `sys`, because ssh starts it for every connection.
"""

import socket
import sys


def main() -> None:
    """Pass the connected socket to the caller; exit with 1 if the connection fails."""
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=8)
    except OSError as error:
        sys.exit(f"{sys.argv[1]} port {sys.argv[2]}: {error}")
    connection.settimeout(None)
    with socket.socket(fileno=1) as caller:
        socket.send_fds(caller, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    main()
