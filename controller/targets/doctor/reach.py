"""Checks of the way to the target, and of what is installed on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from controller.targets.doctor.diagnosis import Scene, failed, not_made, passed, refused, warned

# Refusals of agent.preflight by the check that reports them.
_CODES = {
    "rights": ("not-root",),
    "system": ("distribution", "machine", "no-systemd"),
    "cryptsetup": ("cryptsetup", "cryptsetup-offered", "cryptsetup-blocks", "cryptsetup-cipher"),
    "allow-tpm": ("allow-tpm",),
    "packages": ("other-database", "no-mysql", "no-package"),
}


def ssh(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the target answers."""
    link = scene.target.ssh
    if scene.unreached is not None:
        remedy = "Run the ssh command by hand, and correct the inventory's ansible_ variables."
        yield refused(scene.unreached, remedy)
    elif link is None:
        yield passed("local")
    else:
        yield passed("answers", user=link.user, host=link.host)


def rights(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that the agent is root."""
    return _refusals(scene, "rights") or [passed("root")]


def system(scene: Scene) -> Iterable[CheckOutcome]:
    """Check distribution, architecture, systemd and Python."""
    facts = scene.facts
    named = {"name": facts.name, "kernel": facts.kernel, "python": facts.python}
    return _refusals(scene, "system") or [passed("system", named, machine=facts.machine)]


def cryptsetup(scene: Scene) -> Iterable[CheckOutcome]:
    """Check cryptsetup's version and its support of Opal."""
    version, support = scene.facts.cryptsetup, "with" if scene.facts.hw_opal else "without"
    wording = "cryptsetup" if version else "cryptsetup-missing"
    return _refusals(scene, "cryptsetup") or [passed(wording, version=version, support=support)]


def allow_tpm(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that Opal commands pass to a SATA disk."""
    if not self_encrypting(scene.target):
        return []
    if scene.facts.sed_transport != "ata":
        transport = scene.facts.sed_transport or "unknown means"
        return [passed("allow-tpm-unneeded", transport=transport)]
    return _refusals(scene, "allow-tpm") or [passed("allow-tpm")]


def packages(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that packages are installed, or can be."""
    missing = scene.facts.missing
    if refusals := _refusals(scene, "packages"):
        return refusals
    if missing and not scene.facts.lists:
        return [warned("packages-no-lists", {"missing": missing}, count=len(missing))]
    wording = "packages-missing" if missing else "packages-installed"
    return [passed(wording, {"missing": missing}, names=", ".join(missing))]


def kernel(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the kernel was built with what the configurations need."""
    options, release = scene.examined.kernel, scene.facts.kernel
    if options is None:
        yield scene.unavailable("kernel", "The kernel was not looked at")
        return
    needs = {
        "opal": ("CONFIG_BLK_SED_OPAL", options.sed_opal),
        "dmcrypt": ("CONFIG_DM_CRYPT", options.dm_crypt),
    }
    kinds = {entry.kind for entry in scene.target.configurations}
    needed = [need for kind, need in needs.items() if kind in kinds]
    if missing := " and ".join(name for name, present in needed if present is False):
        yield failed("kernel-lacks", asdict(options), release=release, missing=missing)
    elif any(present is None for _, present in needed):
        yield not_made("kernel-unknown", release=release)
    else:
        yield passed("kernel-complete", asdict(options), release=release)


def assets(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the workloads' files and their sums."""
    states = scene.examined.assets
    if states is None:
        yield scene.unavailable("assets")
        return
    if not states:
        yield warned("assets-none")
        return
    bad = {name: state for name, state in states.items() if state.state != "ok"}
    for name, state in bad.items():
        facts = {"asset": name, "state": state.state}
        yield failed("asset-bad", facts, sentence=state.sentence.rstrip("."))
    if not bad:
        yield passed("assets-sound", names=", ".join(states))


def _refusals(scene: Scene, code: str) -> list[CheckOutcome]:
    assert scene.answer is not None
    return [refused(each) for each in scene.answer.refusals if each.code in _CODES[code]]
