"""One tar of everything that runs on the target, the same bytes for the same sources.

Its paths are absolute (without the leading slash): it is unpacked at the root of the target, and
`tar --diff` then shows whether anything there differs.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath

from contract import strict_json
from contract.errors import ControllerError
from contract.extensions import distribution, installed
from contract.places import ANSIBLE, ROOT
from contract.plan import TargetDocument
from controller.targets import connection

HOME = PurePosixPath("opt/fde-testbed")
TARGET = PurePosixPath("etc/fde-testbed/target.json")
UNIT = PurePosixPath("etc/systemd/system/fde-agent@.service")
PACKAGES = ("agent", "contract", "instrumentation", "workloads")
# The entry points that are for the target.
ON_TARGET = ("fde.sources", "fde.storage", "fde.workloads")
# What stays on the controller: folders by their names.
LEFT_OUT = frozenset({"meters", "simulators", "suites", "tests", "__pycache__"})


def collect(root: Path = ROOT) -> dict[PurePosixPath, bytes]:
    """Collect contents by path on the target.

    Raises ControllerError where pyRAPL or a package is not complete.
    """
    files = {
        HOME / path.relative_to(root).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in _sources(root / package, root)
    }
    libraries = [_folder("pyRAPL", ControllerError("no-pyrapl"))]
    for point in _entry_points():
        facts = {"package": distribution(point), "class_path": point.value, "group": point.group}
        top = point.module.partition(".")[0]
        missing = ControllerError("package-without-module", **facts, top=top)
        libraries.append(_folder(point.module, missing))
    for library in libraries:
        for path in _sources(library, library.parent):
            files[HOME / "lib" / path.relative_to(library.parent).as_posix()] = path.read_bytes()
    # By these the target's Python finds the entry points as this one does.
    for point in _entry_points():
        if point.dist is not None:
            info = HOME / "lib" / f"{point.dist.name.replace('-', '_')}.dist-info"
            for name in ("METADATA", "entry_points.txt"):
                files[info / name] = (point.dist.read_text(name) or "").encode()
    return files


def pack(files: Mapping[PurePosixPath, bytes]) -> bytes:
    """Pack a tar of files of mode 0644 owned by root, in order of their paths.

    No folders are listed, so that unpacking never changes the mode of one that is there. The time
    of a file is made from its contents: Python takes a cached .pyc for fresh by time and size
    alone, so a constant time could run yesterday's code.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(str(path))
            entry.size = len(files[path])
            entry.mode = 0o644
            entry.mtime = 10**9 + zlib.crc32(files[path]) % (5 * 10**8)
            entry.uname = entry.gname = "root"
            tar.addfile(entry, io.BytesIO(files[path]))
    return out.getvalue()


def _entry_points() -> Iterator[EntryPoint]:
    """Yield what installed packages add to the target's programs."""
    for group in ON_TARGET:
        yield from installed(group)


def _folder(module: str, missing: ControllerError) -> Path:
    """Return the top package of a module, or its file where it is a single one."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise missing
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def _sources(folder: Path, root: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        parts = path.relative_to(root).parts
        if path.is_file() and not (LEFT_OUT & set(parts) or path.name.startswith(".")):
            yield path


# Python's own caches beside the sources are not the archive's: what is left over there stays.
SEND = """
f=$(mktemp /run/fde-agent.XXXXXX) || exit 1
trap 'rm -f "$f"' EXIT
trap 'exit 130' HUP INT TERM PIPE
cat >"$f" && umask 022 || exit 1
tar -df "$f" -C / >/dev/null 2>&1 && exit 0
[ "$1" = look ] || { tar -xf "$f" -C / && systemctl daemon-reload; } && echo changed
"""
# The results of suites and the notes on the disks stay in /var/lib/fde-testbed.
REMOVE = f"""
do=$1; set -- /{HOME} /{TARGET.parent} /{UNIT} /etc/systemd/system/*.wants/fde-agent@*.service
for path; do [ ! -e "$path" ] && [ ! -L "$path" ] || left="$left $path"; done
[ -n "$left" ] || exit 0
[ "$do" = look ] || {{ rm -rf $left && systemctl daemon-reload; }} && echo changed
"""


def send(
    target: TargetDocument, *, dry: bool = False, run: connection.Run = connection.run
) -> bool:
    """Unpack the archive at the target's root if anything differs there; return whether it did.

    With `dry` it is compared alone. Raises TargetError.
    """
    document = strict_json.dumps(target.for_target.document()).encode()
    unit = (ANSIBLE / "roles" / "agent" / "files" / UNIT.name).read_bytes()
    archive = pack(collect() | {TARGET: document, UNIT: unit})
    done = run(target, ["sh", "-c", SEND, "sh", "look" if dry else "unpack"], archive)
    return connection.require_output(target, done).strip() == b"changed"


def remove(
    target: TargetDocument, *, dry: bool = False, run: connection.Run = connection.run
) -> bool:
    """Remove the agent and its service; return whether there was any. Raises TargetError."""
    done = run(target, ["sh", "-c", REMOVE, "sh", "look" if dry else "remove"], b"")
    return bool(connection.require_output(target, done).strip())
