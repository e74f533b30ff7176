"""Choice of the guest's machine, its command lines, and the end of its console."""

from __future__ import annotations

import fcntl
import functools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from contract.errors import LabError
from contract.strict_json import read_object
from lab import apt as mirror
from lab import machines, network
from lab.image import Image
from lab.launcher import tail, wait_for
from lab.machines import kernel, qemu, uml
from lab.machines.base import Guest
from lab.network import Network
from lab.ssh import gave_up


def test_tail_drops_control_characters_and_empty_lines(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_bytes(
        b"old\r\n" * 50 + b"\x1b[0m[  OK  ] one\r\n\r\n\x00\xff two\r\n" + b"Kernel panic"
    )
    assert tail(console, 2).splitlines() == ["\N{REPLACEMENT CHARACTER} two", "Kernel panic"]
    assert len(tail(console).splitlines()) == 15
    assert tail(tmp_path / "none") == ""


def test_gave_up_detects_a_kernel_panic_since_boot(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    assert not gave_up(console)
    console.write_bytes(b"[ 1.0] panic=10 on the command line\r\n")
    assert not gave_up(console)
    console.write_bytes(b"[ 2.0] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n")
    assert gave_up(console)
    with console.open("ab") as file:
        file.write(b"Loading, please wait...\r\n")
    assert not gave_up(console)


def test_a_missing_program_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="make packages"):
        qemu.program()


def _say(_line: str) -> None:
    pass


def _emulated(place: Path) -> list[str]:
    """Return the command of a guest whose files are all in one folder."""
    guest = Guest(
        image=Image(place),
        folder=place,
        sockets=place,
        console=place / "console",
        network=Network(),
        host_page=place / "host-page",
        ssh_port=1,
        credentials={"name": place / "key"},
        kernel_words=["fde.drive=1,nqn"],
    )
    return qemu.qemu_command("qemu", "tcg", guest, place / "root.qcow2")


def test_qmp_commands_succeed_or_raise(tmp_path: Path) -> None:
    path = tmp_path / "qmp"
    listen = f"unix:{path},server=on,wait=off"
    command = [qemu.program(), "-S", "-nodefaults", "-display", "none", "-smp", "2"]
    command += ["-accel", "tcg,thread=multi", "-nic", "user,id=net", "-qmp", listen]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: path.exists() or process.poll() is not None, 30)
            threads = Path(f"/proc/{process.pid}/task")
            assert all((threads / str(tid)).exists() for tid in qemu.vcpu_thread_ids(path))
            assert len(qemu.vcpu_thread_ids(path)) == 2
            assert qemu.execute(path, "set_link", name="net", up=False) == {}
            with pytest.raises(LabError, match="no-such-card"):
                qemu.execute(path, "set_link", name="no-such-card", up=True)
            stop = functools.partial(os.kill, process.pid, signal.SIGTERM)
            qemu.wait_for_event(path, "SHUTDOWN", 30, stop)
        finally:
            process.kill()
    with pytest.raises(LabError, match="system_reset"):
        qemu.execute(path, "system_reset")


def test_qemu_starts_on_an_image_locked_by_user_mode_linux(tmp_path: Path) -> None:
    image = Image(tmp_path)
    image.root.write_bytes(bytes(2**20))
    qemu.make_overlay(image, tmp_path / "root.qcow2")
    disk = next(word for word in _emulated(tmp_path) if "id=root" in word)
    command = [qemu.program(), "-machine", "none", "-display", "none", "-monitor", "stdio"]
    with image.root.open("rb") as held:  # as arch/um/os-Linux/file.c locks a disk that it reads
        fcntl.lockf(held, fcntl.LOCK_SH)
        started = subprocess.run(
            [*command, "-drive", disk], input="quit\n", capture_output=True, text=True, check=False
        )
    assert started.returncode == 0, started.stderr


