#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_agent
short_description: Bring the agent to the target as one reproducible archive, or remove it
description:
  - The archive holds agent, workloads, instrumentation, pyRAPL, the systemd unit and the target's description.
  - It is unpacked only where anything on the target differs from it.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Compares and changes nothing"}
  diff_mode: {support: none, description: "An archive has no lines to compare"}
options:
  state:
    description: Whether the agent is on the target
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Bring the agent
  fde.testbed.fde_agent:
"""

RETURN = r"""
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
