"""The NVMe controller: fabrics, admin and I/O commands on top of a connection."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable

from . import identify, status
from .behaviour import Timing
from .faults import Kind
from .media import AccessDeniedError
from .nvme_tcp import Command, Connection
from .opal import uids
from .status import CommandError
from .subsystem import Controller, Subsystem

_SENDFILE_FROM_BYTES = 32 * 1024
_ALL_NAMESPACES = 0xFFFFFFFF
_WRITE, _READ, _ZEROES, _DATASET = 0x01, 0x02, 0x08, 0x09
_CAPABILITIES = (identify.QUEUE_ENTRIES - 1) | 1 << 16 | 60 << 24 | 1 << 37
# Ready independent of media: with it hosts ask for the namespace's kind (CNS 08h).
_READY_MODES = 1 << 60


class Queue:
    """One queue pair, admin or I/O; `connected` is called when a host has connected."""

    def __init__(
        self, subsystem: Subsystem, connection: Connection, connected: Callable[[], None]
    ) -> None:
        self._subsystem = subsystem
        self._connection = connection
        self._config = subsystem.config
        self._media = subsystem.media
        self._stats = subsystem.stats
        self._faults = subsystem.faults
        self._kinds: dict[int, Kind] = {}
        self._connected = connected
        self._controller: Controller | None = None
        self._is_admin = False
        self._commands: dict[int, Callable[[Command, memoryview], None]] = {0x7F: self._fabrics}

    def close(self) -> None:
        """Close a queue whose connection has ended; closing the admin queue ends the controller."""
        self._commands = {}  # they refer to this queue, which would wait for the collector
        if self._controller is None:
            return
        if self._is_admin:
            self._subsystem.close_controller(self._controller)
        else:
            self._subsystem.leave(self._controller, self._connection)

    def execute(self, command: Command, data: memoryview) -> None:
        begin_ns = time.monotonic_ns()
        try:
            if self._faults.active:
                self._meet_faults(command, data)
            if self._subsystem.timing is not None:
                self._take_time(self._subsystem.timing, command, data)
            self._commands.get(command.opcode, self._unknown)(command, data)
        except CommandError as error:
            self._connection.respond(command.cid, error.status)
        except AccessDeniedError:
            self._subsystem.count_denied(is_read=command.opcode == _READ)
            self._connection.respond(command.cid, status.ACCESS_DENIED)
        self._stats.add(busy_ns=time.monotonic_ns() - begin_ns)

    def _meet_faults(self, command: Command, data: memoryview) -> None:
        """Apply the requested faults to the command; raises the error it ends with."""
        kind = self._kinds.get(command.opcode)
        if kind is None:
            return
        outcome = self._faults.meet(kind, _extents(command, kind, data))
        time.sleep(outcome.delay_ms / 1e3)
        if outcome.power_lost:
            if command.opcode == _WRITE:  # half of it, in whole blocks: hosts are promised no more
                half = len(data) // self._config.block_bytes // 2 * self._config.block_bytes
                with contextlib.suppress(CommandError, AccessDeniedError, OSError):
                    self._media.write(self._extent(command)[0], data[:half])
            self._subsystem.on_power_loss()
            raise ConnectionError("power was lost")
        if outcome.media_error or outcome.io_error:
            code = status.READ_ERROR if kind == "read" else status.WRITE_FAULT
            raise CommandError(code | (status.DNR if outcome.media_error else 0))

    def _take_time(self, timing: Timing, command: Command, data: memoryview) -> None:
        kind = self._kinds.get(command.opcode)
        if kind not in ("read", "write"):
            return
        size, now_s = self._config.block_bytes, time.monotonic()
        for lba, blocks in _extents(command, kind, data):
            if command.opcode == _DATASET:
                timing.deallocate(lba * size, blocks * size)
                continue
            take = timing.read if kind == "read" else timing.write
            wait_s, service_s = take(lba * size, blocks * size, now_s)
            time.sleep(wait_s)
            self._stats.add(service_ns=round(service_s * 1e9))

    def _unknown(self, _command: Command, _data: memoryview) -> None:
        raise CommandError(
            status.SEQUENCE_ERROR if self._controller is None else status.INVALID_OPCODE
        )

    def _answer(self, command: Command, payload: bytes) -> None:
        """Send `payload`, cut or padded to the length that the host has room for."""

        def fill(view: memoryview) -> None:
            view[:] = payload[: len(view)].ljust(len(view), b"\0")

        if not command.sgl_length or command.sgl_length > 1 << 20:
            raise CommandError(status.WRONG_DATA_LENGTH)
        self._connection.send_data(command.cid, command.sgl_length, fill)

    # Fabrics commands: the type stands where other commands have the namespace.

    def _fabrics(self, command: Command, data: memoryview) -> None:
        kind = command.nsid & 0xFF
        if kind == 0x01:
            self._connect(command, data)
        elif self._controller is None:
            raise CommandError(status.SEQUENCE_ERROR)
        elif kind == 0x00 and self._is_admin:
            self._property_set(command)
        elif kind == 0x04 and self._is_admin:
            self._property_get(command)
        else:
            raise CommandError(status.INVALID_FIELD)

    def _connect(self, command: Command, data: memoryview) -> None:
        if self._controller is not None:
            raise CommandError(status.SEQUENCE_ERROR)
        queue_id, entries = command.cdw10 >> 16, (command.cdw11 & 0xFFFF) + 1
        if (
            len(data) < 1024
            or entries > identify.QUEUE_ENTRIES
            or queue_id > identify.MAX_IO_QUEUES
        ):
            raise CommandError(status.CONNECT_INVALID)
        (controller_id,) = struct.unpack_from("<H", data, 16)
        if bytes(data[256:512]).rstrip(b"\0") != self._config.nqn.encode():
            raise CommandError(status.CONNECT_INVALID)
        self._is_admin = queue_id == 0
        if self._is_admin:
            self._controller = self._subsystem.open_controller(self._connection)
            self._commands |= self._admin_commands()
            self._kinds = {0x81: "security"}
        else:
            self._controller = self._subsystem.join(controller_id, self._connection)
            self._kinds = {_READ: "read", _WRITE: "write", _ZEROES: "write", _DATASET: "write"}
            self._commands |= {
                0x00: self._flush,
                _WRITE: self._write,
                _READ: self._read,
                _ZEROES: self._write_zeroes,
                _DATASET: self._dataset_management,
            }
        self._connection.queue_entries = entries
        self._connected()
        self._connection.respond(command.cid, result=self._controller.id)

    def _property_get(self, command: Command) -> None:
        assert self._controller is not None
        values = {
            0x00: _CAPABILITIES | self._turns * _READY_MODES,
            0x08: identify.VERSION,
            0x14: self._controller.configuration,
            0x1C: self._controller.status_register,
        }
        if command.cdw11 not in values:
            raise CommandError(status.INVALID_FIELD)
        self._connection.respond(command.cid, result=values[command.cdw11])

    def _property_set(self, command: Command) -> None:
        assert self._controller is not None
        if command.cdw11 != 0x14:
            raise CommandError(status.INVALID_FIELD)
        enabled = self._controller.configuration & 1
        self._controller.configuration = command.cdw12
        if enabled and not command.cdw12 & 1:
            self._subsystem.reset_security()
        self._connection.respond(command.cid)

    # Admin commands.

    @property
    def _turns(self) -> bool:
        timing = self._subsystem.timing
        return timing is not None and timing.behaviour.rpm > 0

    def _admin_commands(self) -> dict[int, Callable[[Command, memoryview], None]]:
        commands: dict[int, Callable[[Command, memoryview], None]] = {
            0x02: self._get_log_page,
            0x06: self._identify,
            0x08: lambda command, _: self._connection.respond(command.cid, result=1),  # Abort
            0x09: self._set_features,
            0x0A: self._get_features,
            0x0C: lambda _command, _data: None,  # Asynchronous Event Request: nothing ever occurs
            0x18: lambda command, _: self._connection.respond(command.cid),  # Keep Alive
        }
        if self._subsystem.tper is not None:
            commands |= {0x81: self._security_send, 0x82: self._security_receive}
        return commands

    def _identify(self, command: Command, _data: memoryview) -> None:
        assert self._controller is not None
        cns = command.cdw10 & 0xFF
        if cns == 0x01:
            payload = identify.controller(
                self._config,
                self._controller.id,
                self._subsystem.vices,
                measures_power=self._subsystem.power is not None,
            )
        elif cns == 0x02:
            payload = identify.active_namespaces(self._config, command.nsid)
        elif cns in (0x00, 0x03) or (cns == 0x08 and self._turns):
            if command.nsid not in self._config.namespaces:
                raise CommandError(status.INVALID_NAMESPACE)
            if cns == 0:
                payload = identify.namespace(self._config, command.nsid, self._subsystem.vices)
            elif cns == 0x08:
                payload = identify.turning_namespace(self._subsystem.vices)
            else:
                payload = identify.descriptors(self._config, command.nsid)
        else:
            raise CommandError(status.INVALID_FIELD)
        self._answer(command, payload)

    def _get_log_page(self, command: Command, _data: memoryview) -> None:
        page = command.cdw10 & 0xFF
        log = bytearray(512)
        if page == 0x02:  # SMART: only what is known; a temperature of 0 K is "not reported"
            if (timing := self._subsystem.timing) is not None:
                kelvin = round(timing.temperature_c(time.monotonic()) + 273.15)
                struct.pack_into("<H", log, 1, kelvin)
                struct.pack_into("<I", log, 216, timing.throttlings)
            counts = self._stats.snapshot()
            units = [-(-counts[name] // 512_000) for name in ("bytes_read", "bytes_written")]
            for index, value in enumerate([*units, counts["reads"], counts["writes"]]):
                struct.pack_into("<Q", log, 32 + 16 * index, value)
            if self._subsystem.power is not None:
                log[232:244] = self._subsystem.power.log_fields()
        elif page == 0x03:
            log[0] = 1
            log[8:16] = identify.FIRMWARE.encode("ascii").ljust(8)
        elif page != 0x01:
            raise CommandError(status.INVALID_LOG_PAGE)
        offset = command.cdw12 | command.cdw13 << 32
        if offset > len(log):
            raise CommandError(status.INVALID_FIELD)
        self._answer(command, bytes(log[offset:]))

    def _set_features(self, command: Command, _data: memoryview) -> None:
        feature, result = command.cdw10 & 0xFF, 0
        if feature == 0x07:
            granted = identify.MAX_IO_QUEUES - 1
            result = min(command.cdw11 & 0xFFFF, granted) | min(command.cdw11 >> 16, granted) << 16
        elif feature not in (0x0B, 0x0F):  # asynchronous events, keep-alive timer
            raise CommandError(status.INVALID_FIELD)
        self._connection.respond(command.cid, result=result)

    def _get_features(self, command: Command, _data: memoryview) -> None:
        if command.cdw10 & 0xFF != 0x07:
            raise CommandError(status.INVALID_FIELD)
        granted = identify.MAX_IO_QUEUES - 1
        self._connection.respond(command.cid, result=granted | granted << 16)

    def _security_send(self, command: Command, data: memoryview) -> None:
        assert self._subsystem.tper is not None and self._controller is not None
        if command.cdw11 != len(data):
            raise CommandError(status.INVALID_FIELD)
        protocol, specific = command.cdw10 >> 24, command.cdw10 >> 8 & 0xFFFF
        payload = bytes(data)
        data[:] = bytes(len(data))  # it may hold a PIN
        if uids.REVERT in payload:
            time.sleep(self._subsystem.vices.revert_ms / 1e3)
        if not self._subsystem.tper.send(self._controller.id, protocol, specific, payload):
            raise CommandError(status.INVALID_FIELD)
        self._connection.respond(command.cid)

    def _security_receive(self, command: Command, _data: memoryview) -> None:
        assert self._subsystem.tper is not None and self._controller is not None
        protocol, specific = command.cdw10 >> 24, command.cdw10 >> 8 & 0xFFFF
        length = min(command.cdw11, command.sgl_length)
        payload = self._subsystem.tper.receive(self._controller.id, protocol, specific, length)
        if payload is None:
            raise CommandError(status.INVALID_FIELD)
        self._answer(command, payload)

    # I/O commands.

    def _extent(self, command: Command) -> tuple[int, int]:
        """Return the first block on the medium and the number of blocks, checked."""
        lba = command.cdw10 | command.cdw11 << 32
        blocks = (command.cdw12 & 0xFFFF) + 1
        return self._place(command, lba, blocks), blocks

    def _place(self, command: Command, lba: int, blocks: int) -> int:
        """Return the first block on the medium of these blocks of the command's namespace."""
        if command.nsid not in self._config.namespaces:
            raise CommandError(status.INVALID_NAMESPACE)
        start, size = self._config.namespaces[command.nsid]
        if lba + blocks > size:
            raise CommandError(status.LBA_OUT_OF_RANGE)
        wrap = self._subsystem.vices.wrap_blocks
        return (start + lba) % wrap if wrap else start + lba

    def _read(self, command: Command, _data: memoryview) -> None:
        lba, blocks = self._extent(command)
        length = blocks * self._config.block_bytes
        if command.sgl_length != length or length > 1 << 20:
            raise CommandError(status.WRONG_DATA_LENGTH)
        if self._media.bare and length >= _SENDFILE_FROM_BYTES:
            offset = lba * self._config.block_bytes
            self._stats.add(bytes_read=length, reads=1)
            self._connection.send_file(command.cid, self._media.fd, offset, length)
            return

        def fill(view: memoryview) -> None:
            try:
                self._media.read(lba, view)
            except OSError as error:
                raise CommandError(status.READ_ERROR) from error
            self._stats.add(bytes_read=length, reads=1)

        self._connection.send_data(command.cid, length, fill)

    def _write(self, command: Command, data: memoryview) -> None:
        lba, blocks = self._extent(command)
        if len(data) != blocks * self._config.block_bytes:
            raise CommandError(status.WRONG_DATA_LENGTH)
        self._refuse_writes()
        try:
            self._media.write(lba, data)
        except OSError as error:
            raise CommandError(status.WRITE_FAULT) from error
        self._stats.add(bytes_written=len(data), writes=1)
        self._connection.respond(command.cid)

    def _refuse_writes(self) -> None:
        if self._subsystem.vices.write_refused:
            raise CommandError(status.DNR | status.WRITE_FAULT)

    def _write_zeroes(self, command: Command, _data: memoryview) -> None:
        lba, blocks = self._extent(command)
        self._refuse_writes()
        try:
            self._media.write_zeroes(lba, blocks)
        except OSError as error:
            raise CommandError(status.WRITE_FAULT) from error
        self._connection.respond(command.cid)

    def _dataset_management(self, command: Command, data: memoryview) -> None:
        count = (command.cdw10 & 0xFF) + 1
        if len(data) < 16 * count:
            raise CommandError(status.INVALID_FIELD)
        ranges = [struct.unpack_from("<4xIQ", data, 16 * index) for index in range(count)]
        places = [(self._place(command, lba, blocks), blocks) for blocks, lba in ranges]
        vices = self._subsystem.vices
        time.sleep(vices.discard_ms / 1e3)
        if vices.discard_refused:  # what is not supported, Linux passes over in silence
            raise CommandError(status.INTERNAL_ERROR)
        if command.cdw11 & 4 and not vices.discard_ignored:  # the other attributes are hints
            try:
                for place, blocks in places:
                    if blocks:
                        self._media.deallocate(place, blocks)
            except OSError as error:
                raise CommandError(status.WRITE_FAULT) from error
        self._connection.respond(command.cid)

    def _flush(self, command: Command, _data: memoryview) -> None:
        if command.nsid not in (*self._config.namespaces, _ALL_NAMESPACES):
            raise CommandError(status.INVALID_NAMESPACE)
        self._connection.respond(command.cid)


def _extents(command: Command, kind: Kind, data: memoryview) -> list[tuple[int, int]]:
    """Return (first block, blocks) of each extent that the command touches, unchecked."""
    if kind == "security":
        return []
    if command.opcode == _DATASET:
        ranges = [struct.unpack_from("<4xIQ", data, at) for at in range(0, len(data) - 15, 16)]
        return [(lba, blocks) for blocks, lba in ranges]
    return [(command.cdw10 | command.cdw11 << 32, (command.cdw12 & 0xFFFF) + 1)]
