from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drive.control import ask
from drive.initiator import Initiator
from drive.opal import credentials
from drive.tests import conformance
from drive.tests.guest_sed import GuestSed
from drive.tests.installed import build_and_install
from drive.tests.opal_host import OWNER, own_with_range, take_ownership
from drive.tests.process import Drive

MakeDrive = Callable[..., Drive]


@pytest.fixture(autouse=True)
def _quick_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a drive in the test's own process, as forked ones have them."""
    monkeypatch.setattr(credentials, "COST", 2)


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Yield a folder in memory, if there is room: a drive flushes each change to disk."""
    shared = Path("/dev/shm")
    room = shared.is_dir() and shutil.disk_usage(shared).free > 1 << 28
    with tempfile.TemporaryDirectory(prefix="drive-", dir=shared if room else None) as folder:
        yield Path(folder)


@pytest.fixture
def make_drive(in_memory: Path) -> Iterator[MakeDrive]:
    """Start drive processes; they must end cleanly and without a traceback."""
    drives: list[Drive] = []

    def make(*arguments: Any, **options: Any) -> Drive:
        folder = in_memory / f"{len(drives)}"
        folder.mkdir()
        drive = Drive(folder, *arguments, **options)
        drives.append(drive)
        drive.start()
        return drive

    yield make
    for drive in drives:
        drive.stop()


@pytest.fixture
def sed(make_drive: MakeDrive) -> Drive:
    """Return a self-encrypting drive as it leaves the factory."""
    return make_drive(opal=True)


@pytest.fixture
def plain(make_drive: MakeDrive) -> Drive:
    return make_drive(opal=False)


@pytest.fixture
def host(sed: Drive) -> Initiator:
    return sed.connect()


@pytest.fixture
def owned(host: Initiator) -> Initiator:
    """Return a host that has taken ownership."""
    take_ownership(host, OWNER)
    return host


@pytest.fixture
def ranged(host: Initiator) -> Initiator:
    """Return a host that has taken ownership; user 2 has a range, which is not locked."""
    own_with_range(host)
    return host


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the drive's sdist and wheel, and the wheel installed in it."""
    folder = tmp_path_factory.mktemp("drive")
    build_and_install(folder)
    return folder


@pytest.fixture(scope="session")
def in_guest(lab: Any) -> GuestSed:
    """Return the guest with the scripts that it needs; the drive is as somebody left it."""
    guest = GuestSed(lab)
    guest.send_scripts()
    return guest


@pytest.fixture
def guest_sed(in_guest: GuestSed) -> Iterator[GuestSed]:
    """Yield the lab's drive in the guest, as it left the factory before and after."""
    in_guest.factory_reset()
    yield in_guest
    in_guest.factory_reset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Hold what a test claims for the conformance table against the drive's own record."""
    claims = [
        claim
        for marker in item.iter_markers(conformance.MARKER)
        for claim in conformance.claims_of(item.name, marker.args)
    ]
    before = _calls(item) if claims else conformance.count([])
    result = yield
    if claims and (unproven := conformance.unproven(claims, before, _calls(item))):
        pytest.fail(f"the drive saw none of: {', '.join(unproven)}")
    return result


def _calls(item: pytest.Item) -> conformance.Calls:
    """Return the record of the drive that the test works with: its own, else the lab's."""
    fixtures = getattr(item, "funcargs", {})
    if "sed" in fixtures:
        control = fixtures["sed"].path("control")
    elif "lab" in fixtures:
        control = Path(fixtures["lab"].state["drives"]["sed"]["control"])
    else:
        pytest.fail("what claims conformance must use the fixture sed or in_guest")
    return conformance.count(ask(control, "calls")["calls"])
