"""Classes of the tree and of installed packages are loaded; a broken package affects no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract import extensions
from contract.extensions import ExtensionError, Group
from contract.tests.refusal import refuses

Install = Callable[..., None]
TREE = {
    "base": "class Animal: pass\n",
    "cat": "from zoo.base import Animal\nclass Cat(Animal):\n    name = 'cat'\n",
    "cub": "from zoo.cat import Cat\nclass Cub(Cat):\n    pass\n",
    "_dog": "raise AssertionError('what begins with _ is not looked at')\n",
}
DOG = "class Dog:\n    name = 'dog'\n"


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    (tmp_path / "zoo").mkdir()
    for name, text in {"__init__": "", **TREE}.items():
        (tmp_path / "zoo" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    _forget()
    yield Group("animal", "fde.test-animals", "zoo", "name")
    _forget()


def _forget() -> None:
    extensions.installed.cache_clear()
    extensions._modules.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] in ("zoo", "dogs", "wolves")]:
        del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Lays an installed package out: one entry point, and the module behind it."""

    def lay_out(package: str, name: str, module: str, text: str) -> None:
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{package.replace('-', '_')}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        line = f"[fde.test-animals]\n{name} = {module}:Dog\n"
        (info / "entry_points.txt").write_text(line)

    return lay_out


def test_classes_of_the_tree_are_listed_by_module(group: Group) -> None:
    assert group.names() == ("cat",)
    assert group.load("cat").__name__ == "Cat"
    with refuses("unknown-name", name="cad", nearest="did you mean cat?"):
        group.load("cad")


def test_an_installed_package_adds_a_class_loaded_on_demand(group: Group, install: Install) -> None:
    install("fde-dogs", "dog", "dogs", DOG)
    assert group.names() == ("cat", "dog")
    assert "dogs" not in sys.modules
    assert group.load("dog").__module__ == "dogs"


def test_a_duplicate_name_is_refused_with_both_packages(group: Group, install: Install) -> None:
    install("fde-dogs", "dog", "dogs", DOG)
    install("fde-wolves", "dog", "wolves", DOG)
    install("fde-cats", "cat", "dogs", DOG)
    assert group.names() == ("cat", "dog")
    with refuses("several-of-name", name="dog"):
        group.load("dog")
    with refuses("several-of-name", name="cat", packages="the testbed and fde-cats"):
        group.load("cat")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import not_there\n", "ModuleNotFoundError: No module named 'not_there'"),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
        ("class Other: pass\n", "AttributeError: module 'dogs' has no attribute 'Dog'"),
        ("class Dog:\n    name = 'wolf'\n", "dogs:Dog is no object whose name is the same"),
        ("Dog = 3\n", "dogs:Dog is no object whose name is the same"),
    ],
)
def test_a_broken_package_is_refused_and_others_still_load(
    group: Group, install: Install, text: str, why: str
) -> None:
    install("fde-dogs", "dog", "dogs", text)
    with pytest.raises(ExtensionError) as raised:
        group.load("dog")
    assert str(raised.value) == (
        f"The animal 'dog' of the package fde-dogs cannot be used ({why}): update the package or "
        "uninstall it."
    )
    assert group.load("cat").__name__ == "Cat"
