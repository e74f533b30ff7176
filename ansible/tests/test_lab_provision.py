"""Provisioning the real lab: twice without a change, and refused where a disk is not as named."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from controller.targets import agent_bundle, first_writes, survey

pytestmark = pytest.mark.lab


def _disks(controller: Any) -> dict[str, dict[str, object]]:
    disks: dict[str, dict[str, object]] = json.loads(controller.target.read_text())["disks"]
    return disks


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_second_play_changes_nothing(provisioned: Any, arguments: tuple[str, ...]) -> None:
    before = provisioned.media()
    result = provisioned.play("site.yml", *arguments)
    assert result.returncode == 0
    assert provisioned.recap(result)["changed"] == 0
    assert provisioned.media() == before


def _example(role: str, folder: Path) -> str:
    """Copy the playbook of a role's README into a folder, as a reader does; return its path."""
    readme = Path(__file__).parents[1] / "roles" / role / "README.md"
    # The lab's variables, which an inventory of a user's has in its own folder.
    (folder / "group_vars").symlink_to(readme.parents[2] / "playbooks" / "group_vars")
    text = readme.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    (folder / f"{role}.yml").write_text(text, encoding="utf-8")
    return str(folder / f"{role}.yml")


@pytest.mark.parametrize("role", ["agent", "preflight", "secrets", "storage"])
def test_the_example_of_a_role_changes_nothing_when_all_is_ready(
    provisioned: Any, role: str, tmp_path: Path
) -> None:
    result = provisioned.play(_example(role, tmp_path))
    assert result.returncode == 0
    assert provisioned.recap(result)["changed"] == 0


def test_the_example_of_a_suite_starts_a_plan_and_fetches_its_results(
    provisioned: Any, tmp_path: Path
) -> None:
    inventory = ("--inventory", provisioned.inventory)
    options = ("--suite", "micro", "--blocks", "1", "-c", "plain", "--out", str(tmp_path))
    assert provisioned.python("controller", "plan", *inventory, *options).returncode == 0
    (plan,) = tmp_path.glob("*/plan.json")
    example, suite = _example("suite", tmp_path), plan.parent.name
    started = provisioned.play(example, "--tags", "start", suite=suite)
    assert started.returncode == 0
    provisioned.lab.ssh(f"while systemctl is-active -q fde-agent@{suite}; do sleep 1; done")
    assert provisioned.play(example, "--tags", "fetch", suite=suite).returncode == 0
    with tarfile.open(tmp_path / f"{suite}.tar") as archive:
        assert any(name.endswith("journal.jsonl") for name in archive.getnames())


def test_a_source_that_differs_there_is_sent_again(provisioned: Any) -> None:
    provisioned.lab.ssh("echo '#' >>/opt/fde-testbed/agent/cli.py")
    dry = agent_bundle.send(provisioned.resolved, dry=True)
    assert [dry, *(agent_bundle.send(provisioned.resolved) for _ in range(2))] == [
        True,
        True,
        False,
    ]


def test_check_and_diff_show_each_disk_and_write_none(provisioned: Any) -> None:
    provisioned.agent("teardown")
    before = provisioned.media()
    try:
        result = provisioned.play("site.yml", "--check", "--diff", "--limit", "target")
        assert result.returncode == 0
        assert provisioned.recap(result)["changed"] == 1, "the disks, and nothing else"
        by_ids = [f"({disk['by_id']}), prepared" for disk in _disks(provisioned).values()]
        assert all(by_id in result.stdout for by_id in by_ids)
        assert provisioned.media() == before
    finally:
        assert provisioned.play("site.yml", "--tags", "disks").returncode == 0
    assert provisioned.recap(provisioned.play("site.yml"))["changed"] == 0


