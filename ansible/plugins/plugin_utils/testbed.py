# Copyright: Contributors to the FDE energy testbed
# SPDX-License-Identifier: Apache-2.0
"""What the action plugins share: our packages, the target, commands by Ansible's connection."""

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

# The packages lie above a checkout's collection and an installed package's; else Python has them.
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
        secrets,
        ssh_link,
        survey,
    )
except ImportError as error:
    MISSING = error
else:
    MISSING = None

__all__ = [  # fde_testbed has our packages found
    "ControllerError",
    "Problem",
    "TestbedAction",
    "agent_bundle",
    "connection",
    "fde_testbed",
    "first_writes",
    "inventory",
    "secrets",
    "ssh_link",
    "strict_json",
    "survey",
    "write_json",
]


class TestbedAction(ActionBase):
    """An action on the controller; what it asks of the target needs Python there alone.

    The module of the same name holds its documentation, which is its argument specification, too.
    """

    # Whether it may use a connection of Ansible's that is open already.
    shares_connection = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Do the work; a refusal has its `problems`, each with code, facts, sentence and remedy."""
        result = super().run(tmp, task_vars)
        if MISSING is not None:
            raise AnsibleActionFail(
                f"Package fde-energy-testbed not found for {sys.executable} ({MISSING}). "
                f"Run `{sys.executable} -m pip install fde-energy-testbed`."
            )
        self._variables = task_vars or {}
        options = self.validate_argument_spec(_specification(self._task.action))[1]
        try:
            return {**result, "changed": False, **self.work(options)}
        except AgentError as error:
            return {**result, **self.refused(error.problems)}

    def work(self, options):
        """Return the result's fields; raises AgentError."""
        raise NotImplementedError

    @property
    def host(self):
        """Return the host's name in the inventory."""
        return self._variables["inventory_hostname"]

    @property
    def dry(self):
        """Whether this is check mode."""
        return self._task.check_mode

    @property
    def target_file(self):
        """Return where the resolved target is, which `fde_target` writes and the others read."""
        if folder := os.environ.get("FDE_TARGETS"):  # of one command alone
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
        return {
            **fields,
            "failed": True,
            "msg": f"{self.host}: {sentences}",
            "problems": documents,
        }

    def ask(self, target, remote, stdin=b""):
        """Run a command as root there, as `controller.targets.connection.run` does.

        Its input is never empty: Ansible then takes no terminal, which mixes errors with answers.
        """
        if connection.sudo_user(target) or connection.is_local(target):
            remote = [*connection.ROOT_ENVIRONMENT, *remote]
        if not connection.is_local(target):
            # Before the site's own, which ssh then does not take: a stranger gets no secret.
            unshared = () if self.shares_connection else connection.UNSHARED
            strict = " ".join(f"-o {each}" for each in (*connection.strict_options(), *unshared))
            arguments = self._connection.get_option("ssh_args") or ""
            if not arguments.startswith(strict):
                self._connection.set_option("ssh_args", f"{strict} {arguments}")
        try:
            done = self._low_level_execute_command(
                connection.quote_command(remote),
                in_data=stdin or b"\n",
                encoding_errors="surrogateescape",
            )
        except AnsibleError as error:
            return subprocess.CompletedProcess(
                remote, connection.SSH_FAILED, b"", str(error).encode()
            )
        texts = (done[name].encode("utf-8", "surrogateescape") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(remote, done["rc"], *texts)

    def ask_agent(self, target, *arguments):
        """Return the answer of a command of the agent there; raises AgentError by its refusals."""
        shell = ["sh", "-c", 'umask 022; exec "$@"', "sh"]
        done = self.ask(target, [*shell, *connection.PYTHON, "-m", "agent", *arguments])
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):  # `pack` prints nothing
            answer = {}
        if not done.returncode:
            return answer
        if "problems" in answer:
            raise ControllerError(*(schema.read(Problem, each) for each in answer["problems"]))
        raise ControllerError(connection.describe_failure(target, done))


def _specification(action):
    """Return the argument specification that a module's documentation has."""
    file = Path(__file__).parents[1] / "modules" / f"{action.rpartition('.')[2]}.yml"
    documentation = yaml.safe_load(file.read_text(encoding="utf-8"))["DOCUMENTATION"]
    options = documentation.get("options", {})
    kept = ("type", "elements", "required", "default", "choices")
    return {
        option: {key: entry[key] for key in kept if key in entry}
        for option, entry in options.items()
    }
