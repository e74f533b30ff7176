"""Every configuration on the virtual lab's kernel and Opal drive: entered, proven, taken down."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.storage import dmcrypt, registry
from agent.tests.guest import AES, CODE, FOLDER, REPOSITORY, Target
from contract.places import MOUNT_POINT
from workloads.children.kernel_ciphers import driver

pytestmark = pytest.mark.lab

EXTENT_BYTES = 64 * 2**20  # small, for mkfs is most of the time here
LABS = REPOSITORY / "ansible/playbooks/group_vars/labs.yml"
ENTRIES = yaml.safe_load(LABS.read_text(encoding="utf-8"))["fde_configurations"]


def resolved(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as the controller resolves it."""
    configuration = registry.complete(entry)
    return {
        "name": configuration.name,
        "kind": configuration.kind,
        "disk": configuration.disk,
        **configuration.settings,
    }


CONFIGURATIONS = [resolved(entry) for entry in ENTRIES]
OPAL = ("opal", "opal-dmcrypt-aes256")
CASCADE = "truecrypt-aes-twofish-serpent"

# Around the scripts that run in the guest; `tell` collects the mismatches of spoilt stacks.
PROLOGUE = f"""
import json, os, sys
from dataclasses import asdict, replace
from pathlib import Path
from contract import plan
from agent.system.command import run
from agent.storage import opal, opal_ioctl, proof, registry, secrets
from agent.storage.stack import Stack
spec = plan.load_target(Path("{FOLDER}/target.json"))
keys = secrets.load(Path("{FOLDER}/secrets.json"))
stack = Stack(spec, keys)
said = {{}}
def tell(name, entered):
    found = proof.prove(entered, keys, stack.mount_point, name)
    said[name] = [
        [m.code, *(m.facts[k] for k in ("field", "found", "planned") if k in m.facts)]
        for m in found.mismatches
    ]
"""
EPILOGUE = """
finally:
    stack.leave()
print(json.dumps({**said, "state": stack.state}))
"""


def collected(target: Target, script: str) -> dict[str, Any]:
    """Return what a script collects in the guest, which must end bare."""
    printed: dict[str, Any] = json.loads(target.python(PROLOGUE + script + EPILOGUE))
    assert printed.pop("state") == "bare"
    return printed


PRODUCT = """#!/bin/sh
# A product whose volume lies 1 MiB into its container; LIE says what it does wrong.
set -e
case $1 in
  open)
    size=$(($(blockdev --getsz "$2") - 2048))
    case $LIE in
      plaintext) dmsetup create product --table "0 $size linear $2 2048" ;;
      swapped)
        half=$((size / 16 * 8))
        {
          echo "0 $((size - half)) linear $2 $((half + 2048))"
          echo "$((size - half)) $half linear $2 2048"
        } | dmsetup create product ;;
      memory)
        touch /run/decoy
        (while [ -e /run/decoy ]; do
          dd if=/dev/urandom of="$2" bs=1M count=5 conv=notrunc oflag=direct; sleep 0.2
        done) >/dev/null 2>&1 </dev/null &
        truncate --size $((size * 512)) /run/product.img
        losetup --find --show /run/product.img && exit ;;
      elsewhere)
        truncate --size $((size * 512)) /run/product.img
        losetup --find --show /run/product.img && exit ;;
      *) cryptsetup open --batch-mode --type plain --cipher aes-xts-plain64 --key-size 512 \\
           --hash sha512 --offset 2048 "$2" product ;;
    esac
    echo /dev/mapper/product ;;
  close)
    if [ -e /dev/mapper/product ]; then dmsetup remove --retry product; fi
    losetup --detach-all; rm -f /run/product.img /run/decoy; sleep 0.5
    while pgrep -x dd >/dev/null; do sleep 0.1; done ;;
  prove) if [ "$LIE" = honest ]; then echo not encrypted >&2; exit 1; fi; echo encrypted ;;
  describe) echo "product 1.0" ;;
esac
"""


