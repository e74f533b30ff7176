"""The tar archive of everything that runs on the target; equal sources give equal bytes.

Its paths are absolute without the leading slash: it is unpacked at the root of the target, and
`tar --diff` shows whether a file there differs.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
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
# Entry points of code that runs on the target.
ON_TARGET = ("fde.sources", "fde.storage", "fde.workloads")
# Names of folders that stay on the controller.
LEFT_OUT = frozenset({"meters", "simulators", "suites", "tests", "__pycache__"})


def collect(root: Path = ROOT) -> dict[PurePosixPath, bytes]:
    """Collect the contents of all files by their path on the target.

    Raises ControllerError if pyRAPL or a package is incomplete.
    """
    files = {
        HOME / path.relative_to(root).as_posix(): path.read_bytes()
        for package in PACKAGES
        for path in _sources(root / package, root)
    }
    libraries = [_folder("pyRAPL", ControllerError("no-pyrapl"))]
    for point in (point for group in ON_TARGET for point in installed(group)):
        facts = {"package": distribution(point), "class_path": point.value, "group": point.group}
        top = point.module.partition(".")[0]
        missing = ControllerError("package-without-module", **facts, top=top)
        libraries.append(_folder(point.module, missing))
        if point.dist is not None:  # so that the target's Python finds the entry point, too
            info = HOME / "lib" / f"{point.dist.name.replace('-', '_')}.dist-info"
            for name in ("METADATA", "entry_points.txt"):
                files[info / name] = (point.dist.read_text(name) or "").encode()
    for library in libraries:
        for path in _sources(library, library.parent):
            files[HOME / "lib" / path.relative_to(library.parent).as_posix()] = path.read_bytes()
    return files


def pack(files: Mapping[PurePosixPath, bytes]) -> bytes:
    """Pack files into a tar archive, sorted by path, with mode 0644 and owner root.

    Folders are not listed: unpacking never changes the mode of an existing one. A file's time is
    computed from its contents: Python compares only time and size to decide whether a cached .pyc
    is current, so a constant time could run outdated code.
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


def _folder(module: str, missing: ControllerError) -> Path:
    """Return the folder of a module's top package, or the file of a module without one."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise missing
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def _sources(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the files of a folder, or the file itself, that belong on the target."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        parts = path.relative_to(root).parts
        if path.is_file() and not (LEFT_OUT & set(parts) or path.name.startswith(".")):
            yield path


# Python's caches next to the sources are not in the archive; unpacking leaves them as they are.
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
    """Unpack the archive at the target's root if a file differs; return whether one did.

    With `dry` only compare. Raises TargetError.
    """
    document = strict_json.dumps(target.for_target.document()).encode()
    unit = (ANSIBLE / "roles" / "agent" / "files" / UNIT.name).read_bytes()
    archive = pack(collect() | {TARGET: document, UNIT: unit})
    result = run(target, ["sh", "-c", SEND, "sh", "look" if dry else "unpack"], archive)
    return connection.require_output(target, result).strip() == b"changed"


def remove(
    target: TargetDocument, *, dry: bool = False, run: connection.Run = connection.run
) -> bool:
    """Remove the agent and its service; return whether they existed. Raises TargetError."""
    result = run(target, ["sh", "-c", REMOVE, "sh", "look" if dry else "remove"], b"")
    return bool(connection.require_output(target, result).strip())
