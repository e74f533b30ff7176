#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_facts
short_description: Look at a target and its disks, and refuse what cannot be prepared
description:
  - The agent is unpacked below /run of the target, asked what machine and disks it sees, and removed.
  - Nothing is installed, no disk is written and no PIN is tried.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Looks all the same; a first writing is asked for only outside check mode"}
  diff_mode: {support: none, description: "Nothing is changed"}
options:
  disks:
    description: Whether to look at the disks, too
    type: bool
    default: true
  confirmed:
    description: Serials of disks that may be written for the first time
    type: list
    elements: str
    default: []
  refuse:
    description: Whether to fail where something prevents provisioning; otherwise only facts are returned
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Look at the machine and its disks
  fde.testbed.fde_facts:
    refuse: false

- name: Show what is on each disk
  ansible.builtin.debug:
    msg: "{{ fde_machine.disks | map(attribute='found') }}"
"""

RETURN = r"""
ansible_facts:
  description: What the machine is, under one name
  returned: when the target answered
  type: dict
  contains:
    fde_machine:
      description: Its distribution, programs, missing packages; C(disks); and C(checked), their fingerprints
      type: dict
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
