#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_disks
short_description: Prepare the disks that the inventory names, or put them back
description:
  - The agent alone writes disks. It checks path, serial, size, use and signatures before each destructive step.
  - No disk is written unless all of them may be; a disk that the testbed has not had must be confirmed by its serial, and one that changed since it was checked is refused.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "No disk is written; RV(disks) has what would be done to each"}
  diff_mode: {support: full, description: "What is on each disk, and what would be done or was done"}
options:
  state:
    description: Whether the disks are ready for the configurations, or put back
    type: str
    choices: [prepared, restored]
    required: true
  confirmed:
    description: Serials of disks that may be written for the first time
    type: list
    elements: str
    default: []
  checked:
    description:
      - The fingerprints of C(fde_machine.checked), where M(fde.testbed.fde_facts) has looked and refused nothing.
      - Without them the disks are looked at first.
    type: dict
    default: {}
  psid_revert:
    description: Serial of the self-encrypting disk that is reverted by its PSID, with O(state=restored)
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show what would be done to each disk
  fde.testbed.fde_disks:
    state: prepared
  check_mode: true
  diff: true

- name: Prepare the disks
  fde.testbed.fde_disks:
    state: prepared
    confirmed: [S0EXAMPLE00001]
"""

RETURN = r"""
disks:
  description: The disks, as they were found
  returned: in check mode, or when refused
  type: list
  elements: dict
  contains:
    role: {description: Its name in C(fde_disks), type: str}
    by_id: {description: Its path, type: str}
    serial: {description: As the kernel reports it, type: str}
    found: {description: What is on it, type: str}
    ready: {description: Whether nothing is to be done, type: bool}
    would: {description: What would be done, type: list, elements: str}
    refusals: {description: Why it may not be written; each as in RV(problems), type: list, elements: dict}
actions:
  description: What was done, or with O(state=restored) in check mode would be
  returned: success
  type: list
  elements: str
  sample: [partitioned /dev/disk/by-id/nvme-EXAMPLE]
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
