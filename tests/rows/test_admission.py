import pickle
import re
from collections import namedtuple
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

import streampca as sp
from streampca.errors import BadRowError, UsageError
from streampca.linalg.lattice import STEP, is_admitted
from streampca.rows.admission import REASONS, Admission, Counts, bad_values

Point = namedtuple("Point", "x y")
anything = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(rows=arrays(np.float64, (5, 3), elements=anything), norm=st.floats(2e-150, 9e149), bounded=st.booleans())
def test_whatever_comes_in_what_goes_on_is_admitted(rows: np.ndarray, norm: float, bounded: bool) -> None:
    gate = Admission(row_norm=norm, bounds=(-2.0, 5.0) if bounded else None, n_features=3)
    block, marks = gate.block(rows, 1)
    assert is_admitted(block)
    assert marks.counts().bad == (~np.isfinite(rows).all(axis=1)).sum()
    assert not block[~np.isfinite(rows).all(axis=1)].any()
    one_by_one = [gate.row(row, 1) for row in rows]
    np.testing.assert_array_equal(np.concatenate([r for r, _ in one_by_one]), block)
    assert str(reduce(Counts.plus, (counts for _, counts in one_by_one)).plain()) == str(marks.counts().plain())


def test_features_are_fixed_once_by_the_first_row_or_block() -> None:
    unknown = Admission()
    gate = unknown.fixed_by(namedtuple("Other", "b a")(0.1, 0.2))
    assert gate.features == ("b", "a")
    assert gate.fixed_by({"z": 1.0}) is gate
    np.testing.assert_allclose(gate.row({"a": 0.5, "b": 0.25}, 2)[0], [[0.25, 0.5]])
    assert unknown.fixed_by_block(np.zeros((3, 4))).n_features == 4
    assert unknown.fixed_by_block(pd.DataFrame({"a": [1.0], "b": [2.0]})).features == ("a", "b")
    assert (unknown.fixed_by_block([]), unknown.n_features) == (unknown, None)
    for refused, message in (
        (lambda: unknown.fixed_by({"a": 0.1}), "the first row would determine the names"),
        (lambda: unknown.fixed_by_block([{"a": 0.1}]), "the first row would determine the names"),
        (lambda: unknown.row([0.1, 0.2], 1), "not known yet"),
        (lambda: unknown.fixed_by("ab", 1), "not a row of numbers"),
        (lambda: unknown.fixed_by_block(np.zeros(3)), "block of shape"),
        (lambda: Admission(n_features=1).block(np.zeros(3), 1), "n_features"),
        (lambda: gate.fixed(["a", "b"]), "names of this stream in the same order"),
        (lambda: gate.fixed(None, 3), "features: 3 given"),
    ):
        with pytest.raises((UsageError, BadRowError), match=message):
            refused()


def test_what_decides_about_good_rows_is_in_the_settings() -> None:
    options = [
        {}, {"row_norm": 2.0}, {"bounds": (-1.0, 1.0)}, {"bounds": (-1.0, 1.5)}, {"center": True}, {"n_features": 3},
    ]  # fmt: skip
    gates = [Admission(**({"n_features": 2} | given)) for given in options]
    assert len({gate.settings for gate in gates}) == len(options)
    assert Admission(features=["a", "b"]).settings == gates[0].settings


def test_ranges_say_how_rows_are_seen() -> None:
    bounds = ([0.0, -1.0], [4.0, 1.0])
    gate = Admission(row_norm=3.0, bounds=bounds, n_features=2)
    middle, scale = gate.ranges()
    inside = np.array([[1.0, 0.5], [4.0, -1.0]])
    np.testing.assert_allclose((inside - middle) * scale, gate.block(inside, 1)[0] * gate.row_norm, atol=1e-5)
    np.testing.assert_array_equal(gate.row(middle, 1)[0], [[0.0, 0.0]])
    assert Admission(n_features=2).ranges() == (None, None)


