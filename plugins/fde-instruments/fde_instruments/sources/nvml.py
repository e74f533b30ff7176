"""NVIDIA's graphics processors, read by the driver's library NVML with ctypes.

NVML API reference: `nvmlDeviceGetTotalEnergyConsumption` (mJ since the driver was loaded, from
Volta on) is read at the caller's edges; `nvmlDeviceGetPowerUsage` (mW) is polled, to check that
counter or because a card has none.
"""

from __future__ import annotations

import ctypes
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from contract import system_text
from fde_instruments.sources import COVERAGE, WORDINGS
from instrumentation.sources.counter import read_stamped, reason
from instrumentation.sources.polled import PolledSource
from instrumentation.sources.registry import SourceError
from instrumentation.sources.standing import POWER_TWIN

LIBRARY = "libnvidia-ml.so.1"
PERIOD_S = 0.2
AVERAGED_NS = 10**9  # of the power of all cards since Ampere but GA100 (NVML API reference)
_NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED


class NvmlError(SourceError):
    """No graphics processor can be read; the message has the remedy."""

    WORDINGS = WORDINGS


_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


class _Library:
    """The used calls of NVML; each raises OSError with NVML's message."""

    def __init__(self, file: str) -> None:
        self._nvml = ctypes.CDLL(file)
        self._nvml.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: object) -> None:
        code = int(getattr(self._nvml, function)(*arguments))
        if code:
            message = self._nvml.nvmlErrorString(code)
            raise OSError(code, system_text.decode(message or b"no reason given"))

    def count(self) -> int:
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return count.value

    def device(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def is_superchip(self, device: ctypes.c_void_p) -> bool:
        """Return whether a card's module has the processor and its memory, too."""
        name = ctypes.create_string_buffer(_NAME_BYTES)
        try:
            self.call("nvmlDeviceGetName", device, name, ctypes.c_uint(_NAME_BYTES))
        except (AttributeError, OSError):
            return False
        return re.search(rb"\bG[HB]\d+\b", name.value) is not None

    def energy_uj(self, device: ctypes.c_void_p) -> int:
        energy_mj = ctypes.c_ulonglong()
        self.call("nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(energy_mj))
        return energy_mj.value * 1000

    def power_uw(self, device: ctypes.c_void_p) -> int:
        power_mw = ctypes.c_uint()
        self.call("nvmlDeviceGetPowerUsage", device, ctypes.byref(power_mw))
        return power_mw.value * 1000


class NvmlSource(PolledSource):
    """All cards as `gpu-0`, `gpu-1` … in NVML's order; Grace superchips as `superchip-0` ….

    The power of a card with a counter is `gpu-0/power`. A card that cannot be read is omitted, with
    the reason in `omitted`.
    """

    name: ClassVar[str] = "nvml"
    coverage: ClassVar[Path] = COVERAGE

    def __init__(self, library: _Library, period_s: float) -> None:
        self._library = library
        counters, powers, lost = {}, {}, []
        for index in range(library.count()):
            name = f"gpu-{index}"
            try:
                device = library.device(index)
                if self._counts(device):
                    if library.is_superchip(device):  # its counter covers the whole module
                        name = f"superchip-{index}"
                    counters[name] = partial(read_stamped, partial(library.energy_uj, device))
                    with suppress(OSError):
                        library.power_uw(device)
                        if library.is_superchip(device):
                            continue  # its power is that of the card only
                        powers[f"{name}{POWER_TWIN}"] = partial(library.power_uw, device)
                else:
                    library.power_uw(device)
                    powers[name] = partial(library.power_uw, device)
            except OSError as error:
                lost.append(f"{name}: {reason(error)}")
        self.omitted = f"NVML gives no figure of {', '.join(lost)}." if lost else ""
        averaged_ns = dict.fromkeys(powers, AVERAGED_NS)
        super().__init__(powers, counters, period_s, (*counters, *powers), averaged_ns)

    def _counts(self, device: ctypes.c_void_p) -> bool:
        """Return whether a card has an energy counter. Raises OSError if the card is lost."""
        try:
            self._library.energy_uj(device)
        except OSError as error:
            if error.errno != _NOT_SUPPORTED:
                raise
            return False
        return True

    @classmethod
    def open(cls, file: str = LIBRARY, period_s: float = PERIOD_S) -> NvmlSource:
        """Load the driver's library and find the cards. Raises NvmlError."""
        try:
            library = _Library(file)
        except OSError:
            raise NvmlError("no-nvml", file=file) from None
        except AttributeError as error:
            raise NvmlError("not-nvml", file=file, error=error) from None
        try:
            library.call("nvmlInit_v2")
            source = cls(library, period_s)
        except OSError as error:
            raise NvmlError("nvml-refuses", error=reason(error)) from None
        except AttributeError as error:
            raise NvmlError("nvml-too-old", file=file, error=error) from None
        if not source.names and source.omitted:
            raise NvmlError("gpus-unusable", reason=source.omitted)
        if not source.names:
            raise NvmlError("no-gpu")
        return source

    @classmethod
    def is_present(cls, file: str = LIBRARY) -> bool:
        """Return whether NVIDIA's driver is installed."""
        try:
            ctypes.CDLL(file)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the polling and release the driver."""
        super().close()
        self._library.call("nvmlShutdown")
