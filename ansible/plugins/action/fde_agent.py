# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Bring the agent to a target as one reproducible archive, or remove it."""

from __future__ import annotations

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Send and unpack the agent if a file differs, or remove it."""

    def work(self, options):
        target = self.target()
        if options["state"] == "present":
            return {"changed": testbed.agent_bundle.send(target, dry=self.dry, run=self.ask)}
        return {"changed": testbed.agent_bundle.remove(target, dry=self.dry, run=self.ask)}
