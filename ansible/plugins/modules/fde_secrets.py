#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
# The action plugin of this name does the work on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: fde_secrets
short_description: Check the secrets, place them in the target's memory, or remove them there
description:
  - The file is named in the inventory (C(fde_secrets_file)), of mode 0600, and may be encrypted with Ansible Vault.
  - "The secrets go from that file to the input of a command on the target: no variable, argument, log or result of Ansible has them, so that nothing has to be hidden by C(no_log)."
  - Placed, they are in a ramfs for root alone and gone after a reboot; the PSID stays on the controller.
version_added: "0.1.0"
author: FDE energy testbed (@fde-testbed)
notes:
  - Needs the Python package C(fde-energy-testbed) beside Ansible, and the target as M(fde.testbed.fde_target) resolved it.
  - A refusal has RV(problems), which programs read; its text in C(msg) is for people.
attributes:
  check_mode: {support: full, description: "Checks all the same; places and removes nothing"}
  diff_mode: {support: none, description: "Secrets are not shown"}
options:
  state:
    description: Look at the file here, place the secrets there, or remove them there
    type: str
    choices: [checked, placed, absent]
    required: true
  with_psid:
    description: Whether the PSID goes along, for a drive that is reverted by it
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Place the secrets in the target's memory
  fde.testbed.fde_secrets:
    state: placed
"""

RETURN = r"""
description:
  description: The file's mode and the names of its secrets
  returned: when O(state=checked)
  type: str
  sample: mode 0600, with luks_passphrase, opal_admin_pin
problems:
  description: Why it was refused, each with C(code), C(facts), C(sentence) and C(remedy)
  returned: failure
  type: list
  elements: dict
  sample: [{code: not-blank, facts: {role: plain}, sentence: Disk plain holds data., remedy: Take another.}]
"""
