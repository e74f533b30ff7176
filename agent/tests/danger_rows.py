"""The dangerous situations; each is made for real in the guest, on the lab's own drives."""

from __future__ import annotations

import json
import struct
from typing import Any

from agent.storage import layout, samples
from agent.tests.dangers import CODE, Row, poke
from contract.plan import DATA_OFFSET_BYTES, Disk, Extent

EXTENT = Extent(DATA_OFFSET_BYTES, 64 * 2**20)
# A place that is read of the plain disk, a good way in.
BETWEEN = samples.places(2**31, "FDELABPLAIN01")[200][0]
END = "$(blockdev --getsize64 $D)"
ERASE = {"erase": "{serial}"}
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
HOLD = (
    "python3 -c 'import os,sys,time; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL); time.sleep(999)' "
    "$D >/dev/null 2>&1 & echo $! >$F/pid; "
    "until ls -l /proc/$!/fd | grep -q $D; do sleep 0.1; done; "
)


def elsewhere(device: str, then: str = "") -> str:
    """Shell text that mounts a device in a namespace of its own, and does more in there."""
    return (
        f"rm -f $F/there; unshare -m sh -c 'mount $0 /mnt; {then} touch $F/there; "
        f"exec sleep 999' {device} >/dev/null 2>&1 & echo $! >$F/pid; "
        "until [ -e $F/there ]; do sleep 0.1; done; "
    )


def _xfs() -> bytes:
    """Return a superblock of XFS, version 4, as libblkid checks it."""
    head = struct.pack(">4sIQQQ16s", b"XFSB", 4096, 65536, 0, 0, bytes(range(16)))
    places = struct.pack(">QQQQIIIII", 4, 128, 129, 130, 1, 16384, 4, 1, 2560)
    sizes = struct.pack(">HHHH12sBBBBBBBB", 0xB4A4, 512, 256, 16, b"", 12, 9, 8, 4, 14, 0, 0, 25)
    return head + places + sizes


def _fat() -> bytes:
    """Return a boot sector of FAT16."""
    head = b"\xeb\x3c\x90mkfs.fat" + struct.pack(
        "<HBHBHHBHHHII", 512, 4, 4, 2, 512, 0, 0xF8, 128, 32, 64, 0, 131072
    )
    return (head + struct.pack("<BBBI11s8s", 0x80, 0, 0x29, 1, b"USBSTICK   ", b"FAT16   ")).ljust(
        510, b"\0"
    ) + b"\x55\xaa"


def _ntfs() -> str:
    """Return a boot sector of NTFS and the record of its MFT that libblkid looks for."""
    boot = b"\xeb\x52\x90NTFS    " + struct.pack("<HBHBHHB", 512, 8, 0, 0, 0, 0, 0xF8)
    boot += bytes(2 + 2 + 2 + 4 + 4) + struct.pack(
        "<IQQQbxxxbxxxQI", 0x800080, 262136, 4, 16384, -10, 1, 7, 0
    )
    record = b"FILE" + bytes(1020)
    return poke(0, boot.ljust(510, b"\0") + b"\x55\xaa") + poke(4 * 4096, record * 4)


def _zfs() -> str:
    """Return an array of uberblocks, without the list of names that a whole label has."""
    return poke(128 * 1024, struct.pack("<QQ", 0x00BAB10C, 5000).ljust(1024, b"\0") * 8)


