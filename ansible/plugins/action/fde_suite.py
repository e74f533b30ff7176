# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""Start a suite on the target, query its state, or fetch its results."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.errors import AnsibleError

from ansible_collections.fde.testbed.plugins.plugin_utils import testbed

# systemd starts an agent that crashed repeatedly only after reset-failed.
START = """
umask 022; d=$1 u=$2; mkdir -p "$d" && n=$(mktemp "$d/.plan.XXXXXX") && cat >"$n" || exit 1
if cmp -s "$n" "$d/plan.json"; then rm "$n"
else chmod 644 "$n" && mv "$n" "$d/plan.json" && echo changed; fi
systemctl is-enabled --quiet "$u" && systemctl is-active --quiet "$u" && exit 0
systemctl reset-failed "$u" 2>/dev/null
systemctl enable --quiet "$u" && systemctl start "$u" && echo changed
"""
STATE = """
printf '{"active": "%s", ' "$(systemctl is-active "$2")"
printf '"enabled": "%s", ' "$(systemctl is-enabled "$2" 2>/dev/null || echo disabled)"
printf '"last": %s}' "$(tail -n 1 "$1/journal.jsonl" 2>/dev/null | grep . || echo null)"
"""
STOP = 'systemctl is-enabled --quiet "$2" && systemctl disable --quiet "$2" && echo changed; exit 0'


class ActionModule(testbed.TestbedAction):
    """Run the suite in a service of the target, also after a boot, until it is fetched."""

    def work(self, options):
        target, suite_id, state = self.target(), options["suite_id"], options["state"]
        folder, unit = testbed.connection.suite_dir(suite_id), f"fde-agent@{suite_id}.service"
        arguments = [folder, unit]
        if state == "queried":
            return {"suite": json.loads(self._require(target, STATE, arguments))}
        if self.dry:
            return {"changed": state == "started"}
        if state == "started":
            plan = Path(options["plan_file"]).read_bytes()
            return {"changed": bool(self._require(target, START, arguments, plan).strip())}
        self._require(target, STOP, arguments)
        archive = f"{folder}.tar"
        self.ask_agent(target, "pack", "--suite-dir", folder, "--out", archive)
        try:
            self._connection.fetch_file(archive, options["archive_file"])
        except AnsibleError as error:
            raise testbed.ControllerError(
                "suite-not-fetched", suite_id=suite_id, output=str(error)
            ) from None
        return {"changed": True, "archive_file": options["archive_file"]}

    def _require(self, target, script, arguments, stdin=b""):
        result = self.ask(target, ["sh", "-c", script, "sh", *arguments], stdin)
        return testbed.connection.require_output(target, result)
