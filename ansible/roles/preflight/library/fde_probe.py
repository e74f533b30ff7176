"""Ansible module: what a target is and has, in one call, for each call is slow under emulation."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: fde_probe
short_description: What a target is and has, in one call
description:
  - Reads the distribution, the init system, the version and flags of cryptsetup.
  - Reads which of the packages are installed.
  - Changes nothing.
options:
  packages:
    description: Debian packages to look for.
    type: list
    elements: str
    default: []
author: The FDE energy testbed
"""

EXAMPLES = r"""
- name: Look at the target
  fde_probe:
    packages: [cryptsetup-bin]
"""

RETURN = r"""
probe:
  description: uid, distribution, version, systemd, dpkg, missing, cryptsetup, hw_opal, python.
  returned: always
  type: dict
"""


def _output(*command: str) -> str:
    """Standard output of a command, whatever its exit code; empty if it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout


def _os_release() -> dict[str, str]:
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {key: value.strip('"') for key, _, value in pairs}


def _missing(packages: list[str]) -> list[str]:
    shown = _output("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages)
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return sorted(set(packages) - installed)


def probe(packages: list[str]) -> dict[str, Any]:
    release = _os_release()
    cryptsetup = _output("cryptsetup", "--version")
    version = re.search(r"(\d+)\.(\d+)", cryptsetup)
    return {
        "uid": os.geteuid(),
        "distribution": release.get("ID", ""),
        "like": release.get("ID_LIKE", ""),
        "version": release.get("VERSION_ID", ""),
        "systemd": Path("/run/systemd/system").is_dir(),
        "missing": _missing(packages),
        "cryptsetup": f"{version[1]}.{version[2]}" if version else "",
        "hw_opal": "HW_OPAL" in cryptsetup,
        "python": platform.python_version(),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "default": []}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, probe=probe(module.params["packages"]))


if __name__ == "__main__":
    main()
