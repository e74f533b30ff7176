"""Changes to a disk after `erase` was allowed.

`python -m agent.tests.changes DISK` makes each of them and prints whether the fingerprint noticed
it, as JSON. The disk is lost.

A line of a scenario is one change, made on what the lines before it left. $D is the disk, $P and $Q
its first two partitions, $M a folder, $L, $K, $S bytes that are drawn anew for each scenario.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

from agent.storage import facts
from contract.plan import Disk

MIB = 2**20
_MOUNT = "mount $V $M && {{ {0}; sync; umount $M; }}"
_FILES = tuple(
    _MOUNT.format(command)
    for command in (
        "true",
        "echo thesis >$M/thesis",
        "mkdir -p $M/a/b/c",
        "dd if=/dev/urandom of=$M/a/b/c/big bs=1M count=20 status=none",
        "echo x >>$M/thesis",
        "printf X | dd of=$M/a/b/c/big conv=notrunc status=none",
        "mv $M/thesis $M/a/b/work",
        "chmod 600 $M/a/b/work",
        "rm $M/a/b/work",
    )
)
EXT4 = "mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 $V"
XFS, BTRFS = "mkfs.xfs -qf -m reflink=0 $V", "mkfs.btrfs -qf $V"
GPT = (
    'printf "start=1MiB, size=${S}MiB\\nsize=700MiB\\n" | sfdisk -q --label gpt $D; udevadm settle'
)
_LUKS = "echo -n x | cryptsetup %s -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file -"
_OPEN = "echo -n x | cryptsetup open --key-file - $Q danger"
_VOLUME = "V=/dev/danger/v; vgchange -qay danger >/dev/null; %s; vgchange -qan danger >/dev/null"
_ARRAY = "V=/dev/md127; mdadm -q -A $V $Q; %s; udevadm settle; mdadm -q -S $V"


# By name: what is on the disk when `erase` is allowed, and what is changed then.
SCENARIOS: dict[str, tuple[str, tuple[str, ...]]] = {
    "whole-ext4": (f"V=$D; {EXT4}", tuple(f"V=$D; {c}" for c in _FILES)),
    "ext4": (
        f"{GPT}; V=$P; {EXT4}; V=$Q; {EXT4}",
        (
            *(f"V=$Q; {c}" for c in _FILES),
            f"V=$P; {_FILES[1]}",
            f"V=$Q; {EXT4}",
            "tune2fs -L home $Q",
            "tune2fs -U random $Q",
            "tune2fs -O ^has_journal $Q",
            "e2fsck -fy $Q || true; resize2fs $Q 500M",
        ),
    ),
    "xfs": (
        f"{GPT}; V=$Q; {XFS}",
        (*(f"V=$Q; {c}" for c in _FILES), f"V=$Q; {XFS}", "xfs_admin -L data $Q"),
    ),
    "btrfs": (
        f"{GPT}; V=$Q; {BTRFS}",
        (*(f"V=$Q; {c}" for c in _FILES), f"V=$Q; {BTRFS}", "btrfs filesystem label $Q data"),
    ),
    "table": (
        GPT,
        (
            "sfdisk -q --part-label $D 2 data",
            "sfdisk -q --part-type $D 2 swap",
            "sfdisk -q --part-uuid $D 2 7d3c1f0e-52a4-4d0b-9d1c-fde7e57bed09",
            "sfdisk -q --disk-id $D 7d3c1f0e-52a4-4d0b-9d1c-fde7e57bed08",
            "echo 'size=60MiB' | sfdisk -q --append $D",
            "echo ', 50MiB' | sfdisk -q -N 3 $D",
            "sfdisk -q --delete $D 3",
            f"V=$P; {EXT4}",
            "printf 'start=1MiB, size=400MiB\\n' | sfdisk -q --wipe never --label dos $D",
            "sfdisk -q --part-type $D 1 82",
            "sfdisk -q --activate $D 1",
            "wipefs -qa $D",
        ),
    ),
    "swap": (
        f"{GPT}; mkswap -q $Q",
        ("mkswap -q $Q", "swaplabel -L s $Q", f"V=$Q; {EXT4}", "wipefs -qa $Q"),
    ),
    "luks": (
        f"{GPT}; {_LUKS % 'luksFormat --type luks2'} $Q; {_OPEN}; V=/dev/mapper/danger; {EXT4}; "
        "cryptsetup close danger",
        (
            *(f"{_OPEN}; V=/dev/mapper/danger; {c}; cryptsetup close danger" for c in _FILES[:5]),
            f"{_OPEN}; V=/dev/mapper/danger; {EXT4}; cryptsetup close danger",
            "cryptsetup config $Q --label home",
            "echo y >$M/k; " + _LUKS % "luksAddKey" + " $Q $M/k",
            _LUKS % "luksFormat --type luks2" + " $Q",
            _LUKS % "luksFormat --type luks1" + " $Q",
            f"{_OPEN}; V=/dev/mapper/danger; {EXT4}; cryptsetup close danger",
            f"{_OPEN}; V=/dev/mapper/danger; {_FILES[1]}; cryptsetup close danger",
        ),
    ),
    "lvm": (
        f"{GPT}; pvcreate -qy $Q; vgcreate -qy danger $Q; lvcreate -qy -Wn -L ${{K}}M -n w danger; "
        "lvcreate -qy -Wn -L 300M -n v danger; " + _VOLUME % EXT4,
        (
            *(_VOLUME % c for c in _FILES[:5]),
            _VOLUME % EXT4,
            "lvcreate -qy -Wn -Zn -an -L 20M -n n danger",
            "lvrename -q danger n o",
            "lvextend -q -L +20M danger/o",
            "lvremove -qy danger/o",
            "vgchange -q --addtag t danger",
            "vgrename -q danger other",
            "vgremove -qqyf other",
            "pvremove -qy $Q",
        ),
    ),
    "md": (
        f"{GPT}; mdadm -q -C /dev/md127 -l0 -n1 --force --run $Q; V=/dev/md127; {EXT4}; "
        "mdadm -q -S /dev/md127",
        (
            *(_ARRAY % c for c in _FILES[:5]),
            _ARRAY % EXT4,
            "mdadm -q --zero-superblock $Q; "
            "mdadm -q -C /dev/md127 -e 1.0 -l1 -n2 --run $Q missing; mdadm -q -S /dev/md127",
            _ARRAY.replace("-A $V", "-A --run $V") % EXT4,
            _ARRAY.replace("-A $V", "-A --run $V") % _FILES[1],
            "mdadm -q --zero-superblock $Q",
        ),
    ),
    "somewhere": (
        f"{GPT}; V=$P; {EXT4}",
        tuple(
            f"echo 'start={at}MiB, size=40MiB' | sfdisk -q --append $D; udevadm settle; "
            f"{command} ${{D}}p3; udevadm settle; sfdisk -q --delete $D 3"
            for at, command in ((1300, EXT4.removesuffix(" $V")), (1427, "mkswap -q"))
        ),
    ),
}
# Noticed where the drive counts what it writes, and else where one of the places drawn is hit.
UNMARKED = tuple(
    f"dd if=/dev/urandom of=$D bs=4K seek={at * MIB // 4096} count=1 conv=notrunc status=none"
    for at in (1310, 1402, 1555, 1673, 1777)
)


def shell(text: str, words: dict[str, str]) -> None:
    """Run shell text with `words`; raises CalledProcessError."""
    after = "\nsync; blockdev --flushbufs $D; ! command -v udevadm >/dev/null || udevadm settle"
    subprocess.run(
        ["bash", "-ec", text + after],
        check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **words},
        stdout=subprocess.DEVNULL,
    )


def notice(device: str, serial: str, folder: Path, names: list[str]) -> dict[str, list[bool]]:
    """Return whether the fingerprint noticed each change, with and without the drive's count.

    The count is the drive's own, of its writes.
    """
    size = int(Path(f"/sys/class/block/{Path(device).name}/size").read_text()) * 512
    disk = Disk("plain", device, serial, size)

    def gather(disk: Disk) -> facts.DiskFacts:
        with mock.patch("agent.storage.devices.serial", return_value=serial):
            return facts.gather(disk)

    part = f"{device}p" if device[-1].isdigit() else device
    noticed: dict[str, list[bool]] = {}
    for name in names:
        make, changes = SCENARIOS[name]
        draw = random.Random(name)
        words = {"D": device, "P": f"{part}1", "Q": f"{part}2", "M": str(folder)}
        words |= {"S": str(draw.randrange(100, 550)), "K": str(4 * draw.randrange(2, 40))}
        shell("wipefs -qaf $D; blkdiscard -fq $D || dd if=/dev/zero of=$D bs=1M || true", words)
        shell(make, words)
        before = gather(disk)
        unmarked = UNMARKED if name == "somewhere" else ()
        for number, change in enumerate((*changes, *unmarked)):
            shell(change, words)
            after = gather(disk)
            pair = [replace(f, writes=None).fingerprint for f in (before, after)]
            outcome = [before.fingerprint != after.fingerprint, pair[0] != pair[1]]
            noticed[f"{name} {number}: {change}"] = outcome
            before = after
    return noticed


if __name__ == "__main__":
    place = Path("/run/fde-changes")
    place.mkdir(exist_ok=True)
    print(json.dumps(notice(sys.argv[1], "S1", place, sys.argv[2:] or list(SCENARIOS)), indent=1))
