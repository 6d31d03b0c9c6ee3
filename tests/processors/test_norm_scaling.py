"""PrivateFPL(scaling="norm"): a private radius, clipped rows beside rows as they are, and a fresh start."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError
from streampca.linalg.lattice import onto_ball
from streampca.regret import RegretLog

BUDGET: dict[str, Any] = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}


def spikes(n: int, d: int = 20, share: float = 1.0) -> np.ndarray:
    """Rows of norm .2 around a plane; but for this share of them, rows of norm 1 around another plane."""
    source = np.random.default_rng(5)
    rows = source.standard_normal((n, d)) * np.where(np.arange(d) < 2, 1.0, 0.1)
    other = source.standard_normal((n, d)) * np.where(np.arange(d) >= d - 2, 1.0, 0.0)
    short = source.random(n) < share
    rows = np.where(short[:, None], rows, other)
    rows *= (np.where(short, 0.2, 1.0) / np.linalg.norm(rows, axis=1))[:, None]
    return onto_ball(rows)


def test_short_rows_meet_noise_of_their_length_and_releases_are_unbiased() -> None:
    """The radius covers all rows, so releases are the exact sums since the gauge plus noise of the stated law."""
    rows = spikes(4000)
    algorithm = sp.PrivateFPL(**BUDGET, scaling="norm", horizon=4000, release_every=500)
    end = math.ceil(12.0 / algorithm.budget.mu)
    assert algorithm.norm_scaling is not None
    assert algorithm.norm_scaling.gauge_end(0) == end
    exact = rows[end:].T @ rows[end:]
    errors = []
    for seed in range(20):
        release = sp.Stream(algorithm, seed=seed, regret=None).push_many(rows).releases[-1]
        assert 0.2 <= release.details["clip_radius"] <= 0.2 * 2.0**0.25
        assert release.details["rows"] == 4000 - end
        assert abs(release.details["lost_energy"]) < 5.0 * release.details["lost_energy_std"]
        errors.append(np.diagonal(release.gram - exact) / release.noise_std)
    assert np.std(errors) == pytest.approx(1.0, abs=0.1)
    plain = sp.PrivateFPL(**BUDGET, horizon=4000, release_every=500)
    assert release.noise_std is not None
    assert release.noise_std < 0.1 * plain.noise_std(4000)


def test_regret_is_a_fraction_where_rows_are_short() -> None:
    rows = spikes(4000)

    def regret(scaling: Any) -> float:
        algorithm = sp.PrivateFPL(**BUDGET, scaling=scaling, horizon=4000, release_every=100)
        stream = sp.Stream(algorithm, seed=1, regret=RegretLog(every=4000))
        stream.push_many(rows)
        return stream.regret.now().average

    assert regret("norm") < 0.3 * regret("none")


def test_the_shadow_takes_over_where_clipping_hides_the_subspace() -> None:
    rows = spikes(6000, share=0.9)
    algorithm = sp.PrivateFPL(**BUDGET, scaling="norm", horizon=6000, release_every=100)
    stream = sp.Stream(algorithm, seed=3, regret=None)
    releases = stream.push_many(rows).releases
    radii = [release.details["clip_radius"] for release in releases]
    assert radii[0] < 0.3
    assert radii[-1] == 1.0
    assert sorted(radii) == radii
    first = radii.index(1.0)
    end = algorithm.norm_scaling.gauge_end(0) if algorithm.norm_scaling else 0
    for release in releases[first], releases[-1]:  # of the shadow, then with its last release added: both unbiased
        exact = rows[end : release.t].T @ rows[end : release.t]
        assert release.noise_std is not None
        assert np.abs(np.diagonal(release.gram - exact)).max() < 5.0 * release.noise_std
    for release in releases[first + 1], releases[-1]:
        assert stream.processor.noise_std(release.t) == release.noise_std
    assert releases[-1].subspace.captured(rows.T @ rows) > 0.9 * np.linalg.eigvalsh(rows.T @ rows)[-2:].sum()


def test_rows_of_norm_one_are_not_clipped() -> None:
    rows = 5.0 * spikes(900)
    stream = sp.Stream(sp.PrivateFPL(**BUDGET, scaling="norm"), seed=1)
    with pytest.raises(BadParameterError, match=r"Release\.noise_std"):
        stream.algorithm.noise_std(900)  # type: ignore[attr-defined]
    releases = stream.push_many(rows).releases
    assert {release.details["clip_radius"] for release in releases} == {1.0}
    assert stream.regret.now().bound is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"scaling": "cap"}, "'none' or 'norm'"),
        ({"horizon": 50}, "leaves none"),
        ({"shadow": 0.0}, "shadow=0.0"),
        ({"shadow": True}, "shadow=True"),
        ({"scaling": "none", "shadow": 0.2}, "scaling='norm' only"),
        ({"solver": "smoothed"}, "solver='exact'"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadParameterError, match=problem):
        sp.PrivateFPL(**{**BUDGET, "scaling": "norm", **options})


def test_warm_up_rows_of_private_bounds_do_not_count() -> None:
    rows = spikes(1000)
    algorithm = sp.PrivateFPL(**BUDGET, scaling="norm", horizon=1000, release_every=100)
    stream = sp.Stream(algorithm, bounds="private", warmup=300, seed=1, features=[f"x{i}" for i in range(20)])
    assert stream.push_many(rows).releases[-1].details["rows"] == 1000 - 300 - math.ceil(12.0 / algorithm.budget.mu)
