"""A site of many bundles: its lines, its filters, what is left out."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contract.places import ROOT
from controller.tests.command import Fde
from validation.synthetic.suite import Options, write_suite

EXAMPLES = ROOT / "data" / "examples"


class _Site(HTMLParser):
    """Links, choices of the filters, and the lines' own values."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.rows: list[dict[str, str | None]] = []
        self.loaded: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.links += [known["href"] or ""] if tag == "a" else []
        self.rows += [known] if tag == "tr" and "data-machine" in known else []
        self.loaded += [str(known[name]) for name in ("src", "srcset") if name in known]
        self.loaded += [str(known.get("href"))] if tag == "link" else []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_site_shows_every_bundle_and_says_what_it_left_out(tmp_path: Path, fde: Fde) -> None:
    folder, site = tmp_path / "bundles", tmp_path / "site"
    machine = {
        "cpu": {"model": "<script>alert(1)</script> CPU"},
        "disks": {"plain": {"model": "Fast\u202e 980"}, "sed": {"model": "Sealed 870"}},
    }
    options = Options(blocks=2, interval_ms=100, workloads=("sql",), machine=machine)
    write_suite(tmp_path / "suite", options)
    bundle = folder / "one.tar.gz"
    fde("publish", tmp_path / "suite", "--out", bundle)
    (folder / "broken.tar.gz").write_bytes(bundle.read_bytes()[:5000])
    shutil.copyfile(bundle, folder / "twice.tar.gz")
    shutil.copytree(EXAMPLES / "h100-trace", folder / "h100-trace")
    printed, captured = fde("gallery", folder, "--out", site, "--json", status=1)
    document = json.loads(printed)
    assert document["entries"] == 2 and len(document["left_out"]) == 2
    assert "broken.tar.gz was left out" in captured and "has another bundle" in captured
    text = (site / "index.html").read_text(encoding="utf-8")
    shown = _Site(text)
    assert not shown.loaded and "<script>alert" not in text
    assert len(shown.rows) == 5
    disks = [row["data-disk"] for row in shown.rows]
    assert disks == [fast := r"Fast\u202e 980", "Sealed 870", fast, fast, "none"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{allowed}';" in html.unescape(policy)
    ciphers = {row["data-cipher"] for row in shown.rows}
    assert ciphers == {"none", "the drive's own", "aes-xts-plain64"}
    assert [row["data-origin"] for row in shown.rows] == ["modelled"] * 4 + ["measured"]
    assert all((site / link).is_file() for link in shown.links) and len(shown.links) == 6
    words = " ".join(shown.words)
    assert "baseline" in words and "%" in words and "dm-crypt AES-256" in words


def test_an_entry_of_its_own_has_the_joules_of_its_counter(tmp_path: Path, fde: Fde) -> None:
    assert (EXAMPLES / "h100-trace" / "marks.csv").read_bytes() == (
        ROOT / "data" / "traces" / "h100-marks.csv"
    ).read_bytes()
    shutil.copytree(EXAMPLES / "h100-trace", tmp_path / "in" / "h100-trace")
    fde("gallery", tmp_path / "in", "--out", tmp_path / "site")
    page = (tmp_path / "site" / "h100-trace" / "report.html").read_text(encoding="utf-8")
    # burst-1: 3580357 mJ - 3267677 mJ in 1.0663 s
    assert "312.7" in page and "1.07" in page and "293.2" in page and "measured" in page


def test_no_entry_stops_a_gallery_or_takes_its_own_page(tmp_path: Path, fde: Fde) -> None:
    for name in ("good", "a-page", "no-time", "long"):
        shutil.copytree(EXAMPLES / "h100-trace", tmp_path / "in" / name)
    entry = tmp_path / "in" / "a-page" / "entry.json"
    document = json.loads(entry.read_text(encoding="utf-8"))
    entry.write_text(json.dumps({**document, "name": "index.html"}), encoding="utf-8")
    head = "name,begin_ns,end_ns,begin_mj,end_mj\n"
    (tmp_path / "in" / "no-time" / "marks.csv").write_text(f"{head}x,1,1,0,9\n")
    (tmp_path / "in" / "long" / "marks.csv").write_text(head + "x" * 200_000)
    left_out = json.loads(
        fde("gallery", tmp_path / "in", "--out", tmp_path / "site", "--json", status=1).out
    )["left_out"]
    named = sorted(sentence.partition(" ")[0] for sentence in left_out)
    assert named == ["a-page", "long", "no-time"]
    assert (tmp_path / "site" / "index.html").is_file()
    names = sorted(path.name for path in (tmp_path / "site").iterdir())
    assert names == ["h100-trace", "index.html"]


@pytest.mark.parametrize("name", ["lab-one-disk", "paper-synthetic"])
def test_the_examples_verify(name: str, fde: Fde) -> None:
    """Where other code gives other tables, `make examples` makes the bundles again."""
    assert "were made again, bit for bit" in fde("verify", EXAMPLES / f"{name}.tar.gz").out


def test_the_examples_are_the_same_with_and_without_avx_512() -> None:
    """What a processor without AVX-512 rounds otherwise is not used on one that has it."""
    bundle = str(EXAMPLES / "paper-synthetic.tar.gz")
    argv = [sys.executable, "-m", "controller", "verify", bundle]
    without = {"NPY_DISABLE_CPU_FEATURES": "X86_V4,AVX512_ICL,AVX512_SPR"}
    captured = [
        subprocess.run(argv, env={**os.environ, **more}, capture_output=True, text=True, check=True)
        for more in ({}, without)
    ]
    assert "figures in" in captured[0].stdout
    assert captured[0].stdout == captured[1].stdout


def test_numpy_is_imported_without_avx_512_and_children_do_not_inherit_that() -> None:
    captured = (
        "import os, analysis.suite\n"
        "from numpy._core._multiarray_umath import __cpu_features__ as has\n"
        "assert not has.get('X86_V4') and 'NPY_DISABLE_CPU_FEATURES' not in os.environ"
    )
    environ = {k: v for k, v in os.environ.items() if k != "NPY_DISABLE_CPU_FEATURES"}
    subprocess.run([sys.executable, "-c", captured], check=True, env=environ)


def test_a_folder_without_bundles_is_refused(tmp_path: Path, fde: Fde) -> None:
    captured = fde("gallery", tmp_path, "--out", tmp_path / "site", status=1).err
    assert "There is no bundle" in captured and captured.count("\n") == 1
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "entry.json").write_text('{"name": "../../x"}', encoding="utf-8")
    captured = fde("gallery", tmp_path, "--out", tmp_path / "site", status=1).err
    assert "cannot be read" in captured and captured.count("\n") == 1
