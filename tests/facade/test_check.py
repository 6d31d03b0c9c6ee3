"""A check counts what is in a table, proposes no value of it, and never fails because of a cell."""

import csv
import io
import json
import math
import re
import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy.sparse import csr_matrix

import streampca as sp
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.sources import Reading
from streampca.sources.profile import cells_of, style_of

HEADER = ["patient_id", "visit", "sex", "age", "weight kg", "glucose"]
#: Ages are 20 to 59, weights 60.5 to 99.5, glucose 0 to 9, but for a cell in each of five rows.
ROWS = [[f"P{i:04d}", f"2024-01-{i % 28 + 1:02d}", "fm"[i % 2], 20 + i % 40, 60.5 + i % 40, i % 10] for i in range(200)]
for at, (column, cell) in {3: (3, ""), 5: (5, "-"), 7: (4, "inf"), 9: (5, "-"), 10: (5, "<4")}.items():
    ROWS[at][column] = cell


def text_of(rows, header=HEADER):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "clinic.csv"
    path.write_text(text_of(ROWS))
    return path


def kinds(report):
    return dict(report.columns["kind"])


def arrow():
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    plain = [[None if cell in ("", "-", "<4") else float(cell) for cell in row[3:]] for row in ROWS]
    columns = {name: pa.array([row[j] for row in plain], pa.float64()) for j, name in enumerate(HEADER[3:])}
    visits = pa.array([date.fromisoformat(row[1]) for row in ROWS])
    return pa.table({"patient_id": [r[0] for r in ROWS], "visit": visits, "sex": [r[2] for r in ROWS], **columns})


def cells():
    return [[None if cell == "" else math.inf if cell == "inf" else cell for cell in row] for row in ROWS]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def parquet(folder):
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    pq.write_table(arrow(), folder / "rows.parquet")
    return folder / "rows.parquet"


def ndjson(folder):
    lines = [json.dumps(dict(zip(HEADER, row, strict=True))).replace('"inf"', "1e999") for row in ROWS]
    return written(folder, "rows.ndjson", "\n".join(lines).encode())


def polars_frame(_):
    pl = pytest.importorskip("polars")
    return pl.DataFrame([[str(cell) for cell in row] for row in ROWS], schema=HEADER, orient="row")


FORMS = {
    "CSV": lambda folder: written(folder, "rows.csv", text_of(ROWS).encode()),
    "CSV in quotes": lambda folder: written(
        folder, "rows.csv", "\n".join(",".join(f'"{cell}"' for cell in row) for row in [HEADER, *ROWS]).encode()
    ),
    "TSV": lambda folder: written(folder, "rows.tsv", text_of(ROWS).replace(",", "\t").encode()),
    "NDJSON": ndjson,
    "Parquet": parquet,
    "Arrow": lambda _: arrow(),
    "Arrow batch": lambda _: arrow().to_batches()[0],
    "pandas": lambda _: pd.DataFrame(cells(), columns=HEADER),
    "pandas of text": lambda _: pd.DataFrame(ROWS, columns=HEADER, dtype=object).astype(str),
    "polars": polars_frame,
    "dicts": lambda _: [dict(zip(HEADER, row, strict=True)) for row in cells()],
}
TYPED = ("Parquet", "Arrow", "Arrow batch")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_has_the_same_figures(form, tmp_path):
    report = sp.check(FORMS[form](tmp_path))
    assert kinds(report) == {
        "patient_id": "identifier", "visit": "text", "sex": "text", "age": "number", "weight kg": "number",
        "glucose": "number",
    }  # fmt: skip
    assert (report.rows, report.complete_rows, report.unreadable_rows) == (200, 195, 0)
    assert report.used == ("age", "weight kg", "glucose")
    assert "left out: patient_id (looks like an identifier), visit, sex (text)" in str(report)
    figures = {name: tuple(line) for name, *line in report.columns.drop(columns="kind").itertuples()}
    assert figures["age"] == (0.005, 0.0, "")
    assert figures["weight kg"] == (0.0, 0.005, "infinite")
    # A typed column has null in place of other cells.
    assert figures["glucose"] == ((0.015, 0.0, "") if form in TYPED else (0.0, 0.015, "'-'"))


