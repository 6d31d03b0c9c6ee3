"""CSV text: records, cells and numbers, against a machine that looks at one character at a time.

The reader uses pyarrow for most blocks, and `number` for the others. Both must give what the machine does.
"""

import io
import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from streampca.errors import SourceError
from streampca.sources import csv_rows, from_csv
from streampca.sources.csv_cells import CellParser, number

ODD_CELLS = [
    "+1e 1", " +1e\v1", "+1.7976931348623157e+308", "+0.1000000000000000055511151231257827", "1e+5", "a+1",
    "1_000", "0x10", "NA", "", " 3 ", "1e5", "nan", "-NaN", "inf", "-Infinity", "True", " NA", "NA ", " NA ",
    "1e999", "1e-400", "+5", "-.5", "3.", ".", "e5", "1e", "1e+", "--1", "1,0", '"2"', '""', '"a,b"', '"1\n2"',
    '" 4 "', '"x""y"', '5"', "1\x002", "\x00", "１２", "\ufeff7", "\xa01", "\x1c1", "\v1", "1\f", "\t1", "1\t",
    "   ", "null", "None", "<NA>", "N/A", "1 2", "1;2", "#1", "1d5", "0.1000000000000000055511151231257827",
    "9007199254740993", "4.9406564584124654e-324", "1" + "0" * 330, "0" * 400 + "1",
    "179769313486231580793728971405301e276", "2.2250738585072011e-308", "-0", "1e0000000000000000005", "é",
    "1.5f", "0b1", "1.2.3", "1e5.0", "infinit", "nan(1)", "1n", "Inf", "NaN", "-nan", "1E5", "1e-5", "'1'", "\\N",
    "%", "1\r", "\r1", "1\r\n2", "9007199254740992e22", "1e23", "1e-23", "0.00000000000000000000001",
    "0000000000000000001", "9223372036854775808", "18446744073709551617", "1e18446744073709551617",
    "$1", "5%", "?", "-", "١٢", "0x1p3",
    "9223372036854775807e299", "00000.00000000000000000001234567890123456789", "1.7976931348623159e308",
]  # fmt: skip
#: Cells of random text, of which those that quote and end lines are frequent.
CELLS = [
    *ODD_CELLS, "5\"", "7\r", '"1"\r', "a\rb", "\v1", "\u2028", "\x85",
    *4 * ['"3"', '"4,5"', '"4;5"', '"a\nb"', '"a\r\nb"', '"""x"""', '"1""2"', '"1\n"', '""', '"1"2'],
]  # fmt: skip
Records = list[list[str] | None]


def machine(text: str, delimiter: str) -> tuple[Records, bool]:
    """The cells of each record, None for one with text behind a closing quote; whether quotes are open."""
    records: Records = []
    cells, cell, state, bad = [], "", "start", False
    for at, letter in enumerate(text):
        if state == "quoted":
            state = "closed" if letter == '"' else state
            cell += letter if letter != '"' else ""
        elif letter == '"' and state in ("start", "closed"):
            cell += '"' if state == "closed" else ""
            state = "quoted"
        elif letter in (delimiter, "\n"):
            cells.append(cell)
            cell, state = "", "start"
            if letter == "\n":
                records.append(None if bad else cells)
                cells, bad = [], False
        elif letter == "\r" and text[at + 1 : at + 2] == "\n":
            pass
        else:
            bad |= state == "closed"
            cell, state = cell + letter, "other"
    return records, state == "quoted"


def check(text: str, width: int, delimiter: str = ",", quoting: Any = "csv") -> tuple[int, bool]:
    """Read a text as the machine reads it, up to open quotes; return the number of rows, and whether they are open."""
    whole = text.removeprefix("\ufeff") if text.endswith("\n") else text.removeprefix("\ufeff") + "\n"
    records, is_open = machine(whole, delimiter)
    if quoting == "none":
        lines = whole.replace("\r\n", "\n").removesuffix("\n").split("\n")
        records, is_open = [line.split(delimiter) for line in lines], False
    expected: list[Sequence[float]] = []
    for cells in records:
        values = [number(cell) for cell in cells or ()]
        is_row = len(values) == width and None not in values
        expected.append(values if is_row else [math.nan] * width)  # type: ignore[arg-type]
    blocks, problem = [np.empty((0, width))], ""
    try:
        names = [f"n{at}" for at in range(width)]
        source = from_csv(io.BytesIO(text.encode()), names=names, delimiter=delimiter, quoting=quoting, columns="all")
        blocks.extend(source.blocks())
    except SourceError as error:
        problem = str(error)
    np.testing.assert_array_equal(np.concatenate(blocks), np.reshape(expected, (-1, width)), err_msg=repr(text[:500]))
    assert ("ends inside the quotes" in problem) == is_open
    return len(expected), is_open


