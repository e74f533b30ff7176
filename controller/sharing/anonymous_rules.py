"""Rules by which a field of a suite's documents is kept: `anonymous.yml` names them.

A rule is a function of the suite's `Names`, the value and its arguments in the file; it returns
what stands in an anonymous bundle, or LEFT_OUT. It keeps numbers, words of a closed vocabulary and
our own names; names that a user gave are numbered (`configuration-1`), ids have pseudonyms: an
HMAC-SHA256 under the sum of the suite's own manifest, so that no reader without the whole original
computes one. Wall times are moved so that the plan was made at midnight UTC.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent.checks.table import TABLE
from agent.provenance import PROGRAMS
from agent.storage import registry as storage_kinds
from agent.system.quiet import GROUPS
from contract.command_results import Identifying
from contract.errors import AgentError
from contract.extensions import ExtensionError
from contract.journal import CAUSES_OF_VOID, STATES
from contract.parameters import Parameter
from contract.places import ANSIBLE
from contract.plan import Configuration
from contract.problem import wording_tables, wordings_of
from controller.planning.known_names import SUITES
from controller.sharing import identifying_data
from instrumentation.accuracy import UNITS as UNITS_OF_ERRORS
from instrumentation.meters import registry as meter_kinds
from instrumentation.sources import registry as source_kinds
from workloads import registry as workload_kinds
from workloads.base import UNITS, WorkloadError

Rule = Any  # a text with a function's name, a mapping of fields, or a list with one member
LEFT_OUT = object()
FIELDS = Path(__file__).with_name("anonymous.yml")

_VERSION = re.compile(r"(?<![\d.])\d{1,4}(?:\.\d{1,6}){1,2}(?![\d.])")
_HEX = re.compile(r"[0-9a-f]{64}")


@cache
def fields() -> Mapping[str, Any]:
    """Read the file of all rules."""
    rules: Mapping[str, Any] = yaml.safe_load(FIELDS.read_text(encoding="utf-8"))
    return rules


@cache
def _form(name: str) -> re.Pattern[str]:
    return re.compile(fields()["forms"][name])


class Names:
    """What the names, times and sums of one suite become.

    `kept`: by field, texts that no vocabulary lists; `left_out` counts the fields without a rule,
    and values that a rule refused, by their place.
    """

    def __init__(self, key: bytes, identifying: Sequence[Identifying]) -> None:
        self._key = key
        self._marks = _marks(identifying)
        self._judged: dict[str, bool] = {}
        self._place = ""
        self.names: dict[tuple[str, str], str] = {}
        self.sums: dict[str, str] = {}
        self.runs: dict[str, str] = {}
        self.shift = timedelta()
        self.day = "00000000T000000Z"
        self.own_phases = True
        self.kept: dict[str, set[str]] = {}
        self.left_out: Counter[str] = Counter()

    def learn(self, plan: Mapping[str, Any]) -> None:
        """Learn from the plan how far wall times move, and the names of runs.

        Raises KeyError, TypeError and ValueError where the plan is none.
        """
        created = _instant(str(plan.get("created_wall")))
        if created is not None:
            self.shift = created - created.replace(hour=0, minute=0, second=0, microsecond=0)
            self.day = f"{created:%Y%m%d}T000000Z"
        known = workload_kinds.names()
        self.own_phases = all(
            str(entry.get("workload") or entry["name"]) in known for entry in plan["workloads"]
        )
        for kind in ("configuration", "workload"):
            for entry in plan[f"{kind}s"]:
                self.name(kind, str(entry["name"]))
        for run in plan["runs"]:
            named = "-".join(self.name(k, str(run[k])) for k in ("configuration", "workload"))
            repeat = f".{run['repeat']:d}" if "repeat" in run else ""
            new = f"{run['index']:04d}-b{run['block']:02d}-{named}{repeat}"
            self.runs[str(run["run_id"])] = new
        if len(set(self.runs.values())) < len(plan["runs"]):
            raise ValueError("two runs of the plan are one")

    def apply(self, rule: Rule, value: Any, place: str = "") -> Any:
        """Return what a rule keeps of a value, or LEFT_OUT."""
        if value is None:
            return None
        if isinstance(rule, Mapping):
            return self._fields(rule, value, place)
        if isinstance(rule, list):
            items = value if isinstance(value, list) else ()
            kept_items = (self.apply(rule[0], item, place) for item in items)
            return [item for item in kept_items if item is not LEFT_OUT]
        name, *arguments = rule.split()
        self._place = place
        kept = RULES[name](self, value, *arguments)
        if kept is LEFT_OUT:
            self.left_out[place] += 1
        return kept

    def _fields(self, rule: Mapping[str, Rule], value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            return LEFT_OUT
        others = next((key for key in rule if key.startswith("<")), "")
        made: dict[str, Any] = {}
        for field, inner in value.items():
            where = f"{place}.{field if field in rule else others or field}"
            name: Any = field
            if field not in rule and not others:
                self.left_out[where] += 1
                continue
            if field not in rule:
                name = self.apply(others[1:-1], str(field), where)
            if name is not LEFT_OUT:
                kept = self.apply(rule.get(field, rule.get(others)), inner, where)
                made |= {} if kept is LEFT_OUT else {str(name): kept}
        return made

    def digest(self, text: str) -> str:
        """Return a text's HMAC, 64 hexadecimal digits."""
        data = text.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()

    def identifies(self, text: str) -> bool:
        """Whether a text holds a mark that was found elsewhere in the suite, or has its form."""
        if text not in self._judged:
            low = text.lower()
            addresses = identifying_data.ADDRESS.finditer(text)
            self._judged[text] = bool(
                self._marks.search(low)
                or self._marks.search(re.sub(r"[:-]", "", low))
                or any(pattern.search(text) for pattern in identifying_data.PATTERNS.values())
                or any(identifying_data.is_address(match[0]) for match in addresses)
            )
        return self._judged[text]

    def name(self, kind: str, text: str, *, ours: bool | None = None) -> str:
        """Keep a name that is `ours`, by its words; another becomes the next number of its kind."""
        if (kind, text) not in self.names:
            taken = {name for (group, _), name in self.names.items() if group == kind}
            joint = "_" if kind == "channel" else "-"
            numbered = (f"{kind}{joint}{n}" for n in itertools.count(1))
            kept = is_ours(text) if ours is None else ours
            free = itertools.chain([text] * kept, numbered)
            self.names[kind, text] = next(candidate for candidate in free if candidate not in taken)
        return self.names[kind, text]

    def note(self, text: str) -> str:
        """Note a text that is kept although no vocabulary lists it."""
        self.kept.setdefault(self._place, set()).add(text)
        return text

    def run_id(self, text: str) -> Any:
        """Rename a planned run, or a void try of one."""
        name, void, number = text.partition(".void-")
        if name not in self.runs or (void and not re.fullmatch(r"\d{1,4}", number)):
            return LEFT_OUT
        return f"{self.runs[name]}{void}{number}"


