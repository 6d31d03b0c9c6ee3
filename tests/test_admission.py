from collections import OrderedDict, namedtuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streampca.admission import Admission
from streampca.errors import BadParameter, BadRow
from streampca.linalg.lattice import STEP, is_admitted

Point = namedtuple("Point", "x y")
anything = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(rows=arrays(np.float64, (5, 3), elements=anything), norm=st.floats(1e-300, 1e300), bounded=st.booleans())
def test_whatever_comes_in_what_goes_on_is_admitted(rows: np.ndarray, norm: float, bounded: bool) -> None:
    gate = Admission(row_norm=norm, bounds=(-2.0, 5.0) if bounded else None, on_bad_row="zero", n_features=3)
    block, bad = gate.block(rows, 1)
    assert is_admitted(block)
    assert bad == (~np.isfinite(rows).all(axis=1)).sum()
    assert not block[~np.isfinite(rows).all(axis=1)].any()
    one_by_one = [gate.row(row, 1) for row in rows]
    np.testing.assert_array_equal(np.concatenate([r for r, _ in one_by_one]), block)
    assert sum(b for _, b in one_by_one) == bad


def test_rows_of_every_kind_are_the_same_row() -> None:
    rows = [
        np.array([0.25, 0.5]),
        [0.25, 0.5],
        (0.25, 0.5),
        {"x": 0.25, "y": "0.5"},
        Point(0.25, 0.5),
        pd.Series([0.25, 0.5]),
    ]
    for row in rows:
        gate = Admission().settled_by(row)
        assert gate.n_features == 2
        np.testing.assert_array_equal(gate.row(row, 1)[0], [[0.25, 0.5]])


def test_mappings_keep_the_first_rows_order() -> None:
    open_still = Admission()
    gate = open_still.settled_by(OrderedDict(b=0.1, a=0.2))
    assert gate.features == ("b", "a")
    np.testing.assert_allclose(gate.row({"a": 0.5, "b": 0.25}, 2)[0], [[0.25, 0.5]])
    assert (open_still.features, open_still.n_features) == (None, None)  # settling makes another one
    assert gate.settled_by({"z": 1.0}) is gate
    with pytest.raises(BadParameter, match="not known yet"):
        open_still.row([0.1, 0.2], 1)
    with pytest.raises(BadRow, match="not a row of numbers"):
        open_still.settled_by("ab", 1)


def test_blocks_settle_the_features_too() -> None:
    assert Admission().settled_by_block(np.zeros((3, 4))).n_features == 4
    assert Admission().settled_by_block(pd.DataFrame({"a": [1.0], "b": [2.0]})).features == ("a", "b")
    assert Admission().settled_by_block([{"a": 1.0}, {"a": 2.0}]).features == ("a",)
    assert Admission().settled_by_block([]).n_features is None
    with pytest.raises(BadRow, match="block of shape"):
        Admission().settled_by_block(np.zeros(3))


def test_features_are_settled_once() -> None:
    gate = Admission(features=["a", "b"], bounds={"b": (0, 2), "a": (0, 1)})
    assert gate.fixed(["a", "b"]).features == ("a", "b")
    with pytest.raises(BadParameter, match="differ in name or order"):
        gate.fixed(["b", "a"])
    with pytest.raises(BadParameter, match="3 features given"):
        gate.fixed(None, 3)
    with pytest.raises(AttributeError):
        gate.row_norm = 2.0  # type: ignore[misc]


def test_checked_numbers_are_admitted_later_as_at_once() -> None:
    rows = np.random.default_rng(0).normal(size=(6, 3))
    rows[4, 1] = np.nan
    gate = Admission(n_features=3, on_bad_row="zero", bounds=(-1.0, 2.0), center=True)
    listed = [*rows[:3], "ab", *rows[3:]]
    values = gate.all_values(listed, 1)
    assert np.isnan(values[3]).all()
    admitted, bad = gate.block(values, 1)
    assert bad == 2
    np.testing.assert_array_equal(admitted, np.concatenate([gate.row(row, 1)[0] for row in listed]))
    with pytest.raises(BadRow, match=r"row 14: .*'ab'"):
        Admission(n_features=3).all_values(listed, 11)


def test_what_decides_about_good_rows_is_in_the_settings() -> None:
    options = [
        {}, {"row_norm": 2.0}, {"bounds": (-1.0, 1.0)}, {"bounds": (-1.0, 1.5)}, {"center": True}, {"n_features": 3},
    ]  # fmt: skip
    gates = [Admission(**({"n_features": 2} | given)) for given in options]
    assert len({gate.settings for gate in gates}) == len(options)
    assert Admission(features=["a", "b"], on_bad_row="zero").settings == gates[0].settings