@pytest.mark.parametrize("kind", [np.float64, object])
def test_arrays_have_columns_without_names(kind):
    rows = np.arange(12.0).reshape(4, 3)
    rows[1, 2] = np.nan
    for data in (rows.astype(kind), rows.astype(kind).tolist()):
        report = sp.check(data, columns=[2, 0], row_norm=4.0)
        assert report.used == ("x2", "x0")
        assert (report.rows, report.complete_rows) == (4, 3)
        assert report.share_long == pytest.approx(2 / 3)  # (2, 0), (8, 6), (11, 9)


def test_sparse_matrices():
    report = sp.check(csr_matrix(np.eye(5)), bounds=(0.0, 0.5))
    assert (report.rows, report.complete_rows, report.columns.outside.iloc[0]) == (5, 5, 0.2)


def test_shares_outside_given_ranges(table):
    report = sp.check(table, bounds={"age": (30, 100), "weight kg": (0, 200), "glucose": (0, 8)})
    shares = dict(report.columns["outside"])
    ages = [row[3] for row in ROWS if row[3] != ""]
    assert shares == {
        "age": sum(age < 30 for age in ages) / 199,
        "weight kg": 0.0,  # an infinite cell is no number
        "glucose": sum(row[5] == 9 for row in ROWS) / 197,
    }  # fmt: skip
    assert "Up to 24.6% of a column is outside its range" in str(report)
    assert report.proposal == ""


def test_the_share_of_long_rows(table):
    report = sp.check(table, row_norm=90.0)
    good = [row[3:] for row in ROWS if all(isinstance(cell, (int, float)) for cell in row[3:])]
    assert report.share_long == np.mean([np.linalg.norm(row) > 90.0 for row in good])
    assert f"{report.share_long:.1%} of the complete rows are longer" in str(report).replace("\n", " ")


def test_uneven_rows_are_pointed_to_a_smaller_norm() -> None:
    uneven = [[3.0, 0.1]] * 40 + [[0.5, 0.1]] * 60
    text = str(sp.check(uneven, row_norm=3.0)).replace("\n", " ")
    assert "60.0% of them are at most a third as long" in text
    assert "row_norm=1.5 times it has less noise" in text
    assert "a third as long" not in str(sp.check(uneven, row_norm=1.2)).replace("\n", " ")


def test_kinds_are_those_of_the_first_rows():
    """Otherwise a second reading would be needed to count the complete rows."""
    late = [[1.5, "x" if i < 9_000 else 2.5] for i in range(20_000)]
    report = sp.check(late)
    assert (report.used, report.complete_rows) == (("x0",), 20_000)
    report = sp.check(late, columns=["x0", "x1"], row_norm=2.0)
    assert (report.rows, report.complete_rows, report.share_long) == (20_000, 11_000, 1.0)


def test_noise_and_prediction_follow_from_public_numbers_alone(table):
    report = sp.check(table, epsilon=1.0, row_norm=2.0)
    sigma = sp.GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6, center=True).sigma
    assert report.noise_std == pytest.approx(4.0 * sigma)
    plan = sp.plan(n_rows=200, n_features=3, n_components=2, epsilon=1.0, delta=1e-6, release_every=200)
    (planned,) = [p for p in plan.predictions if p.name == "GaussianCovariance"]
    assert report.captured == planned.captured_interval
    assert sp.check([[1e9, -1e9, 0.0]] * 200, epsilon=1.0).captured == planned.captured_interval
    wide = sp.check(np.zeros((3, 300)), epsilon=1.0, n_components=1)
    assert wide.noise_std is not None
    assert wide.captured is None


def test_private_bounds_name_their_warm_up(table):
    said = str(sp.check(table, bounds="private", epsilon=1.0)).replace("\n", " ")
    assert "Private bounds would use 50 of the 200 rows" in said
    assert "require about" in said


