"""A machine that measures itself, at night: `fde` from pip, a user with sudo, RAPL alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.errors import LabError
from validation.first_use import installed

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PSID = """
import json, pathlib, sys
path = pathlib.Path("mine/.secrets.json")
path.write_text(json.dumps({**json.loads(path.read_text()), "sed_psid": sys.stdin.read().strip()}))
"""
# libpam-systemd, which the guest's image lacks, tells it where its runtime folder is.
USER_MANAGER = f"""
mkdir -p /run/systemd/system/user@.service.d
printf '[Service]\\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\\n' \\
  >/run/systemd/system/user@.service.d/runtime.conf
systemctl daemon-reload
loginctl enable-linger {installed.USER}
"""


@pytest.fixture
def machine(another_lab: Callable[..., Any]) -> Iterator[Any]:
    """Yield a guest with `fde` installed for its user; no meter."""
    try:
        packages = installed.wheels(print)
    except LabError as error:
        pytest.skip(f"the packages for the guest cannot be had: {error}")
    with another_lab("own", meter=False) as handle:
        installed.send(lambda script, data: handle.ssh(script, stdin=data), packages)
        handle.ssh(installed.as_user(installed.INSTALL))
        yield handle


def test_from_pip_to_a_report_and_back(machine: Any) -> None:
    def typed(line: str) -> str:
        line = f'export FDE_INVENTORY=mine PATH="$HOME/env/bin:$PATH"\n{line}'
        output: str = machine.ssh(installed.as_user(line)).stdout
        return output

    plain, sed = (machine.state["drives"][role]["serial"] for role in ("plain", "sed"))
    psid = Path(machine.state["drives"]["sed"]["psid_file"]).read_bytes()
    disks = f"--disk plain={plain} --disk sed={sed} --give-up {sed}"
    typed(f"fde init mine --local {disks} --modelled --yes")
    machine.ssh(installed.as_user(f"python3 -c '{PSID}'"), stdin=psid)
    lines = json.loads(typed("fde check --json"))
    assert lines["ok"], lines
    typed(f"fde provision --confirm '{plain} {sed}'")
    proven = json.loads(typed("fde prove plain opal dmcrypt-aes256 --json"))
    assert proven["ok"]

    folder = typed("fde plan --suite micro --blocks 1 -c plain,opal,dmcrypt-aes256").split()
    machine.ssh(USER_MANAGER)
    typed(
        """
        export XDG_RUNTIME_DIR=/run/user/$(id -u)
        until systemctl --user list-units >/dev/null; do sleep 0.2; done
        evening=$(date -d "2 minutes" +%H:%M) morning=$(date -d "2 hours" +%H:%M)
        systemd-run --user --same-dir --unit fde-night --on-calendar=$evening --setenv=PATH \
          --setenv=FDE_INVENTORY fde resume --until $morning
        """
    )
    held = typed(
        """
        export XDG_RUNTIME_DIR=/run/user/$(id -u)
        log() { journalctl --user --unit fde-night --no-pager; exit 1; }
        seen() { systemd-inhibit --list --no-legend | grep fde-testbed; }
        tries=0
        until seen; do [ $((tries += 1)) -lt 900 ] || log; sleep 0.2; done
        while systemctl --user is-active --quiet fde-night.service; do sleep 1; done
        fde summary --json
        """
    )
    assert "sleep" in held
    assert f"{folder[-1]}/manifest.json" in typed(f"ls {folder[-1]}/manifest.json"), held
    report = json.loads(typed("fde report --json"))
    page = typed(f"cat {report['page']}")
    assert "RAPL counts processor and memory alone" in page
    assert json.loads(typed("fde verify --json"))["ok"]
    typed("fde teardown")
    owned = machine.ssh(
        "cryptsetup status luks 2>/dev/null; lsblk --noheadings --output TYPE"
    ).stdout
    assert "part" not in owned and "crypt" not in owned
