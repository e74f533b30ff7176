"""Variables of an inventory: valid ones resolve, others are refused by type or rule."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.storage.tcrypt import CHAINS
from contract import schema
from contract.assumptions import parse_assumptions
from contract.plan import Asset, Disk, Filesystem, TargetDocument
from contract.problem import ProblemError
from controller.targets import inventory
from controller.targets.inventory import resolve

ROLES = Path(__file__).resolve().parents[1] / "roles"
MIB = 2**20
AES = {"cipher": "aes-xts-plain64", "key_bits": 256, "sector_size": 4096}
METER = {"name": "m", "kind": "wt310", "port": "usb", "origin": "measured"}
GIVEN: dict[str, Any] = {
    "host": "target",
    "origin": "measured",
    "ssh": {"host": "h", "port": 22, "user": "root", "key": None, "known_hosts": None},
    "disks": {
        "plain": {"by_id": "/dev/disk/by-id/nvme-A_1", "serial": "1", "size_bytes": 2**31},
        "sed": {"by_id": "/dev/disk/by-id/nvme-B_2", "serial": "2", "size_bytes": 2**31},
    },
    "extent_bytes": 2**30,
    "filesystem": {"type": "ext4", "options": [], "mount_options": "noatime"},
    "configurations": [
        {"name": "plain", "kind": "plain", "disk": "plain"},
        {"name": "opal", "kind": "opal", "disk": "sed"},
        {"name": "aes", "kind": "dmcrypt", "disk": "plain", **AES},
        {"name": "true", "kind": "tcrypt", "disk": "plain", "cipher": "aes", "key_bits": 256},
    ],
    "database": "any",
    "rapl_source": "powercap",
    "meters": [METER],
    "assets": {"clip": {"path": "/clip.mpg", "sha256": "0" * 64}},
    "assumptions": {},
    "secrets_file": "/x/secrets.json",
}


HOOK = {"name": "hook", "argv": ["/x/hook"]}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return GIVEN with one value set; the value `...` removes the key."""
    document = copy.deepcopy(GIVEN)
    place: Any = document
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_resolved_target_is_complete_and_typed() -> None:
    resolved = resolve(changed("disks/plain/size_bytes", str(2**31)))
    assert resolved.format == "fde-target/1"
    assert resolved.packages == ()
    assert resolved.disks["plain"] == Disk("plain", "/dev/disk/by-id/nvme-A_1", "1", 2**31)
    entry = resolved.configurations[2]
    assert (entry.name, entry.kind, entry.disk) == ("aes", "dmcrypt", "plain")
    assert entry.settings == {
        **AES,
        "header": "luks2",
        "no_read_workqueue": False,
        "no_write_workqueue": False,
        "submit_from_crypt_cpus": False,
        "same_cpu_crypt": False,
        "discard": False,
        "integrity": "none",
        "integrity_no_journal": False,
    }
    assert resolved.assets["clip"] == Asset("/clip.mpg", "0" * 64)
    assert schema.read(TargetDocument, resolved.document()) == resolved


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("disks/plain/erase", "1 0123456789ab"),
        ("disks/plain/endurance_bytes", "1.5 TB"),
        ("extent_bytes", "512 MiB"),
        ("configurations/2/header", "none"),
        ("configurations/2/no_read_workqueue", True),
        ("configurations/2/sector_size", 512),
        ("configurations/2/disk", "sed"),
        ("configurations/0/disk", "sed"),
        ("configurations/0/no_read_workqueue", False),
        ("assets/clip", {"path": "/c", "sums": "/SHA256SUMS"}),
        ("assets", {}),
        ("meters", []),
        ("meters", [{**METER, "kind": "http", "port": "http://strip", "name": n} for n in "ab"]),
        *(("configurations/3/cipher", chain) for chain in CHAINS),
    ],
)
def test_valid_values_resolve(path: str, value: object) -> None:
    resolve(changed(path, value))


def test_one_disk_is_enough() -> None:
    for role in ("plain", "sed"):
        document = changed(f"disks/{'sed' if role == 'plain' else 'plain'}", ...)
        document["configurations"] = [{"name": "x", "kind": "plain", "disk": role}]
        assert set(resolve(document).disks) == {role}


