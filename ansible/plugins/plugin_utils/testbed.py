# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""The base class of the action plugins: packages, target, commands by Ansible's connection."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError

from ansible.plugins.action import ActionBase

# The packages are in a parent folder of a checked-out or installed collection, or in Python's path.
_ABOVE = (path for path in Path(__file__).resolve().parents if (path / "fde_testbed").is_dir())
sys.path += [str(path) for path in _ABOVE][:1]
try:
    import fde_testbed

    from contract import places, schema, strict_json
    from contract.errors import AgentError, ControllerError
    from contract.files import write_json
    from contract.plan import read_target
    from contract.problem import Problem
    from controller.targets import (
        agent_bundle,
        connection,
        first_writes,
        inventory,
        inventory_files,
        secrets,
        ssh_link,
        survey,
    )
except ImportError as error:
    MISSING = error
else:
    MISSING = None

__all__ = [
    "ControllerError",
    "Problem",
    "TestbedAction",
    "agent_bundle",
    "connection",
    "fde_testbed",
    "first_writes",
    "inventory",
    "inventory_files",
    "secrets",
    "ssh_link",
    "strict_json",
    "survey",
    "write_json",
]


SPECIFICATION_KEYS = ("type", "elements", "required", "default", "choices")


class TestbedAction(ActionBase):
    """An action on the controller; the target needs only Python.

    The documentation of the module of the same name is also the argument specification.
    """

    # Whether it may use an open connection of Ansible's.
    shares_connection = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Do the work; the result of a refusal has its `problems` as documents."""
        result = super().run(tmp, task_vars)
        if MISSING is not None:
            raise AnsibleActionFail(
                f"{sys.executable} lacks this collection's package fde-energy-testbed ({MISSING}). "
                "Run the `ansible-playbook` of the environment that has the command `fde`, or "
                "install the package in this one as you installed Ansible."
            )
        self._variables = task_vars or {}
        file = f"{self._task.action.rpartition('.')[2]}.yml"
        text = (Path(__file__).parents[1] / "modules" / file).read_text(encoding="utf-8")
        documented = yaml.safe_load(text)["DOCUMENTATION"].get("options", {})
        specification = {
            name: {key: entry[key] for key in SPECIFICATION_KEYS if key in entry}
            for name, entry in documented.items()
        }
        options = self.validate_argument_spec(specification)[1]
        try:
            return {**result, "changed": False, **self.work(options)}
        except AgentError as error:
            return {**result, **self.refused(error.problems)}

    def work(self, options):
        """Do the work of the action and return the fields of the result; raises AgentError."""
        raise NotImplementedError

    @property
    def host(self):
        """Name of the host in the inventory."""
        return self._variables["inventory_hostname"]

    @property
    def dry(self):
        """Whether Ansible runs in check mode."""
        return self._task.check_mode

    @property
    def target_file(self):
        """Path of the resolved target, which `fde_target` writes and other actions read."""
        if folder := os.environ.get("FDE_TARGETS"):  # of a single command
            return Path(folder) / f"{self.host}.json"
        source = str(self._variables.get("inventory_dir"))
        digest = hashlib.sha256(source.encode()).hexdigest()[:12]
        return places.build_folder() / "targets" / digest / f"{self.host}.json"

    def target(self):
        """Read the resolved target."""
        return read_target(self.target_file)

    def refused(self, problems, **fields):
        """Build the result of a refusal."""
        sentences = " ".join(str(problem) for problem in problems)
        documents = [problem.document() for problem in problems]
        return {**fields, "failed": True, "msg": f"{self.host}: {sentences}", "problems": documents}

    def ask(self, target, remote, stdin=b""):
        """Run a command as root on the target, as `controller.targets.connection.run` does.

        The input is never empty: then Ansible uses no terminal, which would mix errors with output.
        """
        if connection.sudo_user(target) or connection.is_local(target):
            remote = [*connection.ROOT_ENVIRONMENT, *remote]
        if not connection.is_local(target):
            # ssh takes the first value of an option: the site's cannot admit a stranger.
            unshared = () if self.shares_connection else connection.UNSHARED
            strict = " ".join(f"-o {option}" for option in (*connection.STRICT, *unshared))
            arguments = self._connection.get_option("ssh_args") or ""
            if not arguments.startswith(strict):
                self._connection.set_option("ssh_args", f"{strict} {arguments}")
        try:
            output = self._low_level_execute_command(
                connection.quote_command(remote),
                in_data=stdin or b"\n",
                encoding_errors="surrogateescape",
            )
        except AnsibleError as error:
            return subprocess.CompletedProcess(
                remote, connection.SSH_FAILED, b"", str(error).encode()
            )
        texts = (output[name].encode("utf-8", "surrogateescape") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(remote, output["rc"], *texts)

    def ask_agent(self, target, *arguments):
        """Run a command of the agent and return its answer; raises AgentError with its refusals."""
        shell = ["sh", "-c", 'umask 022; exec "$@"', "sh"]
        result = self.ask(target, [*shell, *connection.PYTHON, "-m", "agent", *arguments])
        try:
            answer = json.loads(result.stdout.splitlines()[-1])
        except (IndexError, ValueError):  # `pack` prints nothing
            answer = {}
        if not result.returncode:
            return answer
        if "problems" in answer:
            raise ControllerError(*(schema.read(Problem, entry) for entry in answer["problems"]))
        raise ControllerError(connection.describe_failure(target, result))
