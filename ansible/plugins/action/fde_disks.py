# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Prepare or restore the disks of the inventory; only the agent writes them."""

from __future__ import annotations

from dataclasses import asdict

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Prepare or restore disks; in check mode only list what would be done."""

    def work(self, options):
        target = self.target()
        if options["state"] != "prepared":
            arguments = ["--psid-revert", options["psid_revert"]] if options["psid_revert"] else []
            return self._act(target, "teardown", arguments)
        checked = options["checked"]
        if checked and not self.dry:
            return self._act(target, "prepare", _checked(checked))
        answer = testbed.survey.look(target, run=self.ask)
        disks = [asdict(disk) for disk in answer.disks]
        problems = list(answer.refused)
        if not self.dry:
            confirmed = options["confirmed"]
            problems += testbed.first_writes.unconfirmed(target, answer.disks, confirmed)
        if problems:
            return self.refused(problems, disks=disks)
        if self.dry:
            diff = [
                {
                    "before_header": f"{disk.role} ({disk.by_id})",
                    "after_header": f"{disk.role} ({disk.by_id}), prepared",
                    "before": f"{disk.found}\n",
                    "after": "".join(f"{step}\n" for step in disk.would) or f"{disk.found}\n",
                }
                for disk in answer.disks
                if not disk.ready
            ]
            actions = []
            for disk in answer.disks:
                steps = "; ".join(disk.would) or "nothing is to be done"
                sentence = f"{disk.role} ({disk.by_id}): {disk.found}; {steps}"
                actions.append({"code": "would", "disk": disk.role, "sentence": sentence})
            return {"changed": bool(diff), "actions": actions, "disks": disks, "diff": diff}
        checked = testbed.survey.expected_fingerprints(target, answer)
        return self._act(target, "prepare", _checked(checked))

    def _act(self, target, step, arguments):
        arguments += ["--secrets", testbed.secrets.PLACE, *(["--check"] if self.dry else [])]
        answer = self.ask_agent(target, step, *arguments)
        actions = answer["actions"]
        if not self.dry:  # the disks have changed since the last check
            testbed.survey.checks_file(target).unlink(missing_ok=True)
        lines = "".join(f"{action['sentence']}\n" for action in actions)
        diff = [{"prepared": lines}] if actions else []
        return {"changed": answer["changed"], "actions": actions, "diff": diff}


def _checked(fingerprints):
    return ["--checked", testbed.strict_json.dumps(fingerprints, None)]