def test_a_lab_disk_may_be_erased_with_any_contents() -> None:
    document = {**changed("disks/plain/erase", "1"), "lab": True}
    assert resolve(document).disks["plain"].erase == "1"


ASSUMED: dict[str, Any] = {
    "sed_extra_price": 25,
    "currency": "USD",
    "electricity_price_per_kwh": "0.12",
    "battery_wh": 50.0,
    "life_years": 4.0,
    "runs_per_day": 24.0,
}


def test_assumptions_resolve_to_numbers() -> None:
    assert resolve(changed("assumptions", ASSUMED)).assumptions == {
        **ASSUMED,
        "electricity_price_per_kwh": 0.12,
    }
    further_variables = {
        "discount_rate": 0,
        "grid_g_co2_per_kwh": None,
        "after_work": "idle",
        "duty": {"sql": 40, "video": "0.5"},
        "ranges": {"life_years": [3, 7], "discount_rate": [0, 0.1], "runs_per_day": None},
    }
    assumptions = resolve(changed("assumptions", {**ASSUMED, **further_variables})).assumptions
    assert assumptions["discount_rate"] == 0
    assert assumptions["after_work"] == "idle"
    assert "grid_g_co2_per_kwh" not in assumptions
    assert assumptions["duty"] == {"sql": 40.0, "video": 0.5}
    assert assumptions["ranges"] == {"life_years": [3.0, 7.0], "discount_rate": [0.0, 0.1]}


