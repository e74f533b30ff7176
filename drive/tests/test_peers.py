"""A drive on a shared machine: its port on the loopback is for its own user and root alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from drive import options, peers
from drive.initiator import Initiator
from drive.options import UsageError
from drive.peers import refusal, unknown_hosts
from drive.tests.process import NQN, Drive

NOBODY = 65534
# A host in a few words: ICReq, and how many bytes came back.
HOST = (
    "import socket,sys;s=socket.create_connection(('127.0.0.1',int(sys.argv[1])));"
    "s.sendall(bytes([0,0,128,0,128])+bytes(123));s.settimeout(30)\n"
    "try: print(len(s.recv(128)))\n"
    "except ConnectionError: print(0)"
)
PYTHON = "/usr/bin/python3"


def as_nobody(port: int) -> str:
    """Return what a second user of this machine gets."""
    if os.geteuid() != 0:
        pytest.skip("only root can be a second user (setpriv --reuid)")
    if shutil.which("setpriv") is None or not Path(PYTHON).exists():
        pytest.skip(f"setpriv (Debian package util-linux) or {PYTHON} is missing")
    second = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    result = subprocess.run(
        [*second, PYTHON, "-IS", "-c", HOST, str(port)],
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    return result.stdout.strip()


def test_another_user_is_refused_and_named_in_the_log(plain: Drive) -> None:
    assert as_nobody(plain.port) == "0"
    assert f"connection refused: user {NOBODY} may not use this drive" in plain.log()
    assert plain.io().read(0, 1).status == 0, "its own user continues"


@pytest.mark.parametrize("allowed", [str(NOBODY), "nobody", "all"])
def test_another_user_may_be_allowed(plain: Drive, allowed: str) -> None:
    plain.kill()
    plain.words = ["--allow-user", allowed]
    plain.start()
    assert as_nobody(plain.port) == "128", "an ICResp"
    assert ("every user of this machine can use this drive" in plain.log()) is (allowed == "all")


def test_an_unknown_user_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no-such-user.*give a name, a number or all"):
        options.parse([str(tmp_path / "x"), "--size", "1M", "--allow-user", "no-such-user"])


@pytest.fixture(params=[("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)], ids=["v4", "v6"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection on the loopback: ours and the host's."""
    host, family = request.param
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")
    with listener, socket.create_connection(listener.getsockname()[:2]) as theirs:
        ours, _ = listener.accept()
        with ours:
            yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def test_the_owner_is_found_while_the_host_holds_its_end(pair: Pair) -> None:
    ours, theirs = pair
    me = os.geteuid()
    assert refusal(ours, {me}) is None
    assert refusal(ours, {me + 1}) == f"user {me} may not use this drive"
    theirs.sendall(b"all that it has to say")
    theirs.shutdown(socket.SHUT_WR)
    assert refusal(ours, {me}) is None, "half closed, it is still its user's"
    theirs.close()
    assert "is unknown" in str(refusal(ours, {0, me})), "not root's"
    assert refusal(ours, None) is None


def test_other_connections_of_an_allowed_user_are_not_taken_for_it(pair: Pair) -> None:
    ours, theirs = pair
    local, host = ours.getsockname()[:2], theirs.getsockname()[:2]
    assert peers.owner(ours.family, host, local) == os.geteuid()
    assert peers.owner(ours.family, (host[0], host[1] ^ 1), local) is None
    assert peers.owner(ours.family, host, (local[0], local[1] ^ 1)) is None
    assert peers.owner(ours.family, local, (host[0], host[1] ^ 1)) is None, "not the listener's"


def test_the_kernels_answer_and_its_table_agree(pair: Pair) -> None:
    ours, theirs = pair
    ends = ours.family, theirs.getsockname()[:2], ours.getsockname()[:2]
    if (answer := peers._query_kernel(*ends)) is None:
        pytest.skip("this kernel has no tcp_diag")
    assert answer == peers._read_table(*ends)
    assert answer[0] == os.geteuid()
    assert answer[1] == os.fstat(theirs.fileno()).st_ino


def test_hosts_without_a_user_check_give_a_warning_at_start(plain: Drive) -> None:
    me = frozenset({os.geteuid()})
    assert unknown_hosts("127.0.0.1", me) is None
    assert unknown_hosts("127.9.9.9", me) is None
    assert unknown_hosts("localhost", me) is None
    assert "can use this drive" not in plain.log()
    plain.kill()
    plain.words = ["--address", "0.0.0.0"]
    plain.start()
    assert "whoever reaches 0.0.0.0 from another machine can use this drive" in plain.log()
    assert as_nobody(plain.port) == "0", "on this machine users are checked all the same"
    Initiator(plain.port, NQN).close()
