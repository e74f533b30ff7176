"""Check an inventory's YAML files for what Ansible would change or ignore, with file and line."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import yaml

from contract.errors import ControllerError
from contract.names import unknown_name
from contract.places import ANSIBLE
from contract.problem import Problem, wordings_of
from controller.planning.known_names import inventories_beside

_PREFIXES = ("fde_", "ansible_")
_SUFFIXES = ("", ".yml", ".yaml", ".json")
_HOST_SUFFIXES = (*_SUFFIXES, ".ini")
_VARIABLES = ("group_vars", "host_vars")
_IGNORED = re.compile(r"\.|.*~$")
_OURS = re.compile(r"""^[\s"'{]*(fde_|ansible_)\w|\A\$ANSIBLE_VAULT;""", re.MULTILINE)
_VAULT = b"$ANSIBLE_VAULT;"
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)")
_INDEX = re.compile(r"\[\d+\]")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _names(pattern: str) -> frozenset[str]:
    """Return the names of a pattern in our roles and playbooks."""
    files = [*ANSIBLE.glob("roles/*/*/main.yml"), *ANSIBLE.glob("playbooks/**/*.yml")]
    texts = (file.read_text(encoding="utf-8") for file in files)
    return frozenset(name for text in texts for name in re.findall(pattern, text, re.MULTILINE))


