"""Faults of an inventory's YAML files are named with file and line, before Ansible reads them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from contract.errors import ControllerError
from contract.problem import Problem
from contract.tests.refusal import refuses
from controller.planning.known_names import inventories_beside
from controller.targets.inventory_files import InventoryFiles, unknown_variables

HOSTS = "targets:\n  hosts:\n    bench: {ansible_host: bench.example.org}\n"


def problems_of(folder: Path, *, hosts: str = HOSTS, **variables: str) -> list[Problem]:
    """Write an inventory with a file of variables for each group; return its problems."""
    (folder / "hosts.yml").write_text(hosts, encoding="utf-8")
    (folder / "group_vars").mkdir(exist_ok=True)
    for group, text in variables.items():
        (folder / "group_vars" / f"{group}.yml").write_text(text, encoding="utf-8")
    try:
        InventoryFiles(folder)
    except ControllerError as error:
        return list(error.problems)
    return []


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("00071", "the number 57"),
        ("0x1F", "the number 31"),
        ("0b101", "the number 5"),
        ("20:15", "the number 1215"),
        ("1:30.5", "the number 90.5"),
        ("4_711", "the number 4711"),
        ("+49", "the number 49"),
        ("2024-02-29", "a date"),
        ("2024-02-29 10:00:00", "a date"),
    ],
)
def test_a_value_that_yaml_changes_is_refused_with_its_line(
    text: str, reading: str, tmp_path: Path
) -> None:
    variables = f"---\nfde_disks:\n  plain:\n    serial: {text}\n"
    (problem,) = problems_of(tmp_path, targets=variables)
    assert problem.code == "value-changed"
    assert problem.facts == {"variable": "fde_disks.plain.serial", "text": text, "reading": reading}
    assert problem.sentence.startswith(f"{tmp_path / 'group_vars' / 'targets.yml'}:4: ")


@pytest.mark.parametrize("text", ["'00071'", "71", "-1", "0", "1.5e3", "0.25", "abc", "yes", "~"])
def test_other_values_pass(text: str, tmp_path: Path) -> None:
    assert problems_of(tmp_path, targets=f"fde_stop: [{text}]\n") == []


def test_digits_of_a_size_may_be_grouped_and_other_programs_variables_are_free(
    tmp_path: Path,
) -> None:
    text = "fde_extent_bytes: 17_179_869_184\nweb_mode: 0644\nweb_ports: {80: open}\n"
    assert problems_of(tmp_path, all=text) == []


def test_aliases_are_read_once_and_may_stand_within_their_anchor(tmp_path: Path) -> None:
    lines = ["fde_disks: &n0 {serial: x}"]
    lines += [f"more{i}: &n{i} [{', '.join([f'*n{i - 1}'] * 9)}]" for i in range(1, 20)]
    lines += ["loop: &loop [*loop]"]
    assert problems_of(tmp_path, targets="\n".join(lines)) == []


def test_an_octal_port_of_a_meter_in_a_list_and_of_a_host_is_refused(tmp_path: Path) -> None:
    hosts = HOSTS.replace("ansible_host: bench.example.org", "ansible_port: 0022")
    meters = "fde_meters:\n  - name: plug\n    settings: {outlet: 010}\n"
    problems = problems_of(tmp_path, hosts=hosts, targets=meters)
    assert [problem.facts["variable"] for problem in problems] == [
        "ansible_port",
        "fde_meters.settings.outlet",
    ]


@pytest.mark.parametrize("name", ["1234", "no", "on", "~", "=", "2026-11-28", "1:2", "1.5"])
def test_a_host_whose_name_is_no_text_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, hosts=f"targets:\n  hosts:\n    {name}:\n")
    assert (problem.code, problem.facts["key"]) == ("key-changed", name)
    assert problem.sentence.startswith(f"{tmp_path / 'hosts.yml'}:3: ")


@pytest.mark.parametrize(
    ("hosts", "line", "code"),
    [
        ("targets:\n  hosts:\n    a:\n    a:\n", 4, "key-twice"),
        ("- targets\n", 1, "not-mapping"),
        ("targets:\n  hosts: [a, b]\n", 2, "not-mapping"),
        ("targets:\n\thosts:\n", 2, "not-yaml"),
        ("targets:\n  hosts: {a: }\n  vars: {fde_orign: measured}\n", 3, "unknown-name"),
    ],
)
def test_a_file_that_ansible_misreads_is_refused_with_its_line(
    hosts: str, line: int, code: str, tmp_path: Path
) -> None:
    (problem,) = problems_of(tmp_path, hosts=hosts)
    assert problem.code == code
    assert problem.sentence.startswith(f"{tmp_path / 'hosts.yml'}:{line}: ")


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    problems_of(tmp_path)
    (tmp_path / "group_vars" / "all.yml").write_bytes(b"---\n# gr\xfc\xdfe\n")
    (problem,) = problems_of(tmp_path)
    assert (problem.code, ":2: " in problem.sentence) == ("not-utf8", True)


def test_files_that_ansible_reads_otherwise_or_not_at_all_pass(tmp_path: Path) -> None:
    files = {
        "hosts.ini": "[targets]\nbench ansible_port=0022\n",
        "hosts": "[targets]\nbench\n",
        "secrets.yml": '{"luks_passphrase": 1}',
        "secrets.json": '{"luks_passphrase": 1, "luks_passphrase": 2}',
        "hosts.yml~": "- a\n",
        "cloud.yml": "plugin: amazon.aws.aws_ec2\nregions: [1]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    vault = "$ANSIBLE_VAULT;1.1;AES256\n: : 30\n"
    templates = 'fde_disks: "{{ disks }}"\nfde_stop: &loop [!unsafe timers, *loop]\n'
    assert problems_of(tmp_path, all=vault, targets=templates) == []


def test_a_refused_text_gets_its_line_and_what_is_written(tmp_path: Path) -> None:
    problems_of(tmp_path, all="fde_meters:\n  - {name: a, port: usb}\n  - {name: b, port: off}\n")
    facts = {"variable": "fde_meters[1].port", "error": "fde_meters[1].port is False"}
    located = InventoryFiles(tmp_path).located(Problem("not-text", facts, "False."), "bench")
    assert (located.code, located.facts["text"]) == ("text-changed", "off")
    assert located.sentence.startswith(f"{tmp_path / 'group_vars' / 'all.yml'}:3: ")


def test_a_problem_without_a_place_is_unchanged(tmp_path: Path) -> None:
    problems_of(tmp_path)
    problem = Problem("type", {"variable": "fde_origin"}, "Wrong.")
    assert InventoryFiles(tmp_path).located(problem, "bench") is problem


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    names = ["fde_notfy", "fde_disks", "fde_psid_revert", "fde_lab_dir", "fde_extent_byte", "other"]
    problems = list(unknown_variables(iter(names)))
    assert [problem.facts["nearest"] for problem in problems] == [
        "did you mean fde_extent_bytes?",
        "did you mean fde_notify?",
    ]


def test_a_problem_of_a_host_gets_the_line_of_its_own_file(tmp_path: Path) -> None:
    problems_of(tmp_path)
    (tmp_path / "host_vars").mkdir()
    for name in ("alder", "bench"):
        (tmp_path / "host_vars" / f"{name}.yml").write_text("fde_turbo: 3\n", encoding="utf-8")
    files, problem = InventoryFiles(tmp_path), Problem("type", {"variable": "fde_turbo"}, "Wrong.")
    assert "/host_vars/bench.yml:1: " in files.located(problem, "bench").sentence
    assert files.located(problem, "other") is problem


@pytest.mark.parametrize("name", ["mine.json", "pins", "pins.yml"])
def test_secrets_that_ansible_would_read_as_hosts_are_refused_unquoted(
    name: str, tmp_path: Path
) -> None:
    problems_of(tmp_path)
    (tmp_path / name).write_text('{"luks_passphrase": "hunter2"}', encoding="utf-8")
    (problem,) = problems_of(tmp_path)
    assert problem.code == "secrets-read" and "hunter2" not in str(problem)


OWNERS = {"group_vars": ["all", "targets"], "host_vars": ["bench"]}


@pytest.mark.parametrize(
    ("file", "is_refused"),
    [
        ("group_vars/target.yml", True),
        ("group_vars/all.yml.j2", True),
        ("group_vars/site/main.yml", True),
        ("host_vars/Bench", True),
        ("host_vars/bench.yml.txt", True),
        ("host_vars/bench.example.org.yml", True),
        ("host_vars/bench/disks.yml", False),
        ("host_vars/bench.json", False),
        ("group_vars/targets.yml.orig", False),
        ("host_vars/.bench.yml.swp", False),
    ],
)
def test_variables_that_ansible_reads_for_no_one_are_refused(
    file: str, is_refused: bool, tmp_path: Path
) -> None:
    assert problems_of(tmp_path, targets="", webservers="") == []
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("# ours\nfde_turbo: true\n", encoding="utf-8")
    InventoryFiles(tmp_path / "hosts.yml").refuse_unread(OWNERS)  # the file may be another's
    with refuses("owner-unread") if is_refused else nullcontext():
        InventoryFiles(tmp_path).refuse_unread(OWNERS)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ansible_hots", 1),
        ("ansible_becom", 1),
        ("ansible_ssh_host", 0),
        ("ansible_become_exe", 0),
        ("ansible_become_method", 0),
        ("ansible_become_user", 0),
        ("ansible_become_password", 0),
        ("ansible_ssh_user", 0),
        ("ansible_private_key_file", 0),
        ("ansible_scp_extra_args", 0),
        ("ansible_password", 0),
        ("ansible_of_mine", 0),
    ],
)
def test_a_misspelt_variable_of_ansible_is_refused(name: str, count: int, tmp_path: Path) -> None:
    hosts = f"targets: {{hosts: {{bench: {{{name}: x}}}}}}\n"
    assert [p.code for p in problems_of(tmp_path, hosts=hosts)] == ["unknown-name"] * count


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("[targets]\nbench ansible_user=al ansible_user=bob", "values-differ", 2),
        ("[targets]\nbench ansible_user=al # x\nbench ansible_user=bob", "values-differ", 3),
        ("[a:vars]\nfde_stop = 1\nfde_stop = 2", "values-differ", 3),
        ("[targets]\nbench ansible_host=other", "values-differ", 2),  # hosts.yml has another
        ("[targets]\nbench fde_orign=modelled", "unknown-name", 2),
        ("\ufeff[targets]\nbench", "byte-order-mark", 1),
    ],
)
@pytest.mark.parametrize("name", ["more.ini", "more"])
def test_a_fault_of_an_ini_file_is_refused_with_its_line(
    name: str, text: str, code: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    (problem,) = problems_of(tmp_path)
    assert problem.code == code
    assert problem.sentence.startswith(f"{tmp_path / name}:{line}: ")


def test_an_ini_file_without_contradictions_passes(tmp_path: Path) -> None:
    text = "; x\n[targets]\nbench:22 ansible_user='al' fde_stop=[]\nfir ansible_user=bob\n"
    more = "[targets:children]\nothers\n[targets:vars]\nansible_port = 22\n[others]\nbench\n"
    (tmp_path / "more.ini").write_text(text + more, encoding="utf-8")
    assert problems_of(tmp_path) == []


ENTRY = "fde_configurations:\n  - name: {}\n    kind: plain\n    disk: plain\n"


@pytest.mark.parametrize("file", ["hosts.yml", "hosts.yaml", "hosts.ini", "group_vars/all.yml"])
def test_a_folder_with_a_file_of_hosts_alone_is_no_near_inventory(
    file: str, tmp_path: Path
) -> None:
    for path in (tmp_path / "etc" / "hosts", tmp_path / "etc" / "hosts.allow"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert inventories_beside(tmp_path / "nope") == []
    (tmp_path / "mine" / file).parent.mkdir(parents=True)
    (tmp_path / "mine" / file).touch()
    assert inventories_beside(tmp_path / "nope") == [str(tmp_path / "mine")]


@pytest.mark.parametrize(
    ("read", "hidden"),
    [
        ("targets/main.yml", "targets.yml"),
        ("targets", "targets.yml"),
        ("targets.yml", "targets.json"),
    ],
)
def test_variables_that_ansible_does_not_read_are_refused(
    read: str, hidden: str, tmp_path: Path
) -> None:
    for name in (read, hidden):
        file = tmp_path / "group_vars" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("fde_origin: measured\n", encoding="utf-8")
    with refuses("variables-hidden") as refusal:
        InventoryFiles(tmp_path).refuse_unread(OWNERS)
    assert str(refusal.value).startswith(f"{tmp_path / 'group_vars' / hidden}:")


@pytest.mark.parametrize(("user", "codes"), [("alice", []), ("bob", ["values-differ"])])
def test_a_copy_of_hosts_with_another_value_is_refused(
    user: str, codes: list[str], tmp_path: Path
) -> None:
    text = "targets:\n  hosts:\n    bench: {ansible_user: alice}\n"
    copy = tmp_path / "hosts (conflicted copy).yml"
    copy.write_text(text.replace("alice", user), encoding="utf-8")
    problems = problems_of(tmp_path, hosts=text)
    assert [problem.code for problem in problems] == codes
    assert all(problem.facts["owner"] == "bench" for problem in problems)