def test_the_proof_refutes_a_lying_product(target: Target) -> None:
    """It says that it is open and encrypted in every case but one."""
    target.lab.ssh(f"cat > {FOLDER}/product; chmod +x {FOLDER}/product", stdin=PRODUCT.encode())
    script = f"""
from contract.plan import Configuration
LIES = ("none", "plaintext", "swapped", "elsewhere", "memory", "honest")
for lie in LIES:
    words = {{
        name: json.dumps(["/usr/bin/env", f"LIE={{lie}}", "{FOLDER}/product", name, "{{device}}"])
        for name in ("open", "close", "prove", "describe")
    }}
    settings = {{"product": "a product", **words}}
    spec.configurations[lie] = Configuration(lie, "external", "plain", settings)
try:
    for lie in (*LIES, "plain"):
        tell(lie, stack.enter(lie))
"""
    assert collected(target, script) == {
        **{"none": [], "plain": [], "honest": [["kind"]]},
        **{lie: [["probe-plaintext"]] for lie in ("plaintext", "swapped")},
        **{lie: [["probe-elsewhere"]] for lie in ("elsewhere", "memory")},
    }


def test_every_configuration_begins_on_a_discarded_extent(target: Target) -> None:
    """What one leaves on the medium is gone in the next, below dm-crypt as well.

    Who passes a discard on is what was planned.
    """
    script = """
try:
    for name in ("plain", "dmcrypt-aes256", "dmcrypt-aes256-discard", "opal", "plain"):
        entered = stack.enter(name)
        found = proof.prove(entered, keys, stack.mount_point, name)
        raw = Path(entered.place.partition).name
        count = entered.place.extent.size_bytes >> 20
        skip = entered.place.extent.offset_bytes >> 20
        run(["sync"])
        command = f"dd if=/dev/{raw} bs=1M skip={skip} count={count} status=none | grep -ac FILLED"
        filled = int(run(["sh", "-c", command], ok=(0, 1)).out)
        said.setdefault(name, []).append([len(found.mismatches), asdict(found.discard), filled])
        run(["sh", "-c", f"yes FILLED | head -c 32M > {stack.mount_point}/filled"])
"""
    printed = collected(target, script)
    for name, discards in printed.items():
        for mismatches, discard, filled in discards:
            assert mismatches == 0
            assert discard["first_bytes"] == EXTENT_BYTES
            assert filled == 0, name
            assert discard["mounted"] == name.endswith("-discard")
            passed_on = discard["layers"]["fde-data"]["max_bytes"] > 0
            assert passed_on == (name != "dmcrypt-aes256")


def test_disks_are_preconditioned_within_their_extent_and_locked_again(target: Target) -> None:
    """By fio on the real devices, below every layer; nothing beside the extent changes."""
    rounds = {"passes": 1, "rounds": 5, "round_s": 0.2, "access": "sequential"}
    target.put("plan.json", target.frozen_plan(precondition=rounds))
    script = f"""
from agent import precondition
from agent.system import notify
planned = plan.load(Path("{FOLDER}/plan.json"))
def beside(disk):
    end = (17 << 20) + {EXTENT_BYTES}
    for skip, count in ((0, 17), (end >> 20, 64), ((disk.size_bytes >> 20) - 2, 2)):
        where = f"if={{disk.by_id}} bs=1M skip={{skip}} count={{count}} iflag=direct status=none"
        yield run(["sh", "-c", f"dd {{where}} | sha256sum"]).out
folder = Path("{FOLDER}/preconditioned")
folder.mkdir()
lines = []
try:
    before = [list(beside(disk)) for disk in planned.disks_used]
    precondition.all_disks(
        *(planned, folder, stack, []),
        tell=lambda state, *, detail="", facts: lines.append([state, facts["disk"]]),
        watchdog=notify.Watchdog(send=False),
    )
    said["same"] = before == [list(beside(disk)) for disk in planned.disks_used]
    said["kept"] = {{p.stem: json.loads(p.read_text()) for p in folder.glob("*/*.json")}}
    said["lines"] = lines
"""
    printed = collected(target, script)
    assert printed["same"]
    roles = [role for state, role in printed["lines"] if state == "preconditioned"]
    assert roles == ["plain", "sed"]
    for document in printed["kept"].values():
        assert [each["bytes"] for each in document["filled"]] == [EXTENT_BYTES]
        assert len(document["written"]) == 5
        told_bytes = sum(each["bytes"] for each in (*document["filled"], *document["written"]))
        before, after = (document["health"][when]["written_bytes"] for when in ("before", "after"))
        assert after - before >= told_bytes - 2**20, "by the drive's own count"
    assert not target.reads("sed")


