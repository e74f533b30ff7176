"""Every configuration on the virtual lab's kernel and Opal drive: entered, proven, taken down.

The tests build on one another in the order in which they stand: blank disks first, teardown last.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from agent.storage import dmcrypt, registry
from agent.tests.guest import CODE, FOLDER, REPOSITORY, Target
from contract import plan
from contract.tests.test_plan import DOCUMENT
from workloads.children.kernel_ciphers import driver

pytestmark = pytest.mark.lab

EXTENT_BYTES = 64 * 2**20  # small, for mkfs is most of the time here
LABS = REPOSITORY / "ansible/playbooks/group_vars/labs.yml"
ENTRIES = yaml.safe_load(LABS.read_text(encoding="utf-8"))["fde_configurations"]
# As the controller resolves them.
CONFIGURATIONS: list[dict[str, Any]] = [
    {"name": found.name, "kind": found.kind, "disk": found.disk, **found.settings}
    for found in map(registry.complete, ENTRIES)
]
OPAL = ("opal", "opal-dmcrypt-aes256")
CASCADE = "truecrypt-aes-twofish-serpent"

# Begins the scripts that run in the guest; `tell` collects the mismatches of spoilt stacks.
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
    said[name] = [asdict(mismatch) for mismatch in found.mismatches]
"""
EPILOGUE = """
finally:
    stack.leave()
print(json.dumps({**said, "state": stack.state}))
"""


@pytest.fixture(scope="module")
def target(lab: Any) -> Target:
    target = Target(lab, CONFIGURATIONS, EXTENT_BYTES)
    target.agent("teardown")
    target.agent("prepare")
    return target


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


def test_a_product_that_lies_is_found_by_the_proof(target: Target) -> None:
    """It says that it is open and encrypted in every case but one."""
    target.lab.ssh(f"cat > {FOLDER}/product; chmod +x {FOLDER}/product", stdin=PRODUCT.encode())
    script = (
        PROLOGUE
        + f"""
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
        + EPILOGUE
    )
    printed = json.loads(target.python(script))
    assert printed.pop("state") == "bare"
    assert {name: [one["code"] for one in mismatches] for name, mismatches in printed.items()} == {
        "none": [],
        "plaintext": ["probe-plaintext"],
        "swapped": ["probe-plaintext"],
        "elsewhere": ["probe-elsewhere"],
        "memory": ["probe-elsewhere"],
        "honest": ["kind"],
        "plain": [],
    }


def test_every_configuration_begins_on_a_discarded_extent(target: Target) -> None:
    """What one leaves on the medium is gone in the next, below dm-crypt as well.

    Who passes a discard on is what was planned.
    """
    script = (
        PROLOGUE
        + """
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
        + EPILOGUE
    )
    printed = json.loads(target.python(script))
    for name, discards in printed.items():
        for mismatches, discard, filled in discards if name != "state" else ():
            assert mismatches == 0
            assert discard["first_bytes"] == EXTENT_BYTES
            assert filled == 0, name
            assert discard["mounted"] == name.endswith("-discard")
            passed_on = discard["layers"]["fde-data"]["max_bytes"] > 0
            assert passed_on == (name != "dmcrypt-aes256")


