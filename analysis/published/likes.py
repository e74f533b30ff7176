"""Which phases of ours are the like of a published figure, paper by paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from analysis.published.here import (
    A_SECOND,
    BYTES_A_SECOND,
    DIRECT,
    KB,
    MB,
    MEDIA,
    SECONDS,
    Combine,
    Here,
    Part,
)
from analysis.published.reference import Published, published


def likes(figure: Published) -> list[Here]:
    """All that we have of one figure: none, one, or several (RSA is done in two ways)."""
    if figure.workload and figure.phase:
        return list(_named(figure))
    of = PAPERS.get(figure.paper)
    return [] if of is None else list(of(figure))


def member_of(figure: Published) -> str:
    """Return what is compared: the algorithm and, where there is one, its mode."""
    return ", ".join(filter(None, [figure.subject, figure.mode]))


def _named(figure: Published) -> Iterator[Here]:
    """Yield a figure that names its own phase: the paper that this testbed follows."""
    if figure.quantity not in DIRECT:
        return
    part = Part(figure.phase)
    if figure.size_bytes and figure.workload == "file_io":
        part = Part(figure.phase, "files")  # a phase holds several files
    if figure.workload == "kernel_grep":
        part = Part(r"grep-\d+")  # one search, of however many copies
    column = DIRECT[figure.quantity]
    factor = 1 / SECONDS[figure.unit] if figure.quantity == "time" else 1.0
    yield Here(figure.workload, (part,), figure.subject, figure.configuration, column, factor)


RATES = {
    **dict.fromkeys(("speed", "throughput", "burst_rate"), BYTES_A_SECOND),
    "io_rate": A_SECOND,
}


def _timed(figure: Published, here: Here) -> Iterator[Here]:
    """With the paper's unit: a time, or a rate over the work that the parts stand for.

    Nothing where it is neither.
    """
    if figure.quantity in ("time", "average_time", "access_time"):
        if figure.unit in SECONDS:
            yield replace(here, factor=1 / SECONDS[figure.unit])
    elif unit := RATES.get(figure.quantity, {}).get(figure.unit):
        yield replace(here, numerator=sum(part.amount for part in here.parts) / unit)


SASSANI = {
    "truecrypt": ("TrueCrypt", "TrueCrypt format"),
    "dmcrypt": ("TrueCrypt", "dm-crypt"),
    "bestcrypt": ("BestCrypt", ""),
}


def _sassani(figure: Published) -> Iterator[Here]:
    cipher = figure.subject.lower().replace("-", "")
    phase = (Part(f"{figure.operation}-{figure.pattern}", "bytes", MB),)

    def of(kind: str, note: str = "") -> Here:
        one = Here("access_patterns", phase, figure.subject, f"{kind}-{cipher}", note=note)
        return replace(one, numerator=1.0)

    if figure.quantity == "speed":
        for kind, (software, note) in SASSANI.items():
            if software == figure.software:
                yield from _timed(figure, of(kind, note))
    elif figure.quantity == "difference":
        faster, slower = (of(kind) for kind in _by_speed(figure))
        yield replace(faster, versus=slower, says="gain")
    elif figure.quantity == "sustained_rate_max":
        part = (Part("read-sequential", "bytes", MB),)
        yield Here("access_patterns", part, figure.subject, "plain", numerator=1.0)


def _by_speed(figure: Published) -> list[str]:
    """Return the two programs of a difference, the faster one first."""
    both = [
        p
        for p in published(figure.paper)
        if (p.entry, p.subject, p.quantity) == (figure.entry, figure.subject, "speed")
    ]
    return [p.software.lower() for p in sorted(both, key=lambda p: -p.value)]


VERACRYPT = {"none": ("plain",), "AES": ("truecrypt-aes256", "dmcrypt-aes256")}
HASHES = {
    "HMAC-SHA-512": "sha512",
    "HMAC-SHA-256": "sha256",
    "HMAC-Whirlpool": "whirlpool",
    "HMAC-RIPEMD-160": "(?:ripemd-?160|rmd160)",
    "HMAC-Streebog": "streebog(?:-?512)?",
}


SMALL = tuple(512 << power for power in range(6))  # up to 16 KiB, as its texts have it
LARGE = tuple(mib * MB for mib in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64))
ALL = (*SMALL, *(KB << power for power in range(5, 10)), *LARGE)
DEFAULT_ITERATIONS = 500_000
# What HD Tune reads unless told otherwise; the paper does not say.
CPU_USE_BYTES = 64 * KB


def _analiza(figure: Published) -> Iterator[Here]:
    if figure.entry in ("figure-1", "aes-speed"):
        yield from _in_memory(figure)
    elif figure.operation == "derive key":
        stem = rf"pbkdf2-{HASHES[figure.subject]}\.(\d+)i"
        count = figure.iterations or DEFAULT_ITERATIONS
        part = Part(stem, "derivations", 1.0, count, scaled=True)
        yield from _timed(figure, Here("key_derivation", (part,), figure.subject))
    elif "_loss" in figure.quantity:
        yield from _losses(figure)
    elif figure.quantity.startswith("cpu_use"):
        yield from _cpu_use(figure)
    else:
        yield from _on_disk(figure)


def _in_memory(figure: Published) -> Iterator[Here]:
    """Yield the speed of a cipher or cascade; of both ways the mean of the two speeds."""
    chain = "-".join(part.strip(")").lower() for part in figure.subject.split("("))
    ways = ("encrypt", "decrypt") if figure.operation == "both" else (figure.operation,)
    parts = tuple(Part(rf"{chain}-xts-256\.{way}", "bytes", MB) for way in ways)
    one = Here("kernel_ciphers", parts, figure.subject)
    if len(ways) == 1:
        yield from _timed(figure, one)
    else:
        both = replace(one, numerator=MB / BYTES_A_SECOND[figure.unit])
        yield replace(both, several=tuple(replace(both, parts=(part,)) for part in parts))


def _on_disk(figure: Published) -> Iterator[Here]:
    if figure.quantity in ("speed", "io_rate") and figure.block_bytes:
        unit, amount = ("operations", 1.0) if figure.quantity == "io_rate" else ("bytes", float(MB))
        part = Part(rf"{figure.operation}\.{figure.block_bytes}B", unit, amount)
    elif figure.quantity.startswith("access_time"):
        part = Part(r"access\.read", "operations")
    elif figure.quantity == "burst_rate":
        part = Part(r"burst\.read", "bytes", MB)
    else:
        return
    one = Here("block_sizes", (part,), figure.subject)
    if figure.subject not in VERACRYPT:  # of plain and encrypted, or of one of them
        both = tuple(
            replace(one, configuration=stack, factor=1 / SECONDS[figure.unit])
            for stack in ("plain", "truecrypt-aes256")
        )
        how: Combine = "min" if "_min" in figure.quantity else "max"
        yield replace(
            both[0], several=both, combine=how if "_m" in figure.quantity else "mean", note="both"
        )
        return
    for counterpart in _timed(figure, one):
        for stack in VERACRYPT[figure.subject]:
            yield replace(counterpart, configuration=stack, note=_format(stack))


def _format(stack: str) -> str:
    kind = stack.split("-", maxsplit=1)[0]
    return {"truecrypt": "TrueCrypt format", "dmcrypt": "dm-crypt"}.get(kind, "")


def _losses(figure: Published) -> Iterator[Here]:
    """Yield what encryption takes of speed or operations, over the sizes that the text means."""
    unit = "operations" if figure.quantity.startswith("io_rate") else "bytes"
    sizes = {"small blocks": SMALL, "large blocks": LARGE}.get(figure.pattern, ALL)
    ways = [way for way in ("read", "write") if way in figure.operation] or ["read", "write"]
    # The least loss is that of the largest ratio.
    how: Combine = {"min": "max", "max": "min"}.get(figure.quantity[-3:], "geometric")  # type: ignore[assignment]
    one = Here("block_sizes", (), figure.subject, "plain", numerator=1.0, says="loss")
    plain = [
        replace(one, parts=(Part(rf"{way}\.{size}B", unit),)) for way in ways for size in sizes
    ]
    for stack in VERACRYPT["AES"]:
        each = tuple(replace(one, configuration=stack, versus=one) for one in plain)
        yield replace(each[0], several=each, combine=how, note=_format(stack))


def _cpu_use(figure: Published) -> Iterator[Here]:
    """By how many points of all processors encryption raises their use."""
    part = Part(r"read\.(\d+)B", size=CPU_USE_BYTES)
    plain = Here("block_sizes", (part,), figure.subject, "plain", "cpu_percent", says="apart")
    for stack in VERACRYPT["AES"]:
        one = replace(plain, configuration=stack, versus=plain, note=_format(stack))
        if figure.device:
            yield one
            continue
        each = tuple(
            replace(one, medium=medium, versus=replace(plain, medium=medium)) for medium in MEDIA
        )
        how: Combine = "min" if figure.quantity.endswith("min") else "max"
        yield replace(one, several=each, combine=how)


PANDA = {
    "AES": {"": r"aes-128-cbc"},
    "DES": {"": r"des-cbc"},
    "Blowfish": {"": r"blowfish-128-cbc"},
    "RSA": {"wraps a key": r"rsa-\d+-wrap", "OAEP of all data": r"rsa-\d+-oaep"},
}
# Bytes that RSA takes at a time with a key of 2048 bits (RFC 8017, section 7.1.1, with SHA-256).
OAEP_BYTES = 190.0
PANDA_SIZES = tuple(mb * MB for mb in (1, 2, 5, 10, 20))


def _panda(figure: Published) -> Iterator[Here]:
    if figure.entry == "asymmetric":
        rsa, aes = (
            Here("file_ciphers", _files(rf"{stem}\.decrypt\.text\.(\d+)B", (MB,)), name)
            for stem, name in ((r"rsa-\d+-oaep", "RSA (OAEP of all data)"), ("aes-128-cbc", "AES"))
        )
        yield replace(rsa, versus=aes, says="times")
    if not figure.entry.startswith("table-"):
        return
    for how, cipher in PANDA.get(figure.subject, {}).items():
        stem = rf"{cipher}\.{figure.operation}\.{figure.file_type}\.(\d+)B"
        # The rows "Average Time" are sums over the sizes (data/reference/README.md).
        parts = _files(stem, (figure.size_bytes,) if figure.size_bytes else PANDA_SIZES)
        member = f"{figure.subject} ({how})" if how else member_of(figure)
        yield from _timed(figure, Here("file_ciphers", parts, member))
    if figure.subject == "RSA" and figure.operation == "decrypt":  # what its times fit
        stem = rf"rsa-\d+-oaep\.decrypt\.{figure.file_type}\.(\d+)B"
        block = (Part(stem, "bytes", OAEP_BYTES, figure.size_bytes),)
        yield from _timed(figure, Here("file_ciphers", block, "RSA (OAEP of one block)"))


VERMA = {
    "DES": "des",
    "3DES": "3des",
    "DES-EDE3": "3des",
    "AES": "aes-128",
    "AES-128": "aes-128",
    "AES-192": "aes-192",
    "AES-256": "aes-256",
    "Blowfish": "blowfish-448",
}
VERMA_SIZES = (
    *(20_527, 36_002, 45_911, 59_852, 69_545),
    *(137_325, 158_959, 166_364, 191_383, 232_398),
)


def _verma(figure: Published) -> Iterator[Here]:
    yield from _verma_texts(figure)
    cipher = VERMA.get(figure.subject)
    if cipher is None or not figure.entry.startswith("table-") or not figure.operation:
        return
    sizes = (figure.size_bytes,) if figure.size_bytes else VERMA_SIZES
    for mode, note in _modes(figure):
        parts = _files(rf"{cipher}-{mode}\.{figure.operation}\.(\d+)B", sizes)
        for counterpart in _timed(
            figure, Here("cipher_modes", parts, member_of(figure), note=note)
        ):
            average = figure.quantity == "average_time"
            yield (
                replace(counterpart, factor=counterpart.factor / len(parts))
                if average
                else counterpart
            )


RANKED = ("Blowfish", "DES", "AES", "3DES")


def _verma_texts(figure: Published) -> Iterator[Here]:
    """Yield what its text says of them: a rank by speed, a ratio, a difference."""

    def one(subject: str, mode: str = "ecb", sizes: tuple[int, ...] = VERMA_SIZES[-1:]) -> Here:
        parts = _files(rf"{VERMA[subject]}-{mode}\.encrypt\.(\d+)B", sizes)
        return Here("cipher_modes", parts, subject)

    if figure.entry == "ranking":
        name = figure.subject.removesuffix(" or 3DES")
        order = (name, *(other for other in RANKED if other != name))
        each = tuple(replace(one(name), numerator=1.0) for name in order)
        yield replace(each[0], member=figure.subject, several=each, combine="rank")
    elif figure.entry == "3des-des":
        yield replace(one("3DES"), versus=one("DES"), says="times")
    elif figure.entry == "cbc-ecb":
        each = tuple(
            replace(one(name, "cbc", (size,)), versus=one(name, "ecb", (size,)), says="apart")
            for name in RANKED
            for size in VERMA_SIZES
        )
        yield replace(each[0], member=figure.subject, several=each)


def _modes(figure: Published) -> list[tuple[str, str]]:
    """Our mode for the paper's, and what must be said of it.

    Table II marks the modes but one, which is taken for ECB. In Tables V and VI CFB takes 8 times
    as long as ECB with blocks of 8 bytes and 16 times with 16: it feeds back a byte at a time.
    """
    if figure.entry in ("table-v", "table-vi"):
        return [("cfb8", "8 bits fed back"), ("cfb", "whole blocks fed back")]
    return [(figure.mode.lower() or "ecb", "")]


def _files(stem: str, sizes: tuple[int | None, ...]) -> tuple[Part, ...]:
    return tuple(Part(stem, "bytes", float(size), size) for size in sizes if size)


PAPERS: dict[str, Callable[[Published], Iterator[Here]]] = {
    "sassani": _sassani,
    "analiza": _analiza,
    "panda": _panda,
    "verma": _verma,
}
