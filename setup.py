"""What pyproject.toml cannot express: our folders go into the wheel below `fde_testbed/`.

There they share no name with other people's packages, and the tests stay out.
"""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGES = ("agent", "analysis", "contract", "controller", "instrumentation", "workloads")
COLLECTION = Path("ansible_collections", "fde", "testbed")  # a link in a checkout
SHARED = {"ansible": COLLECTION} | {
    name: Path(name) for name in ("data/examples", "data/reference", "data/schema")
}
FILES = ("CITATION.cff", "LICENSE")  # what a bundle of results has beside them
INVENTORIES = ("hardware.example", "lab", "local", "media", "two-labs")
LEFT_OUT = shutil.ignore_patterns("tests", "__pycache__", "secrets*.json", ".*")


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return what stays out of a package: inventories of users name their hosts and disks."""
    kept = INVENTORIES if Path(folder).name == "inventory" else names
    return LEFT_OUT(folder, names) | (set(names) - set(kept))


def commit() -> str:
    """Return the commit that is built; an sdist has it in a file. Empty where nothing has it."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text(encoding="utf-8")
    if not (ROOT / ".git").exists():
        return ""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(asked, capture_output=True, encoding="utf-8", check=False).stdout.strip()


def place(package: Path) -> None:
    """Copy what `contract/places.py` looks for into the package that is built."""
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
        """Build `fde_testbed` with all that belongs to it."""

        def run(self) -> None:
            super().run()
            if not self.editable_mode:
                place(Path(self.build_lib, "fde_testbed"))

    class SdistWithCommit(sdist):
        """Keep the commit, which an unpacked sdist cannot ask for."""

        def make_release_tree(self, base_dir: str, files: list[str]) -> None:
            super().make_release_tree(base_dir, files)
            Path(base_dir, "COMMIT").write_text(commit(), encoding="utf-8")

    setup(cmdclass={"build_py": BuildWithPackages, "sdist": SdistWithCommit})