def test_rows_of_one_person_are_mentioned_once(table):
    said = str(sp.check(table)).replace("\n", " ")
    assert said.count("where patient_id repeats, a person with m rows has m times its mu") == 1
    assert "patient_id repeats" not in str(sp.check(table, columns=["age", "glucose"]))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[i, i] for i in range(2000)], "identifier"),
        ([[i // 2, i] for i in range(2000)], "number"),  # two rows each
        ([[i + 0.5, i] for i in range(2000)], "number"),  # a fraction
        ([[i, i] for i in range(500)], "number"),  # too few
        ([[f"k{i}", i] for i in range(2000)], "text"),
    ],
)
def test_identifiers_by_the_number_of_distinct_cells(rows, kind):
    assert sp.check(rows).columns.kind.iloc[0] == kind


@pytest.mark.parametrize(
    ("name", "is_identifier"),
    [("id", True), ("patientId", True), ("Row_ID", True), ("index", True), ("paid", False), ("ideal", False)],
)
def test_identifiers_by_name(name, is_identifier):
    report = sp.check(pd.DataFrame({name: [1.5, 1.5, 2.5], "b": [1.0, 2.0, 3.0]}))
    assert (report.columns.kind.iloc[0] == "identifier") == is_identifier


@pytest.mark.parametrize(
    ("cell", "style"),
    [
        ("-", "'-'"), ("--", "'-'"), ("1,5", "1,5"), ("1.234,5", "1,5"), ("1.234.567", "1,5"), ("<0.5", "<5"),
        ("70 kg", "5 kg"), ("?", "text"), ("5 %", "text"), ("2024-01-31", "text"), ("31.12.2024", "text"),
        ("Smith", "text"), ("x" * 999, "text"), ("\x1b[2J", "text"),
    ],
)  # fmt: skip
def test_styles_are_words_of_a_fixed_list(cell, style):
    assert style_of(cell) == style


def test_cells_of_any_type():
    masked = np.ma.masked
    column = [
        1, True, Decimal("2.5"), np.float32(3), None, pd.NA, pd.NaT, masked, "4", " NA ", 10**400, 1j, [1], {}, b"5",
    ]  # fmt: skip
    values, others = cells_of(column)
    assert np.array_equal(values, [1, 1, 2.5, 3, *[np.nan] * 4, 4, np.nan, np.inf, *[np.nan] * 4], equal_nan=True)
    assert others == {"object": 4}


def test_a_table_of_one_column_and_of_no_rows(tmp_path):
    report = sp.check([[1.0], [math.nan]], n_components=1)
    assert (report.rows, report.complete_rows, report.used) == (2, 1, ("x0",))
    for data in (written(tmp_path, "none.csv", b"a,b\n"), pd.DataFrame({"a": [], "b": []}), np.empty((0, 2))):
        with pytest.raises(SourceError, match="no rows"):
            sp.check(data)


def test_records_are_those_of_the_reader(tmp_path):
    """A quoted line end is no record; short, long and blank ones are unreadable, and a release has as many rows."""
    lines = b'a,b,note\n1,2,"x\ny"\n3,4\n5,6,z,9\n\n7,8,"a""b"\n9,1,"x"y\n'
    path = written(tmp_path, "rows.csv", lines)
    report = sp.check(path)
    assert (report.rows, report.unreadable_rows, report.complete_rows) == (6, 4, 2)
    rows = np.concatenate([*sp.sources.open_rows(path, columns=["a", "b"]).blocks()])
    assert (len(rows), np.isfinite(rows).all(axis=1).sum()) == (6, 2)
    bare = sp.check(path, read=Reading(quoting="none"))
    assert (bare.rows, bare.unreadable_rows) == (7, 4)


CELLS = [
    "1", " 2 ", "+3", "-4.", ".5", "1e5", "1e999", "inf", "-Infinity", "nan", "", "NA", " NA ", "'", '"4"', '""',
    '"a,b"', '"a\nb"', "0x1", "1_0", "\uff11", "\xa05", "5\t", "-", "1e", "--1", "?", "1,5", "x", "2024-01-31", "True",
]  # fmt: skip


@given(cells=st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS[:8])), min_size=1, max_size=12))
def test_complete_rows_are_those_that_a_release_uses(cells):
    text = "a,b,c\n" + "".join(f"{one},{other},7\n" for one, other in cells)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "rows.csv", text.encode())
        report = sp.check(path, columns=["a", "b"])
        rows = np.concatenate([*sp.sources.open_rows(path, columns=["a", "b"]).blocks()])
    assert report.rows == len(rows)
    assert report.complete_rows == np.count_nonzero(np.isfinite(rows).all(axis=1))


def test_damage_is_reported_after_the_rows_before_it(tmp_path):
    path = written(tmp_path, "rows.csv", b"a,b\n" + b"1,2\n" * 300_000 + b'"3,4\n')
    report = sp.check(path)
    assert report.rows == 300_000
    assert "ends inside the quotes of the record that begins in line 300002" in " ".join(report.notes)
    assert "3,4" not in str(report)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("limit", [1, 7, 150])
