"""What people hand over as rows, through every door."""

import array
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import streampca as sp
from streampca.conversion import as_block
from streampca.errors import StreamPCAError
from streampca.readers import reader_blocks, unpack

ROWS = np.random.default_rng(0).uniform(0.0, 0.4, size=(6, 3))
NAMES = ("a", "b", "c")
FRAME = pd.DataFrame(ROWS, columns=NAMES)
BUDGET = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6}
FPL = sp.PrivateFPL(**BUDGET, release_every=1, center=False, horizon=100)


def arrow():
    return pytest.importorskip("pyarrow").table(dict(zip(NAMES, ROWS.T, strict=True)))


def duckdb():
    return pytest.importorskip("duckdb").from_arrow(arrow())


#: The same rows, made anew each time, and whether their features have names.
KINDS = {
    "array": (lambda: ROWS, False),
    "array by columns": (lambda: np.asfortranarray(ROWS), False),
    "objects": (lambda: ROWS.astype(object), False),
    "text": (lambda: ROWS.astype(str), False),
    "masked array that hides nothing": (lambda: np.ma.array(ROWS, mask=False), False),
    "list of arrays": (lambda: list(ROWS), False),
    "tuple of tuples": (lambda: tuple(map(tuple, ROWS)), False),
    "list of array.array": (lambda: [array.array("d", row) for row in ROWS], False),
    "generator": (lambda: (row for row in ROWS), False),
    "values of a mapping": (lambda: dict(enumerate(ROWS)).values(), False),
    "sparse": (lambda: sparse.csc_array(ROWS), False),
    "pandas": (lambda: FRAME, True),
    "pandas, nullable": (lambda: FRAME.astype("Float64"), True),
    "polars": (lambda: pytest.importorskip("polars").DataFrame(FRAME.to_dict("list")), True),
    "Arrow table": (arrow, True),
    "Arrow batch": (lambda: arrow().to_batches()[0], True),
    "Arrow stream": (lambda: arrow().to_reader(), True),
    "DuckDB relation": (duckdb, True),
}


def nested(cells, width=None):
    pl = pytest.importorskip("polars")
    kind = None if width is None else pl.Array(pl.Float64, width)
    return pl.DataFrame(FRAME.to_dict("list")).with_columns(pl.Series("a", cells, dtype=kind))


#: Rows of the right shape whose cells are no real numbers: bad rows of a stream.
CELLS = {
    "complex": lambda: ROWS + 1j,
    "dates": lambda: np.full((6, 3), np.datetime64("2026-01-01")),
    "column of complex": lambda: FRAME.assign(a=ROWS[:, 0] + 1j),
    "column of text": lambda: FRAME.assign(a=list("uvwxyz")),
    "hidden values": lambda: np.ma.array(ROWS, mask=True),
    "hidden values of a row": lambda: list(np.ma.array(ROWS, mask=True)),
}
#: What is no rows of real numbers.
BAD = {
    "number": lambda: 7,
    "none": lambda: None,
    "object": object,
    "text": lambda: "abc",
    "path": lambda: Path("rows.csv"),
    "mapping of columns": lambda: FRAME.to_dict("list"),
    "set": lambda: {1.0, 2.0},
    "rows that are sets": lambda: [{1.0, 2.0}],
    "numbers": lambda: [1.0, 2.0],
    "column of dates": lambda: FRAME.assign(a=pd.date_range("2026", periods=6)),
    "column of dates with a zone": lambda: FRAME.assign(a=pd.date_range("2026", periods=6, tz="UTC")),
    "column of arrays": lambda: nested([[1.0, 2.0]] * 6, 2),
    "column of structs": lambda: nested([{"x": 1}] * 6),
    "column of durations": lambda: FRAME.assign(a=pd.to_timedelta(range(6))),
    "records": lambda: FRAME.to_records(index=False),
    "lazy frame": lambda: pytest.importorskip("polars").LazyFrame(FRAME.to_dict("list")),
}


def stream(**options):
    return sp.Stream(FPL, row_norm=1.0, **options)