def test_rows_are_mapped_into_the_ball() -> None:
    half, ages = 1 / np.sqrt(2), {"bounds": {"age": (0, 100), "pay": (-1, 1)}, "features": ["age", "pay"]}
    for options, row, expected in (
        ({"row_norm": 10.0, "n_features": 2}, [3.0, 4.0], [0.3, 0.4]),
        ({"row_norm": 10.0, "n_features": 2}, [30.0, 40.0], [0.6, 0.8]),
        (ages, {"age": 100, "pay": -1}, [half, -half]),
        (ages, {"age": 50, "pay": 99}, [0.0, half]),
    ):
        np.testing.assert_allclose(Admission(**options).row(row, 1)[0], [expected], atol=2 * STEP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([0.1, np.nan], "missing value"),
        ([0.1, -np.inf], "infinite value"),
        ([0.1, "n/a"], "not a number"),
        ([0.1, None], "missing value"),
        (["x", "y"], "not a number"),
        ([0.1, [0.2]], "not a number"),
        (np.array([1j, 2]), "not a number"),
        (np.array([0.1, "z"], dtype=object), "not a number"),
        ({"x": 1, "z": 2}, "missing value"),
        ({}, "missing value"),
        ({"x": 1, "y": "n/a", "z": 2}, "not a number"),
    ],
)
@pytest.mark.parametrize("center", [False, True])
def test_bad_rows_become_the_zero_vector(row: object, reason: str, center: bool) -> None:
    gate = Admission(n_features=2, features=["x", "y"] if isinstance(row, dict) else None, center=center)
    admitted, counts = gate.row(row, 9)
    assert dict(zip(REASONS, counts.zeroed, strict=True)) == dict.fromkeys(REASONS, 0) | {reason: 1}
    np.testing.assert_array_equal(admitted, np.zeros((1, 2 + center)))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.1], "row 9: 1 values, expected 2"),
        (["x"], "row 9: 1 values, expected 2"),
        ([[0.1, 0.2]], "row 9: 1 values, expected 2"),
        ([[0.1, 0.2], [0.3, 0.4]], "Use push_many"),
        (np.zeros((2, 1)), "Use push_many"),
        ("ab", "is not a row of numbers"),
        (None, "is not a row of numbers"),
        (3.0, "row 9"),
        ({"x": 1, "y": 2}, "features of this stream have no names"),
    ],
)
def test_rows_of_another_shape_are_refused(row: object, message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        Admission(n_features=2).row(row, 9)
    with pytest.raises(BadRowError, match=message):
        Admission(n_features=2).all_values([[0.1, 0.2], row], 8)


def test_unknown_names_are_ignored_and_the_first_row_may_be_bad() -> None:
    gate = Admission().fixed_by(Point("?", None))
    assert gate.features == ("x", "y")
    np.testing.assert_array_equal(gate.row({"z": "?", "y": 0.5, "x": 0.25}, 1)[0], [[0.25, 0.5]])
    assert Admission().fixed_by(["?", 0.1, None]).n_features == 3


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"row_norm": 0}, "row_norm=0"),
        ({"row_norm": float("inf")}, "row_norm=inf"),
        ({"row_norm": "1"}, "row_norm='1'"),
        ({"row_norm": 1e151}, "between 1e-150 and 1e150"),
        ({"bounds": (0.0, 5e-324)}, "finite lower < upper"),
        ({"features": ["a", "a"]}, "expected distinct names. Repeated: 'a'"),
        ({"features": ["a"], "n_features": 2}, "1 names, but this stream has 2"),
        ({"n_features": 2, "bounds": {"a": (0, 1)}}, "expected named features"),
    ],
)
def test_settings_outside_their_domain(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Admission(**keywords)  # type: ignore[arg-type]


# -- counts for the curator ---------------------------------------------------------


def stream(**options: object) -> sp.Stream:
    every = options.pop("release_every", 7)
    algorithm = sp.PrivateFPL(
        n_components=1, epsilon=1.0, delta=1e-6, release_every=every, center=options.pop("center", False)
    )  # type: ignore[arg-type]
    options.setdefault("row_norm", None if "bounds" in options else 1.0)
    return sp.Stream(algorithm, seed=0, **{"features": 2} | options)  # type: ignore[arg-type]


BOUNDED = {"features": ["a", "b"], "bounds": {"a": (0.0, 0.3), "b": (-1.0, 1.0)}}


def mixed_rows() -> np.ndarray:
    rows = np.random.default_rng(3).uniform(-1.0, 1.0, size=(40, 2))
    rows[3, 1], rows[9, 0], rows[17, 1] = np.nan, np.inf, 1e300
    rows[18] = bad_values("unreadable record", 2)
    return rows


@pytest.mark.parametrize("options", [{}, BOUNDED, {"row_norm": 0.5, "center": True}, BOUNDED | {"center": True}])
def test_counts_are_those_of_a_plain_loop_however_rows_come(options: dict, tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows = mixed_rows()
    good = rows[np.isfinite(rows).all(axis=1)]
    if "bounds" in options:
        lower, upper = np.array([[0.0, -1.0], [0.3, 1.0]])
        clamped = dict(zip("ab", ((good < lower) | (good > upper)).mean(axis=0), strict=True))
        seen, scaled = (np.clip(good, lower, upper) - (lower + upper) / 2) / (upper - lower), 0.0
        used = np.mean(2.0 * (seen**2).sum(axis=1))
    else:
        norms = np.array([np.hypot(*row) for row in good]) / options.get("row_norm", 1.0)
        used, scaled, clamped = np.mean(np.minimum(norms, 1.0) ** 2), (norms > 1.0).mean(), {}
    single, many, cut, durable = stream(**options), stream(**options), stream(**options), None
    for row in rows:
        single.push(row)
    many.push_many(rows)
    cut.push_many(rows[:5])
    for block in cut.leaves().blocks([rows[5:11], rows[11:]], 5):
        cut.push_block(block)
    with sp.Store(tmp_path / "run.db", commit_every=1) as store:
        durable = stream(**options, store=store)
        durable.push_many(rows[:20])
    with sp.Store(tmp_path / "run.db") as store:
        durable = sp.Stream.resume(store)
        durable.push_many(rows[20:])
        report = single.admission
        assert durable.admission == report
    assert report == many.admission == cut.admission == pickle.loads(pickle.dumps(many)).admission
    assert report.zero_rows_by_reason == {"missing value": 1, "infinite value": 1, "unreadable record": 1}
    assert report.rows == 40
    assert report.share_scaled == pytest.approx(scaled, abs=1e-12)
    assert report.share_clamped == pytest.approx(clamped, abs=1e-12)
    assert report.ball_used == pytest.approx(used, abs=1e-5)


def incomes() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.normal(40_000.0, 9_000.0, 200), rng.uniform(18.0, 90.0, 200)])


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (
            {},
            ["^100 % of rows are longer than row_norm=1 and were scaled; the components are those of the scaled"],
        ),
        ({"bounds": (0.0, 1.0)}, ["clamped \\(feature 0 100.0%, feature 1 100.0%\\).* wider public bounds"]),
        ({"bounds": ([-1e6, -500.0], [1e6, 600.0])}, [r"use \d\.\d\d% of the ball .*\. Give tighter public bounds"]),
        ({"row_norm": 1e6}, [r"use \d\.\d\d% of the ball .*\. Give a smaller row_norm"]),
        ({"bounds": ([0.0, 0.0], [80_000.0, 100.0])}, []),
    ],
)
def test_settings_that_mislead_are_told_to_the_curator(options: dict, warnings: list[str]) -> None:  # type: ignore[no-untyped-def]
    told = stream(**options)
    told.push_many(incomes())
    found = told.admission.warnings()
    assert len(found) == len(warnings), found
    for text, pattern in zip(found, warnings, strict=True):
        assert re.search(pattern, text), text