def _instant(wall: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(wall)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)


def _marks(identifying: Sequence[Identifying]) -> re.Pattern[str]:
    """Return a pattern of identifying texts in lower case, with and without their separators."""
    texts = {mark.text.lower() for mark in identifying}
    texts |= {text.split(".")[0] for text in texts} | {re.sub(r"[:-]", "", text) for text in texts}
    long = [text for text in texts if len(text) >= identifying_data.LEAST]
    return re.compile("|".join(map(re.escape, long)) or r"(?!)")


@cache
def _shipped() -> tuple[frozenset[str], frozenset[str]]:
    """Sentences and words of the suites and drives that come with the testbed."""
    texts = {*fields()["suites"], *fields()["words"], *workload_kinds.names()}
    texts |= set(storage_kinds.names())
    paths = [SUITES / f"{name}.yml" for name in fields()["suites"]]
    for path in (*paths, ANSIBLE / "playbooks" / "group_vars" / "labs.yml"):
        texts |= set(_scalars(yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)))
    words = {word for text in texts for word in re.findall(r"[a-z0-9]+", text.lower())}
    return frozenset(texts), frozenset(words)


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from _scalars(inner)
    else:
        yield str(value)


def is_ours(name: str) -> bool:
    """Whether a name is made of words that the testbed's own suites and drives have."""
    return all(word in _shipped()[1] for word in re.split(r"[-_.]", name))


