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


@pytest.mark.parametrize("host", [" h ", "ssh://h", "al@h", "-oProxyCommand=x", ""])
def test_what_is_no_host_is_refused(host: str) -> None:
    with refuses("ssh-host", host=host):
        link(host, user="u", port=1, key=None, arguments={}, become=False)


@pytest.mark.parametrize("host", ["h", "h-1.example.org.", "192.0.2.1", "fe80::1%eth0", "bänk"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert link(host, user="u", port=1, key=None, arguments={}, become=False).host == host


def test_a_configuration_that_ssh_refuses_is_refused() -> None:
    with refuses("ssh-config") as refusal:
        arguments = {"ansible_ssh_common_args": "-o HostNmae=x"}
        link("h", user="u", port=1, key=None, arguments=arguments, become=False)
    assert "hostnmae" in str(refusal.value)


@pytest.mark.parametrize("argument", ["-F", "--", "gate", "-o 'x"])
def test_an_unsupported_ssh_argument_is_refused(argument: str) -> None:
    with refuses("ssh-argument", argument=argument, variable="ansible_ssh_args"):
        arguments = {"ansible_ssh_args": argument}
        link("h", user="u", port=1, key=None, arguments=arguments, become=False)
