"""A product that we have no code for: the inventory gives commands to open, close and prove it.

Each command, `describe` included, is a list of arguments, run as the agent runs, without a shell,
with a limit of time. `{device}` in an argument is the container for the product: our partition from
8 MiB before the common extent to the extent's end. The last line that `open` prints is the block
device that it made (or the inventory names it), at least as long as the extent; a mapping of ours
on it carries the file system. The passphrase is a line on standard input of `open`. Their output is
not trusted: the probe is searched in the whole partition, whose own counters must show that as much
was written there, and is read from there again. A pass is declared, not proven: finding no
plaintext does not show what encrypts.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from agent.storage import mapping
from agent.storage.base import (
    DISCARD,
    PROCESSOR,
    Evidence,
    Expectation,
    Kind,
    KindFindings,
    Layer,
    Place,
    Segment,
)
from agent.storage.devices import BLOCK, SECTOR_BYTES, progress
from agent.storage.guard import MAPPING
from agent.storage.plaintext_probe import BEFORE_BYTES
from agent.storage.secrets import Secrets
from agent.system.command import CommandError, Progress, run
from contract import system_text
from contract.errors import AgentError
from contract.parameters import Parameter, ParameterValue
from contract.plan import Configuration, EncryptedBy

TIMEOUT_S = 120
_BEFORE_SECTORS = BEFORE_BYTES // SECTOR_BYTES
_LISTS = ("open", "close", "prove", "describe")
_HELP = {
    "open": "makes a new volume on {device}, opens it, prints the path of the block device",
    "close": "closes it; nothing to close is no error",
    "prove": "ends with 0 if the volume is open and encrypted as the product sees it",
    "describe": "prints product, version and cipher on one line",
}


class ExternalError(AgentError):
    """The product's commands failed to do their part."""


class External(Kind):
    """A third-party program encrypts."""

    name: ClassVar[str] = "external"
    encrypted_by: ClassVar[EncryptedBy] = PROCESSOR
    lists: ClassVar[tuple[str, ...]] = _LISTS
    fields: ClassVar[tuple[Parameter, ...]] = (
        Parameter("product", "VeraCrypt", "", "what reports call it", required=True),
        *(
            Parameter(name, f'["/usr/local/sbin/{name}"]', "", text, required=True)
            for name, text in _HELP.items()
        ),
        Parameter("device", "", "", "what open makes, where it does not print that last"),
        DISCARD,
    )

    def label(self, configuration: Configuration) -> str:
        return str(configuration.settings["product"])

    def conflicts(self, settings: Mapping[str, ParameterValue]) -> Iterator[str]:
        for name in _LISTS:
            try:
                words = json.loads(str(settings[name]))
            except ValueError:
                words = None
            if not (isinstance(words, list) and words and all(isinstance(w, str) for w in words)):
                yield f"{name} must be a list of arguments, as [/usr/local/sbin/{name}]"
            elif not words[0].startswith("/"):
                yield f"{name} begins with {words[0]!r}: give the program's absolute path"

    def why_not(self, configuration: Configuration) -> str | None:
        for name in _LISTS:
            program = Path(_arguments(configuration, name)[0])
            if not program.is_file():
                return (
                    f"Configuration {configuration.name} needs {program}, which is not here: "
                    "install the product, or leave the configuration out."
                )
        return None

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        del configuration
        below = Segment(
            place.size_sectors + _BEFORE_SECTORS,
            "linear",
            place.device,
            place.offset_sectors - _BEFORE_SECTORS,
        )
        return Expectation(
            layers=(
                Layer(MAPPING, mapping.EXTERNAL, (Segment(place.size_sectors, "linear", None, 0),)),
                Layer(mapping.CONTAINER, mapping.EXTERNAL, (below,)),
            ),
            declared=True,
        )

    def attach(self, place: Place, configuration: Configuration, secrets: Secrets) -> Evidence:
        length = place.size_sectors + _BEFORE_SECTORS
        start = place.offset_sectors - _BEFORE_SECTORS
        with mapping.free_name(mapping.CONTAINER) as name:
            line = f"0 {length} linear {place.partition} {start}"
            mapping.create(name, [line], uuid=f"{_uuid(configuration)}:{name}")
        passphrase = f"{secrets.luks_passphrase.decode()}\n".encode()
        printed = _call(configuration, "open", passphrase, progress(place.partition))
        device = _device(configuration) or Path((printed.splitlines() or [""])[-1].strip())
        if not (device.is_absolute() and device.exists() and stat.S_ISBLK(device.stat().st_mode)):
            raise ExternalError("no-volume", configuration=configuration.name)
        size = int(system_text.read(BLOCK / device.resolve().name / "size"))
        if size < place.size_sectors:
            raise ExternalError(
                "volume-too-small",
                configuration=configuration.name,
                size=size * SECTOR_BYTES,
                size_bytes=place.extent.size_bytes,
                before_bytes=BEFORE_BYTES,
            )
        with mapping.free_name() as name:
            line = f"0 {place.size_sectors} linear {device} 0"
            mapping.create(name, [line], uuid=f"{mapping.EXTERNAL}-{name}")
        return Evidence()

    def detach(self, configuration: Configuration) -> None:
        mappings = mapping.devices()
        maker, _, _ = mapping.uuid(mappings.get(mapping.CONTAINER, "")).partition(":")
        if maker != _uuid(configuration):
            return
        try:
            if MAPPING in mappings:
                mapping.remove(MAPPING, mappings[MAPPING])
        finally:
            device = _device(configuration)
            if device is None or device.exists():
                _call(configuration, "close")

    def findings(self, configuration: Configuration) -> KindFindings:
        product = _call(configuration, "describe").strip()[:200]
        try:
            output = _call(configuration, "prove").strip()[:2000]
        except CommandError as error:
            return KindFindings(str(error), product)
        return KindFindings("", product, output)


def _device(configuration: Configuration) -> Path | None:
    named = str(configuration.settings.get("device") or "")
    return Path(named) if named else None


def _arguments(configuration: Configuration, name: str) -> list[str]:
    words: list[str] = json.loads(str(configuration.settings[name]))
    return [word.replace("{device}", f"/dev/mapper/{mapping.CONTAINER}") for word in words]


def _call(
    configuration: Configuration, name: str, stdin: bytes = b"", watched: Progress | None = None
) -> str:
    argv = _arguments(configuration, name)
    return run(argv, stdin=stdin, timeout_s=TIMEOUT_S, progress=watched).out


def _uuid(configuration: Configuration) -> str:
    return f"{mapping.EXTERNAL}-{configuration.name}"
