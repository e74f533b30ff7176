# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Collect facts of a target and its disks from its memory; refuse what cannot be prepared."""

from __future__ import annotations

from dataclasses import asdict

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed


class ActionModule(testbed.TestbedAction):
    """Collect facts; nothing is installed, no disk is written."""

    def work(self, options):
        target = self.target()
        answer = testbed.survey.look(target, disks=options["disks"], run=self.ask)
        problems = [*answer.refusals, *(p for disk in answer.disks for p in disk.refusals)]
        # While packages are missing, disks cannot be examined; that is no refusal.
        if answer.error and not answer.facts.missing:
            problems.append(testbed.Problem("disks-unseen", {}, answer.error))
        confirmed = options["confirmed"]
        unconfirmed = testbed.first_writes.unconfirmed(target, answer.disks, confirmed)
        # Only fingerprints of disks that may be prepared; without any, `fde_disks` reads its own.
        fingerprints = testbed.survey.expected_fingerprints(target, answer)
        facts = {
            **asdict(answer.facts),
            "disks": [asdict(disk) for disk in answer.disks],
            "checked": {} if problems or unconfirmed or not answer.disks else fingerprints,
        }
        result = {"ansible_facts": {"fde_machine": facts}}
        problems += [] if self.dry else unconfirmed
        return self.refused(problems, **result) if problems and options["refuse"] else result
