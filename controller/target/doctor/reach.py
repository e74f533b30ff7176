"""Checks of the way to the target, and of what is installed on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from controller.target import connection
from controller.target.doctor.diagnosis import Scene, failed, not_made, passed, refused, warned

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
        yield passed(f"{link.user}@{connection.address(scene.target)} answers.")


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
    facts = scene.facts
    opal = "with" if facts.hw_opal else "without"
    sentence = f"cryptsetup {facts.cryptsetup} {opal} Opal."
    if not facts.cryptsetup:
        sentence = "cryptsetup is not installed yet; fde provision installs it."
    return _refusals(scene, "cryptsetup") or [passed(sentence)]


def allow_tpm(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that Opal commands pass to a SATA disk."""
    if not self_encrypting(scene.target):
        return []
    if scene.facts.sed_transport != "ata":
        how = scene.facts.sed_transport or "unknown means"
        sentence = f"Not needed: the self-encrypting disk is attached by {how}, not by SATA."
        return [passed(sentence)]
    return _refusals(scene, "allow-tpm") or [passed("libata.allow_tpm=1 is set.")]


def packages(scene: Scene) -> Iterable[CheckOutcome]:
    """Check that packages are installed, or can be."""
    missing = scene.facts.missing
    if refusals := _refusals(scene, "packages"):
        return refusals
    if not missing:
        return [passed("All packages are installed.", missing=missing)]
    if scene.facts.lists:
        sentence = f"fde provision installs {', '.join(missing)}."
        return [passed(sentence, missing=missing)]
    sentence = f"{len(missing)} packages are missing, and apt has no lists there to find them in."
    return [warned(sentence, "Run apt-get update there.", missing=missing)]


def kernel(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the kernel was built with what the configurations need."""
    options, release = scene.examined.kernel, scene.facts.kernel
    if options is None:
        yield scene.unavailable("kernel", "The kernel was not looked at.")
        return
    needs = {
        "opal": ("CONFIG_BLK_SED_OPAL", options.sed_opal),
        "dmcrypt": ("CONFIG_DM_CRYPT", options.dm_crypt),
    }
    kinds = {entry.kind for entry in scene.target.configurations}
    needed = [need for kind, need in needs.items() if kind in kinds]
    missing = [name for name, present in needed if present is False]
    if missing:
        yield failed(
            f"Kernel {release} was built without {' and '.join(missing)}.",
            "Boot the distribution's own kernel, or remove the configurations that need it.",
            **asdict(options),
        )
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
        sentence = "No assets are named: workloads that need them are left out or refused."
        yield warned(sentence, "Run fde assets, and name them in fde_assets.")
        return
    bad = {name: state for name, state in states.items() if state.state != "ok"}
    for name, state in bad.items():
        yield failed(
            f"{state.sentence.rstrip('.')}.",
            "Run fde assets, which makes it, or correct its path or sum in fde_assets.",
            asset=name,
            state=state.state,
        )
    if not bad:
        yield passed(f"{', '.join(states)}: present, with the declared sums.")


def _refusals(scene: Scene, code: str) -> list[CheckOutcome]:
    assert scene.answer is not None
    return [refused(each) for each in scene.answer.refusals if each.code in _CODES[code]]
