"""Queries with a keyset cursor: SQLite and DuckDB files, and a PostgreSQL server that the test starts."""

import glob
import os
import shutil
import sqlite3
import subprocess
import tempfile
import traceback
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.cli.options import Address
from streampca.errors import SourceError, UsageError
from streampca.sources.databases import as_rows, from_query

N = 500
ROWS = np.random.default_rng(2).normal(size=(N, 2))
IDS = [3 * i - 700 for i in range(N)]
QUERY = "SELECT id, x, y FROM rows WHERE '%' <> 'a' -- all"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Address of a PostgreSQL server that lives as long as these tests."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'streampca[postgres]'")
    found = [*sorted(glob.glob("/usr/lib/postgresql/*/bin")), os.path.dirname(shutil.which("initdb") or "")]
    if not any(found):
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    user, run = "postgres" if os.geteuid() == 0 else None, Path(next(path for path in found if path))
    folder = Path(tempfile.mkdtemp(prefix="streampca-pg-"))  # not pytest's own, which only its user may enter
    if user:  # the server refuses to run as root
        shutil.chown(folder, user)
    data = folder / "data"

    def call(*words: object) -> None:
        with (folder / "said").open("ab") as said:  # a server that was started keeps what it inherits open
            done = subprocess.run(
                [*map(str, words)], user=user, cwd=folder, stdin=-3, stdout=said, stderr=said, timeout=300
            )
        assert done.returncode == 0, (folder / "said").read_text()

    call(run / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    call(run / "pg_ctl", "-D", data, "-w", "-t", 240, "-o", options, "start")
    yield f"postgresql://postgres@/postgres?host={folder}"
    call(run / "pg_ctl", "-D", data, "-t", 240, "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path):
    """Address of a database, and a function that does something in it."""
    path = tmp_path / "rows.db"
    if request.param == "sqlite":
        url, connect = f"sqlite:///{path}", lambda: sqlite3.connect(path)
    elif request.param == "duckdb":
        duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'streampca[duckdb]'")
        url, connect = f"duckdb:///{path}", lambda: duckdb.connect(str(path))
    else:
        url = request.getfixturevalue("server")
        connect = lambda: __import__("psycopg").connect(url)  # noqa: E731

    def write(text: str, many: list[tuple] | None = None) -> None:
        connection = connect()
        cursor = connection.cursor()
        if many is None:
            cursor.execute(text)
        else:
            values = ", ".join("(" + ", ".join("NULL" if v is None else repr(v) for v in row) + ")" for row in many)
            cursor.execute(f"{text} VALUES {values}")
        connection.commit()
        connection.close()

    write("DROP TABLE IF EXISTS rows")
    write("CREATE TABLE rows (y double precision, id integer, x double precision)")
    rows = [(y, i, x) for i, (x, y) in zip(IDS, ROWS.tolist(), strict=True)]
    np.random.default_rng(0).shuffle(rows)
    write("INSERT INTO rows", rows)
    return url, write


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=50)


def test_rows_come_in_the_order_of_the_cursor_and_once(database, tmp_path: Path) -> None:
    url, write = database
    source = from_query(url, QUERY, "id", chunk_rows=64)
    assert source.features == ("x", "y")
    assert np.array_equal(np.concatenate(list(source.blocks())), ROWS)
    expected = sp.Stream(algorithm(), row_norm=1.0, seed=1, features=["x", "y"])
    expected.push_many(ROWS)
    path = tmp_path / "run.db"
    with sp.Store(path, commit_every=7) as store:  # commits that end nowhere near a page
        run = sp.Stream(algorithm(), row_norm=1.0, seed=1, store=store).run(source)
        assert [next(run).t for _ in range(100)][-1] == 100
        run.close()
    with sp.Store(path) as store:
        resumed = sp.Stream.resume(store)
        assert 0 < resumed.t < N
        list(resumed.run(from_query(url, QUERY, "id", chunk_rows=33)))
        assert (resumed.t, resumed.release.to_json()) == (N, expected.release.to_json())
    write("INSERT INTO rows", [(0.5, 5000, 0.25)])
    with sp.Store(path, commit_every=1000) as store:
        resumed = sp.Stream.resume(store)
        assert [step.t for step in resumed.run(source)] == [N + 1]
        assert store.position is None or store.position.at != 5000  # not before it is durable
        store.flush()
        assert store.position.at == 5000
        other = from_query(url, "SELECT * FROM rows", "id")
        with pytest.raises(UsageError, match="new_source=True"):
            list(resumed.run(other))
        resumed.push([0.0, 0.0])  # by hand: the position of the source is unknown
        store.flush()
        assert store.position is None
        with pytest.raises(UsageError, match="came otherwise"):
            list(resumed.run(source))


def test_what_is_no_number_is_a_bad_row(database) -> None:
    url, write = database
    write(f"UPDATE rows SET y = NULL WHERE id = {IDS[40]}")
    lenient = sp.Stream(algorithm(), row_norm=1.0, seed=1)
    list(lenient.run(from_query(url, QUERY, "id")))
    assert (lenient.t, lenient.admission.bad_rows) == (N, 1)
    text = sp.Stream(algorithm(), row_norm=1.0)
    list(text.run(from_query(url, f"SELECT id, x, CASE WHEN id > {IDS[0]} THEN 'x' END AS y FROM rows", "id")))
    assert text.admission.zero_rows_by_reason == {"missing value": 1, "not a number": N - 1}


def test_bad_cursors(database) -> None:
    url, write = database
    with pytest.raises(SourceError, match=r"column ['\"]key['\"]"):
        from_query(url, QUERY, "key")
    with pytest.raises(SourceError, match="the query failed"):
        from_query(url, "SELECT nothing FROM nowhere", "id")
    write("INSERT INTO rows", [(1.0, IDS[64], 2.0)])
    with pytest.raises(SourceError, match="not unique"):  # where a page ends
        list(from_query(url, QUERY, "id", chunk_rows=65).blocks())
    write("INSERT INTO rows", [(1.0, None, 2.0)])
    with pytest.raises(SourceError, match="null in some rows; exclude"):
        from_query(url, QUERY, "id")
    with pytest.raises(UsageError, match="mysql: is not known"):
        from_query("mysql://host/db", QUERY, "id")


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [("TEXT COLLATE NOCASE", ["a", "A", "b"], "equates texts"), ("", [1, b"x"], "holds a bytes")],
)
def test_a_cursor_that_would_skip_rows_is_an_error(tmp_path: Path, kind: str, keys: list, message: str):
    with closing(sqlite3.connect(tmp_path / "rows.db")) as made, made:
        made.execute(f"CREATE TABLE rows (id {kind}, x)")
        made.executemany("INSERT INTO rows VALUES (?, 1)", [(key,) for key in keys])
    made.close()
    for size in (1, 2, 9):
        with pytest.raises(SourceError, match=message):
            list(from_query(f"sqlite:///{tmp_path / 'rows.db'}", "SELECT * FROM rows", "id", chunk_rows=size).blocks())


