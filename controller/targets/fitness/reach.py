"""Checks of the connection to the target and of its software and assets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from agent.preflight import self_encrypting
from contract.command_results import CheckOutcome
from contract.examination import AssetState, KernelOptions
from controller.targets.fitness.diagnosis import Scene, failed, not_made, passed, refused, warned


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


def rights(_: Scene) -> Iterator[CheckOutcome]:
    """Check that the agent is root."""
    yield passed("The agent is root there.")


def system(scene: Scene) -> Iterator[CheckOutcome]:
    """Report distribution, architecture and Python; agent.preflight refuses unsupported ones."""
    facts = scene.facts
    sentence = f"{facts.name}, {facts.machine}, Python {facts.python}, systemd."
    named = {"name": facts.name, "kernel": facts.kernel, "python": facts.python}
    yield passed(sentence, **named)


def cryptsetup(scene: Scene) -> Iterator[CheckOutcome]:
    """Report cryptsetup's version and its support of Opal."""
    version, support = scene.facts.cryptsetup, "with" if scene.facts.hw_opal else "without"
    missing = "cryptsetup is not installed yet; fde provision installs it."
    yield passed(f"cryptsetup {version} {support} Opal." if version else missing)


def allow_tpm(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that the kernel passes Opal commands to a SATA disk."""
    if not self_encrypting(scene.target):
        return
    if scene.facts.sed_transport != "ata":
        by = f"by {scene.facts.sed_transport or 'unknown means'}, not by SATA"
        yield passed(f"Not needed: the self-encrypting disk is attached {by}.")
    else:
        yield passed("libata.allow_tpm=1 is set.")


def packages(scene: Scene) -> Iterator[CheckOutcome]:
    """Check that packages are installed or can be installed."""
    missing, install = scene.facts.missing, "All packages are installed."
    if missing and not scene.facts.lists:
        sentence = f"{len(missing)} packages are missing, and apt has no lists to find them in."
        yield warned(sentence, "Run apt-get update there.", missing=missing)
    else:
        install = f"fde provision installs {', '.join(missing)}." if missing else install
        yield passed(install, missing=missing)


def kernel(scene: Scene, options: KernelOptions) -> Iterator[CheckOutcome]:
    """Check that the kernel was built with what the configurations need."""
    release = scene.facts.kernel
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


def assets(_: Scene, states: Mapping[str, AssetState]) -> Iterator[CheckOutcome]:
    """Check the workloads' files and their SHA-256 sums."""
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