def _number(_: Names, value: Any) -> Any:
    return value if isinstance(value, int | float) else LEFT_OUT


def _numbers(names: Names, value: Any) -> Any:
    """Numbers, in lists of lists."""
    if isinstance(value, list):
        return [number for inner in value if (number := _numbers(names, inner)) is not LEFT_OUT]
    return _number(names, value)


def _digits(_: Names, value: Any) -> Any:
    """Keep a number, or the text of one, as sysfs has them."""
    short = isinstance(value, str) and re.fullmatch(r"0x[0-9a-f]{1,8}|\d{1,10}", value)
    return value if short or isinstance(value, int | float) else LEFT_OUT


def _one_of(_: Names, value: Any, *words: str) -> Any:
    return value if value in words else LEFT_OUT


def _form_of(names: Names, value: Any, form: str, *otherwise: str) -> Any:
    """Keep a text of a form that leaves hardly room for a name."""
    sound = isinstance(value, str) and _form(form).fullmatch(value) and not names.identifies(value)
    return value if sound else next(iter(otherwise), LEFT_OUT)


def _cipher_name(_: Names, value: Any) -> Any:
    """Keep the name of a cipher or of its driver."""
    words = set(re.split(r"[()_:+,-]", str(value)))
    return value if words <= {"", *fields()["cipher_words"].split()} else LEFT_OUT


def _begins(names: Names, value: Any, form: str, *otherwise: str) -> Any:
    """As much of a text as has this form."""
    match = _form(form).match(value) if isinstance(value, str) else None
    sound = match and not names.identifies(match[0])
    return match[0] if match and sound else next(iter(otherwise), LEFT_OUT)


@cache
def _known_codes() -> frozenset[str]:
    """Collect the words for machines that the testbed writes."""
    flags = {word for kind in meter_kinds.kinds() for word in meter_kinds.load(kind).flag_words}
    codes = {
        *fields()["codes"].split(),
        *itertools.chain(*wording_tables("agent/storage").values()),
        *(check.name for check in TABLE),
    }
    codes.update(*map(wordings_of, ("agent", "contract")))
    return frozenset({"", *codes, *flags, *CAUSES_OF_VOID, *meter_kinds.kinds()})


def _code(_: Names, value: Any, *otherwise: str) -> Any:
    """Keep a word for machines that is one of ours."""
    return value if str(value) in _known_codes() else next(iter(otherwise), LEFT_OUT)


def _codes(names: Names, value: Any) -> Any:
    """Several of them, with commas or spaces between."""
    codes = (_code(names, word) for word in re.split(r"[, ]+", str(value)))
    return ", ".join(word for word in codes if word is not LEFT_OUT)


def _coded(names: Names, value: Any, kind: str) -> str:
    """Keep a word for machines; a number replaces one that identifies."""
    return names.name(kind, str(value), ours=_code(names, value) is not LEFT_OUT)


def _source(names: Names, value: Any) -> str:
    """Keep the name of a reader of counters; a number replaces an unknown one."""
    return names.name("source", str(value), ours=value in ("rapl", *source_kinds.names()))


def _phase(names: Names, value: Any) -> str:
    """Keep a phase's name; a number replaces one that a foreign workload may have chosen."""
    ours = names.own_phases and _form_of(names, value, "code") is not LEFT_OUT
    return names.name("phase", str(value), ours=ours or is_ours(str(value)))


def _of_form(names: Names, value: Any, form: str) -> str:
    """Keep a name of this form; a number replaces any other."""
    return names.name(form, str(value), ours=_form_of(names, value, form) is not LEFT_OUT)


def _pseudonym(names: Names, value: Any, kind: str, start: str = "") -> str:
    return f"{start}{kind}-{names.digest(str(value))[:12]}"


def _boot(names: Names, value: Any) -> str:
    """Return a pseudonym for the id of a boot, as a UUID."""
    d = names.digest(str(value))
    return f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}"


