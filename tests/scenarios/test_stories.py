"""Files that scenarios write: tables and pictures."""

import csv
import math

import msgspec
import pytest
from scenario import load, run_scenario


def run(name, rows, **params):
    """Result of a scenario with other parameters: measured, whatever it expects."""
    scenario = load(name)
    scenario = msgspec.structs.replace(scenario, params={**scenario.params, **params}, expect=())
    return run_scenario(scenario, rows).final


def test_every_mechanism_is_measured_on_the_same_rows(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "shootout.png"
    small = {"n_features": 8, "n_components": 2, "draws": 2, "picture": str(path)}
    table = run("mechanism_shootout", 1500, **small)
    names = {"gaussian", "gaussian_psd", "adaptive", "wishart", "subspace_perturbation", "matrix_laplace", "laplace"}
    assert set(table) == names
    for name, values in table.items():
        assert 0.5 < values["captured_variance"] <= 1.0 + 1e-12
        assert 0.0 <= values["subspace_error"] <= 1.0 + 1e-12
        assert all(math.isfinite(value) for value in values.values())
        assert ("spectral_error" in values) == (name != "subspace_perturbation") or values["spectral_error"] > 0.0
    again = run("mechanism_shootout", 1500, **small)["gaussian"]
    assert {**table["gaussian"], "seconds": 0.0} == {**again, "seconds": 0.0}
    assert path.read_bytes().startswith(b"\x89PNG")


def test_signal_noise_writes_a_table_and_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    sigmas = [0.3, 0.03, 0.01, 0.001]
    table = run("signal_noise", 27_000, n_features=8, repeats=1, sigmas=sigmas, out=str(tmp_path / "out"))
    with (tmp_path / "out.csv").open() as file:
        header, *lines = list(csv.reader(file))
    assert header == ["sigma", "dp_pca", "dp_pca_deflation", "private_oja", "gaussian", "exact"]
    assert [float(line[0]) for line in lines] == sigmas
    assert all(0.0 < float(value) <= 1.0 for line in lines for value in line)
    assert (tmp_path / "out.svg").read_text().lstrip().startswith("<?xml")
    assert all(math.isfinite(values["slope"]) for values in table.values())


def test_the_traitor_draws_the_scores(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "some" / "picture.png"
    table = run("traitor", 4, average=2, picture=str(path))
    assert table["exact"]["mean_score"] > table["private"]["mean_score"]
    assert path.read_bytes().startswith(b"\x89PNG")