@pytest.mark.parametrize(("kind", "message"), [("ENUM('z', 'm', 'a')", "holds an ENUM"), ("DOUBLE", "holds a float")])
def test_a_cursor_that_is_sorted_otherwise_than_compared_is_an_error(tmp_path: Path, kind: str, message: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'streampca[duckdb]'")
    with closing(duckdb.connect(str(tmp_path / "rows.db"))) as made:
        made.execute(f"CREATE TABLE rows (id {kind}, x DOUBLE)")
        keys = "zma" if "ENUM" in kind else ["nan"] * 3
        made.executemany("INSERT INTO rows VALUES (?, 1)", [[key] for key in keys])
    for size in (1, 2, 9):
        with pytest.raises(SourceError, match=message):
            list(from_query(f"duckdb:///{tmp_path / 'rows.db'}", "SELECT * FROM rows", "id", chunk_rows=size).blocks())


def test_columns_that_change_while_rows_are_read_are_an_error(tmp_path: Path) -> None:
    connect = lambda: sqlite3.connect(tmp_path / "rows.db")  # noqa: E731
    with closing(connect()) as made, made:
        made.execute("CREATE TABLE rows (z, id, x)")
        made.executemany("INSERT INTO rows VALUES (?, ?, ?)", [(-i, i, 0.5) for i in range(9)])
    blocks = from_query(connect, "SELECT * FROM rows", "id", columns=["x"], chunk_rows=2).blocks()
    assert next(blocks).tolist() == [[0.5], [0.5]]
    with closing(connect()) as made, made:
        made.execute("ALTER TABLE rows DROP COLUMN z")
    with pytest.raises(SourceError, match="other columns than at its start"):
        next(blocks)


def test_no_message_holds_a_cell(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'streampca[duckdb]'")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows AS SELECT i AS id, if(i = 7, 'SECRET', '1') AS x, 'k' k FROM range(9) r(i)")
    query = "SELECT id, x::INTEGER AS x FROM rows"
    fleet = sp.Fleet(sp.PrivateFPL(n_components=1, epsilon=1.0), features=["x"], row_norm=1.0)
    calls = [
        lambda: list(from_query(connection.cursor, query, "id").blocks()),
        lambda: list(sp.Stream(algorithm(), row_norm=1.0).run(connection.sql(query))),
        lambda: sp.Stream(algorithm(), row_norm=1.0).push_many(connection.sql(query)),
        lambda: sp.pca(connection.sql(query), n_components=1, epsilon=1.0, row_norm=1.0),
        lambda: list(fleet.run(connection.sql("SELECT x::INTEGER AS x, k FROM rows"), key="k")),
    ]
    for call in calls:
        with pytest.raises(SourceError, match=r"cannot be read \(ConversionException\)") as raised:
            call()
        assert "SECRET" not in "".join(traceback.format_exception(raised.value))
    relation = connection.sql("SELECT 1.0 AS x")
    connection.close()
    with pytest.raises(SourceError, match=r"the table cannot be read \(ConnectionException\)"):
        list(sp.Stream(algorithm(), row_norm=1.0).run(relation))


@pytest.mark.parametrize(("name", "value"), [("connect", None), ("query", 5), ("cursor", None)])
def test_what_is_no_query_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"^{name}"):
        from_query(**{"connect": sqlite3.connect, "query": "SELECT 1", "cursor": "id"} | {name: value})


