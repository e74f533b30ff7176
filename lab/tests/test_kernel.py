"""The kernel of lab/kernel/ is used if it matches its record, and built otherwise."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from contract.files import write_json
from contract.tests.refusal import refuses
from lab.image import Image
from lab.machines import kernel, uml

MOST_BYTES = 4_000_000


def _silent(_line: str) -> None:
    """Print nothing."""


@pytest.fixture(autouse=True)
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LAB_KERNEL", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a copy of archive and record, which a test may change."""
    for name, path in (("ARCHIVE", kernel.ARCHIVE), ("RECORD", kernel.RECORD)):
        monkeypatch.setattr(kernel, name, Path(shutil.copy(path, tmp_path)))


def test_the_archived_kernel_matches_its_record() -> None:
    record = kernel.Record.read()
    assert record.inputs == kernel.inputs_hash(), "make lab-kernel KEEP=1 builds it again"
    assert kernel.ARCHIVE.stat().st_size <= MOST_BYTES
    taken = kernel.ensure(_silent)
    assert not taken.built
    assert os.access(taken.program, os.X_OK)
    (modules,) = taken.modules.iterdir()
    assert taken.facts()["source"] == f"{record.package} {record.version}"
    assert record.version.startswith(modules.name.removesuffix("-fde"))
    packed = hashlib.sha256(kernel._pack(taken.directory)).hexdigest()
    assert packed == record.contents_sha256


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("part", ["archive", "record"])
def test_a_damaged_kernel_is_refused(part: str, cached: Path) -> None:
    if part == "archive":
        damaged = bytearray(kernel.ARCHIVE.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        kernel.ARCHIVE.write_bytes(damaged)
    else:
        record = replace(kernel.Record.read(), contents_sha256="0" * 64)
        write_json(kernel.RECORD, asdict(record))
    with refuses("kernel-damaged"):
        kernel.ensure(_silent)
    assert [path.name for path in (cached / "kernels").iterdir()] == ["lock"]


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("cause", ["asked", "changed"])
def test_a_requested_or_changed_kernel_is_built_and_cached(
    cause: str, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "PROGRAMS", ("no-such-compiler",))
    if cause == "asked":
        monkeypatch.setenv("LAB_KERNEL", "build")
    else:
        write_json(kernel.RECORD, asdict(replace(kernel.Record.read(), inputs="another")))
    with refuses("no-build-program", program="no-such-compiler"):
        kernel.ensure(_silent)
    (cached / "kernels" / f"{kernel.inputs_hash()}-built").mkdir()
    monkeypatch.undo()
    assert kernel.location(cached).built


def test_an_invalid_lab_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KERNEL", "first")
    with refuses("no-such-kernel", wish="first"):
        kernel.ensure(_silent)


@pytest.mark.usefixtures("copied")
def test_a_kernel_that_cannot_load_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has a program that the host cannot load."""
    (tmp_path / "made" / "modules").mkdir(parents=True)
    (tmp_path / "made" / "linux").write_text("#!/bin/sh\necho GLIBC_9.99 not found; exit 1\n")
    contents = kernel._pack(tmp_path / "made")
    kernel.ARCHIVE.write_bytes(lzma.compress(contents))
    contents_sha256 = hashlib.sha256(contents).hexdigest()
    write_json(
        kernel.RECORD, asdict(replace(kernel.Record.read(), contents_sha256=contents_sha256))
    )
    monkeypatch.setattr(kernel, "PROGRAMS", ("no-such-compiler",))
    monkeypatch.setattr(uml, "obstacle", lambda: None)
    lines: list[str] = []
    reason = uml.Uml().why_not(Image(tmp_path), lines.append)
    assert "no-such-compiler is missing" in str(reason)
    assert "building it here" in lines[-1]


def test_the_archive_does_not_depend_on_times_or_modes(tmp_path: Path) -> None:
    archives = []
    for place, moment, mode in (("a", 1000, 0o700), ("deeper/b", 2000, 0o775)):
        folder = tmp_path / place
        (folder / "modules" / "7.3").mkdir(parents=True)
        for name in ("linux", "modules/7.3/two.ko", "modules/7.3/one.ko"):
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
            os.utime(folder / name, (moment, moment))
        archives.append(kernel._pack(folder))
    assert archives[0] == archives[1]


def test_a_rejected_line_of_the_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A make that takes all lines but two, one of them of an option that the source lacks."""
    lines = kernel.CONFIG.read_text().splitlines()
    (tmp_path / ".config").write_text("\n".join(lines[:-1]).replace("CONFIG_NVME_TCP=y\n", ""))
    (tmp_path / "Kconfig.nvme").write_text("menuconfig NVME_TCP\n\tbool\n")
    build = kernel.Build(_silent, tmp_path / "log")
    monkeypatch.setattr(build, "run", lambda *_a, **_k: None)
    with pytest.raises(Exception, match=r"CONFIG_NVME_TCP=y$"):
        build.configure(tmp_path)


SELF_TEST = """#!/bin/sh
/bin/mount -t proc proc /proc
while /bin/grep -q larval /proc/crypto; do :; done
/bin/sleep 1
/bin/cat /proc/crypto
echo END of ciphers
"""


def test_the_crypto_self_tests_pass(tmp_path: Path) -> None:
    """All of them, run when the kernel starts; the host's own programs are its root."""
    program = kernel.ensure(_silent).program
    if not uml.starts(program):
        pytest.skip("User Mode Linux does not start on this host")
    init = tmp_path / "init"
    init.write_text(SELF_TEST)
    init.chmod(0o755)
    words = [word for word in uml.MACHINE_WORDS if not word.startswith("cryptomgr.")]
    words += ["mem=256M", "rootfstype=hostfs", "ro", f"init={init}", f"uml_dir={tmp_path}"]
    result = subprocess.run(
        [str(program), *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    console = result.stdout.decode(errors="replace")
    assert "END of ciphers" in console, console[-2000:]
    assert "full crypto tests enabled" in console
    assert not re.findall(r"alg: .*fail.*", console)
    drivers = re.findall(r"driver +: (\S+)", console)
    assert "xts-aes-lib" in drivers
    host = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    assert any(name.startswith("xts-aes-aesni") for name in drivers) == ("aes" in host)
