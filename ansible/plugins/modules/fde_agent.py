#!/usr/bin/python
# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""A name for Ansible: the action plugin does the work, the file fde_agent.yml documents it."""

from __future__ import annotations
