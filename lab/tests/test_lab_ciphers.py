"""dm-crypt in the guest: the host's instructions, the right ciphertext, and nobody's registers."""

from __future__ import annotations

import base64
import json
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

NAME, BACKING = "fde-cipher-test", "/run/fde-cipher-test"
SECTORS = 64
AVX2 = {"avx2", "vaes", "vpclmulqdq", "pclmulqdq"}
# Drivers of xts(aes) and gcm(aes), the best first, and what the processor must have for each.
DRIVERS = (
    ("vaes-avx512", {"aes", "avx", *AVX2, "avx512bw", "avx512vl", "bmi2"}),
    ("vaes-avx2", {"aes", "avx", *AVX2}),
    ("aesni-avx", {"aes", "avx"}),
    ("aesni", {"aes"}),
)


def _flags(text: str) -> set[str]:
    lines = (line.partition(":") for line in text.splitlines())
    return set(next(value for name, _, value in lines if name.strip() == "flags").split())


def test_dm_crypt_runs_the_hosts_best_aes(lab: LabHandle) -> None:
    """As the kernel's arch/x86/crypto/aesni-intel_glue.c chooses.

    Other machines than User Mode Linux prefer AVX2 to AVX-512 on some processors of Intel's.
    """
    flags = _flags(lab.ssh("cat /proc/cpuinfo").stdout)
    usable = [suffix for suffix, needs in DRIVERS if needs <= flags]
    if lab.state["machine"]["name"] == "uml":
        host = _flags(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        assert {flag for _, needs in DRIVERS for flag in needs & (flags ^ host)} == set()
        usable = usable[:1]
    if not usable:
        pytest.skip("this host's processor has no AES instructions: dm-crypt runs AES in C")
    offers: dict[str, tuple[int, str]] = {}
    for entry in lab.ssh("cat /proc/crypto").stdout.split("\n\n"):
        pairs = (line.partition(":") for line in entry.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if fields.get("name") in ("xts(aes)", "gcm(aes)"):
            offer = (int(fields["priority"]), fields["driver"])
            offers[fields["name"]] = max(offer, offers.get(fields["name"], (0, "")))
    assert offers["xts(aes)"][1] in [f"xts-aes-{suffix}" for suffix in usable]
    assert offers["gcm(aes)"][1] in [f"generic-gcm-{suffix}" for suffix in usable]


# In the guest: what one plain mapping makes of `written`, and of `raw` below it.
BOTH_WAYS = f"""
import base64, json, subprocess, sys
job = json.load(sys.stdin)
path, mapped = {BACKING!r}, "/dev/mapper/{NAME}"
text = {{key: base64.b64decode(job[key]) for key in ("key", "written", "raw")}}

def run(*argv, **options):
    return subprocess.run(argv, check=True, capture_output=True, **options).stdout

def opened(loop, act):
    run("cryptsetup", "open", "--type=plain", "--hash=plain", "--key-file=-",
        "--cipher=" + job["cipher"], f"--key-size={{8 * len(text['key'])}}",
        f"--sector-size={{job['sector_bytes']}}", loop, {NAME!r}, input=text["key"])
    try:
        return act()
    finally:
        run("cryptsetup", "close", {NAME!r})

def put(place, data):
    run("dd", "of=" + place, "bs=64k", "oflag=direct", "iflag=fullblock", input=data)

def got(place):
    return run("dd", "if=" + place, "bs=64k", "iflag=direct")

with open(path, "wb") as file:
    file.truncate(len(text["raw"]))
loop = run("losetup", "--find", "--show", path).decode().strip()
try:
    opened(loop, lambda: put(mapped, text["written"]))
    encrypted = got(loop)
    put(loop, text["raw"])
    decrypted = opened(loop, lambda: got(mapped))
finally:
    run("losetup", "--detach", loop)
print(json.dumps([base64.b64encode(part).decode() for part in (encrypted, decrypted)]))
"""


def _xts(key: bytes, data: bytes, sector_bytes: int, *, encrypt: bool) -> bytes:
    """AES-XTS of OpenSSL; plain64 numbers sectors of 512 bytes whatever the cipher's are."""
    out = b""
    for start in range(0, len(data), sector_bytes):
        tweak = struct.pack("<QQ", start // 512, 0)
        cipher = Cipher(algorithms.AES(key), modes.XTS(tweak))
        each = cipher.encryptor() if encrypt else cipher.decryptor()
        out += each.update(data[start : start + sector_bytes]) + each.finalize()
    return out


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("cipher", ["aes-xts-plain64", "capi:xts-aes-lib-plain64"])
def test_ciphertext_matches_an_independent_implementation(
    cipher: str, bits: int, sector_bytes: int, lab: LabHandle
) -> None:
    """By the host's instructions, and by the kernel's C."""
    draw = random.Random(f"{bits} {sector_bytes}")
    key, written, raw = (draw.randbytes(n) for n in (2 * bits // 8, *[SECTORS * 4096] * 2))
    job: dict[str, Any] = {"cipher": cipher, "sector_bytes": sector_bytes}
    parts = (("key", key), ("written", written), ("raw", raw))
    job |= {name: base64.b64encode(part).decode() for name, part in parts}
    lab.ssh(f"cat >{BACKING}.py", stdin=BOTH_WAYS.encode())
    answer = lab.ssh(f"python3 {BACKING}.py", stdin=json.dumps(job).encode()).stdout
    encrypted, decrypted = (base64.b64decode(part) for part in json.loads(answer))
    assert encrypted == _xts(key, written, sector_bytes, encrypt=True)
    assert decrypted == _xts(key, raw, sector_bytes, encrypt=False)


# In the guest: machine code fills the vector registers, counts down in them for some milliseconds
# at a time and stores them again, while a child writes through dm-crypt on the same processor.
REGISTERS = """
import ctypes, json, mmap, os, subprocess, sys, time
job = json.load(sys.stdin)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex(job["code"]))
spin = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong)(
    ctypes.addressof(ctypes.c_char.from_buffer(code)))
os.sched_setaffinity(0, {0})

def run(*argv, **options):
    return subprocess.run(argv, check=True, capture_output=True, **options).stdout.decode().strip()

with open(job["backing"], "wb") as file:
    file.truncate(32 << 20)
loop = run("losetup", "--find", "--show", job["backing"])
run("cryptsetup", "open", "--type=plain", "--cipher=aes-xts-plain64", "--key-file=-",
    "--key-size=512", loop, job["name"], input=os.urandom(64))
mapped = "/dev/mapper/" + job["name"]
writes = f"while :; do dd if=/dev/zero of={mapped} bs=1M count=32 oflag=direct status=none; done"
child = subprocess.Popen(["sh", "-c", writes], start_new_session=True)
sectors = lambda: int(open("/sys/block/" + os.path.basename(os.path.realpath(mapped)) + "/stat")
                      .read().split()[6])
try:
    before, lost, rounds, end = sectors(), 0, 0, time.monotonic() + job["seconds"]
    while time.monotonic() < end:
        given = os.urandom(job["bytes"])
        back = ctypes.create_string_buffer(job["bytes"])
        spin(given, back, job["count"])
        lost += back.raw != given
        rounds += 1
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(json.dumps([rounds, lost, sectors() - before,
                      int(status["nonvoluntary_ctxt_switches"])]))
finally:
    os.killpg(child.pid, 15)
    child.wait()
    run("cryptsetup", "close", job["name"])
    run("losetup", "--detach", loop)
"""


def _spin(*, clobber: bool) -> bytes:
    """Return the machine code of a C function (in, out, count) that uses ymm0 to ymm15.

    With `clobber` it loses one of them on the way, as a kernel would that does not keep them.
    """

    def moves(opcode: int, base: int) -> bytes:  # vmovdqu between ymm and [base + 32 × number]
        return b"".join(
            bytes([0xC5, 0xFE if number < 8 else 0x7E, opcode, 0x80 | (number & 7) << 3 | base])
            + struct.pack("<i", 32 * number)
            for number in range(16)
        )

    count = bytes.fromhex("48ffca75fb")  # dec rdx; jnz
    lose = bytes.fromhex("c5d5efed") if clobber else b""  # vpxor ymm5, ymm5, ymm5
    return moves(0x6F, 7) + count + lose + moves(0x7F, 6) + bytes.fromhex("c5f877c3")


@pytest.mark.parametrize("clobber", [False, True])
def test_programs_keep_their_vector_registers_during_dm_crypt(
    clobber: bool, lab: LabHandle
) -> None:
    if "avx2" not in _flags(lab.ssh("cat /proc/cpuinfo").stdout):
        pytest.skip("this host's processor has no AVX2")
    job = {"code": _spin(clobber=clobber).hex(), "bytes": 512, "count": 20_000_000}
    job |= {"seconds": 1 if clobber else 6, "backing": BACKING, "name": NAME}
    lab.ssh(f"cat >{BACKING}.py", stdin=REGISTERS.encode())
    answer = lab.ssh(f"python3 {BACKING}.py", stdin=json.dumps(job).encode()).stdout
    rounds, lost, sectors, switches = json.loads(answer)
    assert rounds > 3 and sectors > 0 and switches > 0
    assert lost == (rounds if clobber else 0)
