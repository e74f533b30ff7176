#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_target
short_description: Check a target's variables and write its resolved description
description:
  - Runs on the controller alone; the target is not touched.
  - The link is that of Ansible's own connection, with its C(ansible_ssh_*) settings.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Only the description on the controller is written"}
  diff_mode: {support: none, description: "There is no difference to show"}
options:
  variables:
    description: What the role P(fde.testbed.target_spec#role) makes of the inventory's C(fde_*) variables
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Resolve the target as the role target_spec does
  fde.testbed.fde_target:
    variables: "{{ target_spec_given }}"
"""

RETURN = r"""
target_file:
  description: Where the description was written, on the controller
  returned: success
  type: str
  sample: build/targets/0123456789ab/target.json
target:
  description: The resolved target
  returned: success
  type: dict
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
