# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Check the secrets on the controller, place them in the target's memory, or remove them there."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Pass secrets from their file to the connection's input, never in variables or results."""

    shares_connection = False

    def work(self, options):
        target, state = self.target(), options["state"]
        if state == "checked":
            return {"description": testbed.secrets.describe(Path(target.secrets_file))}
        if self.dry:
            return {"skipped": True, "msg": "In check mode, nothing is placed or removed."}
        if state == "absent":
            return {"changed": testbed.secrets.remove(target, run=self.ask)}
        with_psid = options["with_psid"]
        return {"changed": testbed.secrets.place(target, with_psid=with_psid, run=self.ask)}
