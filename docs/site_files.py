"""MkDocs hook: publish the repository's Markdown files, each at its own path.

So a link between pages is the same in a checkout and on the site, and a strict build checks all of
them. Of other files the site has those that a page links to, and what `make docs` has written
below `build/site-parts`: the executed notebook and the report of an example.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PARTS = Path(os.environ.get("FDE_BUILD", ROOT / "build"), "site-parts")
LINK = re.compile(r"\]\(([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the content of docs_dir by the repository's pages, and what these link to."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    tracked = set(_git_files())
    pages = {path for path in tracked if path.endswith(".md")}
    linked = {
        posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        for page in pages
        for target in LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    }
    for path in sorted(pages | (linked | {*config.extra_css}) & tracked):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for file in filter(Path.is_file, PARTS.rglob("*")):
        path = file.relative_to(PARTS).as_posix()
        files.append(File.generated(config, path, abs_src_path=str(file)))
    return files


def _git_files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [path for path in listing.stdout.split("\0") if path and (ROOT / path).is_file()]
