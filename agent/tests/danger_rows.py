"""Shell texts of the dangerous situations, which danger_rows.yml lists."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import jinja2
import yaml

from agent.storage import layout, samples
from agent.tests.dangers import Row, poke
from agent.tests.guest import CODE
from contract import schema
from contract.plan import DATA_OFFSET_BYTES, Disk, Extent

EXTENT = Extent(DATA_OFFSET_BYTES, 64 * 2**20)
# A place that is read of the plain disk, a good way in.
BETWEEN = samples.places(2**31, "FDELABPLAIN01")[200][0]
END = "$(blockdev --getsize64 $D)"
SETTLE = "udevadm settle; "
GPT = f"echo 'start=1MiB' | sfdisk -q --label gpt $D; {SETTLE}"
MKFS = "mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0"


def laid_out(serial: str, extent: Extent = EXTENT) -> str:
    """Shell text that writes the layout as it is for the disk of this serial."""
    script = layout.script(Disk("plain", "", serial, 0), extent)
    return f"sfdisk -q $D <<'X'\n{script}X\n{SETTLE}"


OURS = laid_out("FDELABPLAIN01")
# What a program in the background has in hand is told by its /proc entry.
GONE = "kill $(cat $F/pid); while [ -d /proc/$(cat $F/pid) ]; do sleep 0.1; done"


def hold(flags: str = "os.O_RDWR | os.O_EXCL", device: str = "$D") -> str:
    """Shell text that keeps a device open in a program."""
    return (
        f"python3 -c 'import os,sys,time; os.open(sys.argv[1], {flags}); time.sleep(999)' "
        f"{device} >/dev/null 2>&1 & echo $! >$F/pid; "
        f"until ls -l /proc/$!/fd | grep -q {device}; do sleep 0.1; done; "
    )


# Programs that use a disk in ways that its first thread's descriptors do not show; each calls
# `ready` when it does. `D` is the disk's node, `F` a folder.
_BEGIN = """
import ctypes, fcntl, mmap, os, socket, struct, sys, threading, time
D, F = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    done = libc.syscall(*words)
    assert done >= 0, os.strerror(ctypes.get_errno())
    return done
def ready(fd=None):
    open(F + "/there", "w").close()
    time.sleep(999)
def register(fd):
    ring = call(425, 4, ctypes.create_string_buffer(120))
    call(427, ring, 2, (ctypes.c_int * 1)(fd), 1)
    os.close(fd)
def map_it(fd):
    global memory
    memory = mmap.mmap(fd, 4096, trackfd=False)
    os.close(fd)
def first_thread_exits(work):
    threading.Thread(target=work).start()
    libc.pthread_exit(None)
def send(*messages):
    global ends
    ends = socket.socketpair()
    for fds in messages:
        socket.send_fds(ends[0], [b"x"], fds)
        [os.close(fd) for fd in fds]
"""
_PROGRAMS = {
    "exited": "first_thread_exits(lambda: ready(os.open(D, os.O_RDWR)))",
    "exited-mapped": "first_thread_exits(lambda: ready(map_it(os.open(D, os.O_RDWR))))",
    "exited-uring": "first_thread_exits(lambda: ready(register(os.open(D, os.O_RDWR))))",
    "own-table": """
def work():
    libc.unshare(0x400)
    ready(os.open(D, os.O_RDWR))
threading.Thread(target=work).start()
""",
    "own-mounts": """
def work():
    libc.unshare(0x20200)
    libc.mount(b"none", b"/", None, 0x44000, None)
    assert libc.mount(D.encode(), b"/mnt", b"ext4", 0, None) == 0
    ready()
threading.Thread(target=work).start()
""",
    "uring-gone": "register(os.open(D, os.O_RDWR)); os.unlink(D); ready()",
    "mapped-gone": "map_it(os.open(D, os.O_RDWR)); os.unlink(D); ready()",
    "sent": "send([os.open(D, os.O_RDWR)]); ready()",
    "sent-second": "send([os.open('/etc/passwd', 0)], [os.open(D, os.O_RDWR)]); ready()",
    "path-only": "ready(os.open(D, os.O_PATH))",
    "detached": """
