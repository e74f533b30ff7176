"""Load classes by name, from this tree and from installed packages.

In the tree a class has the name of its module: the class in `workloads/idle.py` whose `name` is
`idle`. An installed package declares its classes as entry points:

    [project.entry-points."fde.workloads"]
    mine = "my_package.mine:Mine"
"""

from __future__ import annotations

import functools
import pkgutil
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from contract.errors import AgentError
from contract.names import unknown_name


class ExtensionError(AgentError):
    """A name is unknown or ambiguous, or its package is broken; a sentence with the remedy."""


@dataclass(frozen=True)
class Group:
    """Classes of one sort, in this tree and in installed packages.

    `noun` names one of them in a sentence; `entry_points` is the packages' group, `package` holds
    the tree's classes, `attribute` is the class attribute with the name, `base` their base class.
    """

    noun: str
    entry_points: str
    package: str
    attribute: str
    base: type[Any] = object

    def names(self) -> tuple[str, ...]:
        """Return all names in order: those of the tree, then those of installed packages."""
        tree = [name for name in _modules(self.package) if self._in_tree(name)]
        return (*tree, *sorted({point.name for point in installed(self.entry_points)} - set(tree)))

    def load(self, name: str) -> type[Any]:
        """Return the class of that name; raises ExtensionError."""
        of_tree = self._in_tree(name)
        points = [point for point in installed(self.entry_points) if point.name == name]
        if len(points) + bool(of_tree) > 1:
            packages = [*(["the testbed"] if of_tree else []), *map(distribution, points)]
            raise ExtensionError(
                "several-of-name", what=self.noun, name=name, packages=" and ".join(packages)
            )
        if points:
            return self._of_package(points[0])
        if of_tree is None:
            raise ExtensionError(unknown_name(self.noun, name, self.names()))
        return of_tree

    def _in_tree(self, name: str) -> type[Any] | None:
        if name not in _modules(self.package):
            return None
        module = import_module(f"{self.package}.{name}")
        classes = (value for value in vars(module).values() if self._fits(value, name))
        return next((cls for cls in classes if cls.__module__ == module.__name__), None)

    def _of_package(self, point: EntryPoint) -> type[Any]:
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001  importing a package may raise anything
            reason = f"{type(error).__name__}: {error}"
        else:
            if self._fits(loaded, point.name):
                return loaded  # type: ignore[no-any-return]  # a class, as _fits has seen
            reason = f"{point.value} is no {self.base.__name__} whose {self.attribute} is the same"
        raise ExtensionError(
            "package-broken",
            what=self.noun,
            point=point.name,
            package=distribution(point),
            error=" ".join(reason.split()),
        )

    def _fits(self, candidate: object, name: str) -> bool:
        return (
            isinstance(candidate, type)
            and issubclass(candidate, self.base)
            and getattr(candidate, self.attribute, None) == name
        )


def distribution(point: EntryPoint) -> str:
    """Return the name of the installed package that declares an entry point."""
    return point.dist.name if point.dist else "?"


@functools.cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, cached: later installations are not seen."""
    return tuple(entry_points(group=group))


@functools.cache
def _modules(package: str) -> tuple[str, ...]:
    folder = import_module(package).__path__
    names = (module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)
    return tuple(sorted(name for name in names if not name.startswith("_")))
