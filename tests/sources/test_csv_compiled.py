"""The compiled parse: the right float or none, the right layout or none."""

from __future__ import annotations

import random
import struct
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streampca.linalg.fast import use
from streampca.sources import from_csv
from streampca.sources.csv_cells import number
from streampca.sources.csv_fast import FastParser

pytest.importorskip("numba", reason="the extra 'fast' is not installed: pip install 'streampca[fast]'")

from streampca.sources import csv_compiled


def parsed(text: bytes, slots: list[int], count: int, kernel=csv_compiled.parse) -> np.ndarray | None:  # type: ignore[no-untyped-def]
    out = np.full((count, max(slots) + 1), np.nan)
    made = kernel(np.frombuffer(text, dtype=np.uint8), np.uint8(44), np.array(slots), out)
    assert made in (-1, count)
    return out if made == count else None


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
        assert bits(rows[0, 0]) == bits(value) == bits(rows[1, 1])
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


@pytest.mark.parametrize("kind", KINDS)
def test_decimals_are_taken_and_rounded_correctly(kind: str) -> None:
    draw = random.Random(1)
    cells = [KINDS[kind](draw) for _ in range(20_000)]
    rows = parsed("".join(f"{cell}\n" for cell in cells).encode(), [0], len(cells))
    assert rows is not None
    assert rows[:, 0].tobytes() == np.array([float(cell) for cell in cells]).tobytes()


def test_long_mantissas_taken_as_they_come_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: two roundings."""
    draw = random.Random(2)
    cells = [f"{draw.randrange(2**53, 10**17)}e-9" for _ in range(200)]
    text, expected = "".join(f"{cell}\n" for cell in cells).encode(), np.array([float(cell) for cell in cells])
    rows = parsed(text, [0], 200)
    assert rows is not None
    assert rows[:, 0].tobytes() == expected.tobytes()
    monkeypatch.setattr(csv_compiled, "_EXACT", np.uint64(2**63))
    with np.errstate(over="ignore"):  # uint8 wraps around
        rows = parsed(text, [0], 200, csv_compiled._parse)
    assert rows is not None
    assert rows[:, 0].tobytes() != expected.tobytes()


def test_powers_of_five_are_what_they_are_said_to_be() -> None:
    for q, (high, low) in enumerate(csv_compiled._FIVES.tolist(), csv_compiled._LEAST):
        word, five = (high << 64) + low, Fraction(5) ** q
        # 1 / 5**-q lies strictly between two powers of two.
        places = 128 - five.numerator.bit_length() if q >= 0 else 127 + five.denominator.bit_length()
        exact = five * Fraction(2) ** places
        assert 2**127 <= word < 2**128
        assert word == (ceil(exact) if -27 <= q < 0 else floor(exact))


@pytest.mark.parametrize(
    "text",
    [b"1\n", b"1,2,3\n", b"1,2\n\n", b"1,2\n1\n1,2,3\n", b",2\n", b"1,\n", b"1 ,2\n", b"1,2\r\r\n", b"1,2 \n", b"\n\n"],
)
def test_other_layouts_are_left_alone(text: bytes) -> None:
    assert parsed(text, [0, 1], text.count(b"\n")) is None


def test_columns_that_are_left_out_may_hold_anything_and_order_is_kept() -> None:
    rows = parsed("a b,1,é,2\r\n,3,x,-4.5\n".encode(), [-1, 1, -1, 0], 2)
    assert rows is not None
    np.testing.assert_array_equal(rows, [[2, 1], [-4.5, 3]])
    assert parsed(b"1,x\n2,y,z\n", [0, -1], 2) is None
    assert parsed(b"1,x\n2\n", [0, -1], 2) is None


def test_it_is_used_for_plain_files_and_rests_after_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def spy(*arguments: object) -> int:
        made = csv_compiled.parse(*arguments)
        seen.append(made >= 0)
        return int(made)

    parser = FastParser(2, [1, 0], ",")
    monkeypatch.setattr(parser, "_kernel", spy)
    plain, other = b'"1",2\n3,4.5\n', b"1,0.123456789012345678901\n3,4\n"
    for piece in [plain] * 3 + [other] * 8 + [plain] * 12:
        rows = parser.parse(piece, nan=False)
        assert rows is not None
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows[1], [4.5 if piece is plain else 4, 3])
    # Misses at pieces 4, 6 and 10; then seven pieces rest, and all are tried again.
    assert seen == [True] * 3 + [False] * 3 + [True] * 6


def test_a_whole_file_has_the_same_bits_without_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    table = np.random.default_rng(3).normal(size=(30_000, 7))
    np.savetxt(path, table, fmt="%.6f", delimiter=",", header="a,b,c,d,e,f,g", comments="")
    with path.open("a") as file:
        file.write(",".join(["0.123456789012345678901"] * 7) + "\n")
    before = use(True)
    try:
        quick = np.concatenate(list(from_csv(path).blocks()))
        use(False)
        slow = np.concatenate(list(from_csv(path).blocks()))
    finally:
        use(before)
    assert quick.tobytes() == slow.tobytes()
    assert quick.shape == (30_001, 7)