tree = call(428, -100, b"/mnt", 1)
assert libc.umount2(b"/mnt", 2) == 0
ready(tree)
""",
    "ended": "os.fork() or os._exit(os.close(os.open(D, os.O_RDWR)) or 0); ready()",
}


def program(name: str, device: str = "$D", within: str = "") -> str:
    """Shell text that starts one of these programs, `within` another program."""
    code = base64.b64encode(f"{_BEGIN}\n{_PROGRAMS[name]}".encode()).decode()
    return (
        f"rm -f $F/there; echo {code} | base64 -d >$F/program.py; "
        f"{within} python3 $F/program.py {device} $F >$F/output 2>&1 & echo $! >$F/pid; "
        "for n in $(seq 100); do [ -e $F/there ] && break; sleep 0.1; done; [ -e $F/there ]; "
    )


NODE = "mknod /dev/danger-node b $((0x$(stat -Lc %t $D))) $((0x$(stat -Lc %T $D))); "


def loop_without_node(device: str = "$D", loop: str = "/dev/loop7", options: str = "") -> str:
    """Shell text that sets a loop device up by a node that is removed again."""
    return (
        f"mknod /dev/danger-node b $((0x$(stat -Lc %t {device}))) $((0x$(stat -Lc %T {device}))); "
        f"losetup {options} {loop} /dev/danger-node; rm /dev/danger-node; "
    )


def elsewhere(device: str, then: str = "") -> str:
    """Shell text that mounts a device in a namespace of its own, and does more in there."""
    return (
        f"rm -f $F/there; unshare -m sh -c 'mount $0 /mnt; {then} touch $F/there; "
        f"exec sleep 999' {device} >/dev/null 2>&1 & echo $! >$F/pid; "
        "until [ -e $F/there ]; do sleep 0.1; done; "
    )


def _fat() -> bytes:
    """Return a boot sector of FAT16."""
    numbers = (512, 4, 4, 2, 512, 0, 0xF8, 128, 32, 64, 0, 131072)
    head = b"\xeb\x3c\x90mkfs.fat" + struct.pack("<HBHBHHBHHHII", *numbers)
    head += struct.pack("<BBBI11s8s", 0x80, 0, 0x29, 1, b"USBSTICK   ", b"FAT16   ")
    return head.ljust(510, b"\0") + b"\x55\xaa"


def _ntfs() -> str:
    """Return a boot sector of NTFS and the record of its MFT that libblkid looks for."""
    boot = b"\xeb\x52\x90NTFS    " + struct.pack("<HBHBHHB", 512, 8, 0, 0, 0, 0, 0xF8)
    numbers = (0x800080, 262136, 4, 16384, -10, 1, 7, 0)
    boot += bytes(2 + 2 + 2 + 4 + 4) + struct.pack("<IQQQbxxxbxxxQI", *numbers)
    record = b"FILE" + bytes(1020)
    return poke(0, boot.ljust(510, b"\0") + b"\x55\xaa") + poke(4 * 4096, record * 4)


# An array of uberblocks of ZFS, without the list of names that a whole label has.
UBERBLOCKS = struct.pack("<QQ", 0x00BAB10C, 5000).ljust(1024, b"\0") * 8


def _bitlocker() -> str:
    """Return a boot sector of BitLocker (Windows 7 and newer) and its metadata."""
    boot = bytearray(512)
    boot[:11] = b"\xeb\x58\x90-FVE-FS-"
    struct.pack_into("<H", boot, 11, 512)
    boot[160:176] = bytes.fromhex("3bd66749292ed84a8399f6a339e3d001")
    struct.pack_into("<QQQ", boot, 176, 0x10000, 0x20000, 0x30000)
    boot[510:] = b"\x55\xaa"
    return poke(0, bytes(boot)) + poke(0x10000, b"-FVE-FS-" + struct.pack("<HH", 64, 2).ljust(100))


def _apfs() -> bytes:
    """Return a container's superblock of APFS, as far as libblkid looks at it."""
    head = struct.pack("<QQQHHHH", 0, 1, 1, 1, 0x8000, 0, 0)
    return head + b"NXSB" + struct.pack("<IQ", 4096, 2**31 // 4096)


def shifted(command: str, offset: int = 2**20) -> str:
    """Shell text that has a program make something at an offset, as if in a partition: $L."""
    return (
        f"L=$(losetup -f); losetup -o {offset} $L $D; {command}; udevadm settle; losetup -d $L; "
        f"udevadm settle; blockdev --flushbufs $D; "
    )


LUKS = (
    "luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --luks2-keyslots-size 1m "
    "--key-file -"
)

TWO = (
    "printf 'start=1MiB, size=699MiB\\nstart=700MiB, size=1300MiB\\n' | "
    f"sfdisk -q --label gpt $D; {SETTLE}Q=${{D}}p2; "
)
OWNER = {"lr": 0, "key": "somebody's PIN"}
ADMIN = {"who": 0, "opal_key": OWNER}
WHOLE = {"range_start": 0, "range_length": 0, "RLE": 1, "WLE": 1, "session": ADMIN}
TAKEN = [["TAKE_OWNERSHIP", OWNER], ["ACTIVATE_LSP", {"key": OWNER, "num_lrs": 1}]]
LOCKED = [["LR_SETUP", WHOLE], ["LOCK_UNLOCK", {"session": ADMIN, "l_state": 4}]]


SECRET = (
    "python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "
    "$F/secrets.json"
)


def opal(*steps: list[Any]) -> str:
    """Shell text that has the kernel do Opal calls on the disk, each of which must be done."""
    request = json.dumps({"device": "DISK", "steps": steps}).replace("'", "'\\''")
    return (
        f"echo '{request}' | sed -e s,DISK,$D, -e s,OURS,$({SECRET} opal_admin_pin), | "
        "python3 $F/guest/opal_ioctl.py >$F/answers; "
        "! grep -q -e errno -e '\"code\": [^0]' $F/answers; blockdev --flushbufs $D; "
    )


def our_header(passphrase: str) -> str:
    """Shell text that lays the disk out as ours and has it owned by somebody; a program's words."""
    return (
        f"{laid_out('FDELABSED0001')}{{ {passphrase}; echo another PIN; }} | "
        "cryptsetup luksFormat -q --type luks2 --hw-opal-only --label fde-testbed --offset 32768 "
        "--pbkdf pbkdf2 --pbkdf-force-iterations 1000 $P; "
    )


def agent(command: str) -> str:
    """Shell text that calls the agent itself, for what it has done before."""
    return (
        f"(cd / && PYTHONPATH={CODE} python3 -m agent {command} --target $F/target.json "
        "--secrets $F/secrets.json >/dev/null); "
    )


def store(device: str) -> str:
    """Shell text that stores a file in a file system."""
    return f"mount {device} /mnt; echo thesis >/mnt/thesis; umount /mnt; "


_TEXTS = (agent, elsewhere, hold, laid_out, loop_without_node, our_header, program, shifted, store)
NAMES = {
    **{text.__name__: text for text in _TEXTS},
    **{"gone": GONE, "gpt": GPT, "luks": LUKS, "mkfs": MKFS, "ours": OURS, "two": TWO},
    "node": NODE,
    "settle": SETTLE,
    "passphrase": f"{SECRET} luks_passphrase",
    "open": "echo -n x | cryptsetup open --key-file - $Q danger; ",
    "close": "cryptsetup close danger; ",
    "taken": opal(*TAKEN),
    "half_taken": opal(TAKEN[0]),
    "locked": opal(*TAKEN, *LOCKED),
    "ours_half_taken": opal(["TAKE_OWNERSHIP", {"lr": 0, "key": "OURS"}]),
    "other_extent": laid_out("FDELABPLAIN01", Extent(DATA_OFFSET_BYTES, 2**27)),
    # Bytes that are written as they are.
    "fat": poke(0, _fat()),
    "fat_shifted": poke(63 * 512, _fat()),
    "ntfs": _ntfs(),
    "apfs": poke(0, _apfs()),
    "bitlocker": _bitlocker(),
    "zfs": poke(128 * 1024, UBERBLOCKS),
    "zfs_end": poke(f"{END} - 131072", UBERBLOCKS),
    "iso": poke(0x8000, b"\x01CD001\x01".ljust(2048, b"\0")),
    "bcachefs": poke(
        4096 + 24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef") + bytes(range(99))
    ),
    "bios_raid": poke(f"{END} - 1024", b"Intel Raid ISM Cfg Sig. 1.3.00".ljust(512, b"\0")),
    "drbd": poke(f"{END} - 4096 + 60", b"\x83\x74\x02\x6b" + bytes(100)),
    "hibernation": poke(4086, b"S1SUSPEND\0"),
    "ldm": poke(6 * 512, b"PRIVHEAD\0\2\0\x0c"),
    "ldm_copy": poke(f"{END} - 512", b"PRIVHEAD"),
    "unknown_end": poke(f"{END} - 4096", bytes(range(1, 256))),
    "scribble": poke(BETWEEN, bytes(range(1, 256))),
    "one_byte": poke(2048, b"one more byte"),
    "one_block": poke(1234 * 2**20, b"x" * 4096),
}


def read_rows() -> list[Row]:
    """Read the table, its shell texts filled in."""
    table = Path(__file__).with_suffix(".yml").read_text(encoding="utf-8")
    fill = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string
    rows = []
    for entry in yaml.safe_load(table):
        for key in ("make", "late", "second_look", "undo"):
            entry[key] = fill(entry.get(key, "")).render(NAMES)
        for key in ("make", "late"):  # one more text follows
            entry[key] += " " * entry[key].endswith(";")
        rows.append(schema.read(Row, entry))
    return rows


ROWS: list[Row] = read_rows()
