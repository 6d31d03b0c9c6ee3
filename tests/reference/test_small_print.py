"""What docs/theory says of single statements of the papers, beyond the mechanisms that are attacked beside."""

import math

import numpy as np
import pytest
from scipy.stats import wishart

from streampca.privacy.gaussian import delta_at, mu_of
from streampca.processors.dp_pca import SUBSAMPLE, PrivateRange


@pytest.mark.parametrize(
    ("epsilon", "zero_out", "replaced"),
    [(0.1, 0.0002, 0.6), (0.5, 0.00125, 3.6), (1.0, 0.0032, 9.3), (10.0, 1.9, 3796.0)],
)
def test_dttz14_theorem_2(epsilon: float, zero_out: float, replaced: float) -> None:
    """The true delta over the claimed 1e-6, of noise of sd sqrt(2 ln(1.25 / delta)) / epsilon."""
    mu = epsilon / math.sqrt(2.0 * math.log(1.25e6))
    assert delta_at(mu, epsilon) / 1e-6 == pytest.approx(zero_out, rel=0.05)
    assert delta_at(math.sqrt(2.0) * mu, epsilon) / 1e-6 == pytest.approx(replaced, rel=0.05)


def test_dttz14_theorem_2_ends_at_8_78_and_is_25_percent_too_large_at_1() -> None:
    scale = math.sqrt(2.0 * math.log(1.25e6))
    assert delta_at(8.77 / scale, 8.77) < 1e-6 < delta_at(8.79 / scale, 8.79)
    assert scale * mu_of(1.0, 1e-6) == pytest.approx(1.25, abs=0.01)


def test_dttz14_section_2_3_2_needs_frobenius_norms() -> None:
    """W = I has spectral norm 1 and moves the upper triangle by sqrt(d); the printed sd is for a move by 1."""
    std = math.sqrt(50.0 * math.log(1e6))
    assert delta_at(math.sqrt(38) / std, 1.0) < 1e-6 < delta_at(math.sqrt(39) / std, 1.0)


def test_dttz14_theorem_5_keeps_more_dimensions_than_its_proof_bounds() -> None:
    """With k' > k the norm that the proof calls small is 1, whatever the noise."""
    noisy = np.diag([10.0, 2.0, 1.0]) + 1e-9
    kept = np.linalg.eigh(noisy)[1][:, 1:]
    left_out = np.diag([0.0, 1.0, 1.0])
    assert np.linalg.norm(kept @ kept.T @ left_out, 2) == pytest.approx(1.0)
    # What matters is small: the best direction is kept.
    assert np.linalg.norm((np.eye(3) - kept @ kept.T)[:, 0]) < 1e-8


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_jxz16_theorem_4_fails_in_the_supports_only(epsilon: float) -> None:
    rng, d = np.random.default_rng(0), 4
    law = wishart(df=d + 1, scale=1.5 / epsilon * np.eye(d))
    seen = {"both": 0, "one": 0}
    for noise in law.rvs(800, random_state=rng):
        a, b = (x / np.linalg.norm(x) * rng.uniform(0.3, 1.0) for x in rng.normal(size=(2, d)))
        moved = np.outer(a, a) - np.outer(b, b)
        if np.linalg.eigvalsh(noise + moved)[0] > 0.0:
            ratio = law.logpdf(noise) - law.logpdf(noise + moved)
            assert ratio == pytest.approx(epsilon / 3.0 * np.trace(moved), abs=1e-8)
            assert abs(ratio) <= epsilon / 3.0
            seen["both"] += 1
        else:
            seen["one"] += 1
        assert np.linalg.norm(moved, "nuc") <= 2.0
    assert min(seen.values()) > 20


def test_lkjo22_algorithm_4_is_not_for_rows_that_are_taken_out() -> None:
    """Each vector is long, and the next three short. Without the first, other subsamples hold the long ones."""
    norms = np.resize([0.5, *[1e-3] * (SUBSAMPLE - 1)], 41 * SUBSAMPLE) * np.repeat(4.0 ** -np.arange(41), SUBSAMPLE)
    votes, without, zero = (
        PrivateRange(epsilon=1.0, delta=1e-6).cast(x[: 40 * SUBSAMPLE])
        for x in (norms, norms[1:], norms * (np.arange(len(norms)) > 0))
    )
    assert (votes != without).all()
    assert (votes != zero).sum() == 1
