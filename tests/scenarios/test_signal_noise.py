"""The table and the picture of the larger run."""

import csv

import pytest

from streampca.scenarios import signal_noise


def test_writes_a_table_and_a_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    signal_noise.main([str(tmp_path / "out"), "--rows", "16000", "--features", "8", "--repeats", "1"])
    with (tmp_path / "out.csv").open() as file:
        header, *lines = list(csv.reader(file))
    assert header == ["sigma", "dp_pca", "dp_pca_deflation", "private_oja", "gaussian", "exact"]
    assert len(lines) == 6
    assert all(0.0 < float(value) <= 1.0 for line in lines for value in line)
    assert (tmp_path / "out.svg").read_text().lstrip().startswith("<?xml")
    assert "slope" in capsys.readouterr().out