def _sha256(names: Names, value: Any) -> Any:
    """Return the sum of a document as it was written here; of any other file a pseudonym."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        return LEFT_OUT
    return names.sums.get(value) or names.digest(value)


def _wall(names: Names, value: Any) -> Any:
    moment = _instant(str(value))
    return LEFT_OUT if moment is None else (moment - names.shift).isoformat(timespec="seconds")


def _shown(names: Names, value: Any, form: str = "model") -> Any:
    """Keep a model or a firmware's version, which no vocabulary lists, unless it identifies."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    kept = _form_of(names, text, form)
    return kept if kept is LEFT_OUT else names.note(text)


def _sentence(_names: Names, value: Any) -> str:
    """Keep a sentence of our own suites, with or without the name of a scale."""
    scale, _, rest = value.partition(": ") if isinstance(value, str) else ("", "", "")
    ours = value in _shipped()[0] or (rest in _shipped()[0] and is_ours(scale))
    return str(value) if ours else ""


def _version(_: Names, value: Any) -> Any:
    """Keep the first version number in a program's output."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}(?:\.\d{1,6}){1,3}", value):
        return value
    match = _VERSION.search(value) if isinstance(value, str) else None
    return match[0] if match else LEFT_OUT


def _uname(names: Names, value: Any) -> Any:
    """System, host, release and kind of processor; not who built the kernel, and when."""
    system, node, release, *rest = [*map(str, value), "", "", ""]
    machine = next(
        (word for word in rest if word in ("x86_64", "aarch64", "armv7l", "riscv64")), ""
    )
    known = "Linux" if system == "Linux" else ""
    return [known, _pseudonym(names, node, "host"), _begins(names, release, "release", ""), machine]


def _command_line(names: Names, value: Any) -> str:
    """Keep the kernel parameters that change how fast a machine is or what it draws."""
    wanted, words = fields()["kernel_parameters"].split(), str(value).split()
    kept = [
        word
        for word in words
        if (parts := word.partition("="))[0] in wanted
        and (not parts[1] or _form("parameter").fullmatch(parts[2]))
    ]
    names.left_out["words of the kernel's command line"] += len(words) - len(kept)
    return " ".join(kept)


def _options(names: Names, value: Any) -> Any:
    """Options of mkfs and mount: numbers, known words, and UUIDs as pseudonyms."""
    if isinstance(value, list):
        return [_options(names, option) for option in value]

    def part(text: str) -> str:
        if identifying_data.PATTERNS["UUID"].fullmatch(text):
            return _boot(names, text)
        known = re.fullmatch(r"--?[A-Za-z]|-?\d{1,12}[KMGkmg]?", text)
        return text if known or text.lstrip("^-") in fields()["options"].split() else "left-out"

    return ",".join("=".join(map(part, option.split("="))) for option in str(value).split(","))


def _configurations(names: Names, value: Any) -> Any:
    """Storage stacks, with the settings that their kinds declare."""
    return [_configuration(names, entry) for entry in value]


def _configuration(names: Names, entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        declared = storage_kinds.load(str(entry.get("kind"))).fields
    except ExtensionError:
        declared = ()
    declared_names = {"label", *(parameter.name for parameter in declared)}
    made: dict[str, Any] = names.apply(
        fields()["documents"]["configuration"],
        {key: value for key, value in entry.items() if key not in declared_names},
        "configurations",
    )
    settings = _declared(declared, entry)
    label = _sentence(names, entry.get("label"))
    try:
        stack = Configuration(made["name"], made["kind"], made["disk"], settings)
        label = label or storage_kinds.label(stack)
    except (AgentError, KeyError, ValueError, TypeError):
        label = label or made["name"]
    return {**made, "label": label, **settings}


def _declared(declared: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Of declared settings: numbers, their choices, their defaults, and texts of our suites."""

    def kept(parameter: Parameter, value: Any) -> Any:
        if not isinstance(value, str):
            return value if isinstance(value, int | float | None) else "left-out"
        allowed = {*map(str, parameter.choices), str(parameter.default), "", *_shipped()[0]}
        words = value.split(",") if parameter.several else [value]
        sound = all(word in allowed or re.fullmatch(r"\d{1,12}", word) for word in words)
        return value if sound else "left-out"

    return {
        parameter.name: kept(parameter, values[parameter.name])
        for parameter in declared
        if parameter.name in values
    }


