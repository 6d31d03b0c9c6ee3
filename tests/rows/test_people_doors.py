"""The rows of one person are hers through every interface, whatever type her name has there."""

import json
import sqlite3
from contextlib import closing
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streampca as sp
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.sources import Reading, from_query, open_rows

NAMES = ["a", "b"]
WHO = [12, "12", " 012 ", 12.0, None, "", float("nan")]
ROWS = np.random.default_rng(4).normal(size=(7, 2)) / 3.0
PERSON = sp.Person(column="who")


def stream(**more):
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=30, unit=PERSON)
    return sp.Stream(algorithm, row_norm=1.0, features=NAMES, regret=None, seed=1, **more)


def fed(rows):
    run = stream()
    list(run.run(rows))
    return run


def with_names(who):
    return pd.DataFrame(ROWS[: len(who)], columns=NAMES).assign(who=pd.Series(who, dtype=object))


def csv(folder):
    path = folder / "rows.csv"
    cells = ["12", "12", '" 012 "', "0012", "", " ", '""']
    path.write_text(
        "a,b,who\n" + "".join(f"{a!r},{b!r},{who}\n" for (a, b), who in zip(ROWS.tolist(), cells, strict=True))
    )
    return fed(open_rows(path, columns=NAMES))


def ndjson(folder):
    path = folder / "rows.jsonl"
    cells = [12, "12", " 012 ", 12.0, None, "", [12]]
    path.write_text(
        "".join(
            json.dumps({"a": a, "b": b, "who": who}) + "\n" for (a, b), who in zip(ROWS.tolist(), cells, strict=True)
        )
    )
    return fed(open_rows(path, columns=NAMES))


def parquet(folder, who=(12, 12, 12, 12, None, None, None)):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1], "who": list(who)}), folder / "rows.parquet")
    return fed(open_rows(folder / "rows.parquet", columns=NAMES))


def arrow(_):
    pa = pytest.importorskip("pyarrow")
    return fed(pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1], "who": pa.array([12] * 4 + [None] * 3)}))


def arrow_scalars(_):
    pa = pytest.importorskip("pyarrow")
    run = stream()
    scalars = [pa.scalar(12), pa.scalar("12"), pa.scalar(" 012 "), pa.scalar(12.0), pa.scalar(None), pa.scalar("")]
    run.push_many(ROWS, person=[*scalars, pa.scalar(2.0**53)])
    return run


def numpy_scalars(_):
    run = stream()
    for row, who in zip(
        ROWS,
        [
            np.int8(12),
            np.uint64(12),
            np.float32(12),
            np.str_("012"),
            np.float64("nan"),
            np.float64(2**53),
            np.float16(2**11),
        ],
        strict=True,
    ):
        run.push(row, person=who)
    return run


def a_query(folder):
    path = folder / "rows.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, a REAL, b REAL, who)")
        for at, ((a, b), who) in enumerate(zip(ROWS.tolist(), [*WHO[:6], None], strict=True), 1):
            database.execute("INSERT INTO visits VALUES (?, ?, ?, ?)", (at, a, b, who))
    query = from_query(f"sqlite:///{path}", "SELECT id, a, b, who FROM visits", cursor="id", columns=NAMES)
    return fed(query)


def polars(_):
    pl = pytest.importorskip("polars")
    return fed(pl.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "who": [12.0] * 4 + [None, float("nan"), 2.0**53]}))


def pushed(_):
    run = stream()
    for row, who in zip(ROWS.tolist(), WHO, strict=True):
        run.push({**dict(zip(NAMES, row, strict=True)), **({} if who == "" else {"who": who})})
    return run


def river_learned(_):
    model = pytest.importorskip("streampca.river").PrivatePCA(1, 1.0, row_norm=1.0, unit=PERSON, horizon=30, seed=1)
    table = with_names(WHO)
    model.learn_one(table.iloc[0].to_dict())
    model.learn_many(table[1:])
    return model


def sklearn_fitted(_):
    model = pytest.importorskip("streampca.sklearn").PrivatePCA(1, row_norm=1.0, unit=sp.Person(), random_state=1)
    return model.partial_fit(ROWS, person=pd.Series([12, 12, 12, 12, None, None, None]))