def _crc32c(data: bytes) -> int:
    """Castagnoli's CRC, which btrfs keeps in front of its superblock."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _btrfs(place: int, devices: int) -> str:
    """Return a superblock of btrfs, of so many devices, for this place."""
    block = bytearray(4096)
    block[0x40:0x48] = b"_BHRfS_M"
    struct.pack_into("<QQ", block, 0x30, place, 0)
    struct.pack_into("<QQ", block, 0x70, 2**31, 2**20)  # bytes of all, bytes used
    struct.pack_into("<QIIII", block, 0x88, devices, 4096, 16384, 16384, 4096)
    struct.pack_into("<I", block, 0, _crc32c(bytes(block[0x20:])))
    return poke(place, bytes(block))


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


# The agent itself, for what it has done before.
AGENT = (
    f"(cd / && PYTHONPATH={CODE} python3 -m agent %s --target $F/target.json "
    "--secrets $F/secrets.json >/dev/null); "
)
LUKS = (
    "luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --luks2-keyslots-size 1m "
    "--key-file -"
)

IDENTITY = [
    Row("absent", "no disk at the path", ("no block device",), disk={"by_id": "{by_id}_ABSENT"}),
    Row(
        "other-path",
        "the path is another disk's",
        ("has serial 'FDELABSED0001'",),
        disk={"by_id": "{other_by_id}"},
    ),
    Row(
        "partition-path",
        "the path is a partition's",
        ("not a whole disk", "has serial"),
        make=OURS,
        disk={"by_id": "{by_id}-part1"},
    ),
    Row(
        "mapping-path",
        "the path is a mapping's on the disk",
        ("not a whole disk",),
        make="echo 0 8192 linear $D 0 | dmsetup create danger; ",
        undo="dmsetup remove --retry danger",
        disk={"by_id": "/dev/mapper/danger"},
    ),
    Row("serial", "another serial", ("'FDELABPLAIN02'",), disk={"serial": "FDELABPLAIN02"}),
    Row("size", "another size", ("has 2147483648 bytes",), disk={"size_bytes": 2**31 - 4096}),
    Row("small", "an extent larger than the disk", ("Choose a smaller",), extent_bytes=2**31),
    Row("erase-serial", "`erase` names another serial", ("'OTHER'",), disk={"erase": "OTHER"}),
]

USES = [
    Row(
        "plain-crypt",
        "plain dm-crypt, which leaves no header, open on it",
        ("held by danger",),
        make="echo -n x | cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 256 "
        "--key-file - $D danger; ",
        undo="cryptsetup close danger",
    ),
    Row(
        "our-name",
        "a mapping of our name by someone else, on a blank disk",
        ("held by fde-data",),
        make="echo 0 8192 linear $D 0 | dmsetup create fde-data; ",
        undo="dmsetup remove --retry fde-data",
    ),
    Row(
        "other-name",
        "a mapping of our name by someone else, on another disk",
        ("fde-data", "is not ours"),
        make="echo 0 8192 linear $O 0 | dmsetup create fde-data; ",
        undo="[ -e /dev/mapper/fde-data ] && dmsetup remove --retry fde-data",
        commands=("prepare", "storage leave", "storage enter plain"),
    ),
    Row(
        "read-open",
        "open for reading alone, as an export by iSCSI or NBD may have it",
        ("is in use", ": open in python3["),
        make=HOLD.replace("os.O_RDWR | os.O_EXCL", "os.O_RDONLY"),
        undo=GONE,
    ),
    Row(
        "generic",
        "open by its NVMe generic device, as SPDK, xNVMe or QEMU have it",
        ("is in use", ": open in python3["),
        make=HOLD.replace("os.O_RDWR | os.O_EXCL", "os.O_RDWR").replace(
            "$D", "/dev/ng${D#/dev/nvme}"
        ),
        undo=GONE,
    ),
    Row(
        "odd-name",
        "open in a program whose name the kernel cut within a letter",
        ("is in use", ": open in process-name-t\\xc3["),
        make="cp /bin/sleep /usr/local/bin/process-name-töö; "
        "process-name-töö 999 <$D >/dev/null 2>&1 & echo $! >$F/pid; "
        "until ls -l /proc/$!/fd | grep -q $D; do sleep 0.1; done; ",
        undo=f"{GONE}; rm /usr/local/bin/process-name-*",
    ),
    Row(
        "mapped",
        "mapped into a program's memory, its descriptor closed",
        ("is in use", ": mapped into python3["),
        make="python3 -c 'import mmap, os, sys, time; f = os.open(sys.argv[1], os.O_RDWR); "
        "m = mmap.mmap(f, 4096, trackfd=False); os.close(f); time.sleep(999)' $D >/dev/null 2>&1 & "
        "echo $! >$F/pid; until grep -q $D /proc/$!/maps; do sleep 0.1; done; "
        "while ls -l /proc/$!/fd | grep -q $D; do sleep 0.1; done; ",
        undo=GONE,
    ),
    Row(
        "fstab",
        "blank, and named in /etc/fstab",
        ("named in /etc/fstab",),
        make="cp /etc/fstab $F/fstab; echo $D /home ext4 noauto 0 2 >>/etc/fstab; ",
        undo="cp $F/fstab /etc/fstab",
        disk=ERASE,
    ),
    Row(
        "crypttab",
        "blank, and named in /etc/crypttab",
        ("named in /etc/crypttab",),
        make="echo swap $(readlink -f $D) /dev/urandom swap >/etc/crypttab; ",
        undo="rm -f /etc/crypttab",
    ),
    Row(
        "write-protected",
        "write-protected",
        ("is write-protected",),
        make=f"{MKFS} $D; blockdev --setro $D; ",
        undo="blockdev --setrw $D",
        disk=ERASE,
    ),
    Row(
        "mounted",
        "mounted",
        ("mounted on /mnt",),
        make=f"{MKFS} $D; mount $D /mnt; ",
        undo="umount /mnt",
    ),
    Row(
        "mounted-erase",
        "mounted, with `erase`",
        ("mounted on /mnt",),
        make=f"{MKFS} $D; mount $D /mnt; ",
        undo="umount /mnt",
        disk=ERASE,
    ),
    Row(
        "read-only",
        "a partition mounted read-only",
        ("mounted on /mnt", "table that is not ours"),
        make=f"{GPT}{MKFS} $P; mount -o ro $P /mnt; ",
        undo="umount /mnt",
    ),
    Row(
        "namespace",
        "mounted in another mount namespace alone",
        ("mounted on /mnt for sleep[PID] alone",),
        make=f"{MKFS} $D; {elsewhere('$D')}",
        undo=GONE,
    ),
    Row(
        "namespace-ours",
        "ours, its partition mounted in another mount namespace alone",
        ("mounted on /mnt for sleep[PID] alone",),
        make=f"{OURS}{MKFS} $P; {elsewhere('$P')}",
        undo=GONE,
        commands=("prepare", "teardown"),
    ),
    Row(
        "swap",
        "in use as swap",
        ("used as swap",),
        make="mkswap -q $D; swapon $D; ",
        undo="swapoff $D",
    ),
    Row(
        "root",
        "carries the root file system",
        ("carries the root file system",),
        make=f"{MKFS} $D; {elsewhere('$D', 'sh -e $F/root /mnt;')}",
        undo=GONE,
        chroot=True,
    ),
    Row(
        "root-ancestor",
        "the root file system stands on a mapping on its partition",
        ("carries the root file system", "held by danger"),
        make=f"{GPT}"
        "echo 0 262144 linear $P 0 | dmsetup create danger; "
        f"{MKFS} /dev/mapper/danger; {elsewhere('/dev/mapper/danger', 'sh -e $F/root /mnt;')}",
        undo=f"{GONE}; dmsetup remove --retry danger",
        chroot=True,
    ),
    Row(
        "lvm",
        "physical volume of LVM, a volume active",
        ("LVM2_member", "held by danger-v"),
        make="pvcreate -qy $D; vgcreate -qy danger $D; lvcreate -qy -Wn -Zn -L 8M -n v danger; ",
        undo="vgchange -qan danger",
    ),
    Row(
        "lvm-off",
        "physical volume of LVM, nothing active",
        ("LVM2_member",),
        make="pvcreate -qy $D; vgcreate -qy danger $D; ",
    ),
    Row(
        "md",
        "member of an array that runs",
        ("linux_raid_member", "held by md127"),
        make="mdadm -q -C /dev/md127 -l0 -n1 --force --run $D; ",
        undo="mdadm -q -S /dev/md127",
    ),
    Row(
        "md-off",
        "member of an array that does not run",
        ("linux_raid_member",),
        make="mdadm -q -C /dev/md127 -l0 -n1 --force --run $D; mdadm -q -S /dev/md127; ",
    ),
    Row(
        "md-end",
        "the same, its superblock at the end of the disk",
        ("linux_raid_member",),
        make="mdadm -q -C /dev/md127 -e 1.0 -l1 -n2 --run $D missing; mdadm -q -S /dev/md127; ",
    ),
    Row(
        "multipath",
        "held by a multipath map",
        ("held by danger",),
        make="modprobe dm-round-robin; echo 0 $(blockdev --getsz $D) multipath 0 0 1 1 round-robin "
        "0 1 1 $D 1 | dmsetup create danger; ",
        undo="dmsetup remove --retry danger",
    ),
    Row(
        "dm",
        "ours, held by someone else's mapping",
        ("held by danger",),
        make=f"{OURS}echo 0 8192 linear $P 0 | dmsetup create danger; ",
        undo="dmsetup remove --retry danger",
        commands=("prepare", "teardown"),
    ),
    Row(
        "bcache",
        "backing device of bcache",
        ("bcache", "held by bcache0"),
        make=f"make-bcache -B $D >/dev/null; {SETTLE}"
        "[ -e /sys/block/bcache0 ] || echo $D >/sys/fs/bcache/register; ",
        undo="echo 1 >/sys/block/bcache0/bcache/stop; "
        "while [ -e /sys/block/bcache0 ]; do sleep 0.1; done",
    ),
    Row(
        "zfs",
        "uberblocks of ZFS, which libblkid does not take for a label",
        ("unrecognised data",),
        make=_zfs(),
    ),
    Row(
        "held",
        "held exclusively by a program",
        ("is in use", ": open in python3["),
        make=HOLD,
        undo=GONE,
    ),
    Row(
        "open",
        "open in a program that does not hold it exclusively, as a virtual machine has its disk",
        ("is in use", ": open in python3["),
        make=HOLD.replace(" | os.O_EXCL", ""),
        undo=GONE,
    ),
    Row(
        "open-partition",
        "ours, its partition open in a program",
        ("is in use", "p1: open in python3["),
        make=OURS + HOLD.replace(" | os.O_EXCL", "").replace("$D", "$P"),
        undo=GONE,
    ),
    Row(
        "loop",
        "a loop device stands on it",
        ("held by loop",),
        make="losetup /dev/loop7 $D; ",
        undo="losetup -d /dev/loop7",
    ),
]

CONTENTS = [
    Row("ext4", "ext4", ("ext4",), make=f"{MKFS} $D; "),
    Row("xfs", "XFS", ("(xfs)",), make=poke(0, _xfs())),
    Row("fat", "FAT", ("vfat",), make=poke(0, _fat())),
    Row("ntfs", "NTFS", ("ntfs",), make=_ntfs()),
    Row(
        "iso", "an ISO image", ("iso9660",), make=poke(0x8000, b"\x01CD001\x01".ljust(2048, b"\0"))
    ),
    Row("swap-off", "swap that is not in use", ("(swap)",), make="mkswap -q $D; "),
    Row(
        "luks",
        "LUKS",
        ("crypto_LUKS",),
        make="echo -n x | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "
        "--luks2-keyslots-size 1m --key-file - $D; ",
    ),
    Row(
        "luks-inside",
        "ours, with LUKS of another label in its partition",
        ("crypto_LUKS", "in its partition"),
        make=f"{OURS}echo -n x | cryptsetup luksFormat -q --label home --pbkdf pbkdf2 "
        "--pbkdf-force-iterations 1000 --luks2-keyslots-size 1m --key-file - $P; ",
        commands=("prepare", "teardown"),
    ),
    Row(
        "inside",
        "ours, with a file system made in its partition by hand",
        ("in its partition (ext4)",),
        make=f"{OURS}{MKFS} $P; ",
        commands=("prepare", "teardown"),
    ),
    Row(
        "other-extent",
        "ours of another extent, with a foreign file system inside",
        ("in its partition (ext4)",),
        make=f"{laid_out('FDELABPLAIN01', Extent(DATA_OFFSET_BYTES, 2**27))}{MKFS} $P; ",
    ),
    Row(
        "gpt",
        "GPT with a file system",
        ("table that is not ours (gpt, ext4)",),
        make=f"{GPT}{MKFS} $P; ",
    ),
    Row(
        "mbr",
        "MBR with an empty partition",
        ("table that is not ours (dos",),
        make=f"echo 'start=1MiB' | sfdisk -q --label dos $D; {SETTLE}",
    ),
    Row(
        "backup-gpt",
        "GPT whose start was wiped, its backup lives",
        ("table that is not ours (gpt",),
        make=f"echo 'start=1MiB' | sfdisk -q --label gpt $D; dd if=/dev/zero of=$D bs=1M count=1 "
        f"conv=fsync status=none; blockdev --rereadpt $D; {SETTLE}",
    ),
    Row(
        "copy",
        "our mark, copied from another disk",
        ("not the mark of this very disk",),
        make=laid_out("FDELABSED0001"),
    ),
    Row(
        "stale",
        "a table with a partition that the kernel does not show",
        ("than the kernel shows",),
        make=f"{GPT}partx --delete $D; ",
        disk=ERASE,
    ),
    Row(
        "unknown",
        "unknown data at its start",
        ("unrecognised data",),
        make="dd if=/dev/urandom of=$D bs=1M count=1 conv=fsync status=none; ",
    ),
    Row(
        "unknown-end",
        "unknown data at its end alone",
        ("unrecognised data",),
        make=poke(f"{END} - 4096", bytes(range(1, 256))),
    ),
]

HIDDEN = [
    Row(
        "ext4-shifted",
        "ext4 where a first partition begins, and no table",
        ("ext4 at 1 MiB without a partition table",),
        make="mkfs.ext4 -qF -E offset=1048576,lazy_itable_init=0 $D 256M; ",
    ),
    Row(
        "luks-shifted",
        "LUKS where a first partition begins, and no table",
        ("crypto_LUKS at 1 MiB without a partition table",),
        make=shifted(f"echo -n x | cryptsetup {LUKS} $L"),
    ),
    Row(
        "xfs-shifted",
        "XFS behind an EFI partition, and no table",
        ("xfs at 513 MiB without a partition table",),
        make=poke(513 * 2**20, _xfs()),
    ),
    Row(
        "fat-shifted",
        "FAT at sector 63, where MBR disks of old begin, and no table",
        ("unrecognised data",),
        make=poke(63 * 512, _fat()),
    ),
    Row(
        "luks-detached",
        "LUKS whose header is elsewhere, first and last MiB blank",
        ("unrecognised data", "at byte 2097152"),
        make=f"truncate -s 16M $F/header; echo -n x | cryptsetup {LUKS} --header $F/header "
        "--offset 4096 $D; echo -n x | cryptsetup open --header $F/header --key-file - $D danger; "
        f"{MKFS} /dev/mapper/danger 1G; cryptsetup close danger; ",
    ),
    Row(
        "middle",
        "unknown data in the middle alone",
        ("unrecognised data", "there is data at byte"),
        make="dd if=/dev/urandom of=$D bs=1M seek=1000 count=32 conv=fsync status=none; ",
    ),
    Row(
        "btrfs-copy",
        "btrfs, of which only the copy at 64 MiB lives",
        ("unrecognised data", "at byte 67108864"),
        make=_btrfs(64 * 2**20, 1),
    ),
    Row(
        "zfs-end",
        "labels of ZFS at its end alone",
        ("unrecognised data", "its last MiB"),
        make=poke(f"{END} - 131072", struct.pack("<QQ", 0x00BAB10C, 5000).ljust(1024, b"\0") * 8),
    ),
    Row(
        "error-middle",
        "a block between its edges cannot be read",
        ("cannot be read (",),
        faults=({"name": "media-error", "lba": BETWEEN // 4096},),
    ),
    Row(
        "left-changed",
        "what our teardown left, and someone has written to it since",
        ("ext4 at 17 MiB without a partition table",),
        make=AGENT % "prepare"
        + AGENT % "storage enter plain"
        + AGENT % "teardown"
        + poke(BETWEEN, bytes(range(1, 256))),
    ),
]

MEMBERS = [
    Row(
        "btrfs-devices",
        "btrfs over several devices, the others absent",
        ("(btrfs)",),
        make=_btrfs(65536, 2),
    ),
    Row(
        "md-090",
        "member of an array, its superblock of version 0.90 near the end",
        ("linux_raid_member",),
        make="mdadm -q -C /dev/md127 -e 0.90 -l1 -n2 --run $D missing; mdadm -q -S /dev/md127; ",
    ),
    Row(
        "bios-raid",
        "metadata of a BIOS array (Intel) at its end, which libblkid does not take for one",
        ("unrecognised data", "its last MiB"),
        make=poke(f"{END} - 1024", b"Intel Raid ISM Cfg Sig. 1.3.00".ljust(512, b"\0")),
    ),
    Row(
        "drbd",
        "metadata of DRBD at its end, which libblkid does not take for it",
        ("unrecognised data", "its last MiB"),
        make=poke(f"{END} - 4096 + 60", b"\x83\x74\x02\x6b" + bytes(100)),
    ),
    Row("bitlocker", "BitLocker", ("is not ours (dos, empty)",), make=_bitlocker()),
    Row("apfs", "APFS", ("apfs",), make=poke(0, _apfs())),
    Row(
        "bcachefs",
        "bcachefs over several devices",
        ("unrecognised data",),
        make=poke(4096 + 24, bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef") + bytes(range(99))),
    ),
    Row(
        "hibernation",
        "an image of hibernation in its swap",
        ("swsuspend",),
        make="mkswap -q $D; " + poke(4086, b"S1SUSPEND\0"),
    ),
    Row(
        "ldm",
        "a dynamic disk of Windows (LDM)",
        ("table that is not ours (dos",),
        make=f"echo 'start=63, type=42' | sfdisk -q --label dos $D; {SETTLE}"
        + poke(6 * 512, b"PRIVHEAD\0\2\0\x0c")
        + poke(f"{END} - 512", b"PRIVHEAD"),
    ),
    Row(
        "logical",
        "MBR with a logical partition",
        ("table that is not ours (dos",),
        make="printf 'start=1MiB, size=64MiB, type=5\\nstart=2MiB, size=32MiB\\n' | "
        f"sfdisk -q --label dos $D; {SETTLE}",
    ),
    Row(
        "sun",
        "a disk label of Sun, which this kernel does not read",
        ("signature that is not ours (sun)",),
        make=f"echo 'size=64MiB' | sfdisk -q --label sun $D; {SETTLE}",
    ),
    Row(
        "erase-other",
        "`erase` was given for something else that lay there",
        ("erase was given for other contents",),
        make=f"{MKFS} $D; ",
        disk={"erase": "{serial} 0123456789ab"},
    ),
    Row(
        "erase-expired",
        "changed since `erase` was given",
        ("erase was given for other contents",),
        make=f"{MKFS} $D; ",
        late=poke(2048, b"one more byte"),
        disk={"erase": "{serial} {print}"},
    ),
]

TWO = (
    "printf 'start=1MiB, size=699MiB\\nstart=700MiB, size=1300MiB\\n' | "
    f"sfdisk -q --label gpt $D; {SETTLE}Q=${{D}}p2; "
)
_STORE = "mount %s /mnt; echo thesis >/mnt/thesis; umount /mnt; "
_OPEN = "echo -n x | cryptsetup open --key-file - $Q danger; "
_CLOSE = "cryptsetup close danger; "
# What lay there, what was done with it since, and what the owner's `erase` was given for.
_USED = {
    "erase-file": ("a file was stored in it", f"{MKFS} $Q; ", _STORE % "$Q"),
    "erase-mkfs": ("another file system was made in it", f"{MKFS} $Q; ", f"{MKFS} $Q; "),
    "erase-lvm": (
        "a volume was made in it",
        "pvcreate -qy $Q; vgcreate -qy danger $Q; ",
        "lvcreate -qy -Wn -Zn -an -L 8M -n v danger; ",
    ),
    "erase-md": (
        "it became a member of an array",
        f"{MKFS} $Q; ",
        "mdadm -q -C /dev/md127 -e 1.2 -l1 -n2 --run $Q missing; mdadm -q -S /dev/md127; ",
    ),
    "erase-luks": (
        "a file was stored in its encrypted volume",
        f"echo -n x | cryptsetup {LUKS} $Q; {_OPEN}{MKFS} /dev/mapper/danger; {_CLOSE}",
        f"{_OPEN}{_STORE % '/dev/mapper/danger'}{_CLOSE}",
    ),
    "erase-swap": ("swap was made anew in it", "mkswap -q $Q; ", "mkswap -q $Q; "),
    "erase-label": ("it was given a name", f"{MKFS} $Q; ", "sfdisk -q --part-label $D 2 home; "),
    "erase-block": ("one block of it was written", f"{MKFS} $Q; ", poke(1234 * 2**20, b"x" * 4096)),
}
MEMBERS += [
    Row(
        name,
        f"a second partition, and since `erase` was given {since}",
        ("erase was given for other contents",),
        make=TWO + make,
        late=f"Q=${{D}}p2; {late}",
        disk={"erase": "{serial} {print}"},
    )
    for name, (since, make, late) in _USED.items()
]

RACES = [
    Row(
        "checked-block",
        "one block was written since `fde check`",
        ("changed since it was checked",),
        make=f"{MKFS} $D; ",
        checked=True,
        late=poke(1234 * 2**20, b"x" * 4096),
        disk=ERASE,
    ),
    Row(
        "written",
        "someone writes to it between the look and the write",
        ("changed since it was looked at", "first or last MiB"),
        make="dd if=/dev/urandom of=$F/mib bs=1M count=1 status=none; "
        "dd if=$F/mib of=$D bs=1M conv=fsync status=none; ",
        late="blkdiscard -fq $D; ",
        second_look="dd if=$F/mib of=$D bs=1M conv=fsync status=none",
        disk=ERASE,
    ),
    Row(
        "mounted-between",
        "someone mounts it between the look and the write",
        ("mounted on /mnt",),
        make=f"{MKFS} $D; tune2fs -O ^has_journal $D >/dev/null; ",
        second_look="mount -o ro $D /mnt",
        undo="umount /mnt",
        disk=ERASE,
    ),
    Row(
        "replugged",
        "unplugged and plugged in again between the look and the write",
        ("changed since it was looked at", "connected again"),
        second_look="nvme disconnect -n nqn.2026-01.org.fde-testbed:plain >/dev/null; "
        "/usr/local/sbin/fde-lab-drives >/dev/null; "
        "for n in $(seq 200); do [ -b $I ] && break; sleep 0.05; done",
    ),
    Row(
        "checked",
        "changed since `fde check`",
        ("changed since it was checked", "fde check"),
        make=f"{MKFS} $D; ",
        checked=True,
        late=poke(2048, b"one more byte"),
        disk=ERASE,
    ),
]

DRIVES = [
    Row(
        "error-start",
        "its first block cannot be read",
        ("cannot be read (",),
        faults=({"name": "media-error", "lba": 0},),
        disk=ERASE,
    ),
    Row(
        "error-end",
        "its last block cannot be read",
        ("cannot be read (",),
        faults=({"name": "media-error", "lba": 2**31 // 4096 - 1},),
        disk=ERASE,
    ),
    Row(
        "no-opal",
        "no Opal, and a configuration needs it",
        ("offers no Opal",),
        kinds=("plain", "opal"),
    ),
]

PATHS = [
    Row(
        "two-paths",
        "two paths to one disk, without multipath",
        ("has the same serial and size as /dev/sdb",),
        make="modprobe scsi_debug add_host=2 vpd_use_hostno=0 dev_size_mb=128 delay=0; "
        "udevadm settle; [ -b /dev/sdb ]; ",
        undo="udevadm settle; rmmod scsi_debug",
        disk={"by_id": "/dev/sda", "serial": "2000", "size_bytes": 2**27, "erase": "2000"},
        medium="/dev/sda",
    ),
]

PATHS.append(
    Row(
        "generic-scsi",
        "open by its SCSI generic device, as QEMU has it",
        ("is in use", "(sg0: open in python3["),
        make="modprobe scsi_debug dev_size_mb=128 delay=0; udevadm settle; [ -b /dev/sda ]; "
        + HOLD.replace("os.O_RDWR | os.O_EXCL", "os.O_RDWR").replace("$D", "/dev/sg0"),
        undo=f"{GONE}; udevadm settle; rmmod scsi_debug",
        disk={"by_id": "/dev/sda", "serial": "2000", "size_bytes": 2**27},
        medium="/dev/sda",
    )
)
PATHS.append(
    Row(
        "large",
        "more than 16 TiB, and something far behind",
        ("there is data at byte",),
        make="modprobe scsi_debug virtual_gb=20480 dev_size_mb=16 delay=0; udevadm settle; "
        "dd if=/dev/urandom of=/dev/sda bs=1M seek=17825803 count=1 conv=fsync status=none; ",
        undo="udevadm settle; rmmod scsi_debug",
        disk={"by_id": "/dev/sda", "serial": "2000", "size_bytes": 20480 * 2**30},
        medium="/dev/sda",
    )
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


PASSPHRASE = f"{SECRET} luks_passphrase"
BOTH = ("prepare", "teardown")
REVERT = "teardown --psid-revert FDELABSED0001"

SED = [
    Row(
        "reverted",
        "self-encrypting, reads as random bytes",
        ("unrecognised data",),
        make="dd if=/dev/urandom of=$D bs=1M count=2 conv=fsync status=none; ",
        role="sed",
    ),
    Row(
        "locked",
        "locked by its owner",
        ("cannot be read (ENODATA)", "--psid-revert FDELABSED0001"),
        make=opal(*TAKEN, *LOCKED),
        role="sed",
        disk=ERASE,
        commands=BOTH,
    ),
    Row(
        "owned",
        "owned by someone, nothing locked",
        ("Opal locking is enabled", "--psid-revert FDELABSED0001"),
        make=opal(*TAKEN),
        role="sed",
        disk=ERASE,
        commands=BOTH,
    ),
    Row(
        "shadow",
        "its start hidden by an MBR shadow",
        ("MBR shadow", "--psid-revert FDELABSED0001"),
        make=opal(*TAKEN),
        faults=({"name": "shadow-on"},),
        role="sed",
        disk=ERASE,
        commands=BOTH,
    ),
    Row(
        "other-pin",
        "ours, but the PIN of the secrets is another one",
        ("not authorised", "--psid-revert FDELABSED0001"),
        make=our_header(PASSPHRASE),
        role="sed",
        kinds=("opal",),
        commands=BOTH,
    ),
    Row(
        "other-secrets",
        "ours, but all secrets are others",
        ("--psid-revert FDELABSED0001",),
        make=our_header("echo another passphrase"),
        role="sed",
        kinds=("opal",),
        commands=BOTH,
    ),
    Row(
        "pin-tries",
        "ours, and a PIN that is not the drive's is tried for a third time",
        ("drive locks out after a few (often 5, its TryLimit)", "--psid-revert FDELABSED0001"),
        make=our_header(PASSPHRASE),
        role="sed",
        kinds=("opal",),
        commands=("prepare",) * 3,
    ),
    Row(
        "sid-taken",
        "half-taken by someone: it has an owner's PIN, and locks nothing",
        ("not authorised", "--psid-revert FDELABSED0001"),
        make=opal(TAKEN[0]),
        role="sed",
        kinds=("opal",),
        disk=ERASE,
    ),
    Row(
        "sid-blocked",
        "its firmware's Block SID lets nobody take it",
        ("--psid-revert FDELABSED0001",),
        faults=({"name": "block-sid"},),
        role="sed",
        kinds=("opal",),
        disk=ERASE,
    ),
    Row(
        "sid-locked-out",
        "its owner's tries are used up",
        ("locked out",),
        faults=({"name": "authority-locked-out", "authority": "SID"},),
        role="sed",
        kinds=("opal",),
        disk=ERASE,
    ),
    Row(
        "opal-fails",
        "claims Opal, and fails all that is asked of it",
        ("did not",),
        faults=({"name": "refuse-opal"},),
        role="sed",
        kinds=("opal",),
        disk=ERASE,
    ),
    Row(
        "psid-serial",
        "a revert by PSID confirmed with another serial",
        ("No disk of this inventory has the serial 'FDELABSED0009'",),
        make=opal(*TAKEN, *LOCKED),
        role="sed",
        commands=("teardown --psid-revert FDELABSED0009",),
    ),
    Row(
        "psid-content",
        "a revert by PSID of a disk with a file system on it",
        ("(ext4)", 'erase: "FDELABSED0001 '),
        make=f"{opal(*TAKEN)}{MKFS} $D; ",
        role="sed",
        commands=(REVERT,),
    ),
    Row(
        "psid-wrong",
        "a revert by PSID with a PSID that is not the drive's",
        ("Compare sed_psid with the drive's label",),
        make=opal(*TAKEN, *LOCKED),
        role="sed",
        secrets={"sed_psid": "0" * 32},
        commands=(REVERT,),
    ),
]

VICES = [
    Row(
        f"opal-{name}",
        situation,
        says,
        vices=vices,
        role="sed",
        kinds=("plain", "opal"),
        disk=ERASE,
    )
    for name, situation, vices, says in (
        (
            "small-blocks",
            "Opal counts in blocks of 512 bytes, the disk has 4,096 (as after a format)",
            {"opal_block_bytes": 512},
            ("Opal blocks of 512 bytes and data blocks of 4096",),
        ),
        (
            "large-blocks",
            "Opal counts in blocks of 8,192 bytes, the disk has 4,096",
            {"opal_block_bytes": 8192},
            ("Opal blocks of 8192 bytes and data blocks of 4096",),
        ),
        (
            "steps",
            "locking ranges in steps of 32 MiB alone",
            {"alignment_blocks": 8192},
            ("from block 0 on in steps of 33554432 bytes",),
        ),
        (
            "odd-start",
            "locking ranges from block 1 on alone, in steps of two",
            {"alignment_blocks": 2, "lowest_lba": 1},
            ("from block 1 on in steps of 8192 bytes",),
        ),
        (
            "length",
            "locking ranges from block 4,352 on, in steps of 48 MiB that the extent is none of",
            {"alignment_blocks": 12288, "lowest_lba": 4352},
            ("from block 4352 on in steps of 50331648 bytes", "is 67108864 bytes long"),
        ),
        (
            "no-encryption",
            "self-encrypting, and says that it does not encrypt",
            {"no_media_encryption": 1},
            ("media encryption: no",),
        ),
        (
            "no-session",
            "no session with the drive is free",
            {"no_session": 1},
            ("has its only session", "power-cycle the drive"),
        ),
    )
]
VICES += [
    Row(
        "ours-no-session",
        "ours, and no session with the drive is free",
        ("has its only session", "power-cycle the drive"),
        make=our_header(PASSPHRASE),
        vices={"no_session": 1},
        role="sed",
        kinds=("opal",),
        commands=BOTH,
    ),
    Row(
        "ours-fails",
        "ours, and it fails all that is asked of its Opal",
        ("did not", "TCG status 63"),
        make=our_header(PASSPHRASE),
        faults=({"name": "refuse-opal"},),
        role="sed",
        kinds=("opal",),
        commands=BOTH,
    ),
    Row(
        "ours-no-encryption",
        "ours, and it says that it does not encrypt any more",
        ("media encryption: no",),
        make=our_header(PASSPHRASE),
        vices={"no_media_encryption": 1},
        role="sed",
        kinds=("opal",),
    ),
    Row(
        "psid-no-session",
        "a revert by PSID, and no session with the drive is free",
        ("has its only session", "power-cycle the drive"),
        make=opal(*TAKEN, *LOCKED),
        vices={"no_session": 1},
        role="sed",
        commands=(REVERT,),
    ),
    Row(
        "psid-fails",
        "a revert by PSID of a drive that fails all that is asked of it",
        ("did not revert", "TCG status 63"),
        make=opal(*TAKEN, *LOCKED),
        faults=({"name": "refuse-opal"},),
        role="sed",
        commands=(REVERT,),
    ),
]

ALLOWED = [
    Row(
        "psid",
        "a revert by PSID confirmed with its serial, for contrast",
        ("reverted by PSID",),
        make=opal(*TAKEN, *LOCKED),
        role="sed",
        commands=(REVERT,),
        allowed=True,
    ),
    Row(
        "erase-seen",
        "ext4 and `erase` as `fde check` printed it, for contrast",
        ("erased and partitioned",),
        make=f"{MKFS} $D; ",
        disk={"erase": "{serial} {print}"},
        allowed=True,
    ),
    Row(
        "left",
        "what our teardown left, for contrast",
        ('["partitioned',),
        make=AGENT % "prepare" + AGENT % "storage enter plain" + AGENT % "teardown",
        allowed=True,
    ),
    Row(
        "half-taken",
        "a provisioning was interrupted between the PIN and the locking, for contrast",
        ("took ownership", "made the locking range"),
        make=opal(["TAKE_OWNERSHIP", {"lr": 0, "key": "OURS"}]),
        role="sed",
        kinds=("opal",),
        disk=ERASE,
        allowed=True,
    ),
    Row(
        "erase",
        "ext4 and `erase` with its serial, for contrast",
        ("erased and partitioned",),
        make=f"{MKFS} $D; ",
        disk=ERASE,
        allowed=True,
    ),
]

ROWS: list[Row] = [
    *IDENTITY,
    *PATHS,
    *USES,
    *CONTENTS,
    *HIDDEN,
    *MEMBERS,
    *RACES,
    *DRIVES,
    *SED,
    *VICES,
    *ALLOWED,
]
