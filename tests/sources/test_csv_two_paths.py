"""pyarrow and the exact reader agree on every file: same rows bit by bit, same error; and on every number."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streampca.errors import SourceError
from streampca.sources import from_csv
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
    "9223372036854775807e299", "00000.00000000000000000001234567890123456789", "1.7976931348623159e308",
]  # fmt: skip


def read(path: Path, **options: object) -> tuple[bytes, int, str | None]:
    rows: list[np.ndarray] = []
    message = None
    try:
        for block in from_csv(path, **options).blocks():  # type: ignore[arg-type]
            rows.extend(block)
    except SourceError as error:
        message = str(error)
    data = np.array(rows)
    data[np.isnan(data)] = np.nan
    return data.tobytes(), len(rows), message


def agreed(path: Path, **options: object) -> bytes:
    fast = read(path, **options)
    with mock.patch.object(CellParser, "parse", return_value=None):
        assert fast == read(path, **options)
    return fast[0]


MODES: list[dict[str, object]] = [{"missing": "raise"}, {"missing": "nan"}, {"on_bad_row": "zero"}]


def width(mode: dict[str, object], columns: int) -> dict[str, object]:
    return {"names": [f"x{at}" for at in range(columns)]} if "on_bad_row" in mode else {"header": False}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("cell", ODD_CELLS)
def test_odd_cells(tmp_path: Path, cell: str, mode: dict[str, object]) -> None:
    for name, line in {"first": f"{cell},1,2", "middle": f"1,{cell},2", "last": f"1,2,{cell}", "only": cell}.items():
        columns = 1 if name == "only" else 3
        good = ",".join(["0.1"] * columns)
        path = tmp_path / f"{name}.csv"
        path.write_bytes(f"{good}\n{line}\n{good}\n{good}".encode())
        agreed(path, **width(mode, columns), **mode)


CELLS = st.one_of(
    st.sampled_from(ODD_CELLS),
    st.sampled_from(["1", "2.5", "-3e2", "0.1", "NA", "", "inf"]),
    st.floats().map(repr) | st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text(st.sampled_from(list('0123456789.eE+-_ \t"\r\n,naif\x00')), max_size=6),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.sampled_from(MODES),
    st.sampled_from([None, [0], [1, 0], [-1]]),
    st.sampled_from([",", ";", " ", "\t"]),
    st.sampled_from(["csv", "csv", "none"]),
)
@example([["1", "True"], ["0", "False"], ["1", "NA"]], "\n", True, MODES[1], None, ",", "csv")
@example([["NA", "true"], ["2", "false"]], "\n", True, MODES[1], [1, 0], ",", "csv")
@example([["1", "2", "3"], ["1", "2"], ["1", "2", "3", ""]], "\n", True, MODES[1], None, ",", "csv")
@example([["1", "2", "3"], ["1", "2", "3", "4"], ["1", "2"]], "\n", True, MODES[0], [-1], ",", "csv")
def test_any_text(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[list[str]],
    end: str,
    final: bool,
    mode: dict[str, object],
    columns: list[int] | None,
    delimiter: str,
    quoting: str,
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.csv"
    path.write_bytes((end.join(delimiter.join(line) for line in table) + (end if final else "")).encode())
    if columns == [-1]:
        columns = [len(table[0]) - 1]
    options = {**width(mode, len(table[0])), **mode, "columns": columns, "delimiter": delimiter, "quoting": quoting}
    agreed(path, **options)


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


def test_a_number_may_stand_for_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "sentinel.csv"
    path.write_text("a,b\n1,999\n 999 ,999.0\n-9,9999\n")
    found = np.frombuffer(agreed(path, na="999,-9", missing="nan")).reshape(3, 2)
    np.testing.assert_array_equal(found, [[1, np.nan], [np.nan, 999], [np.nan, 9999]])


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