def test_default_and_example_assumptions_are_parsed_by_the_analysis() -> None:
    """The defaults and the example resolve to assumptions that the payback accepts."""
    text = (ROLES / "target_spec/defaults/main.yml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)["fde_assumptions"]
    read = parse_assumptions(resolve(changed("assumptions", defaults)).assumptions)
    assert read.discount_rate == 0.03
    example = ROLES.parent / "inventory" / "hardware.example" / "group_vars" / "targets.yml"
    lines = example.read_text(encoding="utf-8").splitlines()
    start = lines.index("# fde_assumptions:")
    block = lines[start : lines.index("", start)]
    shown = yaml.safe_load("\n".join(line.removeprefix("# ") for line in block))
    assumptions = parse_assumptions(
        resolve(changed("assumptions", shown["fde_assumptions"])).assumptions
    )
    assert assumptions.duty == {"kernel_tree": 8, "sql": 40}
    assert assumptions.ranges["life_years"] == (3, 7)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("sed_extra_price", -1, "assumption-value"),
        ("discount_rate", 3, "assumption-value"),
        ("after_work", "off", "assumption-value"),
        ("duty", {}, "assumption-value"),
        ("duty", "sql", "assumption-value"),
        ("duty", {"sqll": 3}, "assumption-workload"),
        ("duty", {"sql": None}, "assumption-value"),
        ("ranges", {"life_years": [8, 3]}, "assumption-range"),
        ("ranges", {"life_years": [4]}, "assumption-value"),
        ("ranges", {"life_years": [0, 5]}, "assumption-value"),
        ("ranges", {"discount_rate": [0.01, 5]}, "assumption-value"),
        ("ranges", {"life_years": [5, 9]}, "assumption-outside"),
    ],
)
def test_invalid_assumptions_are_refused(key: str, value: object, code: str) -> None:
    with pytest.raises(ProblemError) as raised:
        resolve(changed("assumptions", {**ASSUMED, key: value}))
    (problem,) = raised.value.problems
    ranges = value if key == "ranges" and isinstance(value, dict) else {}
    assert (problem.code, problem.facts["key"]) == (code, next(iter(ranges), key))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("notify", {"receivers": [{"name": "p", "argv": []}]}, "type"),
        ("notify", {"receivers": [HOOK, HOOK]}, "receivers-twice"),
        ("notify", {"receivers": [{**HOOK, "url": "https://example.org"}]}, "unknown key"),
        ("disks", {}, "no-disk"),
        ("disks/sed", ..., "configuration-disk"),
        ("disks/a b", {}, "disk-name"),
        ("disks/plain/eraze", "1", "disk-unknown-key"),
        ("disks/plain/size_bytes", "big", "size-exact"),
        ("disks/plain/size_bytes", "2 GiB", "size-exact"),
        ("disks/plain/max_written_bytes", "100T", "size"),
        ("disks/plain/serial", ..., "disk-keys"),
        ("disks/plain/by_id", "/dev/sda", "disk-path"),
        ("disks/plain/by_id", "/dev/disk/by-id/../../sda", "disk-path"),
        ("disks/plain/by_id", "/dev/disk/by-id/nvme-A_1-part1", "disk-partition"),
        ("disks/plain/by_id", "/dev/disk/by-id/nvme-B_2", "disk-twice"),
        ("disks/plain/serial", "2", "disk-twice"),
        ("disks/plain/serial", " ", "disk-serial"),
        ("disks/plain/serial", False, "not-text"),  # as YAML reads NO
        ("disks/plain/serial", 1, "not-text"),
        ("disks/plain/by_id", 1, "not-text"),
        ("disks/plain/erase", 1.5, "not-text"),
        ("meters/0/port", 3, "not-text"),
        ("meters/0/name", 3, "not-text"),
        ("assets/clip/path", True, "not-text"),
        ("ssh/port", 222222, "type"),
        ("connection", {"ansible_host": 10}, "not-text"),
        ("connection", {"ansible_user": False}, "not-text"),
        ("disks/plain/erase", "1", "erase-anything"),
        ("disks/plain/erase", "1 0123", "erase-digits"),
        ("disks/plain/erase", "2 0123456789ab", "erase-serial"),
        ("disks/plain/erase", "2", "erase-serial"),
        ("disks/plain/erase", "yes", "erase-serial"),
        ("disks/plain/erase", "", "erase-serial"),
        ("disks/plain/size_bytes", 2**30, "disk-size"),
        ("extent_bytes", 1000, "extent"),
        ("extent_bytes", "1 GB", "extent"),
        ("extent_bytes", "16G", "size"),
        ("extent_bytes", 0, "extent"),
        ("extent_bytes", -MIB, "size"),
        ("extent_bytes", 2**40, "disk-size"),
        ("configurations", [], "no-configuration"),
        ("configurations/1/name", "plain", "configurations-twice"),
        ("configurations/1/name", 5, r"configurations\[1\]\.name"),
        ("configurations/0/name", "a/b", "configuration-name"),
        ("configurations/0/name", "..", "configuration-name"),
        ("configurations/0/name", "-x", "configuration-name"),
        ("configurations/0/name", "two words", "configuration-name"),
        ("configurations/0/name", "x" * 60, "configuration-name"),
        (
            "configurations/0/cipher",
            "aes-xts-plain64",
            "nothing for the kind plain: there are: name, kind",
        ),
        ("configurations/2/cypher", "aes", "for the kind dmcrypt: did you mean cipher"),
        ("configurations/2/filesysten", {}, "for the kind dmcrypt: did you mean filesystem"),
        ("configurations/1/disk", "plain", "disk must be sed"),
        ("configurations/2/cipher", ..., "needs cipher"),
        ("configurations/2/cipher", "aes-cbc-null", "must be one of aes-xts-plain64, .* not 'aes"),
        ("configurations/2/key_bits", 512, "one of 128, 256, not 512"),
        ("configurations/2/disk", "nvme0n1", "configuration-disk"),
        ("configurations/2/kind", ..., "configuration-keys"),
        ("configurations/2/name", ..., "configuration-keys"),
        ("configurations/3/cipher", "aes-twofish", "one of aes, serpent"),
        ("secrets_file", "/x/.other.json", "secrets-name"),
        ("assets/clip/path", "clip.mpg", "asset-path"),
        ("assets/clip/sha256", ..., "asset-sum"),
        ("assets/clip/sums", "/SHA256SUMS", "asset-sum"),
        ("assets/clip/sha256", "0" * 63, "asset-sha256"),
        ("assets/clip", {"path": "/c", "sums": "SHA256SUMS"}, "asset-path"),
    ],
)
def test_a_broken_rule_is_refused_with_its_code(path: str, value: object, expected: str) -> None:
    """The code of the problem, or the error of the configuration's kind."""
    with pytest.raises(ProblemError) as raised:
        resolve(changed(path, value))
    first = raised.value.problems[0]
    assert expected == first.code or re.search(expected, str(first.facts.get("error", "")))


