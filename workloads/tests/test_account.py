"""Programs that do less than requested and exit with 0: the account voids their runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract import account
from contract.documents import Bounds, Phase
from contract.tests.programs import program
from workloads import programs, registry
from workloads.base import WorkloadError
from workloads.tests import contract

MIB = 1 << 20
SMALL_FILES = {"small_files": 2, "small_mib": 2, "large_mib": 4}


@dataclass(frozen=True)
class Wrapper:
    """A program in front of another, as a shell script; `real` in it is the real one's path."""

    program: str
    script: str
    workload: str


# What only finds out about the clip is done well.
PREPARED = 'case "$*" in *-identify*) exec real "$@";; esac'
# dpkg's command line is its options, then --install with the archives.
INSTALLS = 'case "$*" in *--install*) ;; *) exec real "$@";; esac'
CHANGED = 'for a; do shift; case $a in {};; esac; set -- "$@" "$a"; done; exec real "$@"'
# Each three times: part of the work, none of it, or other work.
WRAPPERS = {
    "dd-fewer-blocks": Wrapper(
        "dd", 'case "$*" in *of=*/file-0*) set -- "$@" count=1;; esac; exec real "$@"', "file_io"
    ),
    "dd-nothing": Wrapper("dd", "exit 0", "file_io"),
    "dd-zeros": Wrapper(
        "dd",
        """for a; do shift; case $a in if=*incompressible*) a=if=/dev/zero;; skip=*) continue;; esac
        set -- "$@" "$a"; done; exec real "$@\"""",
        "file_io",
    ),
    "tar-excludes": Wrapper(
        "tar", '[ "$1" = -xf ] && exec real "$@" "--exclude=*.c"; exec real "$@"', "kernel_tree"
    ),
    "tar-packs-nothing": Wrapper(
        "tar", '[ "$1" = -caf ] && { : > "$2"; exit 0; }; exec real "$@"', "kernel_tree"
    ),
    "tar-packs-less": Wrapper(
        "tar", '[ "$1" = -caf ] && exec real "$@" "--exclude=*.c"; exec real "$@"', "kernel_tree"
    ),
    "rm-moves": Wrapper(
        "rm",
        'd=$(dirname "$2"); shift; mkdir -p "$d/../Trash" && exec mv "$@" "$d/../Trash/"',
        "kernel_tree",
    ),
    "rm-nothing": Wrapper("rm", "exit 0", "kernel_tree"),
    "rm-leaves-some": Wrapper("rm", 'exec find "$2" "$3" "$4" -name "*.c" -delete', "kernel_tree"),
    "rm-leaves-folders": Wrapper("rm", 'exec find "$2" "$3" "$4" -type f -delete', "kernel_tree"),
    "tar-leaves-links": Wrapper(
        "tar", '[ "$1" = -xf ] || exec real "$@"; real "$@"; find "$4" -type l -delete',
        "kernel_tree",
    ),
    "cp-less": Wrapper("cp", 'exec head -c 1000 "$1" > "$2"', "kernel_tree"),
    "cp-nothing": Wrapper("cp", "exit 0", "kernel_tree"),
    "cp-links": Wrapper("cp", 'exec ln -s "$1" "$2"', "kernel_tree"),
    "gzip-half": Wrapper("gzip", '[ $# = 0 ] && exec head -c 999; exec real "$@"', "kernel_tree"),
    "gzip-nothing": Wrapper("gzip", "exit 0", "kernel_tree"),
    "gzip-packs-zeros": Wrapper(
        "gzip", '[ $# = 0 ] && { cat > /dev/null; real -c /dev/null; exit; }; exec real "$@"',
        "kernel_tree",
    ),
    "grep-skips-files": Wrapper(
        "grep", 'exec real --include=Makefile "$@"', "kernel_grep"
    ),
    "grep-nothing": Wrapper("grep", "exit 0", "kernel_grep"),
    "grep-stops-early": Wrapper("grep", 'exec real -m1 "$@"', "kernel_grep"),
    "wc-zero": Wrapper("wc", "cat > /dev/null; echo 1", "kernel_grep"),
    "fio-less": Wrapper("fio", 'exec real "$@" --size=1M', "access_patterns"),
    "fio-shorter": Wrapper("fio", 'exec real "$@" --runtime=20ms', "block_sizes"),
    "fio-other-blocks": Wrapper("fio", 'exec real "$@" --bs=8192', "block_sizes"),
    "fio-random-less": Wrapper(
        "fio", 'case "$*" in *rw=rand*) set -- "$@" --io_size=64K;; esac; exec real "$@"',
        "access_patterns",
    ),
    "sysbench-shorter": Wrapper("sysbench", 'exec real "$@" --time=1', "drift_check"),
    "sysbench-fewer-threads": Wrapper("sysbench", 'exec real "$@" --threads=64', "drift_check"),
    "fio-nothing": Wrapper("fio", "exit 0", "access_patterns"),
    "mplayer-fewer-frames": Wrapper(
        "mplayer", f'{PREPARED}; exec real "$@" -frames 20', "video"
    ),
    "mplayer-too-fast": Wrapper("mplayer", f'{PREPARED}; exec real -speed 5 "$@"', "video"),
    "mplayer-too-slow": Wrapper("mplayer", f'{PREPARED}; exec real -speed 0.3 "$@"', "video"),
    # How busy it is depends on the machine: what it reports is made so.
    "mplayer-too-busy": Wrapper(
        "mplayer", f"""{PREPARED}; real "$@" | sed -E 's/[0-9]+% +[0-9]+% /99% 9% /g'""", "video"
    ),
    "mplayer-nothing": Wrapper("mplayer", f"{PREPARED}; exit 0", "video"),
    "mplayer-less-always": Wrapper("mplayer", 'exec real "$@" -frames 20', "video"),
    "dpkg-nothing": Wrapper("dpkg", f"{INSTALLS}; exit 0", "package_upgrade"),
    "dpkg-less": Wrapper("dpkg", CHANGED.format("*-001.deb) continue"), "package_upgrade"),
    "dpkg-unpacks-only": Wrapper(
        "dpkg", CHANGED.format("--install) a=--unpack"), "package_upgrade"
    ),
    "dpkg-excludes": Wrapper(
        "dpkg", CHANGED.format('--install) set -- "$@" "--path-exclude=*/0001"'), "package_upgrade"
    ),
    "dpkg-same-version": Wrapper(
        "dpkg", CHANGED.format("*/2/*.deb) a=${a%/2/*}/1/${a##*/}"), "package_upgrade"
    ),
    "dpkg-other-contents": Wrapper(
        "dpkg",
        f"""{INSTALLS}; real "$@" || exit
        printf '\\0\\0' | dd of="${{1#--root=}}/usr/lib/fde-upgrade-000/0000" conv=notrunc""",
        "package_upgrade",
    ),
    "dpkg-reports-only": Wrapper(
        "dpkg",
        f"""{INSTALLS}; for n in 0 1 2; do for l in "Package: fde-upgrade-00$n" "Version: 1" \\
        "Status: install ok installed" "Architecture: all" "Maintainer: a" "Description: b" ""
        do echo "$l"; done; done > "${{1#--root=}}/var/lib/dpkg/status\"""",
        "package_upgrade",
    ),
    "dpkg-does-not-sync": Wrapper(
        "dpkg", CHANGED.format('--install|--force-help) set -- "$@" --force-unsafe-io'),
        "package_upgrade",
    ),
    "dpkg-query-nothing": Wrapper("dpkg-query", "exit 0", "package_upgrade"),
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "drift_check": {"seconds": 2},
    "file_io": SMALL_FILES,
    "kernel_tree": {},
    "kernel_grep": {"copies": 1},
    "access_patterns": {"file_mib": 10, "random_mib": 1, "random_seconds": 30},
    "video": {"seconds": 2},
    "block_sizes": {"file_mib": 1, "steps": "65536", "seconds": 0.3},
    "package_upgrade": {"packages": 3, "files": 5, "total_mib": 1},
}