def test_disks_are_preconditioned_within_their_extent_and_locked_again(target: Target) -> None:
    """By fio on the real devices, below every layer; nothing beside the extent changes."""
    frozen = plan.freeze(
        {
            **DOCUMENT,
            **target.description(),
            "format": plan.FORMAT,
            "extent": {"offset_bytes": plan.DATA_OFFSET_BYTES, "size_bytes": EXTENT_BYTES},
            "precondition": {"passes": 1, "rounds": 5, "round_s": 0.2, "access": "sequential"},
        }
    )
    target.put(f"{FOLDER}/plan.json", frozen)
    script = (
        PROLOGUE
        + f"""
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
        + EPILOGUE
    )
    printed = json.loads(target.python(script))
    assert printed["same"]
    assert [role for state, role in printed["lines"] if state == "preconditioned"] == [
        "plain",
        "sed",
    ]
    for document in printed["kept"].values():
        assert [each["bytes"] for each in document["filled"]] == [EXTENT_BYTES]
        assert len(document["written"]) == 5
        told_bytes = sum(each["bytes"] for each in (*document["filled"], *document["written"]))
        before, after = (document["health"][when]["written_bytes"] for when in ("before", "after"))
        assert after - before >= told_bytes - 2**20, "by the drive's own count"
    assert not target.reads("sed")


def _mapped(target: Target) -> list[str]:
    listed: str = target.lab.ssh("dmsetup ls").stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith("fde-data")]


def _range(target: Target) -> dict[str, Any]:
    """Return the sed's first locking range, as its owner sees it."""
    script = f"""
import json
from dataclasses import asdict
from pathlib import Path
from agent.storage import opal_ioctl, secrets
pin = secrets.load(Path("{FOLDER}/secrets.json")).opal_admin_pin
print(json.dumps(asdict(opal_ioctl.range_status("{target.disks["sed"]["by_id"]}", 1, pin))))
"""
    status: dict[str, Any] = json.loads(target.python(script))
    return status


def test_every_configuration_is_entered_and_proven(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    """`opal` comes twice: at first, and again after others have used its disk with locking off."""
    names = [c["name"] for c in CONFIGURATIONS]
    lines = target.said(f"storage prove {' '.join([*names, 'opal'])}")
    with capsys.disabled():
        print(f"\n{_row('configuration', 'cipher driver of each layer', 'raw', 'range', 's', '')}")
        for entry in lines:
            print(_row(*_columns(entry)))
    assert [entry["configuration"] for entry in lines] == [*names, "opal"]
    assert all(entry["proof"]["ok"] for entry in lines)
    proofs = {entry["configuration"]: entry["proof"] for entry in lines}
    in_the_clear = {name for name, proof in proofs.items() if proof["plaintext_probe"]["on_medium"]}
    assert in_the_clear == {"plain", "plain-discard", "plain-xfs", "opal", "sed-unlocked"}
    on_sed = {name: proof["opal"]["state"] for name, proof in proofs.items() if proof["opal"]}
    assert on_sed == {
        "opal": "unlocked",
        "opal-dmcrypt-aes256": "unlocked",
        "dmcrypt-aes128-on-sed": "off",
        "dmcrypt-aes256-on-sed": "off",
        "inlinecrypt-aes256-on-sed": "off",
        "sed-unlocked": "off",
    }
    assert {proofs[n]["opal"]["state_before"] for n in OPAL} == {"locked"}
    assert {proofs[n]["luks"]["segments"]["0"]["type"] for n in OPAL} == {
        "hw-opal",
        "hw-opal-crypt",
    }
    for configuration in CONFIGURATIONS:
        _assert_as_planned(configuration, proofs[configuration["name"]])
    assert _mapped(target) == []
    assert not target.reads("sed")


def _assert_as_planned(configuration: dict[str, Any], proof: dict[str, Any]) -> None:
    """Said by hand once more, without the code that compares."""
    kind, bits = configuration["kind"], configuration.get("key_bits", 0)
    layers = [layer for layer in proof["layers"] if layer["cipher"]]
    cipher = configuration.get("cipher") or ""
    if kind == "dmcrypt" and (
        configuration.get("integrity") or not cipher.endswith("-xts-plain64")
    ):  # named by the kernel in forms of its own
        assert len(layers) == 1
        assert layers[0]["cipher_driver"]
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
    has_header = kind in ("opal", "opal_dmcrypt") or (
        kind == "dmcrypt" and configuration.get("header", "luks2") == "luks2"
    )
    assert (proof["luks"] is not None) == has_header
    if kind == "inlinecrypt":
        assert "fallback: no engine" in proof["of_kind"]["output"]
    if configuration["kind"] == "tcrypt":
        assert proof["tcrypt"]["chain"] == configuration["cipher"]


def _columns(entry: dict[str, Any]) -> tuple[str, str, str, str, str, str]:
    proof = entry["proof"]
    drivers = [layer["cipher_driver"] for layer in proof["layers"] if layer["cipher_driver"]]
    return (
        entry["configuration"],
        ", ".join(drivers) or "-",
        "plaintext" if proof["plaintext_probe"]["on_medium"] else "ciphertext",
        proof["opal"]["state"] if proof["opal"] else "-",
        f"{entry['took_s'] - entry['mkfs_s']:.1f} + mkfs {entry['mkfs_s']:.1f}",
        "proven" if proof["ok"] else "; ".join(one["sentence"] for one in proof["mismatches"]),
    )


def _row(*columns: str) -> str:
    widths = (30, 62, 10, 8, 15, 0)
    return "  ".join(text.ljust(width) for text, width in zip(columns, widths, strict=True))


def test_a_mapping_that_was_replaced_is_not_proven(target: Target) -> None:
    """The table below a fresh file system is another than the plan's, in one thing each time."""
    script = (
        PROLOGUE
        + """
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
        + EPILOGUE
    )
    printed = json.loads(target.python(script))
    assert printed.pop("as planned") == []
    assert printed.pop("state") == "bare"
    assert {
        name: [_difference(one) for one in mismatches] for name, mismatches in printed.items()
    } == {
        "cipher": [("segment", "cipher", "serpent-xts-plain64", "aes-xts-plain64")],
        "key": [("segment", "key_bits", 256, 512)],
        "sector": [("segment", "sector_size", 512, 4096)],
        "queues": [
            (
                *("segment", "options", ["no_read_workqueue"]),
                ["no_read_workqueue", "no_write_workqueue"],
            )
        ],
        "place": [("segment", "offset_sectors", 32760, 32768)],
        "linear": [
            ("segment", "target", "linear", "crypt"),
            ("probe-plaintext", None, None, None),
        ],
    }


def _difference(mismatch: dict[str, Any]) -> tuple[Any, ...]:
    return (mismatch["code"], *(mismatch["facts"].get(k) for k in ("field", "found", "planned")))


def test_a_volume_with_other_ciphers_than_planned_is_not_proven(target: Target) -> None:
    script = (
        PROLOGUE
        + """
class Other(type(registry.load("tcrypt"))):
    def attach(self, place, configuration, secrets):
        told = replace(configuration, settings={**configuration.settings, "cipher": "twofish"})
        return super().attach(place, told, secrets)
stack = Stack(spec, keys, load_kind=lambda n: Other() if n == "tcrypt" else registry.load(n))
try:
    tell("cipher", stack.enter("truecrypt-aes256"))
"""
        + EPILOGUE
    )
    cipher, chain = json.loads(target.python(script))["cipher"]
    assert _difference(cipher) == ("segment", "cipher", "twofish-xts-plain64", "aes-xts-plain64")
    assert _difference(chain) == ("truecrypt", "chain", "twofish", "aes")


def test_a_drive_that_does_not_lock_as_planned_is_not_proven(target: Target) -> None:
    script = (
        PROLOGUE
        + """
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
        + EPILOGUE
    )
    printed = json.loads(target.python(script))
    assert [one["code"] for one in printed["open before"]] == ["range-not-locked"]
    assert "shadowed" in [one["code"] for one in printed["shadow"]]
    (locking,) = printed["locking"]
    assert _difference(locking) == ("range", "state", "unlocked", "off")
    assert printed["state"] == "bare"
    assert _range(target)["state"] == "locked"


def test_what_a_crashed_run_left_of_each_kind_is_taken_down(target: Target) -> None:
    """Each agent ends with its configuration standing, as if it had crashed; the next finds it."""
    for name in ("plain", "opal", "dmcrypt-aes128", CASCADE):
        (line,) = target.said(f"storage enter {name}")
        assert line["state"] == "mounted"
        assert len(_mapped(target)) == (4 if name == CASCADE else 1)
        assert target.reads("sed") == (name == "opal")
    assert target.said("storage leave") == [{"changed": True, "state": "bare"}]
    assert _mapped(target) == []


@pytest.mark.parametrize("name", ["opal", "dmcrypt-aes256", CASCADE])
def test_a_mapping_that_a_program_holds_keeps_no_key(target: Target, name: str) -> None:
    """Desktop portals, ZFS and indexers have one open when it is to be closed."""
    target.agent(f"storage enter {name}")
    target.lab.ssh("setsid -f sleep 999 </dev/mapper/fde-data >/dev/null 2>&1")
    assert "open in sleep[" in target.refusal("storage leave")
    assert not target.reads("sed")
    assert _mapped(target) == []
    tables = target.lab.ssh("dmsetup table | grep ^fde-dead").stdout.splitlines()
    assert tables and all(table.split()[3] == "error" for table in tables)
    target.lab.ssh("pkill -x sleep; udevadm settle")
    assert [line["state"] for line in target.said("storage leave")] == ["bare"]
    assert "fde-dead" not in target.lab.ssh("dmsetup ls").stdout


def test_half_made_mappings_are_taken_down(target: Target) -> None:
    """A cascade without its top, one layer without a table and one suspended; and a foreign one."""
    partition = f"{target.disks['plain']['by_id']}-part1"
    target.lab.ssh(
        f"echo '0 2048 linear {partition} 2048' | dmsetup create fde-data-container && "
        "echo '0 2048 linear /dev/mapper/fde-data-container 0' | dmsetup create fde-data_2 && "
        "dmsetup create fde-data_1 --notable && dmsetup suspend fde-data_2 && "
        "echo '0 8 zero' | dmsetup create not-fde-data"
    )
    try:
        assert target.said("storage leave") == [{"changed": True, "state": "bare"}]
        assert _mapped(target) == []
        assert "not-fde-data" in target.lab.ssh("dmsetup ls").stdout
    finally:
        target.lab.ssh("dmsetup remove not-fde-data")


def test_an_agent_killed_on_its_way_up_leaves_nothing_that_the_next_cannot_take_down(
    target: Target,
) -> None:
    target.lab.ssh(
        f"cd /; export PYTHONPATH={CODE}; python3 -m agent storage enter {CASCADE} "
        f"--target {FOLDER}/target.json --secrets {FOLDER}/secrets.json > /dev/null & pid=$!; "
        "until dmsetup ls | grep -q container; do sleep 0.05; done; kill -9 $pid; wait $pid",
        check=False,
    )
    target.lab.ssh("while pgrep -x cryptsetup > /dev/null; do sleep 0.1; done")
    assert "fde-data-container" in _mapped(target)
    (line,) = target.said("storage enter plain")
    assert line["state"] == "mounted"
    target.agent("storage leave")
    assert _mapped(target) == []


def test_what_this_machine_lacks_is_said_before_anything_is_touched(target: Target) -> None:
    wrong = target.description()
    wrong["configurations"] = [
        *CONFIGURATIONS,
        {**CONFIGURATIONS[2], "name": "unheard-of", "cipher": "khazad-xts-plain64"},
    ]
    target.put(f"{FOLDER}/target.json", wrong)
    try:
        target.agent("storage enter plain")
        assert "must be one of aes-xts-plain64" in target.refusal("storage enter unheard-of")
        lacking = """
from agent.storage import ciphers
from contract.plan import Configuration
print(ciphers.missing("khazad-xts-plain64", Configuration("unheard-of", "dmcrypt", "plain")))
"""
        assert "This kernel has no xts(khazad)" in target.python(lacking)
        target.lab.ssh("mv /usr/sbin/mkfs.ext4 /usr/sbin/mkfs.ext4.away")
        assert "needs mkfs.ext4" in target.refusal(f"storage enter {CASCADE}")
        assert target.said("storage leave") == [{"changed": True, "state": "bare"}]
    finally:
        target.lab.ssh("mv /usr/sbin/mkfs.ext4.away /usr/sbin/mkfs.ext4", check=False)
        target.put(f"{FOLDER}/target.json", target.description())


def test_a_driver_of_the_kernel_can_be_named(target: Target) -> None:
    crypto = target.lab.ssh("cat /proc/crypto").stdout
    fastest = driver("xts(aes)", crypto)
    usable = [name for name in dmcrypt.DRIVERS.values() if driver(name, crypto)]
    name = next(name for name in usable if name != fastest)
    settings = {"cipher": f"capi:{name}-plain64", "key_bits": 256, "sector_size": 4096}
    entry = {"name": "by-driver", "kind": "dmcrypt", "disk": "plain", **settings}
    named = registry.complete(entry)
    described = {"name": named.name, "kind": named.kind, "disk": named.disk, **named.settings}
    description = target.description()
    every = {**description, "configurations": [*CONFIGURATIONS, described]}
    target.put(f"{FOLDER}/target.json", every)
    try:
        (line,) = target.said("storage prove by-driver")
    finally:
        target.put(f"{FOLDER}/target.json", description)
    assert line["proof"]["ok"], line
    assert [layer["cipher_driver"] for layer in line["proof"]["layers"]] == [name]
    assert line["proof"]["key_bits"] == 256


def test_teardown_leaves_both_disks_factory_fresh(target: Target) -> None:
    target.agent(f"storage enter {CASCADE}")
    (line,) = target.said("teardown")
    assert line["changed"]
    assert any("reverted by PIN" in action["sentence"] for action in line["actions"])
    assert target.said("teardown") == [{"changed": False, "actions": []}]
    assert _mapped(target) == []
    for disk in target.disks.values():
        assert target.lab.ssh(f"blkid -p {disk['by_id']}", check=False).stdout == ""
        assert target.lab.ssh(f"lsblk -nro NAME {disk['by_id']} | wc -l").stdout.strip() == "1"
    script = f"""
from agent.storage import opal_ioctl
found = opal_ioctl.status("{target.disks["sed"]["by_id"]}")
print(found.locking_enabled, found.mbr_enabled)
"""
    assert target.python(script) == "False False"
