# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Look at a target and its disks by way of its memory; refuse what cannot be prepared."""

from __future__ import annotations

from dataclasses import asdict

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Nothing is installed, no disk is written."""

    def work(self, options):
        target = self.target()
        answer = testbed.survey.look(target, disks=options["disks"], run=self.ask)
        problems = [*answer.refusals, *(each for disk in answer.disks for each in disk.refusals)]
        # Without their packages, programs that look at disks are missing.
        if answer.error and not answer.facts.missing:
            problems.append(testbed.Problem("disks-unseen", {}, answer.error))
        confirmed = options["confirmed"]
        waiting = testbed.first_writes.unconfirmed(target, answer.disks, confirmed)
        # Only what may be prepared; `fde_disks` looks for itself where there is none.
        fingerprints = testbed.survey.expected_fingerprints(target, answer)
        facts = {
            **asdict(answer.facts),
            "disks": [asdict(disk) for disk in answer.disks],
            "checked": {} if problems or waiting or not answer.disks else fingerprints,
        }
        result = {"ansible_facts": {"fde_machine": facts}}
        problems += [] if self.dry else waiting
        return self.refused(problems, **result) if problems and options["refuse"] else result
