# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Note, install or remove what provisioning brings to a target."""

from __future__ import annotations

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed

STEPS = {"present": "install", "noted": "note", "absent": "remove"}


class ActionModule(testbed.TestbedAction):
    """The agent does it; a teardown takes away what it noted."""

    def work(self, options):
        step, names, files = STEPS[options["state"]], options["names"], options["files"]
        if step == "install" and not names:
            return {}
        if self.dry:
            new = names if step == "install" else []
            return {"changed": bool(new), "actions": [f"would install {name}" for name in new]}
        arguments = ["packages", step]
        arguments += ["--packages", *names] if names else []
        arguments += ["--files", *files] if files else []
        try:
            return self.ask_agent(self.target(), *arguments)
        except testbed.ControllerError as error:
            # A target that is not provisioned has no agent to note it: what is made there stays.
            if step == "note" and error.code == "no-agent":
                return {"actions": []}
            raise
