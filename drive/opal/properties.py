"""What TPer and host tell each other of their limits (Opal 2.01, section 4.1.1.1)."""

from __future__ import annotations

from drive.opal.calls import Call
from drive.opal.packets import MAX_COM_PACKET_BYTES, Named, Value

INITIAL_HOST_BYTES = 2048  # what a host takes until it says more
TPER = {
    b"MaxMethods": 1,
    b"MaxSubpackets": 1,
    b"MaxPacketSize": MAX_COM_PACKET_BYTES - 20,
    b"MaxPackets": 1,
    b"MaxComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxResponseComPacketSize": MAX_COM_PACKET_BYTES,
    b"MaxSessions": 1,
    b"MaxIndTokenSize": MAX_COM_PACKET_BYTES - 56,
    b"MaxAuthentications": 2,
    b"MaxTransactionLimit": 1,
    b"DefSessionTimeout": 0,
}
_HOST_MINIMA = {
    b"MaxComPacketSize": 2048,
    b"MaxPacketSize": 2028,
    b"MaxIndTokenSize": 1992,
    b"MaxPackets": 1,
    b"MaxSubpackets": 1,
    b"MaxMethods": 1,
}


def accept(call: Call) -> dict[bytes, int]:
    """The host's own limits as far as they mean something here, none below its minimum."""
    given = call.named.get(0)
    accepted = {}
    for pair in given if isinstance(given, list) else []:
        match pair:
            case Named(name=bytes(name), value=int(value)) if name in _HOST_MINIMA:
                accepted[name] = max(_HOST_MINIMA[name], min(value, MAX_COM_PACKET_BYTES))
    return accepted


def answer(accepted: dict[bytes, int]) -> list[Value]:
    """Parameters of the answer: the TPer's properties, and the host's as accepted."""
    values: list[Value] = [[Named(name, value) for name, value in TPER.items()]]
    if accepted:
        values.append(Named(0, [Named(name, value) for name, value in accepted.items()]))
    return values