def test_a_report_before_the_first_row_and_of_one_bad_cell() -> None:
    fed = stream(bounds=(0.0, 1.0))
    assert (fed.admission.rows, fed.admission.zero_rows_by_reason, fed.admission.warnings()) == (0, {}, [])
    assert np.isnan([fed.admission.share_scaled, fed.admission.ball_used]).all()
    rows = (incomes() / [80_000.0, 100.0]).tolist()
    rows[148][0] = "abc"
    fed.push_many(rows)
    assert fed.admission.warnings() == ["1 of 200 rows could not be used and count for nothing (1 not a number)."]


def test_a_log_for_the_curator_tells_of_the_rows_at_the_end_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    fed, rows = stream(bounds=(0.0, 1.0)), (incomes() / [80_000.0, 100.0]).tolist()
    list(fed.run(rows))
    assert not caplog.records
    list(fed.run([*rows, ["abc", 0.1], [None, 0.2]]))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("streampca.curator", "WARNING")
    assert "2 of 402 rows could not be used and count for nothing (1 missing value, 1 not a number)" in record.message
    caplog.clear()
    share = 100.0 * np.mean(np.linalg.norm(incomes(), axis=1) > 50_000.0)
    list(stream(row_norm=50_000.0).run(incomes()))
    assert [record.message for record in caplog.records] == [
        f"{share:.3g} % of rows are longer than row_norm=50000 and were scaled; the components are "
        "those of the scaled rows (curator only)"
    ]
