"""Every interface has the parameters and defaults of the page on parameters, which is read here."""

import ast
import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

import streampca as sp
from streampca import river, sklearn
from streampca.auditing.cases import public
from streampca.cli import inputs
from streampca.cli.algorithms import make_algorithm
from streampca.cli.options import RunOptions
from streampca.errors import MissingParametersError

PAGE = Path(__file__).parents[2] / "docs" / "api" / "parameters.md"
REQUIRED, ABSENT = "required", "–"
CLASSES = public()
RIVER = [getattr(river, name) for name in river.__all__ if name != "RiverAdapter"]


def table(number: int) -> list[dict[str, str]]:
    blocks = PAGE.read_text(encoding="utf-8").split("\n\n|")[number].split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in blocks]
    return [dict(zip(head, row, strict=False)) for row in rows]


RULES = {row["parameter"].strip("`"): row for row in table(1)}
EXCEPTIONS = {(row["class"], row["parameter"].strip("`")): row["default"] for row in table(2)}


def value(cell: str) -> Any:
    return ast.literal_eval(cell.strip("`")) if cell.startswith("`") else cell


def default(kind: Any, name: str) -> Any:
    """Default of a parameter, or one of the words of the page."""
    found = inspect.signature(kind).parameters.get(name)
    return ABSENT if found is None else REQUIRED if found.default is found.empty else found.default


@pytest.mark.parametrize("name", RULES)
def test_algorithms_and_mechanisms(name: str) -> None:
    rule, seen = value(RULES[name]["algorithms, mechanisms"]), set()
    for kind in CLASSES:
        found, own = default(kind, name), EXCEPTIONS.get((kind.__name__, name))
        assert found in ((value(own),) if own is not None else (rule, ABSENT)), kind
        seen.add(found)
    assert rule in seen


@pytest.mark.parametrize("name", RULES)
def test_streams_and_adapters(name: str) -> None:
    rule = RULES[name]
    python = {"seed": "random_state"}.get(name, name)
    for column, doors, spelled in (
        ("`Stream`, `release`", [sp.Stream, sp.GaussianCovariance.release], name),
        ("`pca`", [sp.pca], name), ("scikit-learn", [sklearn.PrivatePCA], python), ("river", RIVER, name),
    ):  # fmt: skip
        expected = None if rule[column] == "one required" else value(rule[column])
        found = {door: default(door, spelled) for door in doors}
        for door, one in found.items():
            own = EXCEPTIONS.get((door.__name__, name))
            # Of the river classes, some have no horizon and no mean.
            others = (ABSENT,) if column == "river" else ()
            assert one in ((value(own),) if own is not None else (expected, *others)), (column, door)
        assert expected in found.values(), column


def test_the_command_line() -> None:
    column = {name: row["command line"] for name, row in RULES.items()}
    required = [name for name, cell in column.items() if cell == REQUIRED]
    with pytest.raises(MissingParametersError) as missing:
        make_algorithm("fpl", {}, missing=inputs.missing_scale(RunOptions()))
    assert missing.value.names == (*required, "bounds")
    made = make_algorithm("fpl", {"n_components": 2, "epsilon": 1.0}, count=lambda: 77)
    for name, cell in column.items():
        if cell.startswith("`") and hasattr(made, name):
            assert getattr(made, name) == value(cell), name
    assert (column["horizon"], getattr(made, "horizon", None)) == ("counted", 77)
    # Options are not given by default: the defaults are those of the classes.
    options = {field.name: field.default for field in fields(RunOptions)}
    assert {options[name] for name, cell in column.items() if cell != ABSENT} == {None}
    assert MISSING not in options.values()


def test_every_exception_is_one() -> None:
    kinds = {kind.__name__: kind for kind in [*CLASSES, *RIVER]}
    for (kind, name), cell in EXCEPTIONS.items():
        assert default(kinds[kind], name) == value(cell) != value(RULES[name]["algorithms, mechanisms"])
