"""The machines that can run the lab's guest, the best first, and which of them does."""

from __future__ import annotations

from contract.errors import LabError
from lab import image
from lab.cache import Say
from lab.image import Image
from lab.machines.qemu import Qemu
from lab.machines.uml import Uml

Machine = Qemu | Uml
MACHINES: dict[str, Machine] = {m.name: m for m in (Qemu("kvm"), Uml(), Qemu("tcg"))}


def ready(wanted: str, say: Say) -> tuple[Machine, Image]:
    """Return the machine and the image, built where the cache lacks them. Raises LabError."""
    if wanted != "auto":
        require(wanted)  # before anything is built
    guest_image = image.ensure(say)
    return choose(wanted, guest_image, say), guest_image


def choose(wanted: str, guest_image: Image, say: Say) -> Machine:
    """Return the machine named `wanted`, or for `auto` the first that works, and print why.

    Raises LabError where none works.
    """
    names = list(MACHINES) if wanted == "auto" else [require(wanted).name]
    reasons: list[tuple[str, str]] = []
    for name in names:
        reason = MACHINES[name].why_not(guest_image, say)
        if reason is None:
            # Without the end of a build's log, whose place the first line names.
            short = [
                (n, why.partition("\n")[0].removesuffix("; its last lines:")) for n, why in reasons
            ]
            rejected = "; ".join(f"not {n}: {why}" for n, why in short)
            say(f"lab: the guest runs on {name}{f' ({rejected})' if rejected else ''}")
            return MACHINES[name]
        reasons.append((name, reason))
    raise LabError(
        "no machine can run the lab's guest here: "
        + "; ".join(f"{name}: {reason}" for name, reason in reasons)
    )


def require(name: str) -> Machine:
    """Return the machine of this name. Raises LabError where there is none."""
    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise LabError(f"there is no machine {name!r}: LAB_MACHINE is auto or one of {known}")
    return MACHINES[name]