def test_no_secret_goes_to_a_host_whose_key_is_not_known(
    provisioned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the site has Ansible accept."""
    (tmp_path / "known_hosts").touch()
    options = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={tmp_path}/known_hosts"
    events = tmp_path / "events"
    monkeypatch.setenv("FDE_ANSIBLE_EVENTS", str(events))
    site = {"ansible_ssh_args": options, "ansible_host_key_checking": False}
    provisioned.play("site.yml", "--tags", "secrets", **site)
    failure = json.loads(events.read_text(encoding="utf-8").splitlines()[1])
    assert [problem["code"] for problem in failure["problems"]] == ["host-key-unknown"]
    assert provisioned.play("resolve.yml").returncode == 0


def test_assets_are_made_once_and_again_where_they_are_damaged(
    controller: Any, tmp_path: Path
) -> None:
    folder, script = "/var/lib/fde-assets-test", "/usr/local/libexec/fde-make-assets"
    kernel, clips = tmp_path / "kernel", Path(__file__).parents[2] / "workloads" / "tests" / "clips"
    kernel.write_bytes(b"an archive")
    named = {"assets_kernel": str(kernel), "assets_folder": folder}
    named["assets_clip"] = str(clips / "h264.mp4")
    try:
        sound = controller.play("assets.yml", **{**named, "assets_clip": str(clips / "sound.mka")})
        assert sound.returncode != 0 and "mplayer decodes no picture" in sound.stdout
        assert "given-clip" not in controller.lab.ssh(f"ls {folder}").stdout
        assert controller.play("assets.yml", **named).returncode == 0
        ssh = controller.lab.ssh
        sums = ssh(f"cd {folder}; ls; sha256sum -c SHA256SUMS").stdout.split()
        assert sums.count("OK") == 3 and not [name for name in sums if "given" in name]
        assert ssh(f"{script} {folder} 1").stdout.strip() == "unchanged"
        refused = ssh(
            f"cd {folder}; echo x >>clip.mpg; rm SHA256SUMS; {script} {folder} 1", check=False
        )
        assert refused.returncode == 1 and "is not of this script" in refused.stderr
        ssh(f"cd {folder}; sha256sum * >SHA256SUMS; echo x >>kernel_tree.tar.gz; : >given-kernel")
        ssh(f"{script} {folder} 1; cd {folder}; sha256sum -c SHA256SUMS")
        size = ssh(f"wc -c <{folder}/kernel_grep.tar.gz").stdout.strip()
        assert size == "0", "the file that was named, not the damaged one"
    finally:
        controller.lab.ssh(f"rm -rf {folder}")


def test_disks_that_are_not_the_named_ones_are_refused(provisioned: Any) -> None:
    before = provisioned.media()
    disks = _disks(provisioned)
    disks["plain"] |= {"serial": "ANOTHER"}
    disks["sed"] |= {"size_bytes": 4 * 2**30}
    try:
        result = provisioned.play("site.yml", fde_disks=disks)
        assert result.returncode != 0
        printed = " ".join((result.stdout + result.stderr).split())
        assert "ANOTHER" in printed and str(4 * 2**30) in printed
        assert "Traceback" not in printed
        disks["plain"]["by_id"] = "/dev/disk/by-id/nvme-fde-lab-plain_ABSENT"
        result = provisioned.play("site.yml", fde_disks=disks)
        assert result.returncode != 0
        assert "nvme-fde-lab-plain_ABSENT" in result.stdout + result.stderr
    finally:  # nothing of it has come to the target
        assert provisioned.play("resolve.yml").returncode == 0
    assert provisioned.media() == before


def test_a_mounted_disk_is_refused(provisioned: Any) -> None:
    """Our own disk, but somebody has mapped and mounted a part of it: being in use is enough."""
    disk = _disks(provisioned)["plain"]["by_id"]
    lab = provisioned.lab
    table = f"0 131072 linear $(readlink -f {disk}-part1) 1048576"
    lab.ssh(f'dmsetup create foreign --table "{table}"')
    try:
        lab.ssh("mkfs.ext4 -q /dev/mapper/foreign && mkdir -p /mnt/foreign")
        lab.ssh("mount -o ro /dev/mapper/foreign /mnt/foreign")  # nothing else may write
        before = provisioned.media()
        assert any(
            "/mnt/foreign" in why.sentence for why in survey.look(provisioned.resolved).refused
        )
        result = provisioned.agent("prepare", check=False)
        assert result.returncode != 0
        assert "/mnt/foreign" in result.stderr
        assert provisioned.media() == before
    finally:
        lab.ssh("umount /mnt/foreign; dmsetup remove foreign", check=False)


def test_a_foreign_signature_is_refused_unless_the_disk_is_given_up(provisioned: Any) -> None:
    disks = _disks(provisioned)
    disk = disks["plain"]["by_id"]
    provisioned.agent("teardown")
    provisioned.lab.ssh(f"mkfs.ext4 -q -F {disk} 16M && sync")
    before = provisioned.media()
    result = provisioned.play("site.yml")
    assert result.returncode != 0
    printed = " ".join((result.stdout + result.stderr).split())
    assert "ext4" in printed and f'erase: "{disks["plain"]["serial"]} ' in printed
    assert provisioned.media() == before
    disks["plain"]["erase"] = disks["plain"]["serial"]
    result = provisioned.play("site.yml", fde_disks=disks)
    assert result.returncode == 0
    assert provisioned.recap(result)["changed"] >= 1
    assert provisioned.play("resolve.yml").returncode == 0


LABS = Path(__file__).parents[1] / "playbooks" / "group_vars" / "labs.yml"
# A site's play that prepares disks and looks at nothing before.
ALONE = f"""
- hosts: targets
  gather_facts: false
  vars_files: [{LABS}]
  roles: [fde.testbed.target_spec]
  tasks:
    - fde.testbed.fde_secrets: {{state: placed}}
    - fde.testbed.fde_facts: {{refuse: false}}
    - fde.testbed.fde_disks:
        state: prepared
        checked: "{{{{ ansible_facts.fde_machine.checked }}}}"
"""


def test_a_disk_that_the_testbed_has_not_had_is_asked_for_outside_a_lab(
    provisioned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab's own disk, named by an inventory that is not said to be a lab's."""
    alone = tmp_path / "alone.yml"
    disks = {"plain": {**_disks(provisioned)["plain"], "erase": None}}
    by_id, serial = disks["plain"]["by_id"], disks["plain"]["serial"]
    real: dict[str, Any] = {
        "fde_is_lab": False,
        "fde_disks": disks,
        "fde_configurations": [{"name": "plain", "kind": "plain", "disk": "plain"}],
    }
    provisioned.agent("teardown")
    provisioned.lab.ssh(
        f"rm -f /var/lib/fde-testbed/disks.json; blkdiscard -f {by_id}; udevadm settle"
    )
    before = provisioned.media()
    try:
        result = provisioned.play("site.yml", **real, fde_confirm=["OTHER"])
        printed = " ".join((result.stdout + result.stderr).split())
        assert result.returncode != 0
        assert f"fde provision --confirm {serial}" in printed and "holds: blank" in printed
        assert provisioned.media() == before
        alone.write_text(ALONE, encoding="utf-8")
        monkeypatch.setenv("FDE_ANSIBLE_EVENTS", str(alone.with_suffix(".events")))
        assert provisioned.play(str(alone), **real).returncode != 0
        line = alone.with_suffix(".events").read_text(encoding="utf-8").splitlines()[1]
        assert json.loads(line)["problems"][0]["code"] == "disk-unconfirmed"
        assert provisioned.media() == before
        assert provisioned.play("site.yml", **real, fde_confirm=[serial]).returncode == 0
        target = provisioned.resolved
        disks = survey.look(target).disks
        assert first_writes.unconfirmed(target, disks, []) == [], (
            "it carries the testbed's mark now"
        )
        assert [(disk.would, disk.ready) for disk in disks] == [((), True)]
    finally:
        assert provisioned.play("site.yml").returncode == 0  # as the tests after it find it


# A package source in the guest itself, for it has no other: what fde_governor asks for, and with it
# a server that starts when it is installed and at boot.
SOURCE = r"""
set -e
rm -rf /root/source; mkdir -p /root/source; cd /root/source
pack() { # NAME DEPENDS
    printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\n' $1
    printf 'Description: for a test\n'; [ -z "$2" ] || printf 'Depends: %s\n' $2
}
mkdir -p server/DEBIAN server/usr/lib/systemd/system wanted/DEBIAN
pack fde-test-server >server/DEBIAN/control
pack linux-cpupower fde-test-server >wanted/DEBIAN/control
cat >server/usr/lib/systemd/system/fde-test-server.service <<X
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
X
cat >server/DEBIAN/postinst <<X
#!/bin/sh
deb-systemd-helper enable fde-test-server.service
systemctl daemon-reload
deb-systemd-invoke start fde-test-server.service
X
chmod 755 server/DEBIAN/postinst
for name in server wanted; do
    dpkg-deb --root-owner-group --build $name $name.deb >/dev/null
    dpkg-deb --field $name.deb
    printf 'Filename: ./%s.deb\nSize: %s\n' $name $(stat -c %s $name.deb)
    printf 'SHA256: %s\n\n' $(sha256sum <$name.deb | cut -d' ' -f1)
done >Packages
chmod -R a+rX /root/source; chmod a+x /root
mkdir -p /root/apt; mv /etc/apt/sources.list* /root/apt/ 2>/dev/null || true
echo "deb [trusted=yes] file:/root/source ./" >/etc/apt/sources.list
"""
BACK = """
dpkg --purge linux-cpupower fde-test-server 2>/dev/null
rm -rf /etc/apt/sources.list /root/source
mv /root/apt/* /etc/apt/; rmdir /root/apt; chmod 700 /root
"""
LEFT = """
dpkg-query -W -f '${Package}\n' 'fde-test-*' linux-cpupower 2>/dev/null
ls -d /opt/fde-testbed /etc/fde-testbed /etc/systemd/system/fde-agent@.service 2>/dev/null; true
"""


def test_what_provisioning_brought_does_not_run_and_goes_with_a_teardown(provisioned: Any) -> None:
    ssh = provisioned.lab.ssh
    ssh("sh -s", stdin=SOURCE.encode())
    try:
        result = provisioned.play("site.yml", fde_governor="performance")
        assert result.returncode == 0
        assert set(ssh(LEFT).stdout.split()) >= {"linux-cpupower", "fde-test-server"}
        state = ssh(
            "systemctl is-active fde-test-server; systemctl is-enabled fde-test-server", False
        )
        assert state.stdout.split() == ["inactive", "disabled"]
        assert provisioned.play("teardown.yml", fde_keep=True).returncode == 0
        assert "fde-test-server" in ssh(LEFT).stdout and "/opt/fde-testbed" in ssh(LEFT).stdout
        assert provisioned.play("teardown.yml").returncode == 0
        assert ssh(LEFT).stdout == ""
        assert ssh("ls /usr/share/fde-testbed/SHA256SUMS").stdout, "what the image brought stays"
    finally:
        ssh(BACK, check=False)
        assert provisioned.play("site.yml").returncode == 0  # as the tests after it find it
