"""Checks of the way to the target, and of what is installed on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from controller.targets.fitness.diagnosis import Scene, failed, not_made, passed, refused, warned

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
        yield passed("The target is this machine; SSH is not used.")
    else:
        yield passed(f"{link.user}@{link.host} answers.")


def rights(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that the agent is root."""
    return _refusals(scene, "rights") or [passed("The agent is root there.")]


def system(scene: Scene) -> Iterable[CheckOutcome]:
    """Check distribution, architecture, systemd and Python."""
    facts = scene.facts
    sentence = f"{facts.name}, {facts.machine}, Python {facts.python}, systemd."
    named = {"name": facts.name, "kernel": facts.kernel, "python": facts.python}
    return _refusals(scene, "system") or [passed(sentence, **named)]


def cryptsetup(scene: Scene) -> Iterable[CheckOutcome]:
    """Check cryptsetup's version and its support of Opal."""
    version, support = scene.facts.cryptsetup, "with" if scene.facts.hw_opal else "without"
    sentence = "cryptsetup is not installed yet; fde provision installs it."
    if version:
        sentence = f"cryptsetup {version} {support} Opal."
    return _refusals(scene, "cryptsetup") or [passed(sentence)]


def allow_tpm(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that Opal commands pass to a SATA disk."""
    if not self_encrypting(scene.target):
        return []
    if scene.facts.sed_transport != "ata":
        by = f"by {scene.facts.sed_transport or 'unknown means'}, not by SATA"
        return [passed(f"Not needed: the self-encrypting disk is attached {by}.")]
    return _refusals(scene, "allow-tpm") or [passed("libata.allow_tpm=1 is set.")]


def packages(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that packages are installed, or can be."""
    missing = scene.facts.missing
    if refusals := _refusals(scene, "packages"):
        return refusals
    if missing and not scene.facts.lists:
        sentence = (
            f"{len(missing)} packages are missing, and apt has no lists there to find them in."
        )
        return [warned(sentence, "Run apt-get update there.", missing=missing)]
    install = f"fde provision installs {', '.join(missing)}."
    return [passed(install if missing else "All packages are installed.", missing=missing)]


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
        remedy = "Boot the distribution's own kernel, or remove the configurations that need it."
        yield failed(f"Kernel {release} was built without {missing}.", remedy, **asdict(options))
    elif any(present is None for _, present in needed):
        yield not_made(f"Kernel {release} does not report how it was built.")
    else:
        yield passed(f"Kernel {release} has what the configurations need.", **asdict(options))


def assets(scene: Scene) -> Iterator[CheckOutcome]:
    """Check the workloads' files and their sums."""
    states = scene.examined.assets
    if states is None:
        yield scene.unavailable("assets")
        return
    if not states:
        yield warned(
            "No assets are named: workloads that need them are left out or refused.",
            "Run fde assets, and name them in fde_assets.",
        )
        return
    bad = {name: state for name, state in states.items() if state.state != "ok"}
    for name, state in bad.items():
        remedy = "Run fde assets, which makes it, or correct its path or sum in fde_assets."
        facts = {"asset": name, "state": state.state}
        yield failed(f"{state.sentence.rstrip('.')}.", remedy, **facts)
    if not bad:
        yield passed(f"{', '.join(states)}: present, with the declared sums.")


def _refusals(scene: Scene, code: str) -> list[CheckOutcome]:
    assert scene.answer is not None
    return [refused(each) for each in scene.answer.refusals if each.code in _CODES[code]]
