"""Ansible's settings of a connection as our own link."""

from __future__ import annotations

import pytest

from contract.plan import SshLink
from contract.tests.refusal import refuses
from controller.targets.ssh_link import link


def test_missing_settings_come_from_ssh_and_its_arguments() -> None:
    arguments = {
        "a": "-l bob -p2200 -i '/a b'",
        "b": "-oUserKnownHostsFile='\"/c d\"' -6",
        "c": None,
    }
    assert link("h", user=None, port=None, key=None, arguments=arguments, become=True) == SshLink(
        *("h", "bob", 2200, None, "/c d"),
        options=(
            *("User=bob", "Port=2200", 'IdentityFile="/a b"'),
            *('UserKnownHostsFile="/c d"', "AddressFamily=inet6"),
        ),
        become=True,
    )


@pytest.mark.parametrize("argument", ["-F", "--", "gate"])
def test_an_unsupported_ssh_argument_is_refused(argument: str) -> None:
    with refuses("ssh-argument", argument=argument, variable="ansible_ssh_args"):
        arguments = {"ansible_ssh_args": argument}
        link("h", user="u", port=1, key=None, arguments=arguments, become=False)