def test_every_configuration_is_entered_and_proven(target: Target) -> None:
    """`opal` comes twice: at first, and again after others have used its disk with locking off."""
    names = [c["name"] for c in CONFIGURATIONS]
    lines = target.output_lines(f"storage prove {' '.join([*names, 'opal'])}")
    assert [entry["configuration"] for entry in lines] == [*names, "opal"]
    assert all(entry["proof"]["ok"] for entry in lines)
    proofs = {entry["configuration"]: entry["proof"] for entry in lines}
    in_the_clear = {name for name, proof in proofs.items() if proof["plaintext_probe"]["on_medium"]}
    assert in_the_clear == {"plain", "plain-discard", "plain-xfs", "opal", "sed-unlocked"}
    on_sed = {name: proof["opal"]["state"] for name, proof in proofs.items() if proof["opal"]}
    off = ("dmcrypt-aes128", "dmcrypt-aes256", "inlinecrypt-aes256")
    assert on_sed == {
        **dict.fromkeys(OPAL, "unlocked"),
        **dict.fromkeys(("sed-unlocked", *(f"{name}-on-sed" for name in off)), "off"),
    }
    assert {proofs[n]["opal"]["state_before"] for n in OPAL} == {"locked"}
    segments = {proofs[n]["luks"]["segments"]["0"]["type"] for n in OPAL}
    assert segments == {"hw-opal", "hw-opal-crypt"}
    for configuration in CONFIGURATIONS:
        _assert_as_planned(configuration, proofs[configuration["name"]])
    assert target.mappings() == []
    assert not target.reads("sed")


def _assert_as_planned(configuration: dict[str, Any], proof: dict[str, Any]) -> None:
    """Said by hand once more, without the code that compares."""
    kind, bits = configuration["kind"], configuration.get("key_bits", 0)
    layers = [layer for layer in proof["layers"] if layer["cipher"]]
    cipher = configuration.get("cipher") or ""
    tagged = configuration.get("integrity") or not cipher.endswith("-xts-plain64")
    if kind == "dmcrypt" and tagged:  # named by the kernel in forms of its own
        assert len(layers) == 1 and layers[0]["cipher_driver"]
    elif kind in ("dmcrypt", "inlinecrypt", "opal_dmcrypt", "tcrypt"):
        words = cipher.removesuffix("-xts-plain64").split("-")
        assert [layer["cipher"].split("-")[0] for layer in layers] == words
        for layer in layers:
            assert layer["cipher_driver"]
            assert layer["volume_key_bits"] == 2 * bits
            assert layer["sector_size"] == configuration.get("sector_size", 512)
            table = " ".join(layer["table"])
            assert f"<{2 * bits}-bit-key>" in table
            for option in ("no_read_workqueue", "no_write_workqueue", "submit_from_crypt_cpus"):
                assert (option in table) == configuration.get(option, False)
    luks2 = kind == "dmcrypt" and configuration.get("header", "luks2") == "luks2"
    assert (proof["luks"] is not None) == (luks2 or kind in ("opal", "opal_dmcrypt"))
    if kind == "inlinecrypt":
        assert "fallback: no engine" in proof["of_kind"]["output"]
    if configuration["kind"] == "tcrypt":
        assert proof["tcrypt"]["chain"] == configuration["cipher"]


def test_a_mapping_that_was_replaced_is_not_proven(target: Target) -> None:
    """The table below a fresh file system is another than the plan's, in one thing each time."""
    script = """
def put(name, entered, line):
    run(["umount", str(stack.mount_point)])
    run(["dmsetup", "suspend", "fde-data"])
    run(["dmsetup", "load", "fde-data"], stdin=line.encode())
    run(["dmsetup", "resume", "fde-data"])
    run(["mkfs.ext4", "-q", "-F", "/dev/mapper/fde-data"])
    run(["mount", "/dev/mapper/fde-data", str(stack.mount_point)])
    tell(name, entered)
try:
    entered = stack.enter("dmcrypt-aes256-noqueues")
    tell("as planned", entered)
    key, short = os.urandom(64).hex(), os.urandom(32).hex()
    size, below = entered.place.size_sectors, entered.place.partition
    queues = "no_read_workqueue no_write_workqueue"
    def crypt(cipher="aes", key=key, start=32768, options=f"3 sector_size:4096 {queues}"):
        return f"0 {size} crypt {cipher}-xts-plain64 {key} 0 {below} {start} {options}"
    put("cipher", entered, crypt(cipher="serpent"))
    put("key", entered, crypt(key=short))
    put("sector", entered, crypt(options=f"2 {queues}"))
    put("queues", entered, crypt(options="2 sector_size:4096 no_read_workqueue"))
    put("place", entered, crypt(start=32760))
    put("linear", entered, f"0 {size} linear {below} 32768")
"""
    queues = ["no_read_workqueue", "no_write_workqueue"]
    assert collected(target, script) == {
        "as planned": [],
        "cipher": [["segment", "cipher", "serpent-xts-plain64", "aes-xts-plain64"]],
        "key": [["segment", "key_bits", 256, 512]],
        "sector": [["segment", "sector_size", 512, 4096]],
        "queues": [["segment", "options", queues[:1], queues]],
        "place": [["segment", "offset_sectors", 32760, 32768]],
        "linear": [["segment", "target", "linear", "crypt"], ["probe-plaintext"]],
    }


