"""The regret bound of a leader on panels is the one on every release."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from streampca.matrix_factorization.blt import GeometricBLT
from streampca.processors.leader import worst_case_bound
from streampca.theorems import perturbed_leader_regret

HORIZON = 2000


@dataclass(frozen=True)
class Noisy:
    noise: GeometricBLT
    every: int = 1
    n_components: int = 2
    horizon: int = HORIZON

    def std(self, n: int) -> float:
        return self.noise.std(n)


def every_release(algorithm: Noisy, stds: np.ndarray, rows_played: int, d: int, opt: float) -> float:
    played = rows_played // algorithm.every
    return perturbed_leader_regret(
        opt,
        stds=stds[:played],
        counts=np.ones(played),
        variation=float(np.abs(np.diff(stds[:played], prepend=0.0)).sum()),
        n_features=d,
        n_components=algorithm.n_components,
        rows_per_release=algorithm.every,
    )


@pytest.mark.parametrize("release_every", [1, 4])
@pytest.mark.parametrize("mu", [1e-6, 0.1, 2.0])
def test_the_bound_on_panels_is_that_on_every_release(mu: float, release_every: int) -> None:
    noise = GeometricBLT(HORIZON // release_every, mu)
    algorithm = Noisy(noise, release_every)
    stds = noise.stds(np.arange(1, noise.horizon + 1))
    for t in (*range(release_every + 1, 60), 333, HORIZON // 2, HORIZON):
        for opt in (0.3 * t, 1e30):
            found = worst_case_bound(algorithm, 7, t, opt)
            exact = every_release(algorithm, stds, t - 1, 7, opt)
            # Panels take the least std on them, so instability is larger by up to a few per cent; the
            # variation misses what the std does between the last end before its peak and the first after.
            assert exact * (1.0 - 3e-4) <= found <= exact * 1.01


def test_all_of_the_variation_counts() -> None:
    # With large noise nothing is unstable, and the bound is V k sqrt(2 d); up to its peak, V is the std itself.
    noise = GeometricBLT(HORIZON, mu=1e-9)
    algorithm = Noisy(noise)
    for played in (1, 2, 3, 10, 11, 12, 100, 101, 500, 901):
        found = worst_case_bound(algorithm, 8, played + 1, 1e30)
        assert found == pytest.approx(noise.std(played) * 2 * 4.0, rel=1e-8)


def test_nothing_is_played_before_the_first_release() -> None:
    algorithm = Noisy(GeometricBLT(HORIZON // 5, mu=1.0), every=5)
    assert worst_case_bound(algorithm, 8, 5, 4.0) == 4.0
    assert math.isfinite(worst_case_bound(algorithm, 8, 6, 1e30))
