"""Short SVG that follows the reader's colour scheme, from the long one that Matplotlib writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree as ET

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# The colours of everything but data, on white paper and on a dark screen.
SCHEME: Mapping[str, str] = {
    "#222222": "#e3e8ed",
    "#444444": "#c3ccd5",
    "#56616c": "#a3aeb9",
    "#777777": "#7d8894",
    "#dddddd": "#323b44",
    "#ffffff": "#14191e",
    "#e4eef5": "#22384a",
    "#dfe9f1": "#1f2a33",
    "#f1efe2": "#2a281d",
    "#b00020": "#ff8a80",
}
_HEX = re.compile("|".join(SCHEME))
_NUMBER = re.compile(r"-?\d+\.\d+")
_UPRIGHT = re.compile(r"rotate\(-?0 ")


def compact(svg: str) -> str:
    """Return the same picture without groups, ids and digits that do not show.

    A style is written once, and its colours are variables with a value for dark screens.
    """
    ET.register_namespace("", SVG)
    root = ET.fromstring(svg)
    references = set(re.findall(r'#([\w.-]+)[")]', svg))
    _shorten(root, references)
    styles = Counter(node.attrib["style"] for node in root.iter() if "style" in node.attrib)
    classes = {style: f"c{i}" for i, (style, _) in enumerate(styles.most_common())}
    for node in root.iter():
        if style := node.attrib.pop("style", ""):
            node.set("class", classes[style])
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    light, dark = (
        ";".join(f"--{key[1:]}:{colour}" for key, colour in scheme)
        for scheme in (zip(SCHEME, SCHEME, strict=True), SCHEME.items())
    )
    sheet = ET.Element(f"{{{SVG}}}style")
    sheet.text = (
        f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
        f"*{{stroke-linejoin:round;stroke-linecap:butt}}{rules}"
    )
    root.insert(0, sheet)
    return ET.tostring(root, encoding="unicode").replace(" />", "/>")


def _shorten(parent: ET.Element, references: set[str]) -> None:
    """Shorten everything below an element; a group without attributes gives way to its content."""
    children: list[ET.Element] = []
    for node in parent:
        name = node.tag.partition("}")[2]
        if name in ("metadata", "style"):
            continue
        node.tail = None
        if node.attrib.get("id") not in references:
            node.attrib.pop("id", None)
        if href := node.attrib.pop(f"{{{XLINK}}}href", ""):
            node.set("href", href)
        if _UPRIGHT.match(node.get("transform", "")):
            del node.attrib["transform"]
        for key, value in node.attrib.items():
            node.set(key, _style(value) if key == "style" else _rounded(value))
        if name != "text":
            node.text = None
        _shorten(node, references)
        plain = name in ("g", "defs") and not node.attrib
        children += list(node) if plain and name == "g" else [node] * bool(not plain or len(node))
    parent[:] = children


def _style(value: str) -> str:
    return _HEX.sub(
        lambda colour: f"var(--{colour[0][1:]})", value.replace("; ", ";").replace(": ", ":")
    )


def _rounded(value: str) -> str:
    """Return coordinates to a tenth of a point, without the spaces that a path can do without."""
    text = _NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", text).strip() if re.match(r"M\s", value) else text