@cache
def _ansible_sources() -> str:
    """Return the settings and plugins of Ansible, which name the variables that they read."""
    folder = Path(str(distribution("ansible-core").locate_file("ansible")))
    files = [folder / "constants.py", *folder.glob("plugins/*/*.py")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def unknown_variables(names: Iterator[str]) -> Iterator[Problem]:
    """Yield a problem for each name of ours that nothing reads."""
    variables = _names(r"^ *(fde_\w+):")
    for name in sorted(n for n in names if n.startswith("fde_") and n not in variables):
        yield unknown_name("variable", name, sorted(variables))


def _misspelt(name: str) -> Iterator[Problem]:
    """Yield a problem for a name that nothing reads: ours, or one like Ansible's that we use."""
    yield from unknown_variables(iter([name]))
    variables = _names(r"\b(ansible_[a-z]+(?:_[a-z]+)*)\b")
    unusual = name.startswith("ansible_") and name not in variables
    near = get_close_matches(name, variables, n=1, cutoff=0.8) if unusual else []
    if near and not re.search(rf"\b{re.escape(name)}\b", _ansible_sources()):
        yield unknown_name("variable", name, near)


@dataclass(frozen=True)
class _Entry:
    """A value of a variable: its place, and its text and type if it is a scalar."""

    place: str
    text: str
    kind: str

    @property
    def reading(self) -> str:
        """Return in words what YAML makes of the text."""
        if self.kind not in ("int", "float", "bool"):
            return {"timestamp": "a date", "null": "no value"}.get(self.kind, "no text")
        value = str(yaml.safe_load(self.text)).lower()
        if self.kind == "bool":
            return value
        return "a number" if value == self.text else f"the number {value}"

    def is_changed(self, variable: str) -> bool:
        """Return whether YAML takes the text for something that people rarely mean."""
        text = self.text.replace("_", "") if variable.endswith("_bytes") else self.text
        return (
            self.kind == "timestamp"
            or (self.kind == "int" and not _DECIMAL.fullmatch(text))
            or (self.kind == "float" and re.search("[_:]", text) is not None)
        )


class InventoryFiles:
    """The variables of an inventory's YAML files with their places.

    Of INI files only names and contradictions are checked; programs, plugins' settings and vaults
    are left to Ansible.
    """

    def __init__(self, inventory: Path) -> None:
        """Read the files; raises ControllerError with every fault, or if there are none."""
        self._entries: dict[str, list[_Entry]] = defaultdict(list)
        self._problems: list[Problem] = []
        self._owned: dict[tuple[str, str], tuple[str, str]] = {}  # text and place by owner
        if not inventory.exists():
            neighbours = inventories_beside(inventory)
            unknown = unknown_name("inventory", str(inventory), neighbours)
            raise ControllerError(
                unknown if neighbours else _problem("not-found", inventory=inventory)
            )
        self._is_folder = inventory.is_dir()
        self._folder = inventory if self._is_folder else inventory.parent
        for file in _host_files(inventory):
            self._read_hosts(file)
        for name in _VARIABLES:
            for file in _files_below(self._folder / name):
                root = self._compose(file)
                if root is not None:
                    self._read_variables(file, root)
        if self._problems:
            raise ControllerError(*self._problems)

    def refuse_unread(self, owners: Mapping[str, Collection[str]]) -> None:
        """Raise ControllerError for files of variables that Ansible does not read.

        `owners` are Ansible's groups and hosts as `group_vars` and `host_vars`; of one name it
        takes the first suffix. Files next to an inventory of one file may be of another inventory.
        """
        for name, names in owners.items():
            for file in sorted(self._folder.glob(f"{name}/*")):
                owner = file.stem if file.suffix in _SUFFIXES else file.name
                paths = [file.with_name(owner + suffix) for suffix in _SUFFIXES]
                read = next(filter(Path.exists, paths), file)
                is_copy = file.suffix not in _SUFFIXES and file.with_suffix("").is_file()
                if is_copy or _IGNORED.match(file.name):
                    continue
                if read != file:
                    self._refuse(file, 1, "variables-hidden", read=read)
                elif self._is_folder and owner not in names and _has_ours(file):
                    unknown = unknown_name(name.removesuffix("_vars"), owner, sorted(names))
                    self._refuse(file, 1, "owner-unread", reason=unknown.sentence)
        if self._problems:
            raise ControllerError(*self._problems)

    def located(self, problem: Problem, host: str) -> Problem:
        """Return the problem with the place of the host's variable in front, if a file has it."""
        variable = str(problem.facts.get("variable", ""))
        others = re.compile(rf".*/host_vars/(?!{re.escape(host)}[./:])")
        entries = self._entries.get(_INDEX.sub("", variable), [])
        entries = [entry for entry in entries if not others.match(entry.place)]
        if problem.code == "not-text":
            entries = [e for e in entries if e.kind not in ("str", "seq", "map")]
            if entries:
                problem = _changed("text-changed", variable, entries[0])
        if not entries:
            return problem
        return _at(entries[0].place, problem)

    def _refuse(self, file: Path, line: int, code: str, **facts: object) -> None:
        self._problems.append(_at(f"{file}:{line}", _problem(code, **facts)))

    def _compose(self, file: Path) -> yaml.Node | None:
        """Return the root node of a file; None if it is empty, unreadable, a vault or refused."""
        try:
            content = file.read_bytes()
        except OSError:  # Ansible says why
            return None
        if content.startswith(_VAULT):
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self._refuse(file, content[: error.start].count(b"\n") + 1, "not-utf8")
            return None
        root: yaml.Node | None = None
        try:
            root = yaml.compose(text, Loader=_LOADER)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            reason = getattr(error, "problem", None) or str(error).splitlines()[0]
            if file.suffix:
                self._refuse(file, mark.line + 1 if mark else 1, "not-yaml", reason=reason)
        return root

    def _read_hosts(self, file: Path) -> None:
        root = None if file.suffix == ".ini" else self._compose(file)
        keys = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
        is_ini = not keys and file.suffix in ("", ".ini")
        if {"luks_passphrase", "opal_admin_pin", "sed_psid"} & {*keys}:
            self._refuse(file, 1, "secrets-read")
        elif "plugin" not in keys and (file.suffix or keys) and root is not None:
            self._read_groups(file, root)
        elif is_ini:
            self._read_ini(file)

    def _read_groups(self, file: Path, node: yaml.Node) -> None:
        for group, body in self._pairs(file, node, "The list of groups"):
            for section, entries in self._pairs(file, body, f"The group {group.value}"):
                if section.value == "children":
                    self._read_groups(file, entries)
                elif section.value == "vars":
                    self._read_variables(file, entries, f"group {group.value}")
                elif section.value == "hosts":
                    for host, variables in self._pairs(file, entries, f"hosts of {group.value}"):
                        self._read_variables(file, variables, host.value)

    def _read_ini(self, file: Path) -> None:
        """Compare the variables of an INI file: Ansible takes the last of two values."""
        section, kind = "ungrouped", ""
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(map(str.strip, lines), 1):
            if line.startswith("\ufeff"):
                self._refuse(file, 1, "byte-order-mark")
                return
            if match := re.match(r"\[([^:\]]+):?(\w*)\]", line):
                section, kind = match[1], match[2]
            elif kind != "children" and not line.startswith(("#", ";")):
                self._read_line(f"{file}:{number}", line, f"group {section}" if kind else "")

    def _read_line(self, place: str, line: str, owner: str) -> None:
        """Read `NAME=VALUE` of an owner, or `HOST NAME=VALUE …`; Ansible reports bad syntax."""
        try:
            words = [line] if owner else shlex.split(line, comments=True)
        except ValueError:
            return
        if words and not owner:
            owner, *words = words
        for word in words:
            key, _, value = (part.strip() for part in word.partition("="))
            if key.startswith(_PREFIXES):
                self._problems += [_at(place, p) for p in _misspelt(key)]
                self._compare(owner, key, value, place)

    def _read_variables(self, file: Path, node: yaml.Node, owner: str = "") -> None:
        """Read the variables of a file; two values of an `owner`, a host or group, are refused."""
        for key, value in self._pairs(file, node, "The list of variables"):
            if key.value.startswith(_PREFIXES):
                if owner:
                    self._compare(owner, key.value, yaml.serialize(value), _place(file, key))
                self._problems += [_at(_place(file, key), p) for p in _misspelt(key.value)]
                self._read_value(file, key.value, value, set())

    def _compare(self, owner: str, variable: str, text: str, place: str) -> None:
        first_text, first = self._owned.setdefault((owner, variable), (text, place))
        if text.strip() != first_text.strip():
            facts = {"owner": owner, "variable": variable, "first": first}
            self._problems.append(_at(place, _problem("values-differ", **facts)))

    def _read_value(self, file: Path, path: str, node: yaml.Node, read: set[int]) -> None:
        if not isinstance(node, yaml.ScalarNode):
            if id(node) in read:  # an alias, perhaps within its own anchor
                return
            read.add(id(node))
        kind = node.tag.rpartition(":")[2]
        entry = _Entry(_place(file, node), str(node.value), kind)
        self._entries[path].append(entry)
        if isinstance(node, yaml.MappingNode):
            for key, value in self._pairs(file, node, path):
                self._read_value(file, f"{path}.{key.value}", value, read)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._read_value(file, path, item, read)
        elif entry.is_changed(path):
            self._problems.append(_at(entry.place, _changed("value-changed", path, entry)))

    def _pairs(
        self, file: Path, node: yaml.Node, subject: str
    ) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """Yield the keys and values of a mapping; refuse a key that is twice there or no text."""
        if node.tag.endswith(":null") or (isinstance(node, yaml.ScalarNode) and "{{" in node.value):
            return
        if not isinstance(node, yaml.MappingNode):
            self._refuse(file, node.start_mark.line + 1, "not-mapping", subject=subject)
            return
        names = set()
        for key, value in node.value:
            text = key.value if isinstance(key, yaml.ScalarNode) else "[…]"
            entry = _Entry(_place(file, key), text, key.tag.rpartition(":")[2])
            if entry.kind == "merge":
                continue
            if entry.kind != "str" or key.value in names:
                code = "key-twice" if entry.kind == "str" else "key-changed"
                problem = _problem(code, key=entry.text, reading=entry.reading)
                self._problems.append(_at(entry.place, problem))
            else:
                names.add(key.value)
                yield key, value


def _host_files(inventory: Path) -> Iterator[Path]:
    files = [inventory]
    if inventory.is_dir():
        files = [path for path in sorted(inventory.iterdir()) if path.name not in _VARIABLES]
    for file in files:
        for inner in _files_below(file) if file.is_dir() else [file]:
            names = inner.relative_to(file.parent).parts
            # As ansible.cfg has it, files of secrets are no inventories.
            ignored = any(_IGNORED.match(name) or name.startswith("secrets") for name in names)
            is_program = inner.stat().st_mode & 0o111 and not inner.suffix
            if not ignored and inner.suffix in _HOST_SUFFIXES and not is_program:
                yield inner


def _files_below(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        names = file.relative_to(folder).parts
        if file.is_file() and file.suffix in _SUFFIXES and not any(map(_IGNORED.match, names)):
            yield file


def _has_ours(path: Path) -> bool:
    """Return whether a file, or one below a folder, has variables of ours or is a vault."""
    files = [file for file in (path, *path.rglob("*")) if file.is_file()]
    return any(_OURS.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)


def _place(file: Path, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _at(place: str, problem: Problem) -> Problem:
    return replace(problem, sentence=f"{place}: {problem.sentence}")


def _changed(code: str, variable: str, entry: _Entry) -> Problem:
    return _problem(code, variable=variable, text=entry.text, reading=entry.reading)


def _problem(code: str, **facts: object) -> Problem:
    return Problem.from_wording(wordings_of("controller/targets", "inventory_files"), code, facts)
