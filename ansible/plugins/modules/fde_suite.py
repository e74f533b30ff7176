#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_suite
short_description: Start a suite on the target, ask for its state, or fetch what it measured
description:
  - The frozen plan is handed to the agent's service, which runs now and after every boot until the suite is fetched.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Starts and fetches nothing"}
  diff_mode: {support: none, description: "There is no difference to show"}
options:
  state:
    description: Hand over the plan and start it, ask for its state, or end it and fetch its folder as one archive
    type: str
    choices: [started, queried, fetched]
    required: true
  suite_id:
    description: Name of the suite's folder
    type: str
    required: true
  plan_file:
    description: The frozen plan.json on the controller, with O(state=started)
    type: path
  archive_file:
    description: Where the archive goes on the controller, with O(state=fetched)
    type: path
"""

EXAMPLES = r"""
- name: Ask how far the suite is
  fde.testbed.fde_suite:
    state: queried
    suite_id: 20260101-smoke
  register: night
"""

RETURN = r"""
suite:
  description: The service's state (C(active), C(enabled)) and the C(last) entry of the journal
  returned: when O(state=queried)
  type: dict
archive_file:
  description: The archive on the controller
  returned: when O(state=fetched)
  type: str
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
