import math

import pytest

from streampca.scenarios.mechanism_shootout import MEASURES, draw, mechanisms, run
from streampca.scenarios.runner import Context


def context(**more):
    return Context(1500, 1, {"n_features": 8, "n_components": 2, "epsilon": 1.0, "delta": 1e-6, "draws": 2, **more})


def test_every_mechanism_is_measured_on_the_same_rows():
    table = run(context())
    assert set(table) == set(mechanisms(2, 1.0, 1e-6))
    for name, values in table.items():
        assert 0.5 < values["captured_variance"] <= 1.0 + 1e-12
        assert 0.0 <= values["subspace_error"] <= 1.0 + 1e-12
        assert all(math.isfinite(value) for value in values.values())
        assert ("spectral_error" in values) == (name != "subspace_perturbation") or values["spectral_error"] > 0.0
    kept = {k: v for k, v in table["gaussian"].items() if k != "seconds"}
    assert kept == {k: v for k, v in run(context())["gaussian"].items() if k != "seconds"}


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "shootout.png"
    assert draw({"a": dict.fromkeys(MEASURES, 0.5), "b": {"seconds": 1.0}}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