DOORS = {
    "csv": csv, "ndjson": ndjson, "parquet": parquet, "arrow": arrow, "arrow scalars": arrow_scalars,
    "numpy scalars": numpy_scalars, "query": a_query, "polars": polars, "push": pushed, "river": river_learned,
    "sklearn": sklearn_fitted,
    "parquet of floats": lambda folder: parquet(folder, [12.0] * 4 + [None, float("nan"), 2.0**53]),
    "parquet of texts": lambda folder: parquet(folder, ["12", " 012 ", "012", "12", None, "", " "]),
    "frame": lambda _: fed(with_names(WHO)),
    "frame of floats": lambda _: fed(with_names(WHO).assign(who=[12, 12, 12, 12, None, None, None])),
    "frame of nullable numbers": lambda _: fed(
        with_names(WHO).assign(who=pd.array([12, 12, 12, 12, None, None, None], dtype="Int64"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_four_rows_of_one_person_and_three_of_nobody(door, tmp_path):
    seen = DOORS[door](tmp_path).admission
    assert seen.people == 1
    assert seen.rows == 7
    assert seen.zero_rows_by_reason == {"no person": 3}
    assert seen.rows_full + seen.rows_shrunk + seen.rows_refused == 4


def test_one_release_of_a_table_knows_her_by_any_type(tmp_path):
    """Seeded releases agree if the rows are attributed alike, and differ from those of people apart."""

    def released(table):
        return sp.pca(table, 1, 1.0, row_norm=0.2, columns=NAMES, unit="who", seed=1).packed

    texts = with_names(["12"] * 4 + [None] * 3)
    texts.to_csv(tmp_path / "rows.csv", index=False)
    one = released(texts)
    for table in (with_names(WHO), tmp_path / "rows.csv", texts.assign(who=[12.0] * 4 + [np.nan] * 3)):
        np.testing.assert_array_equal(released(table), one)
    assert np.abs(released(with_names([1, 2, 3, 4, None, None, None])) - one).max() > 0.01
    gaussian = sp.GaussianCovariance(n_components=1, epsilon=1.0, unit=sp.Person())
    many = [gaussian.release(ROWS, row_norm=0.2, seed=1, person=who).packed for who in (WHO, texts["who"])]
    np.testing.assert_array_equal(*many)


def test_dates_of_a_file_are_those_of_a_frame(tmp_path):
    days = [date(1990, 2, 3)] * 3 + [date(1991, 2, 3)] * 3 + [None]
    path = tmp_path / "rows.csv"
    with_names(days).to_csv(path, index=False)
    runs = [fed(open_rows(path, columns=NAMES)), fed(with_names(days)), fed(with_names(pd.to_datetime(days)))]
    for run in runs:
        assert run.admission == runs[0].admission
        assert run.admission.people == 2
        assert run.admission.zero_rows_by_reason == {"no person": 1}


def test_a_text_for_a_missing_value_names_nobody(tmp_path):
    texts = ["NA", "nan", "-", " 012 ", "12"]
    csv, lines = tmp_path / "rows.csv", tmp_path / "rows.ndjson"
    csv.write_text("who,a,b\n" + "".join(f"{name},0.1,0.2\n" for name in texts))
    lines.write_text("".join(json.dumps({"who": name, "a": 0.1, "b": 0.2}) + "\n" for name in texts))
    for path in (csv, lines):
        run = stream()
        list(run.run(open_rows(path, columns=NAMES, na=["-"])))
        assert (run.admission.people, run.admission.zero_rows_by_reason) == (1, {"no person": 3})
    report = sp.check(csv, columns=NAMES, row_norm=1.0, read=Reading(na="-"), unit="who")
    assert any(note.startswith("3 rows name nobody") for note in report.notes)


def test_a_table_without_the_column_of_the_person_is_refused(tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES)
    frame.to_parquet(path := tmp_path / "rows.parquet")
    for rows in (frame, pa.table(frame), open_rows(path, columns=NAMES)):
        with pytest.raises(SourceError, match=r"no column 'who'"):
            list(stream().run(rows))
    for rows in (frame, ROWS):
        with pytest.raises(UsageError, match=r"^unit: .*frame with such a column\.$"):
            sp.pca(rows, 1, epsilon=1.0, row_norm=1.0, columns=[0, 1], unit="who")
    with pytest.raises(UsageError, match=r"^unit: .*Use release\(rows, person=\[...\]\)\.$"):
        sp.GaussianCovariance(n_components=1, epsilon=1.0, unit="who").release(ROWS, row_norm=1.0)


def test_the_column_of_the_person_is_no_feature(tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES).assign(who=range(7))
    frame.to_parquet(path := tmp_path / "rows.parquet")
    own = {"epsilon": 1.0, "row_norm": 1.0, "unit": PERSON}
    assert sp.pca(path, 1, **own).features == ("a", "b")
    for rows in (path, frame):
        with pytest.raises(UsageError, match="who holds people or times"):
            sp.pca(rows, 1, columns=["who", "a"], **own)
    with pytest.raises(UsageError, match="who holds people or times"):
        sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, unit=PERSON), row_norm=1.0, features=["a", "who"])
    with pytest.raises(BadParameterError, match=r"unit.column=None: expected the name"):
        sp.pca(path, 1, **own | {"unit": sp.Person()})
