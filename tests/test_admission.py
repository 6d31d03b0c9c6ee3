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
    gate = Admission(row_norm=norm, bounds=(-2.0, 5.0) if bounded else None, on_bad_row="zero")
    block, bad = gate.block(rows, 1)
    assert is_admitted(block)
    assert bad == (~np.isfinite(rows).all(axis=1)).sum()
    assert not block[~np.isfinite(rows).all(axis=1)].any()
    again = Admission(row_norm=norm, bounds=(-2.0, 5.0) if bounded else None, on_bad_row="zero", n_features=3)
    one_by_one = [again.row(row, 1) for row in rows]
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
        np.testing.assert_array_equal(Admission().row(row, 1)[0], [[0.25, 0.5]])


def test_mappings_keep_the_first_rows_order() -> None:
    gate = Admission()
    gate.row(OrderedDict(b=0.1, a=0.2), 1)
    assert gate.features == ("b", "a")
    np.testing.assert_allclose(gate.row({"a": 0.5, "b": 0.25}, 2)[0], [[0.25, 0.5]])


def test_tables_are_read_by_name() -> None:
    gate = Admission(features=["b", "a"])
    np.testing.assert_array_equal(gate.table(pd.DataFrame({"a": [1, 2], "b": [3, 4]})), [[3, 1], [4, 2]])
    with pytest.raises(BadRow, match=r"lacks features \['a'\]"):
        gate.table(pd.DataFrame({"b": [1]}))
    with pytest.raises(BadRow, match="'a' of the table is not numeric"):
        gate.table(pd.DataFrame({"a": ["x"], "b": [1]}))


def test_long_rows_are_scaled_onto_the_ball_of_row_norm() -> None:
    gate = Admission(row_norm=10.0)
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
        Admission().block(np.array([[1.0], [2.0], [np.inf]]), 10)
    with pytest.raises(BadRow, match="n_features"):
        Admission().block(np.zeros(3), 1)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"row_norm": 0}, "row_norm=0"),
        ({"row_norm": float("inf")}, "row_norm=inf"),
        ({"row_norm": "1"}, "row_norm='1'"),
        ({"on_bad_row": "skip"}, "on_bad_row='skip'"),
        ({"features": ["a", "a"]}, "repeats 'a'"),
        ({"features": ["a"], "n_features": 2}, "2 features given"),
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