def test_commas_in_paths_do_not_end_an_option(tmp_path: Path) -> None:
    place = tmp_path / "a,b"
    command = _emulated(place)
    escaped = [word for word in command if "a,,b" in word]
    assert len(escaped) == 5  # overlay, console, qmp, credential, page
    assert not [w for w in command if "a,b" in w and not w.startswith(str(place))]


def _image(tmp_path: Path) -> Image:
    for name in ("vmlinuz", "initrd.img"):
        (tmp_path / name).write_bytes(b"")
    return Image(tmp_path)


def _emulator(tmp_path: Path, behaviour: str) -> str:
    """Return a program that stands for QEMU and counts how often it was asked to boot."""
    program = tmp_path / "qemu"
    program.write_text(
        f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n'''\nimport sys, time\n"
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
    assert qemu.boots(emulator, _image(tmp_path), limit_s) is expected


def test_the_kvm_probe_is_cached_per_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu, "DEVICE", tmp_path)  # something that may be read and written
    emulator = _emulator(tmp_path, DEAD)
    image, cache = _image(tmp_path), tmp_path / "cache"
    for _ in range(2):
        assert "does not run" in str(qemu.why_not(emulator, image, cache, _say))
    assert (tmp_path / "boots").read_text() == "x"
    monkeypatch.setattr(qemu, "machine_key", lambda _qemu: "another machine")
    qemu.why_not(emulator, image, cache, _say)
    assert (tmp_path / "boots").read_text() == "xx"
    assert set(read_object(cache / "kvm.json").values()) == {False}


def test_without_the_kvm_device_nothing_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu, "DEVICE", tmp_path / "none")
    assert "cannot be opened" in str(qemu.why_not("qemu", Image(tmp_path), tmp_path, _say))
    assert not (tmp_path / "kvm.json").exists()


TARGETS = [
    "Packages|http://mirror/debian-security/|Debian-Security|main",
    "Components-amd64|http://mirror/wrong/|Debian|main",
    "Packages|http://mirror/other/|Google|main",
    "Packages|http://mirror/debian/|Debian|contrib",
    "Packages|http://mirror/pool/|Debian|main",
]


def test_the_mirror_is_the_hosts_main_archive() -> None:
    assert mirror.debian_url(TARGETS) == "http://mirror/pool/"
    assert mirror.debian_url(["Packages|http://mirror/ubuntu/|Ubuntu|main"]) is None
    assert mirror.debian_url([]) is None


def test_an_unlabelled_archive_is_recognised_by_its_path() -> None:
    unlabelled = [
        "Packages|http://mirror/debian-security/||main",
        "Packages|http://mirror/debian/||main",
    ]
    assert mirror.debian_url(unlabelled) == "http://mirror/debian/"


def test_the_environment_comes_before_the_host() -> None:
    assert mirror.find({"FDE_MIRROR": "http://chosen"}).url == "http://chosen"


def test_only_proxy_and_certificate_settings_are_passed_on() -> None:
    dump = 'APT::Architecture "amd64";\nAcquire::http::Proxy "http://p:1";\nAcquire::Retries "3";'
    assert mirror.transport_options(dump) == ('Acquire::http::Proxy "http://p:1";',)


class _Named:
    """A machine that works, or does not for a reason."""

    def __init__(self, name: str, reason: str | None) -> None:
        self.name, self.reason = name, reason

    def why_not(self, _image: Image, _say: object) -> str | None:
        return self.reason


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> dict[str, _Named]:
    named = {
        "kvm": _Named("kvm", "no device"),
        "uml": _Named("uml", None),
        "tcg": _Named("tcg", None),
    }
    monkeypatch.setattr(machines, "MACHINES", named)
    return named


def test_auto_takes_the_first_working_machine_and_prints_why(
    three: dict[str, _Named], tmp_path: Path
) -> None:
    lines: list[str] = []
    assert machines.choose("auto", Image(tmp_path), lines.append).name == "uml"
    assert lines == ["lab: the guest runs on uml (not kvm: no device)"]
    three["uml"].reason = "make failed (the whole log: /x); its last lines:\nerror 1\nerror 2"
    assert machines.choose("auto", Image(tmp_path), lines.append).name == "tcg"
    assert lines[-1].endswith("not uml: make failed (the whole log: /x))")


def test_a_named_machine_is_the_only_candidate(three: dict[str, _Named], tmp_path: Path) -> None:
    assert machines.choose("tcg", Image(tmp_path), _say).name == "tcg"
    with pytest.raises(LabError, match="kvm: no device"):
        machines.choose("kvm", Image(tmp_path), _say)
    assert three["uml"].reason is None


def test_an_unknown_machine_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="LAB_MACHINE is auto or one of kvm, uml, tcg"):
        machines.choose("umi", Image(tmp_path), _say)


def test_user_mode_linux_needs_the_tap_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uml, "TAP_DEVICE", tmp_path / "none")
    assert "chmod 666" in str(uml.Uml().why_not(Image(tmp_path), _say))


def test_forbidden_namespaces_are_reported_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("nsenter", "ip"):
        (tmp_path / program).symlink_to("/bin/true")
    unshare = tmp_path / "unshare"
    unshare.write_text(
        "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1"
    )
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    reason = str(network.why_not())
    assert "Operation not permitted" in reason
    assert "sysctl" in reason


def test_starts_recognises_a_kernel_by_its_panic(tmp_path: Path) -> None:
    program = tmp_path / "linux"
    program.write_text("#!/bin/sh\necho version GLIBC_9.99 not found; exit 1\n")
    program.chmod(0o755)
    assert not uml.starts(program)
    assert not uml.starts(tmp_path / "none")
    program.write_text("#!/bin/sh\necho Kernel panic: VFS: Unable to mount root fs\n")
    assert uml.starts(program)


def test_user_mode_linux_has_no_secret_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDE_CACHE", str(tmp_path / "cache"))
    (kernel.location(tmp_path / "cache").modules / "6.12").mkdir(parents=True)
    key = tmp_path / "key"
    key.write_text("SECRET")
    key.chmod(0o600)
    guest = Guest(
        Image(tmp_path),
        tmp_path,
        tmp_path,
        tmp_path / "c",
        Network(7),
        tmp_path / "p",
        1,
        {"k": key},
    )
    command = uml.Uml().prepare(guest)
    assert command[:2] == ["nsenter", "--target=7"]
    assert not [word for word in command if "SECRET" in word]
    copy = tmp_path / uml.HOST_FOLDER / "k"
    assert copy.read_text() == "SECRET"
    assert copy.stat().st_mode & 0o077 == 0
    assert copy.parent.stat().st_mode & 0o077 == 0
    alone = uml.Uml().prepare(replace(guest, network=Network()))
    assert alone[0].endswith("linux")


def test_a_connection_into_the_labs_network_is_passed_out(tmp_path: Path) -> None:
    """A server that only the namespace has is reached through it, and from nowhere else."""
    if (reason := network.why_not()) is not None:
        pytest.skip(reason)
    ready = tmp_path / "ready"
    holder = subprocess.Popen(
        [*network.NAMESPACE, sys.executable, "-m", "lab.network", "--ready-file", str(ready)]
    )
    try:
        while not ready.exists():
            assert holder.poll() is None
            time.sleep(0.01)
        inside = Network(read_object(ready)["pid"])
        port = network.free_port()
        serve = f"""
import socket
connection, _ = socket.create_server(("127.0.0.1", {port})).accept()
connection.sendall(b"SSH-")
"""
        server = subprocess.Popen(inside.enter([sys.executable, "-c", serve]))
        while True:
            try:
                connection = inside.connect(("127.0.0.1", port), 10)
                break
            except ConnectionError:
                assert server.poll() is None
        with connection:
            assert connection.recv(4) == b"SSH-"
        assert server.wait() == 0
        with pytest.raises(OSError):
            Network().connect(("127.0.0.1", port), 10)
    finally:
        os.kill(holder.pid, 15)
        holder.wait()
