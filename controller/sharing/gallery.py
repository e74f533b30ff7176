"""A folder of bundles as a static site, whose every page is made again from their raw data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from analysis.report import build as reports
from analysis.report import gallery, render
from analysis.report.gallery import Entry
from analysis.suite.bundle import opened
from contract import schema, strict_json
from contract.command_results import GalleryResult
from contract.errors import AgentError, ControllerError
from contract.files import write
from controller.sharing import sandbox

BUNDLES = "*.tar.gz"
INDEX = "index.html"


def build(folder: Path, site: Path) -> GalleryResult:
    """Write the site; raises ControllerError where there is nothing to show.

    No page is copied from a bundle, where it might run anything.
    """
    bundles = sorted(folder.glob(BUNDLES))
    own_entries = sorted(path.parent for path in folder.glob(f"*/{gallery.ENTRY}"))
    if not bundles and not own_entries:
        raise ControllerError("no-bundle", bundles=BUNDLES, folder=folder)
    site.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Entry] = {}
    left_out = []
    for path in (*bundles, *own_entries):
        try:
            with tempfile.TemporaryDirectory(dir=site, prefix=".making-") as staging:
                if path.is_file():
                    name, entry = _bundle_apart(path, Path(staging))
                else:
                    made, page = gallery.own_entry(path)
                    name, entry = made.name, gallery.of_own(made, f"{made.name}/report.html")
                    (Path(staging) / name).mkdir()
                    write(Path(staging) / name / "report.html", [render.html(page).encode()])
                if name in entries:
                    raise ControllerError("bundle-twice", suite=name)
                if name.lower() == INDEX:
                    raise ControllerError("suite-named-as-page", suite=name)
                shutil.rmtree(site / name, ignore_errors=True)
                (Path(staging) / name).replace(site / name)
            entries[name] = entry
        except (AgentError, OSError) as error:
            left_out.append(f"{path.name} was left out: {error}")
    if not entries:
        raise ControllerError("no-bundle-shown", folder=folder, left_out=" ".join(left_out))
    index = site / INDEX
    write(index, [gallery.html(list(entries.values())).encode()])
    return GalleryResult(not left_out, str(index), len(entries), tuple(left_out))


def _bundle_apart(path: Path, site: Path) -> tuple[str, Entry]:
    """Do as `_bundle` in a process that can take only so much."""
    if sandbox.IS_BOUNDED in os.environ:
        return _bundle(path, site)
    argv = ["controller.sharing.gallery", str(path), str(site)]
    done = sandbox.run(argv, [path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2].removeprefix("fde: ")
        raise ControllerError(reason or "it gave no reason")
    name, entry = strict_json.loads(done.stdout.rpartition("\n")[0].rpartition("\n")[2])
    return name, schema.read(Entry, entry)


def _bundle(path: Path, site: Path) -> tuple[str, Entry]:
    with opened([path]) as (folder,):
        made = reports.build(folder)
        assert made.results is not None
        name = made.results.suite.suite_id
        (site / name).mkdir(exist_ok=True)
        shutil.copyfile(made.page, site / name / "report.html")
        shutil.copyfile(path, site / name / f"{name}.tar.gz")
        places = f"{name}/report.html", f"{name}/{name}.tar.gz"
        return name, gallery.of_suite(made.results, *places)


def main() -> int:
    """Make the page of one bundle (arguments: the bundle, the site) and print its entry."""
    from controller.cli.app import guarded

    def made() -> int:
        name, entry = _bundle(Path(sys.argv[1]), Path(sys.argv[2]))
        print(json.dumps([name, asdict(entry)]))
        return 0

    return guarded(made)


if __name__ == "__main__":
    sys.exit(main())