def _workloads(names: Names, value: Any) -> Any:
    """Entries of a suite, with the parameters that their workloads declare."""
    made = []
    for entry in value:
        stated = {key: stated_value for key, stated_value in entry.items() if key != "parameters"}
        workload = names.apply(fields()["documents"]["workload"], stated, "workloads")
        name = str(entry.get("workload") or entry.get("name"))
        made.append(
            {**workload, "parameters": _declared(_parameters(name), entry.get("parameters") or {})}
        )
    return made


def _parameters(workload: str) -> Sequence[Parameter]:
    try:
        return workload_kinds.load(workload).parameters
    except WorkloadError:
        return ()


def _run_parameters(_: Names, value: Any) -> Any:
    """Of a run, which names its entry of the plan alone: what any workload declares."""
    parameters: dict[str, Any] = {}
    for name in workload_kinds.names():
        kept = _declared(_parameters(name), value)
        parameters |= {
            key: kept_value
            for key, kept_value in kept.items()
            if parameters.get(key, "left-out") == "left-out"
        }
    return {key: parameters[key] for key in value if key in parameters}


def kept_name(names: Names, name: str) -> str:
    """Return what the report that a workload kept of a phase is called."""
    return f"{_phase(names, name.removesuffix('.json'))}.json"


def _kept_files(names: Names, value: Any) -> dict[str, str]:
    """Return the sums of the reports that were written here, by their names."""
    return {
        kept_name(names, path): names.sums[sha256]
        for path, sha256 in value.items()
        if sha256 in names.sums and path.endswith(".json") and "/" not in path
    }


@cache
def _programs() -> frozenset[str]:
    return frozenset(workload_kinds.load(name).program for name in workload_kinds.names())


RULES: Mapping[str, Callable[..., Any]] = {
    "number": _number,
    "numbers": _numbers,
    "digits": _digits,
    "one_of": _one_of,
    "form": _form_of,
    "cipher_name": _cipher_name,
    "begins": _begins,
    "code": _code,
    "codes": _codes,
    "coded": _coded,
    "phase": _phase,
    "zone": lambda names, value: _of_form(names, value, "zone"),
    "layer": lambda names, value: _of_form(names, value, "layer"),
    "own_channel": lambda names, value: _of_form(names, value, "own_channel"),
    "named": lambda names, value, kind: names.name(kind, str(value)),
    "host": lambda names, value: _pseudonym(names, value, "host"),
    "serial": lambda names, value: _pseudonym(names, value, "serial"),
    "by_id": lambda names, value: _pseudonym(names, value, "disk", "/dev/disk/by-id/"),
    "digest": lambda names, value: names.digest(str(value)),
    "boot": _boot,
    "sha256": _sha256,
    "wall": _wall,
    "run_id": lambda names, value: "" if value == "" else names.run_id(str(value)),
    "shown": _shown,
    "sentence": _sentence,
    "empty": lambda *_: "",
    "left_out": lambda *_: "left-out",
    "no_files": lambda *_: {},
    "kept_files": _kept_files,
    "version": _version,
    "uname": _uname,
    "command_line": _command_line,
    "options": _options,
    "configurations": _configurations,
    "workloads": _workloads,
    "run_parameters": _run_parameters,
    "one_of_workloads": lambda names, value: _one_of(names, value, *workload_kinds.names()),
    "storage_kind": lambda _, value: value if value in storage_kinds.names() else "left-out",
    "source": _source,
    "error_term": lambda _, value: value if value in UNITS_OF_ERRORS else "",
    "work_unit": lambda names, value: _one_of(names, value, *UNITS),
    "quiet_group": lambda names, value: _one_of(names, value, *GROUPS),
    "journal_state": lambda names, value: _one_of(names, value, *STATES),
    "program": lambda _, value: value if value in _programs() else "",
    "program_name": lambda names, value: _one_of(names, value, *PROGRAMS, "python", "pyRAPL"),
    "write_cache": lambda names, value: _one_of(names, value, "write back", "write through"),
}
