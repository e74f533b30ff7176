"""Diagnoses of the way to the target, and of what is installed on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.preflight import self_encrypting
from controller.target import connection
from controller.target.doctor.diagnosis import (
    Finding,
    Scene,
    failed,
    not_made,
    passed,
    split,
    warned,
)

# Refusals of agent.preflight by the diagnosis that tells of them.
_CODES = {
    "rights": ("not-root",),
    "system": ("distribution", "machine", "no-systemd", "old-python"),
    "cryptsetup": ("cryptsetup", "cryptsetup-offered", "cryptsetup-blocks"),
    "allow-tpm": ("allow-tpm",),
    "packages": ("other-database", "no-mysql", "no-package"),
}


def ssh(scene: Scene) -> Iterator[Finding]:
    if scene.look is None:
        yield failed(*split(scene.unreached))
    elif connection.is_local(scene.target):
        yield passed("The target is this machine; SSH is not used.")
    else:
        link = scene.target["ssh"]
        yield passed(f"{link['user']}@{link['host']} answers.")


def rights(scene: Scene) -> Iterable[Finding]:
    return _refused(scene, "rights") or [passed("The agent is root there.")]


def system(scene: Scene) -> Iterable[Finding]:
    facts = _facts(scene)
    sentence = f"{facts['name']}, {facts['machine']}, Python {facts['python']}, systemd"
    return _refused(scene, "system") or [passed(f"{sentence}.", **facts)]


def cryptsetup(scene: Scene) -> Iterable[Finding]:
    facts = _facts(scene)
    opal = "with" if facts["hw_opal"] else "without"
    sentence = f"cryptsetup {facts['cryptsetup']} {opal} Opal."
    if not facts["cryptsetup"]:
        sentence = "cryptsetup is not there yet; fde provision installs it."
    return _refused(scene, "cryptsetup") or [passed(sentence)]


def allow_tpm(scene: Scene) -> Iterable[Finding]:
    facts = _facts(scene)
    if not self_encrypting(scene.target):
        return []
    if facts["sed_transport"] != "ata":
        how = facts["sed_transport"] or "unknown way"
        sentence = f"Not needed: the self-encrypting disk is attached by {how}, not by SATA."
        return [passed(sentence)]
    return _refused(scene, "allow-tpm") or [passed("libata.allow_tpm=1 is set.")]


def packages(scene: Scene) -> Iterable[Finding]:
    missing = _facts(scene)["missing"]
    if refused := _refused(scene, "packages"):
        return refused
    if not missing:
        return [passed("All packages are there.", missing=missing)]
    count = f"{len(missing)} packages are missing"
    if _facts(scene)["lists"]:
        return [passed(f"{count}; fde provision installs them.", missing=missing)]
    sentence = f"{count}, and apt has no lists there to tell whether it can get them."
    return [warned(sentence, "Run apt-get update there.", {"missing": missing})]


def kernel(scene: Scene) -> Iterator[Finding]:
    options = scene.part("kernel")
    if not options:
        yield scene.untold("kernel", "The kernel was not looked at.")
        return
    kinds = {entry["kind"] for entry in scene.target["configurations"]}
    needs = {
        "opal": ("sed_opal", "CONFIG_BLK_SED_OPAL"),
        "dmcrypt": ("dm_crypt", "CONFIG_DM_CRYPT"),
    }
    release = _facts(scene)["kernel"]
    asked = [need for kind, need in needs.items() if kind in kinds]
    lacking = [option for key, option in asked if options[key] is False]
    if lacking:
        yield failed(
            f"Kernel {release} was built without {' and '.join(lacking)}.",
            "Boot the distribution's own kernel, or take the configurations that need it out.",
            options,
        )
    elif any(options[key] is None for key, _ in asked):
        yield not_made(f"Kernel {release} does not tell how it was built.")
    else:
        yield passed(f"Kernel {release} has what the configurations need.", **options)


def assets(scene: Scene) -> Iterator[Finding]:
    state = scene.part("assets")
    if state is None:
        yield scene.untold("assets", "They were not looked at.")
        return
    if not state:
        said = "No assets are named: workloads that need them are left out or refused."
        yield warned(said, "Run fde assets, and name them in fde_assets.")
        return
    bad = {name: one for name, one in state.items() if one.get("state") != "ok"}
    for name, one in bad.items():
        sentence = one.get("sentence") or f"The asset {name} cannot be read ({one.get('error')})"
        what, way = split(sentence)
        way = way or "Run fde assets, which makes it, or correct its path in fde_assets."
        yield failed(what, way, {"asset": name, **one})
    if not bad:
        yield passed(f"{', '.join(state)}: there, with the sums that are declared.")


def _facts(scene: Scene) -> Mapping[str, Any]:
    assert scene.look is not None
    return scene.look.facts


def _refused(scene: Scene, code: str) -> list[Finding]:
    assert scene.look is not None
    return [
        failed(refusal["sentence"], refusal["remedy"], refusal["facts"])
        for refusal in scene.look.refusals
        if refusal["code"] in _CODES[code]
    ]