def test_a_volume_with_other_ciphers_than_planned_is_not_proven(target: Target) -> None:
    script = """
class Other(type(registry.load("tcrypt"))):
    def attach(self, place, configuration, secrets):
        told = replace(configuration, settings={**configuration.settings, "cipher": "twofish"})
        return super().attach(place, told, secrets)
stack = Stack(spec, keys, load_kind=lambda n: Other() if n == "tcrypt" else registry.load(n))
try:
    tell("cipher", stack.enter("truecrypt-aes256"))
"""
    cipher, chain = collected(target, script)["cipher"]
    assert cipher == ["segment", "cipher", "twofish-xts-plain64", "aes-xts-plain64"]
    assert chain == ["truecrypt", "chain", "twofish", "aes"]


def test_a_drive_that_does_not_lock_as_planned_is_not_proven(target: Target) -> None:
    script = """
import struct
class Opened(type(registry.load("opal"))):
    def before_attach(self, place, configuration, secrets):
        opal_ioctl.unlock(place.partition, place.number, secrets.opal_admin_pin)
        return super().before_attach(place, configuration, secrets)
opened = Stack(spec, keys, load_kind=lambda n: Opened() if n == "opal" else registry.load(n))
shadow = struct.Struct("<264sB7x")
def mbr(number, flag):
    buffer = bytearray(shadow.pack(opal_ioctl._key(0, keys.opal_admin_pin), flag))
    request = opal_ioctl._request(1, number, shadow.size)
    opal_ioctl._call(spec.disks["sed"].by_id, request, buffer, "switch its MBR shadow")
ENABLE, DONE = 229, 233  # IOC_OPAL_ENABLE_DISABLE_MBR (0 enables), IOC_OPAL_MBR_DONE
try:
    tell("open before", opened.enter("opal"))
    opened.leave()
    entered = stack.enter("opal")
    mbr(ENABLE, 0)
    mbr(DONE, 0)
    tell("shadow", entered)
    mbr(ENABLE, 1)
    stack.leave()
    entered = stack.enter("sed-unlocked")
    opal_ioctl.enable_locks(entered.place.partition, 1, keys.opal_admin_pin, enabled=True)
    tell("locking", entered)
"""
    printed = collected(target, script)
    assert printed["open before"] == [["range-not-locked"]]
    assert ["shadowed"] in printed["shadow"]
    assert printed["locking"] == [["range", "state", "unlocked", "off"]]
    assert not target.reads("sed")


def test_leftovers_of_each_kind_are_removed_after_a_crash(target: Target) -> None:
    """Each agent ends with its configuration standing, as if it had crashed; the next finds it."""
    for name in ("plain", "opal", "dmcrypt-aes128", CASCADE):
        (line,) = target.output_lines(f"storage enter {name}")
        assert line["state"] == "mounted"
        assert len(target.mappings()) == (4 if name == CASCADE else 1)
        assert target.reads("sed") == (name == "opal")
    assert target.output_lines("storage leave") == [{"changed": True, "state": "bare"}]
    assert target.mappings() == []


def test_half_made_mappings_are_removed(target: Target) -> None:
    """A cascade without its top, one layer without a table and one suspended; and a foreign one."""
    partition = f"{target.disks['plain']['by_id']}-part1"
    target.lab.ssh(
        f"echo '0 2048 linear {partition} 2048' | dmsetup create fde-data-container && "
        "echo '0 2048 linear /dev/mapper/fde-data-container 0' | dmsetup create fde-data_2 && "
        "dmsetup create fde-data_1 --notable && dmsetup suspend fde-data_2 && "
        "echo '0 8 zero' | dmsetup create not-fde-data"
    )
    try:
        assert target.output_lines("storage leave") == [{"changed": True, "state": "bare"}]
        assert target.mappings() == []
        assert "not-fde-data" in target.lab.ssh("dmsetup ls").stdout
    finally:
        target.lab.ssh("dmsetup remove not-fde-data")