def people(**unit):
    return sp.Stream(replace(FPL, unit=sp.Person(budget=100.0, **unit)), row_norm=1.0)


def exact(made):
    return made.regret.exact_gram(), made.features


def released(rows):
    release = sp.GaussianCovariance(**BUDGET, center=False).release(rows, seed=1, row_norm=1.0)
    return release.gram, release.features


def packed(rows):
    made = sp.Stream(replace(FPL, release_every=3), row_norm=1.0, features=NAMES)
    blocks = [unpack(block)[1] for block in reader_blocks(made.leaves(), [rows], reader=0, rows=3)]
    return np.stack([block.high + block.low * 2.0**-40 for block in blocks]), None


RELEASE = sp.GaussianCovariance(**BUDGET, center=False).release(ROWS, seed=1, row_norm=1.0)
DOORS = {
    "push_many": lambda rows: (made := stream(), made.push_many(rows))[0],
    "run": lambda rows: (made := stream(), list(made.run(rows)))[0],
    "people": lambda rows: (made := people(), made.push_many(rows, person=range(6)))[0],
    "release": released,
    "transform": lambda rows: (RELEASE.transform(rows), None),
    "readers": packed,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_are_the_same_rows(kind, door):
    make, named = KINDS[kind]
    if isinstance(rows := make(), np.ndarray | pd.DataFrame):
        assert as_block(rows) is rows  # not copied
    (found, features), (expected, _) = (
        made if isinstance(made, tuple) else exact(made) for made in (DOORS[door](make()), DOORS[door](ROWS))
    )
    assert np.allclose(found, expected, rtol=1e-12, atol=0.0)
    assert features == (NAMES if named and door in ("push_many", "run", "people", "release") else None)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_rows_of_real_numbers_gives_one_clear_error(kind, door):
    with pytest.raises(StreamPCAError) as told:
        DOORS[door](BAD[kind]())
    assert len(str(told.value)) < 250


@pytest.mark.parametrize("door", ["push_many", "run", "people"])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_that_are_no_real_numbers_make_bad_rows(kind, door):
    made = DOORS[door](CELLS[kind]())
    assert (made.t, made.admission.bad_rows) == (6, 6)
    assert not made.regret.exact_gram().any()


@pytest.mark.parametrize("kind", CELLS)
def test_mechanisms_release_them_as_zeros(kind):
    assert np.array_equal(released(CELLS[kind]())[0], released(np.zeros((6, 3)))[0])


def test_a_hidden_value_is_a_bad_row_like_a_missing_one():
    hidden, missing = np.ma.array(ROWS, mask=ROWS > 0.35), np.where(ROWS > 0.35, np.nan, ROWS)
    grams = []
    for rows in (hidden, missing, list(hidden)):
        made = stream(features=3)
        made.push_many(rows)
        assert made.admission.bad_rows == np.isnan(missing).any(axis=1).sum()
        grams.append(made.regret.exact_gram())
    assert np.array_equal(grams[0], grams[1])
    assert np.array_equal(grams[0], grams[2])


def test_people_of_a_table_are_known_by_their_value_and_columns_by_their_name():
    pa = pytest.importorskip("pyarrow")
    table = arrow().append_column("who", pa.array(["ann", "bob", "ann", "ann", "bob", "cid"]))
    made, lazily, other = (people(max_rows=2, column="who") for _ in range(3))
    made.push_many(table)
    assert len(list(lazily.run(table))) == 6
    assert np.array_equal(made.regret.exact_gram(), lazily.regret.exact_gram())
    made.push(ROWS[0], "bob")
    made.push(ROWS[0], pa.scalar("ann"))
    other.push_many(FRAME[["c", "a", "b"]], person=table["who"])
    other.push_many(FRAME, person=["ann"] * 6)
    for stream, order in ((made, [0, 1, 2]), (other, [2, 0, 1])):
        kept = ROWS[[0, 1, 2, 4, 5]][:, order]
        assert np.allclose(stream.regret.exact_gram(), kept.T @ kept, atol=1e-4)
        assert stream.features == tuple(NAMES[j] for j in order)
    with pytest.raises(StreamPCAError, match="of type int: expected"):
        list(lazily.run(7))


def test_masked_rows_of_scikit_learn_and_records_and_frames_of_river():
    pca = pytest.importorskip("streampca.sklearn").PrivatePCA(n_components=1, row_norm=1.0)
    for method in (pca.fit, pca.partial_fit):
        assert method(np.ma.array(ROWS, mask=ROWS > 0.2)).admission.bad_rows == (ROWS > 0.2).any(axis=1).sum()
    kind = pytest.importorskip("streampca.river").PrivatePCA
    row, no_rows = FRAME.iloc[0], ([0.1, 0.2, 0.3], ROWS[0], "abc", None, 7)
    model = kind(n_components=1, row_norm=1.0, release_every=1)
    model.learn_one(row)
    assert model.transform_one(row) == model.transform_one(row.to_dict())
    for each, x in product((model, kind(n_components=1, row_norm=1.0, release_every=1)), no_rows):
        for method in (each.learn_one, each.transform_one):
            with pytest.raises(StreamPCAError, match="expected a mapping"):
                method(x)
    twice = pd.DataFrame(np.ones((2, 4)), columns=["a", "b", "c", "a"])
    for X, message in ((ROWS, "polars"), (7, "polars"), (BAD["column of dates"](), "numbers"), (twice, "one name")):
        for method in (model.learn_many, model.transform_many):
            with pytest.raises(StreamPCAError, match=message):
                method(X)


@pytest.mark.parametrize(
    "named",
    ["ann", b"ann", 7, None, np.array(7), {"a", "b", "c"}, frozenset("abc"), {"a": 1, "b": 2, "c": 3}.keys(),
     {"a": 1, "b": 2, "c": 3}, np.eye(3), pd.DataFrame(np.eye(3))],
    ids=lambda named: type(named).__name__,
)  # fmt: skip
def test_people_are_named_row_by_row(named):
    with pytest.raises(StreamPCAError, match=r"person: expected a name for each row"):
        people().push_many(ROWS[:3], person=named)


@pytest.mark.parametrize("cells", [[True, None], [1, None], [0.5, None]])
@pytest.mark.parametrize("door", ["push_many", "run"])
def test_missing_values_of_pandas_types_spoil_their_row_alone(cells, door):
    kind = {bool: "boolean", int: "Int64", float: "Float64"}[type(cells[0])]
    frame = pd.DataFrame({"a": pd.array(cells, dtype=kind), "b": [0.1, 0.2], "c": [0.3, 0.4]})
    made = stream(features=NAMES)
    list(getattr(made, door)(frame))
    assert made.t == 2
    assert made.admission.zero_rows_by_reason == {"missing value": 1}


def test_wide_floats_of_a_frame_that_overflow_warn_of_nothing(recwarn):
    wide = pd.DataFrame({"a": np.array(["1e4000", "0.1"], dtype=np.longdouble), "b": 0.1, "c": 0.2})
    recwarn.clear()
    stream(features=NAMES).push_many(wide)
    assert not recwarn


@pytest.mark.parametrize("door", ["push_many", "run"])
def test_columns_of_one_name_arrays_of_arrow_and_paths_are_refused(door):
    pa = pytest.importorskip("pyarrow")
    twice = pd.DataFrame(np.ones((2, 4)), columns=["a", "b", "c", "c"])
    for rows, options, message in (
        (twice, {}, "one name"),
        (pa.array([1.0, 2.0]), {}, "expected a table"),
        (pa.chunked_array([[1.0, 2.0]]), {}, "expected a table"),
        (pa.array(ROWS.tolist()), {}, "expected a table"),
        ("rows.csv", {}, "open_rows"),
        (Path("rows.csv"), {}, "open_rows"),
    ):
        with pytest.raises(StreamPCAError, match=message):
            list(getattr(stream(features=NAMES, **options), door)(rows))