def test_a_limit_reads_the_first_rows(form, limit, tmp_path):
    report = sp.check(FORMS[form](tmp_path), limit=limit, columns=["glucose", "age"])
    assert report.rows == limit
    figures = report.columns
    assert figures.missing["age"] == (limit > 3) / limit
    assert (figures.missing + figures.not_a_number)["glucose"] == sum(at < limit for at in (5, 9, 10)) / limit
    bad = sum(at < limit for at in (3, 5, 9, 10))
    assert report.complete_rows == limit - bad
    assert f"Only the first {limit:,} rows" in str(report)


def test_files_of_a_pattern_are_one_table(tmp_path):
    for at in range(3):
        written(tmp_path, f"day-{at}.csv", text_of(ROWS[:50]).encode())
    assert sp.check(tmp_path / "day-*.csv").rows == 150
    assert sp.check(tmp_path / "day-*.csv", limit=70).rows == 70
    written(tmp_path, "day-3.csv", b"a,b\n1,2\n")
    with pytest.raises(SourceError, match="different columns"):
        sp.check(tmp_path / "day-*.csv")


# -- what may not show --------------------------------------------------------------

number = st.one_of(
    st.floats(1e-3, 1e12, allow_nan=False).map(lambda x: x if x % 1 else x + 0.5), st.just(float("nan")), st.just("-")
)


@pytest.mark.ci
@settings(max_examples=40)
@given(st.lists(st.tuples(number, number), min_size=8, max_size=8), st.text(max_size=9))
def test_the_proposal_is_the_same_for_all_values(pairs, note):
    """Columns keep their kinds: most of the cells are numbers, whatever they are."""
    fixed = [[1.25, 2.75, "text"]] * 20

    def report(rows):
        return sp.check(pd.DataFrame(rows, columns=["a", "b", "c"]), epsilon=1.0)

    one, other = report(fixed + fixed[:8]), report(fixed + [[a, b, note] for a, b in pairs])
    assert one.proposal == other.proposal
    assert (one.used, one.noise_std, one.captured) == (other.used, other.noise_std, other.captured)


def test_no_cell_is_shown(tmp_path):
    secret = ["secret-7719", "7719.25 kg", "<7719", "7719,5", "2077-11-19 07:07", "77.19.77.19", "$7719"]
    rows = [[7719.25 + i, "x", cell] for i, cell in enumerate(secret * 9)]
    path = written(tmp_path, "r.csv", text_of(rows, ["a", "b", "c"]).encode())
    for data in (pd.DataFrame(rows, columns=["a", "b", "c"]), path):
        for options in ({}, {"columns": ["a", "c"]}, {"bounds": (0.0, 1.0)}):
            report = sp.check(data, **options)
            shown = str(report) + report._repr_html_() + repr(report)
            assert re.search("77|19|secret", shown) is None, shown


def test_the_proposed_bounds_are_those_of_the_columns(table):
    space = {"LOW": 0.0, "HIGH": 100.0}
    exec(sp.check(table).proposal, space)
    assert tuple(space["bounds"]) == ("age", "weight kg", "glucose")
    assert sp.check(table, bounds=space["bounds"]).proposal == ""


# -- refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (iter([[1.0]]), {}, "expected a table, or the path of a regular file.*use sp.Stream"),
        (7, {}, "expected a table"),
        (np.zeros(3), {}, "expected a table"),
        ([1.0, 2.0], {}, "rows of one length"),
        ([], {}, "rows of one length"),
        ([[1.0], [1.0, 2.0]], {}, "rows of one length"),
        ("-", {}, "the path of a regular file"),
        ("https://example.org/rows.csv", {}, "is a web address, and streampca reads none. Download the file"),
        ([[1.0, 2.0]], {"bounds": (0, 1), "row_norm": 1.0}, "Both are given"),
        ([[1.0, 2.0]], {"bounds": "all"}, "bounds='all'"),
        ([[1.0, 2.0]], {"bounds": (1, 0)}, "finite lower < upper"),
        ([[1.0, 2.0]], {"bounds": ([0, 0, 0], [1, 1, 1])}, "2 numbers"),
        ([[1.0, 2.0]], {"row_norm": -1.0}, "row_norm=-1.0"),
        ([[1.0, 2.0]], {"epsilon": 0.0}, "epsilon=0.0"),
        ([[1.0, 2.0]], {"delta": 0.0}, "delta=0.0"),
        ([[1.0, 2.0]], {"n_components": 0}, "n_components=0"),
        ([[1.0, 2.0]], {"columns": [0], "n_components": 2}, "exceeds"),
        ([[1.0, 2.0]], {"columns": ["z", "x0"]}, "no column 'z'"),
        ([[1.0, 2.0]], {"columns": "z"}, "a list of names or positions"),
        ([[1.0, 2.0]], {"limit": 0}, "limit=0"),
        ([[1.0, 2.0]], {"read": Reading()}, "Omit it for rows in memory"),
        ("rows.csv", {"read": {"na": "-"}}, "expected a Reading"),
    ],
)
def test_what_is_refused(data, options, message):
    with pytest.raises((UsageError, SourceError), match=message):
        sp.check(data, **options)