@pytest.mark.parametrize(
    "rest", ["u:SECRET%zz@h/d", "u:a@SECRET@h/d", "u:SE/CRET@h/d", "u:SECRET x@h/d", "u:SECRET@[::1/d", "u:SECRET?@h/d"]
)
def test_no_message_holds_a_password(rest: str) -> None:
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'streampca[postgres]'")
    url = f"postgresql://{rest}"
    with pytest.raises((UsageError, SourceError), match="postgresql: ") as raised:
        from_query(url, "SELECT 1", "id")
    text = str(raised.value) + repr(raised.value.__cause__) + Address(url).name
    assert not any(part in text for part in ("SECRET", "SE", "CRET"))


@pytest.mark.parametrize("values", [("x", b"\xff"), (2.0, "x" * 10**6), (None, "é"), (10**400, 1.0), (True, "7")])
def test_a_row_that_is_no_numbers_costs_the_others_neither_values_nor_memory(values: tuple[object, object]) -> None:
    found = [(float(i), -1) for i in range(100)]
    found[40] = values  # type: ignore[call-overload]
    tracemalloc.start()
    try:
        rows = as_rows(found)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert not np.isfinite(rows[40]).all()
    assert np.array_equal(np.delete(rows, 40, axis=0), [(i, -1) for i in range(100) if i != 40])
