# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Check a target's variables and write its resolved description, on the controller."""

from __future__ import annotations

import json

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Nothing is asked of the target."""

    def work(self, options):
        variables = dict(options["variables"])
        link = self._link(variables.pop("ssh_known_hosts", None), variables.pop("ssh_options", ()))
        # Through JSON, so that Ansible's tags on values are left behind.
        # A serial number like 2026-11-28 is a date to YAML.
        document = json.dumps({**variables, "host": self.host, "ssh": link}, default=str)
        target = testbed.inventory.resolve(json.loads(document))
        self.target_file.parent.mkdir(parents=True, exist_ok=True)
        testbed.write_json(self.target_file, target.document())
        return {"target_file": str(self.target_file), "target": target.document()}

    def _link(self, known_hosts, more_options):
        """Return how the controller's own programs reach it: as Ansible does, with its settings."""
        kind = self._connection.transport.rpartition(".")[2]
        if kind == "local":
            return None
        if kind != "ssh":
            raise testbed.ControllerError("connection-kind", kind=kind)
        become = self._connection.become
        if become is not None:
            user = become.get_option("become_user", playcontext=self._play_context) or "root"
            method = become.name.rpartition(".")[2]
            if (user, method) != ("root", "sudo"):
                raise testbed.ControllerError("become-method", user=user, method=method)
        get = self._connection.get_option
        names = ["ssh_common_args", "ssh_extra_args"]
        # Those of a configuration file are for Ansible's own connections.
        names += ["ssh_args"] if "ansible_ssh_args" in self._variables else []
        link = testbed.ssh_link.link(
            str(get("host") or self.host),
            user=get("remote_user"),
            port=get("port"),
            key=get("private_key_file"),
            arguments={f"ansible_{name}": get(name) for name in names},
            become=become is not None,
        )
        options = list(dict.fromkeys([*link.options, *more_options]))
        known = known_hosts or link.known_hosts
        return {**vars(link), "options": options, "known_hosts": known}
