"""Rules by which a field of a suite's documents is kept: `anonymous.yml` names them.

A rule is a method of `Names` with the value and its arguments in the file; it returns what stands
in an anonymous bundle, or LEFT_OUT. It keeps numbers, words of a closed vocabulary and
our own names; names that a user gave are numbered (`configuration-1`), ids have pseudonyms: an
HMAC-SHA256 under the sum of the suite's own manifest, so that no reader without the whole original
computes one. Wall times are moved so that the plan was made at midnight UTC.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

Rule = Any  # a text with a method's name, a mapping of fields, or a list with one member
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


@cache
def _words_of(rule: str) -> list[str]:
    return shlex.split(rule)


@cache
def _vocabularies() -> Mapping[str, Sequence[str]]:
    """Collect the words for machines of each kind."""
    workloads = workload_kinds.names()
    return {
        "caches": ["write back", "write through"],
        "error_units": list(UNITS_OF_ERRORS),
        "journal_states": list(STATES),
        "programs": [*PROGRAMS, "python", "pyRAPL"],
        "quiet_groups": list(GROUPS),
        "storage_kinds": storage_kinds.names(),
        "work_units": list(UNITS),
        "workload_programs": [workload_kinds.load(name).program for name in workloads],
        "workloads": workloads,
    }


class Names:
    """What the names, times and sums of one suite become, and the rules by which fields are kept.

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
        name, *arguments = _words_of(rule)
        self._place = place
        kept = getattr(self, name)(value, *arguments)
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

    def digest(self, value: Any) -> str:
        """Return a text's HMAC, 64 hexadecimal digits."""
        data = str(value).encode("utf-8", "surrogatepass")
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

    def run_id(self, text: str) -> Any:
        """Rename a planned run, or a void try of one."""
        name, void, number = text.partition(".void-")
        if name and (name not in self.runs or (void and not re.fullmatch(r"\d{1,4}", number))):
            return LEFT_OUT
        return f"{self.runs[name]}{void}{number}" if name else ""

    def put(self, _value: Any, text: str) -> str:
        """Put a text in place of any value."""
        return text

    def no_files(self, _value: Any) -> dict[str, str]:
        """Put an empty mapping in place of any value."""
        return {}

    def number(self, value: Any) -> Any:
        """Keep a number."""
        return value if isinstance(value, int | float) else LEFT_OUT

    def numbers(self, value: Any) -> Any:
        """Keep numbers, in lists of lists."""
        if isinstance(value, list):
            return [number for v in value if (number := self.numbers(v)) is not LEFT_OUT]
        return self.number(value)

    def digits(self, value: Any) -> Any:
        """Keep a number, or the text of one, as sysfs has them."""
        short = isinstance(value, str) and re.fullmatch(r"0x[0-9a-f]{1,8}|\d{1,10}", value)
        return value if short else self.number(value)

    def one_of(self, value: Any, *words: str) -> Any:
        """Keep one of these words."""
        return value if value in words else LEFT_OUT

    def word(self, value: Any, vocabulary: str, otherwise: Any = LEFT_OUT) -> Any:
        """Keep a word of a vocabulary."""
        return value if value in _vocabularies()[vocabulary] else otherwise

    def form(self, value: Any, form: str, otherwise: Any = LEFT_OUT) -> Any:
        """Keep a text of a form that leaves hardly room for a name."""
        sound = isinstance(value, str) and _form(form).fullmatch(value)
        return value if sound and not self.identifies(value) else otherwise

    def begins(self, value: Any, form: str, otherwise: Any = LEFT_OUT) -> Any:
        """Keep as much of a text as has this form."""
        match = _form(form).match(value) if isinstance(value, str) else None
        return match[0] if match and not self.identifies(match[0]) else otherwise

    def cipher_name(self, value: Any) -> Any:
        """Keep the name of a cipher or of its driver."""
        words = set(re.split(r"[()_:+,-]", str(value)))
        return value if words <= {"", *fields()["cipher_words"].split()} else LEFT_OUT

    def code(self, value: Any, otherwise: Any = LEFT_OUT) -> Any:
        """Keep a word for machines that is one of ours."""
        return value if str(value) in _known_codes() else otherwise

    def codes(self, value: Any) -> str:
        """Keep several of them, with commas or spaces between."""
        return ", ".join(w for w in re.split(r"[, ]+", str(value)) if w in _known_codes())

    def coded(self, value: Any, kind: str) -> str:
        """Keep a word for machines; a number replaces one that identifies."""
        return self.name(kind, str(value), ours=self.code(value) is not LEFT_OUT)

    def source(self, value: Any) -> str:
        """Keep the name of a reader of counters; a number replaces an unknown one."""
        return self.name("source", str(value), ours=value in ("rapl", *source_kinds.names()))

    def phase(self, value: Any) -> str:
        """Keep a phase's name; a number replaces one that a foreign workload may have chosen."""
        ours = self.own_phases and self.form(value, "code") is not LEFT_OUT
        return self.name("phase", str(value), ours=ours or is_ours(str(value)))

    def named(self, value: Any, kind: str) -> str:
        """Keep a name of ours; a number replaces any other."""
        return self.name(kind, str(value))

    def of_form(self, value: Any, form: str) -> str:
        """Keep a name of this form; a number replaces any other."""
        return self.name(form, str(value), ours=self.form(value, form) is not LEFT_OUT)

    def pseudonym(self, value: Any, kind: str, start: str = "") -> str:
        """Replace a name by one that is made of its HMAC."""
        return f"{start}{kind}-{self.digest(value)[:12]}"

    def boot(self, value: Any) -> str:
        """Return a pseudonym for the id of a boot, as a UUID."""
        d = self.digest(value)
        return f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}"

    def sha256(self, value: Any) -> Any:
        """Return the sum of a document as it was written here; of any other file a pseudonym."""
        if not isinstance(value, str) or not _HEX.fullmatch(value):
            return LEFT_OUT
        return self.sums.get(value) or self.digest(value)

    def wall(self, value: Any) -> Any:
        """Move a wall time as the plan's is moved."""
        moment = _instant(str(value))
        return LEFT_OUT if moment is None else (moment - self.shift).isoformat(timespec="seconds")

    def shown(self, value: Any, form: str = "model") -> Any:
        """Keep a model or a firmware's version, which no vocabulary lists, unless it identifies."""
        text = " ".join(value.split()) if isinstance(value, str) else ""
        if (kept := self.form(text, form)) is not LEFT_OUT:
            self.kept.setdefault(self._place, set()).add(text)
        return kept

    def sentence(self, value: Any) -> str:
        """Keep a sentence of our own suites, with or without the name of a scale."""
        scale, _, rest = value.partition(": ") if isinstance(value, str) else ("", "", "")
        ours = value in _shipped()[0] or (rest in _shipped()[0] and is_ours(scale))
        return str(value) if ours else ""

    def version(self, value: Any) -> Any:
        """Keep the first version number in a program's output."""
        if isinstance(value, str) and re.fullmatch(r"\d{1,4}(?:\.\d{1,6}){1,3}", value):
            return value
        match = _VERSION.search(value) if isinstance(value, str) else None
        return match[0] if match else LEFT_OUT

    def uname(self, value: Any) -> Any:
        """Keep system, host, release and kind of processor; not who built the kernel, and when."""
        system, node, release, *rest = [*map(str, value), "", "", ""]
        machines = [word for word in rest if word in ("x86_64", "aarch64", "armv7l", "riscv64")]
        known = "Linux" if system == "Linux" else ""
        kernel = self.begins(release, "release", "")
        return [known, self.pseudonym(node, "host"), kernel, machines[0] if machines else ""]

    def command_line(self, value: Any) -> str:
        """Keep the kernel parameters that change how fast a machine is or what it draws."""
        wanted, words = fields()["kernel_parameters"].split(), str(value).split()
        kept = [
            word
            for word in words
            if (parts := word.partition("="))[0] in wanted
            and (not parts[1] or _form("parameter").fullmatch(parts[2]))
        ]
        self.left_out["words of the kernel's command line"] += len(words) - len(kept)
        return " ".join(kept)

    def options(self, value: Any) -> Any:
        """Keep options of mkfs and mount: numbers, known words, and UUIDs as pseudonyms."""
        if isinstance(value, list):
            return [self.options(option) for option in value]

        def part(text: str) -> str:
            if identifying_data.PATTERNS["UUID"].fullmatch(text):
                return self.boot(text)
            known = re.fullmatch(r"--?[A-Za-z]|-?\d{1,12}[KMGkmg]?", text)
            return text if known or text.lstrip("^-") in fields()["options"].split() else "left-out"

        return ",".join("=".join(map(part, option.split("="))) for option in str(value).split(","))

    def configurations(self, value: Any) -> Any:
        """Keep storage stacks, with the settings that their kinds declare."""
        return [self._configuration(entry) for entry in value]

    def _configuration(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        try:
            declared = storage_kinds.load(str(entry.get("kind"))).fields
        except ExtensionError:
            declared = ()
        declared_names = {"label", *(parameter.name for parameter in declared)}
        made: dict[str, Any] = self.apply(
            fields()["documents"]["configuration"],
            {key: value for key, value in entry.items() if key not in declared_names},
            "configurations",
        )
        settings = _declared(declared, entry)
        label = self.sentence(entry.get("label"))
        try:
            stack = Configuration(made["name"], made["kind"], made["disk"], settings)
            label = label or storage_kinds.label(stack)
        except (AgentError, KeyError, ValueError, TypeError):
            label = label or made["name"]
        return {**made, "label": label, **settings}

    def workloads(self, value: Any) -> Any:
        """Keep entries of a suite, with the parameters that their workloads declare."""
        made = []
        for entry in value:
            stated = {key: item for key, item in entry.items() if key != "parameters"}
            kept = self.apply(fields()["documents"]["workload"], stated, "workloads")
            name = str(entry.get("workload") or entry.get("name"))
            parameters = _declared(_parameters(name), entry.get("parameters") or {})
            made.append({**kept, "parameters": parameters})
        return made

    def run_parameters(self, value: Any) -> Any:
        """Keep of a run, which names its entry of the plan alone, what any workload declares."""
        parameters: dict[str, Any] = {}
        for name in workload_kinds.names():
            for key, kept in _declared(_parameters(name), value).items():
                if parameters.get(key, "left-out") == "left-out":
                    parameters[key] = kept
        return {key: parameters[key] for key in value if key in parameters}

    def kept_name(self, name: str) -> str:
        """Return what the report that a workload kept of a phase is called."""
        return f"{self.phase(name.removesuffix('.json'))}.json"

    def kept_files(self, value: Any) -> dict[str, str]:
        """Return the sums of the reports that were written here, by their names."""
        return {
            self.kept_name(path): self.sums[sha256]
            for path, sha256 in value.items()
            if sha256 in self.sums and path.endswith(".json") and "/" not in path
        }


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


def _parameters(workload: str) -> Sequence[Parameter]:
    try:
        return workload_kinds.load(workload).parameters
    except WorkloadError:
        return ()