def test_files_that_are_refused_and_what_can_be_read_only_once(tmp_path, table):
    bare = written(tmp_path, "bare.csv", b"1.5,2.5\n1,2\n")
    for data, options, message in (
        (arrow().to_reader(), {}, "can be read only once"), (tmp_path / "none.csv", {}, "No such file"),
        (sp.sources.open_rows(table, columns=["age"]), {}, "can be read only once"), (tmp_path, {}, "regular file"),
        (table, {"columns": ["age", "c"]}, "no column"), (bare, {}, "looks like a value"),
        (table, {"read": Reading(follow=True)}, "regular file"),
    ):  # fmt: skip
        with pytest.raises((BadParameterError, SourceError), match=message):
            sp.check(data, **options)


def visits(folder: Path, kind: str) -> pd.DataFrame | Path:
    """300 rows of 30 people by number: 10 rows each, of which one has no name and one of person 3 is incomplete."""
    rows = np.random.default_rng(2).normal(size=(300, 3))
    rows[33, 0] = np.nan
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(who=[None, *(np.arange(1, 300) % 30)])
    if kind == "frame":
        return frame
    path = folder / f"visits.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.astype({"who": float}).to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("kind", "columns"), [("frame", None), ("csv", ["a", "b", "c"]), ("csv", None), ("parquet", None)]
)
def test_people_and_their_rows(kind: str, columns: list[str] | None, tmp_path: Path) -> None:
    table = visits(tmp_path, kind)
    # A prediction takes a second, and does not depend on the form of the table.
    is_first = kind == "frame"
    report = sp.check(table, columns=columns, unit="who", epsilon=1.0 if is_first else None)
    assert report.used == ("a", "b", "c")
    assert (report.rows, report.complete_rows, report.people) == (300, 299, 30)
    text = " ".join(str(report).split())
    assert "30 people have complete rows, 10 in the median and 10 at most" in text
    assert "1 rows name nobody in who and would count for nothing." in text
    wide = sp.check(table, columns=columns, unit=sp.Person(column=("who",), budget=1e3))
    assert wide.mean_weight == 1.0
    assert "0 people would spend" in " ".join(wide.notes)
    assert "30 people would spend their budget" in text
    if not is_first:
        return
    # From the known numbers of rows: a little more than the planner's guess, which is for uneven ones. And that of a
    # larger budget; the share that it expects is lower than for rows.
    guess = sp.plan(n_rows=300, n_features=3, n_components=2, epsilon=1.0, release_every=300, rows_per_person=298 / 30)
    assert 0.8 * report.mean_weight < guess.question.weight < report.mean_weight
    assert report.captured is not None
    assert report.captured[0] < sp.check(table, columns=["a", "b", "c"], epsilon=1.0).captured[0]  # type: ignore[index]


def test_the_column_of_people_needs_no_range(tmp_path: Path) -> None:
    table = visits(tmp_path, "frame")
    report = sp.check(table, bounds=dict.fromkeys("abc", (-1, 1)), unit="who")
    assert report.used == ("a", "b", "c")
    assert 0.2 < report.columns.outside["a"] < 0.4
    assert report.columns.outside["who"] == 0.0
    for unit, message in (("id", r"unit: the table lacks the columns \['id'\]"), (sp.Person(), "unit.column=None")):
        with pytest.raises(UsageError, match=message):
            sp.check(table, unit=unit)
