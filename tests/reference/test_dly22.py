"""The peer that `scenarios/real_tables.py` compares with does what its paper says it does."""

import numpy as np
from printed_adaptive import adaptive_cov

from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.budget import Budget


def test_it_adapts_to_short_rows_and_falls_back_on_none() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 12)) * np.sqrt([8.0, 6.0, *[1.0] * 10])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def losses(scale: float, mu: float) -> tuple[float, float]:
        """Mean loss of AdaptiveCov and of the Gaussian mechanism."""
        gram = scale**2 * rows.T @ rows
        best = np.linalg.eigvalsh(gram)[-2:].sum()
        plain = GaussianCovariance(n_components=2, epsilon=1.0, center=False)
        bases = [adaptive_cov(scale * rows, 2, mu, np.random.default_rng(i)) for i in range(10)]
        others = [plain.release(scale * rows, seed=i, row_norm=1.0).subspace.basis for i in range(10)]
        return tuple(1.0 - float(np.mean([np.vdot(b, gram @ b) for b in made])) / best for made in (bases, others))

    mu = Budget(1.0, 1e-6).mu
    assert losses(1.0, 1e6)[0] < 1e-9
    printed, plain = losses(1.0, mu)
    assert printed > 0.9 * plain  # nothing to gain
    printed, plain = losses(0.25, mu)
    assert printed < 0.9 * plain