def test_leftovers_of_an_agent_killed_while_entering_are_removed(target: Target) -> None:
    target.lab.ssh(
        f"cd /; export PYTHONPATH={CODE}; python3 -m agent storage enter {CASCADE} "
        f"--target {FOLDER}/target.json --secrets {FOLDER}/secrets.json > /dev/null & pid=$!; "
        "until dmsetup ls | grep -q container; do sleep 0.05; done; kill -9 $pid; wait $pid",
        check=False,
    )
    target.lab.ssh("while pgrep -x cryptsetup > /dev/null; do sleep 0.1; done")
    assert "fde-data-container" in target.mappings()
    (line,) = target.output_lines("storage enter plain")
    assert line["state"] == "mounted"
    target.agent("storage leave")
    assert target.mappings() == []


def test_missing_features_are_reported_before_anything_is_touched(target: Target) -> None:
    target.agent("storage enter plain")
    target.lab.ssh("mv /usr/sbin/mkfs.ext4 /usr/sbin/mkfs.ext4.away")
    try:
        assert "needs mkfs.ext4" in target.refusal(f"storage enter {CASCADE}")
        assert target.output_lines("storage leave") == [{"changed": True, "state": "bare"}]
    finally:
        target.lab.ssh("mv /usr/sbin/mkfs.ext4.away /usr/sbin/mkfs.ext4", check=False)


def test_a_driver_of_the_kernel_can_be_named(target: Target) -> None:
    crypto = target.lab.ssh("cat /proc/crypto").stdout
    fastest = driver("xts(aes)", crypto)
    usable = [name for name in dmcrypt.DRIVERS.values() if driver(name, crypto)]
    name = next(name for name in usable if name != fastest)
    by_driver = {"name": "by-driver", "kind": "dmcrypt", "disk": "plain", **AES}
    described = resolved({**by_driver, "cipher": f"capi:{name}-plain64"})
    target.put("target.json", {**target.description(), "configurations": [described]})
    try:
        (line,) = target.output_lines("storage prove by-driver")
    finally:
        target.put("target.json", target.description())
    assert line["proof"]["ok"], line
    assert [layer["cipher_driver"] for layer in line["proof"]["layers"]] == [name]
    assert line["proof"]["key_bits"] == 256


def test_preparing_twice_changes_nothing_the_second_time(target: Target) -> None:
    before = {role: target.medium(role) for role in target.disks}
    assert target.output_lines("prepare") == [{"changed": False, "actions": []}]
    assert before == {role: target.medium(role) for role in target.disks}
    assert not target.reads("sed")


def holds(path: Path, needle: bytes) -> bool:
    """Whether the bytes stand anywhere in a sparse file; its holes are passed over."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: no data beyond
                return False
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            if memory.find(needle, start, end) >= 0:
                return True


@pytest.mark.parametrize("name", ["plain", "opal", "dmcrypt-aes128", "dmcrypt-aes256"])
def test_only_plain_shows_plaintext_on_the_medium(target: Target, name: str) -> None:
    """The drive's backing file is read from outside, where no part of the guest can mislead."""
    text, probe = f"plaintext-of-{name}-seen-from-outside ", f"{MOUNT_POINT}/probe"
    target.agent(f"storage enter {name}")
    target.lab.ssh(f"yes '{text}' | head -c 1M > {probe}; sync; grep -c '{text}' {probe}")
    backing = target.drives["sed" if name == "opal" else "plain"]["backing"]
    assert holds(Path(backing), text.encode()) == (name == "plain")
    target.agent("storage leave")


@pytest.mark.parametrize(
    ("behind", "action"),
    # Taken down behind cryptsetup's back, the range stays open.
    [("true", "close"), (f"umount {MOUNT_POINT} && dmsetup remove fde-data", "lock")],
)
def test_an_open_range_is_closed_and_locked_again(target: Target, behind: str, action: str) -> None:
    target.agent("storage enter opal")
    target.lab.ssh(behind)
    assert target.reads("sed")
    (line,) = target.output_lines("prepare")
    assert [each["code"] for each in line["actions"]] == [action]
    assert not target.reads("sed")
    assert target.output_lines("storage leave") == [{"changed": False, "state": "bare"}]
