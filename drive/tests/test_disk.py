"""The NVMe side of the running process, for both kinds of disk."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drive import stats
from drive.initiator import Initiator
from drive.nvme_tcp import COMMON, IC, PDU_C2H_TERM, ProtocolError, parse_header
from drive.tests import process
from drive.tests.process import NQN, SIZE_BYTES, Drive

KINDS = pytest.mark.parametrize(
    ("opal", "block_bytes"), [(False, 4096), (False, 512), (True, 4096), (True, 512)]
)
MakeDrive = Callable[..., Drive]


@given(st.binary(min_size=8, max_size=8))
def test_any_header_raises_nothing_but_a_protocol_error(data: bytes) -> None:
    try:
        header = parse_header(data)
    except ProtocolError:
        return
    assert header.header_bytes <= header.total_bytes <= (1 << 20) + 256


@KINDS
def test_identify_returns_the_command_lines_values(
    make_drive: MakeDrive, opal: bool, block_bytes: int
) -> None:
    drive = make_drive(opal, block_bytes)
    admin = drive.connect()
    data = admin.identify(1)
    assert data[4:24] == b"SERIAL0001".ljust(20) and data[24:64] == b"fde-test-model".ljust(40)
    assert struct.unpack_from("<H", data, 78)[0] == admin.controller_id
    assert bool(data[256] & 1) is opal  # the kernel's only gate to Opal
    assert data[768:1024].rstrip(b"\0") == NQN.encode()
    namespace = admin.identify(0, nsid=1)
    assert struct.unpack_from("<Q", namespace)[0] * block_bytes == SIZE_BYTES
    assert 1 << namespace[130] == block_bytes
    descriptors = admin.identify(3, nsid=1)
    assert descriptors[0:2] == b"\x02\x10" and descriptors[20:22] == b"\x03\x10"
    assert descriptors[24:40] == namespace[104:120] != bytes(16)
    assert struct.unpack_from("<II", admin.identify(2)) == (1, 0)


@pytest.mark.parametrize("rpm", [0, 7200])
def test_only_a_disk_that_turns_identifies_as_one(make_drive: MakeDrive, rpm: int) -> None:
    drive = make_drive(False, 4096)
    times = {"read_mib_s": 100, "settle_ms": 1, "full_seek_ms": 9} if rpm else {}
    assert drive.ask("behave", rpm=rpm, **times)["ok"]
    admin = drive.connect()
    capabilities = admin.run(0x7F, 0x04, cdw10=1, cdw11=0).result
    asked = admin.run(0x06, 1, read_bytes=4096, cdw10=8)
    assert capabilities >> 60 & 1 == (asked.status == 0) == bool(rpm)
    assert not rpm or (asked.data[0], asked.data[14]) == (1 << 4, 1)


@KINDS
def test_a_second_namespace_is_a_separate_disk_on_the_same_drive(
    make_drive: MakeDrive, opal: bool, block_bytes: int
) -> None:
    second_bytes = 8 << 20
    drive = make_drive(opal, block_bytes, second_bytes)
    admin = drive.connect()
    assert struct.unpack_from("<III", admin.identify(2)) == (1, 2, 0)
    sizes = [struct.unpack_from("<Q", admin.identify(0, nsid=n))[0] for n in (1, 2)]
    assert [size * block_bytes for size in sizes] == [SIZE_BYTES - second_bytes, second_bytes]
    names = {bytes(admin.identify(3, nsid=n)[4:20]) for n in (1, 2)}
    assert len(names) == 2 and bytes(16) not in names
    assert admin.run(0x06, 3, read_bytes=4096, cdw10=0).status != 0

    queue = drive.io()
    first, second = os.urandom(block_bytes), os.urandom(block_bytes)
    assert queue.run(0x01, 1, first).status == queue.run(0x01, 2, second).status == 0
    assert queue.run(0x02, 1, read_bytes=block_bytes).data == first
    assert queue.run(0x02, 2, read_bytes=block_bytes).data == second
    for nsid, size in enumerate(sizes, 1):
        beyond = queue.run(0x02, nsid, read_bytes=block_bytes, cdw10=size)
        last = queue.run(0x01, nsid, first, cdw10=size - 1)
        assert beyond.status != 0 and last.status == 0
    assert queue.run(0x02, 2, read_bytes=block_bytes).data == second
    assert queue.run(0x02, 3, read_bytes=block_bytes).status != 0
    discarded = queue.run(0x09, 2, struct.pack("<4xIQ", 1, 0), cdw11=4)
    assert discarded.status == 0
    assert queue.run(0x02, 1, read_bytes=block_bytes).data == first


@KINDS
@pytest.mark.parametrize("in_capsule_bytes", [1 << 20, 8192])
def test_written_data_is_read_back(
    make_drive: MakeDrive, opal: bool, block_bytes: int, in_capsule_bytes: int
) -> None:
    drive = make_drive(opal, block_bytes)
    queue = drive.io(in_capsule_bytes=in_capsule_bytes)
    for lba, size in ((0, block_bytes), (3, 8192), (100, 1 << 20), (9, 65536 + block_bytes)):
        data = os.urandom(size)
        assert queue.write(lba, data, block_bytes).status == 0
        assert queue.read(lba, size // block_bytes, block_bytes).data == data
    assert drive.io().read(9, 1, block_bytes).data == data[:block_bytes]
    counted = stats.read(drive.path("stats"))
    assert counted["bytes_written"] == block_bytes + 8192 + (1 << 20) + 65536 + block_bytes
    assert counted["reads"] == 5 and counted["writes"] == 4 and counted["busy_ns"] > 0
    encrypted = counted["bytes_written"] if opal else 0
    decrypted = counted["bytes_read"] if opal else 0
    assert (counted["bytes_encrypted"], counted["bytes_decrypted"]) == (encrypted, decrypted)


@KINDS
def test_zeroes_and_deallocation(make_drive: MakeDrive, opal: bool, block_bytes: int) -> None:
    drive = make_drive(opal, block_bytes)
    queue = drive.io()
    data = os.urandom(1 << 20)
    blocks = len(data) // block_bytes
    assert queue.write(0, data, block_bytes).status == 0
    assert queue.run(0x08, 1, cdw10=8, cdw12=7).status == 0  # Write Zeroes
    expected = data[: 8 * block_bytes] + bytes(8 * block_bytes) + data[16 * block_bytes :]
    assert queue.read(0, blocks, block_bytes).data == expected
    before = drive.path("disk.img").stat().st_blocks
    trim = struct.pack("<IIQ", 0, blocks, 0)
    assert queue.run(0x09, 1, trim, cdw10=0, cdw11=4).status == 0
    assert drive.path("disk.img").stat().st_blocks < before
    if not opal:
        assert queue.read(0, blocks, block_bytes).data == bytes(len(data))


def test_a_wrong_command_gets_its_status_and_the_queue_continues(make_drive: MakeDrive) -> None:
    drive = make_drive(opal=False)
    queue, last = drive.io(), SIZE_BYTES // 4096
    assert queue.read(last, 1).status == 0x4080
    assert queue.write(last - 1, bytes(8192)).status == 0x4080
    assert queue.run(0x01, 1, bytes(4096), cdw12=1).status == 0x400F  # data for one of two blocks
    assert queue.run(0x02, 1, read_bytes=4096, cdw12=1).status == 0x400F
    assert queue.run(0x02, 2, read_bytes=4096).status == 0x400B
    assert queue.run(0x55, 1).status == 0x4001
    assert queue.run(0x09, 1, struct.pack("<IIQ", 0, 2, last - 1), cdw11=4).status == 0x4080
    assert queue.read(last - 1, 1).status == 0
    admin = drive.connect()
    assert admin.run(0x06, read_bytes=4096, cdw10=0x55).status == 0x4002
    assert admin.security_receive(1, 1).status == 0x4001  # a plain disk has no security commands


def test_a_wrong_name_or_controller_is_not_connected(make_drive: MakeDrive) -> None:
    drive = make_drive(opal=False)
    other = Initiator(drive.port, NQN + "x")
    assert other.connect_status == 0x4182
    assert other.run(0x06, read_bytes=4096, cdw10=1).status == 0x400C
    assert drive.connect(queue_id=1, controller_id=77).connect_status == 0x4182
    other.close()


@pytest.mark.parametrize(
    "sent",
    [
        bytes(128),
        b"\x04" + bytes(127),
        COMMON.pack(0, 0, 128, 0, 64) + bytes(120),
        IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + b"\x09\0\x18\0\x18\0\0\0",
        IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + COMMON.pack(4, 0, 72, 0, 1 << 31),
        IC.pack(0, 0, 128, 0, 128, 0, 0, 0, 0) + COMMON.pack(6, 0, 24, 24, 28) + bytes(20),
    ],
    ids=["zeroes", "no-icreq", "short-icreq", "not-a-host-pdu", "huge", "unasked-data"],
)
def test_a_protocol_error_ends_only_its_own_connection(make_drive: MakeDrive, sent: bytes) -> None:
    drive = make_drive(opal=False)
    queue = drive.io()
    with socket.create_connection(("127.0.0.1", drive.port), timeout=30) as sock:
        sock.sendall(sent)
        received = b""
        while part := sock.recv(4096):
            received += part
    assert received[-24] == PDU_C2H_TERM
    assert queue.read(0, 1).status == 0


def test_closing_an_admin_queue_ends_its_controllers_queues(make_drive: MakeDrive) -> None:
    drive = make_drive(opal=False)
    admin = drive.connect()
    queue = drive.connect(queue_id=1, controller_id=admin.controller_id)
    other = drive.io()
    admin.close()
    with pytest.raises(OSError):
        for _ in range(1000):
            queue.read(0, 1)
    assert other.read(0, 1).status == 0


@pytest.mark.parametrize("opal", [False, True])
def test_a_disk_of_a_tebibyte_serves_its_last_block(
    make_drive: MakeDrive, monkeypatch: pytest.MonkeyPatch, opal: bool
) -> None:
    monkeypatch.setattr(process, "SIZE_BYTES", 1 << 40)
    drive = make_drive(opal)
    queue, last = drive.io(), (1 << 40) // 4096 - 1
    data = os.urandom(4096)
    assert queue.write(last, data).status == 0
    assert queue.read(last, 1).data == data
    assert queue.read(last, 2).status == 0x4080
    assert queue.read(last - 1, 2).data[4096:] == data
    assert drive.path("disk.img").stat().st_blocks < 1024


def test_more_writes_than_buffers_are_asked_for_in_turn(make_drive: MakeDrive) -> None:
    queue = make_drive(opal=False).io(in_capsule_bytes=0)
    data = {lba: os.urandom(8192) for lba in range(0, 128, 2)}
    for lba, part in data.items():
        queue.submit(0x01, 1, part, cdw10=lba, cdw12=1)
    # A command that needs no data is not held up by them, and leaves them as they are.
    queue.submit(0x02, 1, read_bytes=4096, cdw10=500)
    ended = [queue.complete() for _ in range(len(data) + 1)]
    assert all(completion.status == 0 for _, completion in ended)
    assert queue.read(0, 128).data == b"".join(data.values())


def test_a_read_fills_the_hosts_buffer(make_drive: MakeDrive) -> None:
    queue = make_drive(opal=False).io()
    data, target = os.urandom(8192), memoryview(bytearray(16384))
    assert queue.write(5, data).status == 0
    queue.submit(0x02, 1, read_bytes=8192, into=target, cdw10=5, cdw12=1)
    assert queue.complete()[1] == (0, 0, b"")
    assert target.tobytes() == data + bytes(8192)
