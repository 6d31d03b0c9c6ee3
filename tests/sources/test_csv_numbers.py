"""pyarrow and float read cells as `number` does, to the bit, and no line otherwise than as one row."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streampca.sources.csv_cells import CellParser, number


def parsed(text: bytes, places: list[int], width: int) -> np.ndarray | None:
    return CellParser(width, places, ",").parse(text)


def bits(value: float) -> bytes:
    return struct.pack("d", value)


@settings(max_examples=500, deadline=None)
@given(
    st.decimals(allow_nan=False, allow_infinity=False).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.text("0123456789.eE+- ", max_size=22)
)
@example("-0")
@example("9007199254740993")
@example("9007199254740992e22")
@example("1e23")
@example("1e-23")
@example("0.00000000000000000000001")
@example("000000000000000001")
@example("0000000000000000001")
@example("9223372036854775808")
@example("18446744073709551617")
@example("1e00000000000000000005")
@example("1e18446744073709551617")
@example("1.7976931348623157e308")
@example("1.7976931348623159e308")
@example("2.2250738585072014e-308")
@example("2.2250738585072011e-308")
@example("4.9406564584124654e-324")
@example("9007199254740993.5")
@example("9223372036854775807e299")
@example("00000.00000000000000000001234567890123456789")
@example("-0.0000000000000000000000")
@example(".5")
@example("5.")
@example(".")
@example("-")
@example("1e")
@example("")
def test_a_cell_is_the_float_that_python_reads_or_is_left_alone(cell: str) -> None:
    rows = parsed(f"{cell},7\r\n2.5,{cell}\n".encode(), [0, 1], 2)
    if rows is not None:
        value = number(cell)
        assert value is not None
        assert bits(rows[0, 0]) == bits(value) == bits(rows[1, 1]) or np.isnan([rows[0, 0], value, rows[1, 1]]).all()
        assert rows[0, 1] == 7.0
        assert rows[1, 0] == 2.5


def near_ties(draw: random.Random) -> str:
    """A decimal half-way between two floats, or next to one."""
    half = draw.randrange(2**52, 2**53) << 1 | 1
    kind = draw.randrange(4)
    if kind == 0:
        return f"{half * 5 ** (k := draw.randrange(4))}e-{k}"
    if kind == 1:
        return f"{half}e{draw.randrange(26)}"
    return str((half << draw.randrange(9)) + kind - 3)


KINDS = {
    "short": lambda draw: (
        f"{draw.choice(['', '-'])}{draw.randrange(10 ** draw.randrange(1, 15))}e{draw.randrange(-20, 20)}"
    ),
    "fixed": lambda draw: f"{draw.gauss(0, 1000):.6f}",
    "shortest": lambda draw: repr(draw.random() * 10 ** draw.uniform(-290, 290)),
    "scientific": lambda draw: f"{draw.gauss(0, 1):.18e}",
    "near ties": near_ties,
}


@pytest.mark.parametrize("library", ["pyarrow", "float"])
@pytest.mark.parametrize("kind", KINDS)
def test_decimals_are_rounded_correctly(kind: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "float":
        monkeypatch.setattr(CellParser, "_by_arrow", CellParser._by_python)
    draw = random.Random(1)
    cells = [KINDS[kind](draw) for _ in range(20_000)]
    rows = parsed("".join(f"{cell}\n" for cell in cells).encode(), [0], 1)
    assert rows is not None
    assert rows[:, 0].tobytes() == np.array([float(cell) for cell in cells]).tobytes()


@pytest.mark.parametrize(
    "text", [b"1\n", b"1,2,3\n", b"1,2\n1\n1,2,3\n", b"1,2\r3,4\n", b'1,"2"3\n', b'1,"2""3"\n', b'1,2"3"\n', b"1,x\n"]
)
def test_other_layouts_are_left_alone(text: bytes) -> None:
    assert parsed(text, [0, 1], 2) is None


def test_columns_that_are_left_out_may_hold_anything_and_order_is_kept() -> None:
    rows = parsed('a b,1,é,2\r\n,3,"x",-4.5\n'.encode(), [3, 1], 4)
    assert rows is not None
    np.testing.assert_array_equal(rows, [[2, 1], [-4.5, 3]])
    assert parsed(b"1,x\n2,y,z\n", [0], 2) is None
    assert parsed(b"1,x\n2\n", [0], 2) is None