def differences(workload: str, root: Path, assets: dict[str, Path]) -> list[str]:
    """Run a workload; return the causes for which its account voids the run."""
    try:
        _, phases = contract.performed(workload, root, assets, **SETTINGS[workload])
    except WorkloadError as error:
        return [error.code]
    findings = account.judge(phases.documents())
    return [finding.cause for finding in findings if not finding.ok]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_program_that_does_part_of_its_work_voids_the_run(
    name: str, root: Path, assets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = WRAPPERS[name]
    real = programs.find(wrapper.program)
    if real is None:
        pytest.skip(f"{wrapper.program} is not installed")
    front = program(root / "bin" / wrapper.program, wrapper.script.replace("real", str(real)))
    needed = {key: assets[key] for key in registry.load(wrapper.workload).assets}
    assert differences(wrapper.workload, root / "sound", needed) == []
    monkeypatch.setenv("PATH", f"{front.parent}:{os.environ['PATH']}")
    assert differences(wrapper.workload, root / "wrapped", needed) != []


def phase(**accounts: Any) -> Phase:
    return Phase("read", 0, 1, work={"bytes": 100.0}, **accounts)


@pytest.mark.parametrize(
    ("accounts", "causes"),
    [
        ({}, []),
        ({"planned": {"bytes": 100}, "reported": {"bytes": 100}}, []),
        ({"planned": {"bytes": 100}, "reported": {"bytes": 99}}, ["work-reported"]),
        ({"planned": {"bytes": 101}, "reported": {"bytes": 101}}, ["work-counted"]),
        ({"planned": {"matches": 1000}, "reported": {"matches": 999}}, ["work-reported"]),
        ({"planned": {"seconds": 1.0}, "reported": {"seconds": 2.0}}, []),
        ({"planned": {"seconds": 1.0}, "reported": {"seconds": 0.5}}, ["work-reported"]),
        ({"disk_bounds": {"read_bytes": Bounds(95)}, "disk_read_bytes": 95}, []),
        ({"disk_bounds": {"read_bytes": Bounds(95)}, "disk_read_bytes": 0}, ["disk-read-less"]),
        (
            {"disk_bounds": {"written_bytes": Bounds(0, 5)}, "disk_written_bytes": 6},
            ["disk-written-more"],
        ),
        ({"disk_bounds": {"read_bytes": Bounds(95)}}, ["work-unseen"]),
    ],
)
def test_a_differing_account_has_its_cause(accounts: dict[str, Any], causes: list[str]) -> None:
    findings = account.judge([phase(**accounts)])
    assert [finding.cause for finding in findings if not finding.ok] == causes
    assert all(finding.facts["phase"] == "read" for finding in findings if not finding.ok)


LESS_WRITTEN = {"disk_bounds": {"written_bytes": Bounds(95)}, "disk_written_bytes": 1}
LESS_READ = {"disk_bounds": {"read_bytes": Bounds(95)}, "disk_read_bytes": 1}
MORE_WRITTEN = {"disk_bounds": {"written_bytes": Bounds(0, 5)}, "disk_written_bytes": 6}


@pytest.mark.parametrize(
    ("accounts", "options", "journalled", "severity"),
    [
        (LESS_WRITTEN, "rw,noatime", False, "blocker"),
        (LESS_WRITTEN, "rw,compress=zstd:3", False, "warning"),
        (LESS_WRITTEN, "rw,noatime,nocompress", True, "blocker"),
        (LESS_READ, "rw,noatime", True, "warning"),
        (MORE_WRITTEN, "rw,noatime", True, "blocker"),
        (MORE_WRITTEN, "rw,relatime", False, "warning"),
        (MORE_WRITTEN, "", False, "blocker"),
        ({"planned": {"bytes": 1}}, "rw,compress=zstd,relatime", True, "blocker"),
    ],
)
def test_only_an_excused_difference_is_a_warning(
    accounts: dict[str, Any], options: str, journalled: bool, severity: str
) -> None:
    (finding,) = account.judge([phase(**accounts)], options, journalled=journalled)
    assert finding.severity == severity
