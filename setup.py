"""What pyproject.toml cannot say: folders that are no packages go into the wheel as fde_share/."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parent
SHARED = ("ansible", "data/examples", "data/reference", "data/schema")
FILES = ("CITATION.cff", "LICENSE")  # what a bundle of results has beside them


def share(library: Path) -> None:
    """Copy what is no package to where `contract/places.py` finds it beside our packages."""
    for name in SHARED:
        shutil.copytree(
            ROOT / name,
            library / "fde_share" / name,
            ignore=shutil.ignore_patterns("tests", "__pycache__", "secrets.json"),
            dirs_exist_ok=True,
        )
    for name in FILES:
        shutil.copyfile(ROOT / name, library / "fde_share" / name)


if __name__ == "__main__":  # what builds the package has setuptools; Python 3.12 itself has not
    from setuptools import setup
    from setuptools.command.build_py import build_py

    class BuildWithShare(build_py):
        """With what is shared beside the packages."""

        def run(self) -> None:
            super().run()
            share(Path(self.build_lib))

    setup(cmdclass={"build_py": BuildWithShare})
