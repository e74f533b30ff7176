"""What the workflows may do: no moving code of others, and no job with more than one right."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from contract.places import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
# A step that brings the repository's own code, or what a run of it made, to a job.
OWN_CODE = ("actions/checkout", "actions/setup-python", "actions/cache")
IDENTITY = "id-token"  # it proves which job this is, and changes nothing by itself


def jobs(workflow: Any) -> list[tuple[str, Any]]:
    return list(yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].items())


def written(job: Any) -> set[str]:
    """Return the rights to write of a job."""
    permissions = job["permissions"]
    assert isinstance(permissions, dict)
    return {right for right, level in permissions.items() if level == "write"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_takes_fixed_actions_and_gives_each_job_one_right(workflow: Any) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {}
    for name, job in jobs(workflow):
        uses = [step["uses"] for step in job.get("steps", []) if "uses" in step]
        foreign = [use for use in [*uses, job.get("uses", "./")] if not use.startswith("./")]
        assert all(re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", use) for use in foreign), name
        assert len(written(job) - {IDENTITY}) <= 1, name
        if written(job):
            assert not any(use.startswith(OWN_CODE) for use in uses), name
        for step in job.get("steps", []):
            assert "${{" not in step.get("run", ""), name  # text of others in a shell
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False, name
    # A version beside each hash, for people and for Dependabot.
    assert len(re.findall(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", text, re.MULTILINE)) == text.count(
        "@"
    ) - text.count("actionlint@")


def test_a_release_gives_each_right_to_one_job() -> None:
    release = dict(jobs(ROOT / ".github" / "workflows" / "release.yml"))
    rights = {name: written(job) for name, job in release.items() if written(job)}
    assert sorted(map(sorted, rights.values())) == [
        ["attestations", "id-token"],
        ["contents"],
        ["id-token"],
    ]
    assert release["pypi"]["environment"] == "pypi"
    assert any("make dist audit" in step.get("run", "") for step in release["build"]["steps"])
