"""What pyproject.toml cannot say: folders that are no packages go into the wheel as fde_share/."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
SHARED = ("ansible", "data/reference", "data/schema")
FILES = ("CITATION.cff", "LICENSE")  # what a bundle of results has beside them


class BuildWithShare(build_py):
    """`contract/places.py` finds them there."""

    def run(self) -> None:
        super().run()
        for name in SHARED:
            shutil.copytree(
                ROOT / name,
                Path(self.build_lib, "fde_share", name),
                ignore=shutil.ignore_patterns("tests", "__pycache__", "secrets.json"),
                dirs_exist_ok=True,
            )
        for name in FILES:
            shutil.copyfile(ROOT / name, Path(self.build_lib, "fde_share", name))


setup(cmdclass={"build_py": BuildWithShare})
