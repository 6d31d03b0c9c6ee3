"""pyarrow and float read cells as `number` does, to the bit, and no line otherwise than as one row."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from streampca.sources.csv_cells import CellParser


def parsed(text: bytes, places: list[int], width: int) -> np.ndarray | None:
    return CellParser(width, places, ",").parse(text)


def bits(value: float) -> bytes:
    return struct.pack("d", value)


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
