"""Conversion of Ansible's settings of an SSH connection into an SshLink."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping

from contract.errors import ControllerError
from contract.plan import SshLink

# Options by the letters of ssh's command line.
NAMES = {"J": "ProxyJump={}", "i": 'IdentityFile="{}"', "l": "User={}", "p": "Port={}"}
KNOWN_HOSTS = "UserKnownHostsFile="
FLAGS = {"-4": "AddressFamily=inet", "-6": "AddressFamily=inet6", "-C": "Compression=yes"}


def link(
    host: str,
    *,
    user: str | None,
    port: int | None,
    key: str | None,
    arguments: Mapping[str, str | None],
    become: bool,
) -> SshLink:
    """Build the link from Ansible's settings; `arguments` are ssh's, by Ansible's variable.

    For a missing user or port, ssh's configuration decides. Raises ControllerError.
    """
    if not re.fullmatch(r"[\w.:%][\w.:%-]*", host):
        raise ControllerError("ssh-host", host=host)
    options = tuple(
        option for name, text in arguments.items() for option in _options(name, text or "")
    )
    defaults = _defaults(host, options)
    files = [
        file
        for option in options
        if option.startswith(KNOWN_HOSTS)
        for file in shlex.split(option.removeprefix(KNOWN_HOSTS))
    ]
    return SshLink(
        host,
        user or defaults.get("user", "root"),
        port or int(defaults.get("port", 22)),
        key,
        files[0] if len(files) == 1 else None,
        options,
        become=become,
    )


def _options(variable: str, text: str) -> Iterator[str]:
    """Convert arguments of ssh into options `NAME=VALUE`; raises ControllerError."""
    try:
        words = iter(shlex.split(text))
    except ValueError:  # a quote that is not closed
        raise ControllerError("ssh-argument", argument=text, variable=variable) from None
    for word in words:
        if word in FLAGS:
            yield FLAGS[word]
            continue
        letter, value = word[1:2], word[2:]
        if not word.startswith("-") or letter not in ("o", *NAMES):
            raise ControllerError("ssh-argument", argument=word, variable=variable)
        value = value or next(words, "")
        yield value if letter == "o" else NAMES[letter].format(value)


def _defaults(host: str, options: tuple[str, ...]) -> dict[str, str]:
    """Return the options that ssh would use for a host; empty without ssh.

    Raises ControllerError for a configuration that ssh refuses: our programs pass over its unknown
    options.
    """
    ours = ("ForkAfterAuthentication=no", "RemoteCommand=none")
    argv = ["ssh", "-G", *(f"-o{option}" for option in (*ours, *options)), "--", host]
    try:
        result = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError:
        return {}
    if result.returncode:
        raise ControllerError("ssh-config", output=" ".join(result.stderr.split()))
    pairs = (line.partition(" ") for line in result.stdout.splitlines())
    return {name: value for name, _, value in pairs}
