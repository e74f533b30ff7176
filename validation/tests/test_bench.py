from __future__ import annotations

import json
from pathlib import Path

import pytest

from validation.__main__ import main
from validation.bench import Bench, Figure, at_least, at_most, merged, missed, table, within


def row(part: str, figure: Figure) -> dict[str, object]:
    return {"part": part, **vars(figure)}


def test_figures_meet_their_targets_up_to_the_limit() -> None:
    assert [at_most("a", value, "s", 2.0).meets for value in (2.0, 2.1)] == [True, False]
    assert [at_least("a", value, "s", 2.0).meets for value in (2.0, 1.9)] == [True, False]
    for value, regression, misses in ((2.1, 0.0, True), (2.1, 2.2, False), (2.3, 2.2, True)):
        assert missed([row("one", at_most("a", value, "s", 2.0, regression))]) is misses
    ranged = [within("a", value, "%", 94, 96) for value in (94.0, 96.0, 93.99, 96.01)]
    assert [figure.meets for figure in ranged] == [True, True, False, False]
    assert ranged[0].target == "94–96"


def test_the_table_marks_missed_targets() -> None:
    lines = table(
        [
            row("one", within("a", 97.0, "%", 94, 96)),
            row("one", Figure("b", 123_456.0, "J")),
            row("two", at_most("c", 1.0, "s", 60)),
        ]
    ).splitlines()
    assert lines[1] == "-- one"
    assert lines[2].split() == ["a", "97", "%", "94–96", "NO"]
    assert lines[3].split() == ["b", "123,456", "J"]
    assert lines[4] == "-- two"
    assert lines[5].split() == ["c", "1", "s", "60", "yes"]


def test_only_the_parts_that_ran_are_replaced(tmp_path: Path) -> None:
    bench = Bench("x", "validation.inference", ("b", "a"), "nothing")
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"part": "a", "v": 1}, {"part": "b", "v": 2}, {"part": "gone"}]))
    assert bench.merged(path, [{"part": "a", "v": 3}]) == [
        {"part": "b", "v": 2},
        {"part": "a", "v": 3},
    ]
    assert merged(path, [{"part": "a", "v": 3}])[:2] == [{"part": "b", "v": 2}, {"part": "gone"}]
    path.write_text("cut sho")
    assert bench.merged(path, [{"part": "a", "v": 3}]) == [{"part": "a", "v": 3}]


def test_parts_are_the_modules_that_measure() -> None:
    bench_of_package = Bench.from_package("x", "validation.fairness", "nothing")
    assert bench_of_package.parts == ("sockets", "verdicts")


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        Bench("x", "validation.inference", ("coverage",), "nothing").main(["covrage"])
    assert stopped.value.code == 2
    assert "there is no part covrage: there are coverage" in capsys.readouterr().err


def test_the_command_runs_one_part_of_a_benchmark_and_names_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fairness", "--quick", "sockets"]) == 0
    assert "-- sockets" in capsys.readouterr().out
    assert main(["fairnes"]) == 2
    assert "{metrology,inference,report,drive,fairness}" in capsys.readouterr().err