def test_ranges_say_how_rows_are_seen() -> None:
    bounds = ([0.0, -1.0], [4.0, 1.0])
    gate = Admission(row_norm=3.0, bounds=bounds, n_features=2)
    middle, scale = gate.ranges()
    inside = np.array([[1.0, 0.5], [4.0, -1.0]])
    np.testing.assert_allclose((inside - middle) * scale, gate.block(inside, 1)[0] * gate.row_norm, atol=1e-5)
    np.testing.assert_array_equal(gate.row(gate.neutral(2), 1)[0], [[0.0, 0.0]])
    assert Admission(n_features=2).ranges() == (None, None)


def test_tables_are_read_by_name() -> None:
    gate = Admission(features=["b", "a"])
    np.testing.assert_array_equal(gate.table(pd.DataFrame({"a": [1, 2], "b": [3, 4]})), [[3, 1], [4, 2]])
    with pytest.raises(BadRow, match=r"lacks features \['a'\]"):
        gate.table(pd.DataFrame({"b": [1]}))
    with pytest.raises(BadRow, match="'a' of the table is not numeric"):
        gate.table(pd.DataFrame({"a": ["x"], "b": [1]}))


def test_long_rows_are_scaled_onto_the_ball_of_row_norm() -> None:
    gate = Admission(row_norm=10.0, n_features=2)
    np.testing.assert_allclose(gate.row([3.0, 4.0], 1)[0], [[0.3, 0.4]], atol=STEP)
    np.testing.assert_allclose(gate.row([30.0, 40.0], 1)[0], [[0.6, 0.8]], atol=2 * STEP)


def test_bounds_map_public_ranges_into_the_ball() -> None:
    gate = Admission(bounds={"age": (0, 100), "pay": (-1, 1)}, features=["age", "pay"])
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(gate.row({"age": 100, "pay": -1}, 1)[0], [[half, -half]], atol=2 * STEP)
    np.testing.assert_allclose(gate.row({"age": 50, "pay": 99}, 1)[0], [[0.0, half]], atol=2 * STEP)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.1, np.nan], r"row 9: feature 1 is not finite \(nan\)"),
        ([0.1, -np.inf], r"row 9: feature 1 is not finite \(-inf\)"),
        ([0.1, "n/a"], r"row 9: feature 1 is not a number \('n/a'\); pass on_bad_row='zero'"),
        ([0.1, None], "row 9: feature 1 is not"),
        ([0.1], "row 9: 1 values given, 2 expected"),
        ([[0.1, 0.2]], "use push_many"),
        ("ab", "is not a row of numbers"),
        (3.0, "row 9"),
        (np.array([1j, 2]), "not real numbers"),
        ({"x": 1, "z": 2}, "row 9: lacks feature 'y'"),
        ({"x": 1, "y": 1, "z": 2}, "row 9: has unknown feature 'z'"),
        ({"x": 1, "y": "n/a"}, "row 9: feature 'y' is not a number"),
    ],
)
def test_bad_rows_are_named_or_become_zero(row: object, message: str) -> None:
    features = ["x", "y"] if isinstance(row, dict) else None
    with pytest.raises(BadRow, match=message):
        Admission(n_features=2, features=features).row(row, 9)
    admitted, bad = Admission(n_features=2, features=features, on_bad_row="zero").row(row, 9)
    assert bad == 1
    np.testing.assert_array_equal(admitted, [[0.0, 0.0]])


def test_a_block_names_its_first_bad_row() -> None:
    with pytest.raises(BadRow, match="row 12: feature 0 is not finite"):
        Admission(n_features=1).block(np.array([[1.0], [2.0], [np.inf]]), 10)
    with pytest.raises(BadRow, match="n_features"):
        Admission(n_features=1).block(np.zeros(3), 1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"row_norm": 0}, "row_norm=0"),
        ({"row_norm": float("inf")}, "row_norm=inf"),
        ({"row_norm": "1"}, "row_norm='1'"),
        ({"on_bad_row": "skip"}, "on_bad_row='skip'"),
        ({"features": ["a", "a"]}, "repeats 'a'"),
        ({"features": ["a"], "n_features": 2}, "1 features given, but this stream has 2"),
        ({"n_features": 2, "bounds": (1, 0)}, "lower < upper"),
        ({"n_features": 2, "bounds": (0, float("inf"))}, "finite"),
        ({"n_features": 2, "bounds": ([0, 0, 0], 1)}, "do not fit 2 features"),
        ({"n_features": 2, "bounds": 3}, r"must be \(lower, upper\)"),
        ({"n_features": 2, "bounds": {"a": (0, 1)}}, "need named features"),
        ({"features": ["a", "b"], "bounds": {"a": (0, 1)}}, "missing for 'b'"),
    ],
)
def test_settings_outside_their_domain(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        Admission(**keywords)  # type: ignore[arg-type]
