#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_packages
short_description: Note, install or remove the packages that provisioning brings to a target
description:
  - The agent notes first what is new, so that a teardown can take it away; no service of a package is started.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Reports what would be installed"}
  diff_mode: {support: none, description: "There is no difference to show"}
options:
  state:
    description: Install these, only note them and RV(ignore:files) for a teardown, or remove all that is noted
    type: str
    choices: [present, noted, absent]
    default: present
  names:
    description: Packages of the distribution
    type: list
    elements: str
    default: []
  files:
    description: Files and folders on the target that are about to be made
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Install what a look reported as missing
  fde.testbed.fde_packages:
    names: "{{ fde_machine.missing }}"
"""

RETURN = r"""
actions:
  description: What was done, in sentences
  returned: success
  type: list
  elements: str
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
