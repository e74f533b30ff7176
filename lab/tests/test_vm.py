"""What QEMU is told, what the console's end shows, and what the power model may say."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from lab import kvm, mirror, vm
from lab.errors import LabError
from lab.image import Image
from lab.state import read_json

RAPL = """
rapl:
  package_idle_mw: 5000
  package_busy_mw_per_cpu: {value: 10000.4, source: a data sheet}
  dram_idle_mw: 1000
  dram_busy_mw_per_cpu: 500
"""


def test_tail_drops_control_characters_and_empty_lines(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_bytes(
        b"old\r\n" * 50 + b"\x1b[0m[  OK  ] one\r\n\r\n\x00\xff two\r\n" + b"Kernel panic"
    )
    assert vm.tail(console, 2).splitlines() == ["\N{REPLACEMENT CHARACTER} two", "Kernel panic"]
    assert len(vm.tail(console).splitlines()) == 15
    assert vm.tail(tmp_path / "none") == ""


def test_a_guest_that_cannot_go_on_is_noticed(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    assert not vm.gave_up(console)
    console.write_bytes(b"[ 1.0] panic=10 on the command line\r\n")
    assert not vm.gave_up(console)
    console.write_bytes(b"[ 2.0] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n")
    assert vm.gave_up(console)
    with console.open("ab") as file:
        file.write(b"Loading, please wait...\r\n")
    assert not vm.gave_up(console)


def test_rapl_words_are_milliwatts_of_the_model(tmp_path: Path) -> None:
    model = tmp_path / "power_model.yml"
    model.write_text(RAPL)
    assert vm.rapl_words(model) == [
        "fde_rapl_sim.package_idle_mw=5000",
        "fde_rapl_sim.package_busy_mw_per_cpu=10000",
        "fde_rapl_sim.dram_idle_mw=1000",
        "fde_rapl_sim.dram_busy_mw_per_cpu=500",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("dram_idle_mw", "dram_mw"), ("500\n", "-1\n"), ("500\n", "a lot\n"), ("rapl:", "[")],
)
def test_a_power_model_without_sound_coefficients_is_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    model = tmp_path / "power_model.yml"
    model.write_text(RAPL.replace(old, new))
    with pytest.raises(LabError, match="does not give the RAPL model's coefficients"):
        vm.rapl_words(model)


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port} .* cannot be used"):
            vm.require_free_port(port)
    vm.require_free_port(vm.free_port())


def test_a_missing_program_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LabError, match="make packages"):
        vm.qemu_program()


def test_commas_in_paths_do_not_end_an_option(tmp_path: Path) -> None:
    place = tmp_path / "a,b"
    guest = vm.Guest(
        image=Image(place),
        accelerator="tcg",
        overlay=place / "root.qcow2",
        console=place / "console",
        qmp=place / "qmp",
        ssh_port=1,
        credentials={"name": place / "key"},
        kernel_words=["fde.drive=1,nqn"],
    )
    command = vm.qemu_command("qemu", guest)
    escaped = [word for word in command if "a,,b" in word]
    assert len(escaped) == 4  # overlay, console, qmp, credential
    assert not [w for w in command if "a,b" in w and not w.startswith(str(place))]


def _image(tmp_path: Path) -> Image:
    for name in ("vmlinuz", "initrd.img"):
        (tmp_path / name).write_bytes(b"")
    return Image(tmp_path)


def _emulator(tmp_path: Path, behaviour: str) -> str:
    """A program that stands for QEMU and counts how often it was asked to boot."""
    program = tmp_path / "qemu"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        "if '--version' in sys.argv: print('1.0'); sys.exit()\n"
        f"open({str(tmp_path / 'boots')!r}, 'a').write('x')\n"
        "serial = sys.argv[sys.argv.index('-serial') + 1].removeprefix('file:')\n"
        f"{behaviour}\n"
    )
    program.chmod(0o755)
    return str(program)


ALIVE = "open(serial, 'w').write('Run /init as init process'); time.sleep(600)"
DEAD = "open(serial, 'w').write('Decompressing'); sys.exit(0)"
HUNG = "open(serial, 'w').write('Decompressing'); time.sleep(600)"


@pytest.mark.parametrize(("behaviour", "expected"), [(ALIVE, True), (DEAD, False), (HUNG, False)])
def test_only_a_started_init_proves_kvm(tmp_path: Path, behaviour: str, expected: bool) -> None:
    limit_s = 60 if behaviour is not HUNG else 1
    emulator = _emulator(tmp_path, behaviour)
    assert kvm.boots(emulator, _image(tmp_path), limit_s) is expected


def test_the_probe_is_remembered_for_each_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvm, "DEVICE", tmp_path)  # something that may be read and written
    emulator = _emulator(tmp_path, DEAD)
    image, cache = _image(tmp_path), tmp_path / "cache"
    for _ in range(2):
        assert kvm.accelerator(emulator, image, cache, lambda _line: None) == "tcg"
    assert (tmp_path / "boots").read_text() == "x"
    monkeypatch.setattr(kvm, "machine_key", lambda _qemu: "another machine")
    kvm.accelerator(emulator, image, cache, lambda _line: None)
    assert (tmp_path / "boots").read_text() == "xx"
    assert set((read_json(cache / "accelerator.json") or {}).values()) == {"tcg"}


def test_without_the_device_nothing_is_tried_or_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "none")
    assert kvm.accelerator("qemu", Image(tmp_path), tmp_path, lambda _line: None) == "tcg"
    assert not (tmp_path / "accelerator.json").exists()


TARGETS = [
    "Packages|http://mirror/debian-security/|Debian-Security|main",
    "Components-amd64|http://mirror/wrong/|Debian|main",
    "Packages|http://mirror/other/|Google|main",
    "Packages|http://mirror/debian/|Debian|contrib",
    "Packages|http://mirror/pool/|Debian|main",
]


def test_the_hosts_own_main_archive_is_the_mirror() -> None:
    assert mirror.debian_url(TARGETS) == "http://mirror/pool/"
    assert mirror.debian_url(["Packages|http://mirror/ubuntu/|Ubuntu|main"]) is None
    assert mirror.debian_url([]) is None


def test_before_the_first_update_the_path_tells_the_archive() -> None:
    unlabelled = [
        "Packages|http://mirror/debian-security/||main",
        "Packages|http://mirror/debian/||main",
    ]
    assert mirror.debian_url(unlabelled) == "http://mirror/debian/"


def test_the_environment_comes_before_the_host() -> None:
    assert mirror.find({"FDE_MIRROR": "http://chosen"}).url == "http://chosen"


def test_only_the_settings_that_reach_a_mirror_are_passed_on() -> None:
    dump = 'APT::Architecture "amd64";\nAcquire::http::Proxy "http://p:1";\nAcquire::Retries "3";'
    assert mirror.transport_options(dump) == ('Acquire::http::Proxy "http://p:1";',)
