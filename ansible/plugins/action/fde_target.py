# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Check a target's variables and write its resolved description, on the controller."""

from __future__ import annotations

import json
import re

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed

# Variables of the connection, which Ansible converts to text.
TEXTS = re.compile(r"ansible_(ssh_)?(host|user|private_key_file)")
# Options by which Ansible would log in or become root in another way than our own programs.
UNSUPPORTED = {"password", "private_key", "private_key_passphrase", "ssh_executable"}
UNSUPPORTED |= {"become_exe", "become_flags", "become_pass"}


class ActionModule(testbed.TestbedAction):
    """Check the variables without asking the target."""

    def work(self, options):
        variables = dict(options["variables"])
        link = self._link(variables.pop("ssh_known_hosts", None), variables.pop("ssh_options", ()))
        unknown = tuple(testbed.inventory_files.unknown_variables(iter(self._variables)))
        if unknown:
            raise testbed.ControllerError(*unknown)
        connection = {n: value for n, value in self._variables.items() if TEXTS.fullmatch(n)}
        document = {**variables, "host": self.host, "ssh": link, "connection": connection}
        # JSON removes Ansible's tags from values.
        untagged = json.loads(json.dumps(document, default=testbed.inventory.refuse_date))
        target = testbed.inventory.resolve(untagged)
        self.target_file.parent.mkdir(parents=True, exist_ok=True)
        testbed.write_json(self.target_file, target.document())
        return {"target_file": str(self.target_file), "target": target.document()}

    def _link(self, known_hosts, further_options):
        """Return the link of the controller's programs, from Ansible's settings."""
        become = self._connection.become
        for plugin in filter(None, (self._connection, become)):
            for option in UNSUPPORTED & plugin.option_definitions.keys():
                origin = str(plugin.get_option_and_origin(option, hostvars=self._variables)[1])
                if origin.startswith("var: "):
                    raise testbed.ControllerError("link-option", variable=origin[len("var: ") :])
        kind = self._connection.transport.rpartition(".")[2]
        if kind == "local":
            return None
        if kind != "ssh":
            raise testbed.ControllerError("connection-kind", kind=kind)
        if become is not None:
            user = become.get_option("become_user", playcontext=self._play_context) or "root"
            method = become.name.rpartition(".")[2]
            if (user, method) != ("root", "sudo"):
                raise testbed.ControllerError("become-method", user=user, method=method)
        get = self._connection.get_option
        names = ["ssh_common_args", "ssh_extra_args"]
        # Arguments of a configuration file are only for Ansible's connections.
        names += ["ssh_args"] if "ansible_ssh_args" in self._variables else []
        link = testbed.ssh_link.link(
            str(get("host") or self.host),
            user=get("remote_user"),
            port=get("port"),
            key=get("private_key_file"),
            arguments={f"ansible_{name}": get(name) for name in names},
            become=become is not None,
        )
        options = list(dict.fromkeys([*link.options, *further_options]))
        return {**vars(link), "options": options, "known_hosts": known_hosts or link.known_hosts}