def test_a_refused_type_names_the_variable_of_the_inventory() -> None:
    for path, variable in {
        "meters/0/port": "fde_meters[0].port",
        "quiet": "fde_quiet",
        "host": "inventory_hostname",
        "ssh/host": "ansible_host",
        "meters/0/channels": "fde_meters[0].channels",
    }.items():
        with pytest.raises(ProblemError) as raised:
            resolve(changed(path, 3))
        assert raised.value.facts["variable"] == variable
        assert str(raised.value).startswith(f"{variable} is 3, must be ")


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ProblemError) as raised:
        resolve({**changed("extent_bytes", 5), "meters": [METER] * 2, "secrets_file": "/x"})
    extent, *meters, secrets = raised.value.problems
    assert (extent.code, secrets.code) == ("extent", "secrets-name")
    assert [(problem.code, problem.facts) for problem in meters] == [
        ("meters-twice", {"key": "name", "value": "m"}),
        ("meters-twice", {"key": "port", "value": "usb"}),
    ]


# In a separate process: here the name `ansible` means the folder of these tests.
VALIDATE = """
import json, sys
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
options, *all_given = json.load(sys.stdin)
validator = ArgumentSpecValidator(options)
print(json.dumps([list(validator.validate(given).error_messages) for given in all_given]))
"""


def given_with(**changes: Any) -> dict[str, Any]:
    """Return the variables of GIVEN as an inventory has them, with changes."""
    variables = {f"fde_{key}": value for key, value in GIVEN.items() if key not in ("host", "ssh")}
    variables |= {
        "fde_stop": ["timers"],
        "fde_turbo": None,
        "fde_assumptions": {
            **ASSUMED,
            "discount_rate": 0.03,
            "grid_g_co2_per_kwh": 380.0,
            "duty": {"sql": 40},
            "ranges": {"life_years": [3.0, 7.0], "discount_rate": [0, 0.1]},
        },
        "fde_meters": [{**METER, "channels": {"1": "system"}}],
        **changes,
    }
    return {key: value for key, value in variables.items() if value is not ...}


WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"fde_disks": ...}, "missing required arguments: fde_disks"),
    ({"fde_configurations": ["plain"]}, "fde_configurations"),
    ({"fde_database": "postgresql"}, "fde_database must be one of: mariadb, mysql, any"),
    ({"fde_rapl_source": "perf"}, "fde_rapl_source must be one of: powercap, pyrapl"),
    ({"fde_assets": {"clip": "/clip.mpg"}}, "clip"),
    ({"fde_assets": {"clip": {"path": "/c", "md5": "0"}}}, "fde_assets.clip.md5"),
    ({"fde_assets": {"movie": {"path": "/c"}}}, "fde_assets.movie"),
    ({"fde_origin": "guessed"}, "fde_origin must be one of"),
    ({"fde_secrets_file": ...}, "fde_secrets_file"),
    ({"fde_meters": [{"name": "m"}]}, "missing required arguments"),
    ({"fde_filesystem": {**GIVEN["filesystem"], "type": "btrfs"}}, "type must be one of"),
    ({"fde_assumptions": {"currency": "EUR"}}, "missing required arguments"),
    ({"fde_assumptions": {"discount_rate": "dear"}}, "discount_rate"),
    ({"fde_assumptions": {"ranges": {"life": [1, 2]}}}, "fde_assumptions.ranges.life. Supp"),
    ({"fde_assumptions": {"ranges": {"life_years": "long"}}}, "life_years"),
    ({"fde_assumptions": {"duty": 3}}, "duty"),
    ({"fde_stop": {"cron": True}}, "fde_stop"),
    ({"fde_turbo": "sometimes"}, "fde_turbo"),
]


