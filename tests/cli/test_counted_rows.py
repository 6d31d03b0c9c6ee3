"""The horizon of a run over regular files is their number of records, which is counted first."""

import gzip
import json
import os
import threading

import numpy as np
import pytest

import streampca as sp
from streampca.sources import open_rows
from streampca.sources.text_files import TextRows

OPTIONS = ["-k", "1", "--epsilon", "1", "--row-norm", "3"]


def written(path, n, note="x"):
    rows = np.random.default_rng(0).normal(size=(n, 2)).round(3).tolist()
    notes = [note, *["x"] * (n - 1)]
    lines = [f'{a},{b},"{text}"' for (a, b), text in zip(rows, notes, strict=True)]
    path.write_text("\n".join(["a,b,note", *lines]) + "\n")
    return path


def header_of(path):
    header = json.loads(path.read_text().splitlines()[0])
    del header["guarantee"]["caveat"]
    return header


@pytest.fixture
def run(command, tmp_path):
    def run(source, *more, out="out.jsonl"):
        assert (
            command("run", source, *OPTIONS, "--columns", "a,b", "--out", tmp_path / out, "--force", *more).status == 0
        )
        return header_of(tmp_path / out)["parameters"]["horizon"]

    return run


def test_less_noise_than_without_a_horizon(tmp_path, run):
    assert run(written(tmp_path / "rows.csv", 20_000)) == 20_000
    releases = list(sp.read_releases(tmp_path / "out.jsonl"))
    assert (len(releases), releases[-1].t) == (200, 20_000)
    assert releases[-1].noise_std / 9.0 <= 10.9  # 16.5 without a horizon


def test_a_record_with_line_ends_is_one_row_and_its_text_shows_nowhere(tmp_path, run):
    headers = []
    for note in ("x", "one\ntwo\n\nthree", 'a ""quote""\n'):
        table = written(tmp_path / "rows.csv", 300, note)
        assert run(table) == 300
        header = header_of(tmp_path / "out.jsonl")
        # Each run has a random name, which the digest of the terms covers.
        header["terms"] = header["run"]["name"] = ""
        headers.append(header)
        assert open_rows(table, columns=["a", "b"]).count_rows() == sum(
            map(len, open_rows(table, columns=["a"]).blocks())
        )
    assert headers[0] == headers[1] == headers[2]


def test_each_format_counts_what_it_yields(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    table = written(tmp_path / "rows.csv", 30)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    (tmp_path / "bare.csv").write_text("1,2\n\n3,4\nbad\n5,6")  # a blank line and a bad one are records
    (tmp_path / "rows.ndjson").write_text('{"a": 1, "b": 2}\n\nbad\n{"a": 3, "b": 4}')
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), tmp_path / "rows.parquet")
    for name, count, more in (
        ("rows.csv", 30, {}), ("rows.csv.gz", 30, {}), ("bare.csv", 5, {"names": ["a", "b"]}), ("rows.ndjson", 4, {}),
        ("rows.parquet", 2, {}), ("rows.*", 66, {}),
    ):  # fmt: skip
        source = open_rows(tmp_path / name, columns=["a", "b"], **more)
        assert source.count_rows() == count == sum(map(len, source.blocks())), name


def test_what_may_have_more_rows_is_not_counted(tmp_path, run, command):
    table, pipe = written(tmp_path / "rows.csv", 300), tmp_path / "pipe"
    assert run(table, "--store", tmp_path / "run.db") is None
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(table.read_bytes()))
    writer.start()
    assert run(pipe) is None
    writer.join()
    assert open_rows(table, follow=True, columns=["a", "b"]).count_rows() is None
    # Algorithms without a horizon have none; a given one counts.
    assert run(table, "--horizon", "400") == 400
    window = ["--algorithm", "window", "--window", "100"]
    assert command("run", table, *OPTIONS, "--columns", "a,b", *window, "--out", "-").status == 0


def test_a_file_that_grows_after_the_count_is_read_up_to_it(tmp_path, run, monkeypatch):
    table, count = written(tmp_path / "rows.csv", 250), TextRows.count_rows

    def late(source):
        found = count(source)
        with table.open("a") as file:
            file.write("0.5,0.5,x\n" * 70)
        return found

    monkeypatch.setattr(TextRows, "count_rows", late)
    assert run(table) == 250
    assert [release.t for release in sp.read_releases(tmp_path / "out.jsonl")] == [100, 200, 250]
