"""Build steps that pyproject.toml cannot express: our folders go below `fde_testbed/`.

There their names do not clash with other packages, and the tests are left out.
"""

import shutil
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGES = ("agent", "analysis", "contract", "controller", "instrumentation", "workloads")
COLLECTION = Path("ansible_collections", "fde", "testbed")  # a link in a checkout
SHARED = {"ansible": COLLECTION} | {
    name: Path(name) for name in ("data/examples", "data/reference", "data/schema")
}
FILES = ("CITATION.cff", "LICENSE")  # copied into every bundle of results
INVENTORIES = ("hardware.example", "lab", "local", "media", "two-labs")
LEFT_OUT = shutil.ignore_patterns("tests", "__pycache__", "secrets*.json", ".*")


def from_git(*question: str) -> str:
    """Return git's answer about this checkout."""
    sys.path.insert(0, str(ROOT))
    from contract.git import ask_git

    answer = ask_git(ROOT, *question)
    if answer.returncode:
        sys.exit(f"Git cannot read {ROOT}: {answer.stderr.strip()}. Build from an unpacked sdist.")
    return answer.stdout


@cache
def tracked() -> set[str]:
    """Return the tracked files and their folders; empty in an sdist, which has only such files."""
    if not (ROOT / ".git").exists():
        return set()
    files = [Path(name) for name in from_git("ls-files", "-z").split("\0") if name]
    return {str(path) for file in files for path in (file, *file.parents)}


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return names to leave out of a package: untracked files, inventories of users."""
    included = INVENTORIES if Path(folder).name == "inventory" else names
    place, ours = Path(folder).relative_to(ROOT), tracked()
    stray = {name for name in names if ours and str(place / name) not in ours}
    return LEFT_OUT(folder, names) | (set(names) - set(included)) | stray


def commit() -> str:
    """Return the commit being built, from git or an sdist's file; empty if unknown."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text(encoding="utf-8")
    return from_git("rev-parse", "--short=12", "HEAD").strip() if (ROOT / ".git").exists() else ""


def place(package: Path) -> None:
    """Copy the files that `contract/places.py` looks for into the package being built."""
    folders = {name: package / name for name in PACKAGES}
    folders |= {name: package / "share" / path for name, path in SHARED.items()}
    for name, folder in folders.items():
        shutil.rmtree(folder, ignore_errors=True)  # an earlier build's
        shutil.copytree(ROOT / name, folder, ignore=left_out)
    for name in FILES:
        shutil.copyfile(ROOT / name, package / "share" / name)
    (package / "share" / "COMMIT").write_text(commit(), encoding="utf-8")


if __name__ == "__main__":  # what builds the package has setuptools; Python 3.12 itself has not
    from setuptools import setup
    from setuptools.command.build_py import build_py
    from setuptools.command.sdist import sdist

    class BuildWithPackages(build_py):
        """Build `fde_testbed` with all packages and shared files."""

        def run(self) -> None:
            super().run()
            if not self.editable_mode:
                place(Path(self.build_lib, "fde_testbed"))

    class SdistOfGit(sdist):
        """Take the tracked files, and record the commit, which an unpacked sdist cannot query."""

        def make_release_tree(self, base_dir: str, files: list[str]) -> None:
            metadata = {name for name in files if ".egg-info" in name}
            ours = sorted(metadata | (set(files) & tracked() or set(files)))
            super().make_release_tree(base_dir, ours)
            for listing in Path(base_dir).glob("*.egg-info/SOURCES.txt"):
                listing.unlink()  # it may be a link to this checkout's
                listing.write_text("\n".join([*ours, ""]), encoding="utf-8")
            Path(base_dir, "COMMIT").write_text(commit(), encoding="utf-8")

    setup(cmdclass={"build_py": BuildWithPackages, "sdist": SdistOfGit})
