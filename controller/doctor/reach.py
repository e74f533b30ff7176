"""Diagnoses of the way to the target, and of what is installed on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.preflight import self_encrypting
from controller import remote
from controller.doctor.diagnosis import Diagnosis, Scene, not_made, passed, split

# Refusals of agent.preflight by the diagnosis that tells of them.
_CODES = {
    "rights": ("not-root",),
    "system": ("distribution", "machine", "no-systemd", "old-python"),
    "cryptsetup": ("cryptsetup", "cryptsetup-offered"),
    "allow-tpm": ("allow-tpm",),
    "packages": ("other-database", "no-mysql", "no-package"),
}


def ssh(scene: Scene) -> Iterator[Diagnosis]:
    if scene.look is None:
        yield Diagnosis("ssh", "fail", *split(scene.unreached))
    elif remote.is_local(scene.target):
        yield passed("ssh", "The target is this machine; SSH is not used.")
    else:
        link = scene.target["ssh"]
        yield passed("ssh", f"{link['user']}@{link['host']} answers.")


def rights(scene: Scene) -> Iterator[Diagnosis]:
    yield from _refused(scene, "rights") or [passed("rights", "The agent is root there.")]


def system(scene: Scene) -> Iterator[Diagnosis]:
    facts = _facts(scene)
    said = f"{facts['name']}, {facts['machine']}, Python {facts['python']}, systemd"
    yield from _refused(scene, "system") or [passed("system", f"{said}.", **facts)]


def cryptsetup(scene: Scene) -> Iterator[Diagnosis]:
    facts = _facts(scene)
    opal = "with" if facts["hw_opal"] else "without"
    said = f"cryptsetup {facts['cryptsetup']} {opal} Opal."
    if not facts["cryptsetup"]:
        said = "cryptsetup is not there yet; fde provision installs it."
    yield from _refused(scene, "cryptsetup") or [passed("cryptsetup", said)]


def allow_tpm(scene: Scene) -> Iterator[Diagnosis]:
    facts = _facts(scene)
    if not self_encrypting(scene.target):
        return
    if facts["sed_transport"] != "ata":
        how = facts["sed_transport"] or "unknown way"
        said = f"Not needed: the self-encrypting disk is attached by {how}, not by SATA."
        yield passed("allow-tpm", said)
        return
    yield from _refused(scene, "allow-tpm") or [passed("allow-tpm", "libata.allow_tpm=1 is set.")]


def packages(scene: Scene) -> Iterator[Diagnosis]:
    missing = _facts(scene)["missing"]
    said = "All packages are there."
    if missing:
        said = f"{len(missing)} packages are missing; fde provision installs them."
    refused = _refused(scene, "packages")
    if missing and not refused and not _facts(scene)["lists"]:
        yield Diagnosis(
            "packages",
            "warn",
            f"{len(missing)} packages are missing, and apt has no lists there to tell whether it "
            "can get them.",
            "Run apt-get update there.",
            {"missing": missing},
        )
        return
    yield from refused or [Diagnosis("packages", "pass", said, "", {"missing": missing})]


def kernel(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("kernel")
    if not found:
        yield not_made("kernel", scene.part_error("kernel") or "The kernel was not looked at.")
        return
    kinds = {entry["kind"] for entry in scene.target["configurations"]}
    needs = {
        "opal": ("sed_opal", "CONFIG_BLK_SED_OPAL"),
        "dmcrypt": ("dm_crypt", "CONFIG_DM_CRYPT"),
    }
    release = _facts(scene)["kernel"]
    asked = [need for kind, need in needs.items() if kind in kinds]
    lacking = [option for key, option in asked if found[key] is False]
    if lacking:
        yield Diagnosis(
            "kernel",
            "fail",
            f"Kernel {release} was built without {' and '.join(lacking)}.",
            "Boot the distribution's own kernel, or take the configurations that need it out.",
            found,
        )
    elif any(found[key] is None for key, _ in asked):
        yield not_made("kernel", f"Kernel {release} does not tell how it was built.")
    else:
        yield passed("kernel", f"Kernel {release} has what the configurations need.", **found)


def assets(scene: Scene) -> Iterator[Diagnosis]:
    found = scene.part("assets")
    if found is None:
        yield not_made("assets", scene.part_error("assets") or "They were not looked at.")
        return
    if not found:
        said = "No assets are named: workloads that need them are left out or refused."
        yield Diagnosis("assets", "warn", said, "Run fde assets, and name them in fde_assets.")
        return
    bad = {name: one for name, one in found.items() if one.get("state") != "ok"}
    for name, one in bad.items():
        sentence = one.get("sentence") or f"The asset {name} cannot be read ({one.get('error')})"
        what, way = split(sentence)
        way = way or "Run fde assets, which makes it, or correct its path in fde_assets."
        yield Diagnosis("assets", "fail", what, way, {"asset": name, **one})
    if not bad:
        names = ", ".join(found)
        yield passed("assets", f"{names}: there, with the sums that are declared.")


def _facts(scene: Scene) -> Mapping[str, Any]:
    assert scene.look is not None
    return scene.look.facts


def _refused(scene: Scene, code: str) -> list[Diagnosis]:
    assert scene.look is not None
    return [
        Diagnosis(code, "fail", *split(refusal["sentence"]), facts=refusal["facts"])
        for refusal in scene.look.refusals
        if refusal["cause"] in _CODES[code]
    ]
