"""Writes lines of JSON: a play's groups and hosts, its failures, and the counts of all hosts.

The lines are appended to the file that FDE_ANSIBLE_EVENTS names; without it nothing is written.
Ansible removes hidden values from results of tasks with `no_log` before.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: fde_events
type: notification
short_description: failures and counts of a play as lines of JSON
description: Appends to the file named by the environment variable FDE_ANSIBLE_EVENTS.
"""
COUNTS = ("ok", "changed", "failures", "unreachable")


class CallbackModule(CallbackBase):
    """A callback that runs in addition to the usual output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "fde_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = os.environ.get("FDE_ANSIBLE_EVENTS", "")
        self.disabled = not self._file
        # Reasons of failed items of the present loop, by host.
        self._items: dict[str, list[str]] = {}

    def v2_playbook_on_play_start(self, play: Any) -> None:
        groups = play.get_variable_manager().get_vars(play=play)["groups"]
        owners = {"group_vars": list(groups), "host_vars": groups["all"]}
        self._append({"event": "play", "owners": owners})

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._items.setdefault(result.host.get_name(), []).extend(_reasons(result.result))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if ignore_errors:
            self._items.pop(result.host.get_name(), None)
        else:
            self._failure(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._failure(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        summaries = {host: stats.summarize(host) for host in stats.processed}
        counts = {host: {key: sums[key] for key in COUNTS} for host, sums in summaries.items()}
        self._append({"event": "stats", "hosts": counts})

    def _failure(self, result: Any) -> None:
        host = result.host.get_name()
        reasons = self._items.pop(host, None) or _reasons(result.result)
        line = {"event": "failure", "host": host, "task": result.task.get_name()}
        problems = result.result.get("problems", [])
        self._append({**line, "reasons": reasons, "problems": problems})

    def _append(self, line: dict[str, Any]) -> None:
        with Path(self._file).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _reasons(result: dict[str, Any]) -> list[str]:
    """Return the reasons of a failure, with the last line of standard error."""
    if result.get("argument_errors"):
        return [str(reason) for reason in result["argument_errors"]]
    lines = str(result.get("stderr") or "").strip().splitlines()
    words = result.get("msg") or result.get("censored") or "it gave no reason"
    return [f"{words}: {lines[-1]}" if lines else str(words)]
