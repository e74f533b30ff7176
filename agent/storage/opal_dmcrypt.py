"""Both: dm-crypt above a range that the drive encrypts and locks, by cryptsetup's `--hw-opal`."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from agent.storage import ciphers
from agent.storage.base import BOTH, Expectation, Place, cipher_label
from agent.storage.dmcrypt import CIPHERS, DmCrypt, cipher, crypt_fields, volume_key_bits
from agent.storage.opal import OPAL_KEY_BITS, Header, Opal
from contract.parameters import Parameter
from contract.plan import Configuration, EncryptedBy


class OpalDmCrypt(Opal):
    """The kernel encrypts what the drive encrypts again."""

    name: ClassVar[str] = "opal_dmcrypt"
    encrypted_by: ClassVar[EncryptedBy] = BOTH
    fields: ClassVar[tuple[Parameter, ...]] = tuple(
        replace(field, choices=tuple(f"{each}-xts-plain64" for each in CIPHERS))
        if field.name == "cipher"
        else field
        for field in DmCrypt.fields
        if field.required
    )

    def label(self, configuration: Configuration) -> str:
        word = cipher_label(cipher(configuration).split("-")[0])
        return f"Opal drive and dm-crypt {word}-{configuration.settings['key_bits']}"

    def why_not(self, configuration: Configuration) -> str | None:
        return ciphers.missing(cipher(configuration), configuration)

    def header(self, configuration: Configuration) -> Header:
        key_bits = volume_key_bits(configuration)
        sector_size = configuration.settings["sector_size"]
        arguments = ["--hw-opal", "--cipher", cipher(configuration)]
        arguments += ["--key-size", str(key_bits), "--sector-size", str(sector_size)]
        return Header(
            tuple(arguments),
            "hw-opal-crypt",
            cipher(configuration),
            int(sector_size),
            key_bits + OPAL_KEY_BITS,
        )

    def expectation(self, place: Place, configuration: Configuration) -> Expectation:
        drive = super().expectation(place, configuration)
        segment = place.segment("crypt", **crypt_fields(configuration))
        return replace(
            drive,
            layers=(replace(drive.layers[0], segments=(segment,)),),
            luks_segment="hw-opal-crypt",
            luks_more_bits=OPAL_KEY_BITS,
            plaintext_on_medium=False,
        )
