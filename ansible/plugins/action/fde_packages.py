# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Install packages on a target, note what provisioning adds, or remove what was noted."""

from __future__ import annotations

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed

STEPS = {"present": "install", "noted": "note", "absent": "remove"}


class ActionModule(testbed.TestbedAction):
    """Have the agent install, note or remove packages and files."""

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
            # Without an agent nothing is noted, and a teardown leaves the files there.
            if step == "note" and error.code == "no-agent":
                return {"actions": []}
            raise