@pytest.fixture(scope="module")
def errors() -> list[str]:
    """Errors of the role's argument_specs for GIVEN, then for each of WRONG_TYPES."""
    text = (ROLES / "target_spec" / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    cases = [given_with(), *(given_with(**changes) for changes, _ in WRONG_TYPES)]
    result = subprocess.run(
        [sys.executable, "-c", VALIDATE],
        input=json.dumps([options, *cases]),
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return ["; ".join(messages) for messages in json.loads(result.stdout)]


def test_valid_variables_pass_the_specification(errors: list[str]) -> None:
    assert errors[0] == ""


@pytest.mark.parametrize("number", range(len(WRONG_TYPES)))
def test_a_wrong_type_is_refused_by_the_specification(number: int, errors: list[str]) -> None:
    assert re.search(WRONG_TYPES[number][1], errors[number + 1])


def test_the_lab_has_one_of_every_kind_and_variant() -> None:
    text = (ROLES.parent / "playbooks/group_vars/labs.yml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text)["fde_configurations"]
    configurations = resolve({**GIVEN, "configurations": entries}).configurations
    labels = [inventory.words(entry) for entry in configurations]
    assert len(set(labels)) == len(labels) == 41


@pytest.mark.parametrize("content", ['{"opal_admin_pin": "p"}', "$ANSIBLE_VAULT;1.1;AES256\n30"])
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (str(ROLES.parent / "ansible.cfg"), ("secrets.json", "secrets.json.old", "secrets")),
        ("/none.cfg", (inventory.SECRETS_FILE, ".secrets/birch/secrets.json")),
    ],
    ids=["our-settings", "ansible's-defaults"],
)
def test_a_secrets_file_next_to_hosts_is_not_read_as_inventory(
    tmp_path: Path, settings: str, names: tuple[str, ...], content: str
) -> None:
    (tmp_path / "hosts.yml").write_text("targets: {hosts: {target: }}\n", encoding="utf-8")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    result = subprocess.run(
        [Path(sys.executable).with_name("ansible-inventory"), "-i", tmp_path, "--list"],
        env=dict(os.environ, ANSIBLE_CONFIG=settings),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout)["targets"]["hosts"] == ["target"]
    assert "WARNING" not in result.stderr


def test_a_list_of_disks_gives_a_configuration_on_each() -> None:
    third = {"by_id": "/dev/disk/by-id/ata-C_3", "serial": "3", "size_bytes": 2**40}
    stacks = [
        {"name": "plain", "kind": "plain", "disk": ["hdd", "sed"]},
        {"name": "opal", "kind": "opal", "disk": ["sed"]},
    ]
    disks = {**GIVEN["disks"], "hdd": third}
    resolved = resolve({**GIVEN, "disks": disks, "configurations": stacks})
    assert [(c.name, c.disk) for c in resolved.configurations] == [
        ("plain-on-hdd", "hdd"),
        ("plain-on-sed", "sed"),
        ("opal-on-sed", "sed"),
    ]
    with pytest.raises(ProblemError) as raised:
        resolve({**GIVEN, "disks": disks, "configurations": [{**stacks[0], "disk": ["hd"]}]})
    (problem,) = raised.value.problems
    assert problem.facts == {"disk": "hd", "configurations": "plain-on-hd"}


def test_a_configuration_may_have_its_own_file_system() -> None:
    xfs = {"type": "xfs", "options": ["-f"], "mount_options": "noatime"}
    stack = {"name": "plain-xfs", "kind": "plain", "disk": "plain", "filesystem": xfs}
    (configuration,) = resolve({**GIVEN, "configurations": [stack]}).configurations
    assert configuration.filesystem == Filesystem("xfs", ("-f",), "noatime")
    assert inventory.words(configuration) == "plain, xfs"
    btrfs = {**stack, "filesystem": {**xfs, "type": "btrfs"}}
    with pytest.raises(ProblemError, match="must be 'ext4' or 'xfs'"):
        resolve({**GIVEN, "configurations": [btrfs]})