@pytest.mark.parametrize("cell", ODD_CELLS)
def test_odd_cells(cell: str) -> None:
    for line in (f"{cell},1,2", f"1,{cell},2", f"1,2,{cell}"):
        check(f"0.1,0.1,0.1\n{line}\n0.1,0.1,0.1\n0.1,0.1,0.1", 3)
    check(f"0.1\n{cell}\n0.1\n0.1", 1)


@pytest.mark.parametrize("runs", [range(75), pytest.param(range(75, 20_000), marks=pytest.mark.long)])
def test_any_text(runs: range, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = rows = 0
    for seed in runs:
        draw = random.Random(seed)
        delimiter, width = draw.choice(",;"), draw.choice((1, 2, 3))
        if draw.random() < 0.4:
            letters = ("1", "2", delimiter, "\n", '"', '""', '"\n', " ", "\r", "\r\n")
            text = "".join(draw.choice(letters) for _ in range(draw.randrange(1, 60)))
        else:
            good = 0.0 if draw.random() < 0.5 else 0.95  # so that most records may be good
            cell = lambda draw=draw, good=good: "1" if draw.random() < good else draw.choice(CELLS)  # noqa: E731
            wide = [width if draw.random() < 0.95 else draw.randrange(1, 5) for _ in range(draw.choice((1, 20, 200)))]
            lines = [delimiter.join(cell() for _ in range(count)) for count in wide]
            text = draw.choice(("\n", "\r\n")).join(lines) or "1"
        monkeypatch.setattr(csv_rows, "_BLOCK", draw.choice((1, 2, 3, 7, 50, 2**20)))
        read, is_open = check(text, width, delimiter, draw.choice(("csv", "csv", "none")))
        damaged, rows = damaged + is_open, rows + read
    assert damaged > 4
    assert rows > 1000


@pytest.mark.long
@pytest.mark.parametrize("before", ["", "+", "-", " ", " +", "+1e"])
@pytest.mark.parametrize("alphabet", ["1.e+- ", "1e \v\f\t", "infa-", "nulNA<>/"])
def test_every_short_cell(before: str, alphabet: str) -> None:
    """pyarrow reads no cell otherwise than `number` does (minutes: `pytest -m long tests/sources`)."""
    parser = CellParser(2, [0], ",")
    for letters in itertools.chain(*(itertools.product(alphabet, repeat=length) for length in range(1, 6))):
        cell = before + "".join(letters)
        rows = parser.parse(f"{cell},0\n".encode())
        if rows is not None:
            assert number(cell) is not None, repr(cell)
            np.testing.assert_array_equal(rows[0, 0], number(cell))


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        ("1_000", None), ("0x10", None), ("True", None), ("１２", None), ("1 2", None), ("1e", None), (".", None),
        ("NA", "missing"), ("", "missing"), ("  ", "missing"), ("nan", "missing"),
        ("-NaN", "missing"), (" null ", "missing"),
        (" 3 ", 3.0), ("1e5", 1e5), ("-.5", -0.5), ("3.", 3.0),
        ("inf", np.inf), ("-Infinity", -np.inf), ("1e999", np.inf),
    ],
)  # fmt: skip
def test_what_a_cell_means(cell: str, outcome: float | str | None) -> None:
    value = number(cell)
    assert np.isnan(value) if outcome == "missing" else value == outcome  # type: ignore[arg-type]


def near_ties(draw: random.Random) -> str:
    half = draw.randrange(2**52, 2**53) << 1 | 1
    kind = draw.randrange(4)
    if kind == 0:
        return f"{half * 5 ** (k := draw.randrange(4))}e-{k}"
    if kind == 1:
        return f"{half}e{draw.randrange(26)}"
    return str((half << draw.randrange(9)) + kind - 3)


def test_decimals_are_rounded_correctly() -> None:
    draw = random.Random(1)
    cells = [near_ties(draw) for _ in range(20_000)] + [f"{draw.gauss(0, 1):.18e}" for _ in range(20_000)]
    rows = CellParser(1, [0], ",").parse("".join(f"{cell}\n" for cell in cells).encode())
    assert rows is not None
    assert rows[:, 0].tobytes() == np.array([float(cell) for cell in cells]).tobytes()
