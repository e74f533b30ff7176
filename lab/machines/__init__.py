"""The machines that can run the lab's guest, the best first, and the choice among them."""

from __future__ import annotations

from contract.errors import LabError
from lab import image
from lab.cache import Say
from lab.image import Image
from lab.machines.qemu import Qemu
from lab.machines.uml import Uml

Machine = Qemu | Uml
MACHINES: dict[str, Machine] = {m.name: m for m in (Qemu("kvm"), Uml(), Qemu("tcg"))}


def ready(choice: str, say: Say) -> tuple[Machine, Image]:
    """Return the machine and the image, building what the cache lacks. Raises LabError."""
    if choice != "auto":
        require(choice)  # fail before anything is built
    guest_image = image.ensure(say)
    return choose(choice, guest_image, say), guest_image


def choose(choice: str, guest_image: Image, say: Say) -> Machine:
    """Return the machine named `choice`, or for `auto` the first that works, and print why.

    Raises LabError if none works.
    """
    names = list(MACHINES) if choice == "auto" else [require(choice).name]
    reasons: list[tuple[str, str]] = []
    for name in names:
        reason = MACHINES[name].why_not(guest_image, say)
        if reason is None:
            # The first line of a failed build has the path of its log.
            rejections = "; ".join(f"not {n}: {why.splitlines()[0]}" for n, why in reasons)
            rejections = rejections.replace("; its last lines:", "")
            say(f"lab: the guest runs on {name}{f' ({rejections})' if rejections else ''}")
            return MACHINES[name]
        reasons.append((name, reason))
    raise LabError(
        "no machine can run the lab's guest here: "
        + "; ".join(f"{name}: {reason}" for name, reason in reasons)
    )


def require(name: str) -> Machine:
    """Return the machine of this name. Raises LabError for an unknown one."""
    if name not in MACHINES:
        names = ", ".join(MACHINES)
        raise LabError(f"there is no machine {name!r}: LAB_MACHINE is auto or one of {names}")
    return MACHINES[name]
