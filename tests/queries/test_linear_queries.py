"""Linear queries: values, error bars, arguments."""

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca import errors, queries
from streampca.linalg.centering import MeanNoise
from streampca.linalg.svec import svec_size, unsvec
from streampca.queries import GramNoise

GUARANTEE = sp.Guarantee(1.0, 1e-6, "zero-out", "test", "test", "test", mu=0.2)
D = 6


def release_of(gram, std=0.0, row_norm=1.0, features=None, **fields):
    fields = {"t": 100, "n_components": 2, "guarantee": GUARANTEE, "noise_std": std} | fields
    return gram_release(np.asarray(gram) / row_norm**2, row_norm=row_norm, features=features, **fields)


@pytest.fixture
def gram():
    rows = np.random.default_rng(1).normal(size=(30, D))
    return rows.T @ rows


def test_directional_variance_is_the_quadratic_form(gram):
    x = np.arange(1.0, D + 1)
    release = release_of(gram, std=0.5, row_norm=2.0, features=list("abcdef"))
    answer = queries.directional_variance(release, dict(zip("fedcba", x[::-1], strict=True)))
    assert answer.value == pytest.approx(x @ gram @ x)
    assert answer.std == pytest.approx(0.5 * 4.0 * x @ x)
    assert answer.guarantee is GUARANTEE
    low, high = answer.interval(0.95)
    assert high - low == pytest.approx(2 * 1.959964 * answer.std, rel=1e-6)
    assert float(answer) == pytest.approx(0.5 * (low + high))


def test_captured_variance_has_the_projectors_error(gram):
    basis = np.linalg.qr(np.random.default_rng(2).normal(size=(D, 3)))[0]
    answer = queries.captured_variance(release_of(gram, std=2.0), sp.Subspace(basis))
    assert answer.value == pytest.approx(np.trace(basis.T @ gram @ basis))
    assert answer.std == pytest.approx(2.0 * np.sqrt(3))


@pytest.mark.parametrize("law", ["linear", "quadratic", "bilinear"])
def test_noise_through_a_query_has_the_stated_sd(law):
    # 20000 draws: the sd is known to 0.5 %, so 2 % is 4 sd (false alarm 1e-4); 2/3x and 1.5x noise are far outside.
    noise, rng = GramNoise(1.7, D), np.random.default_rng(3)
    x, y, m = rng.normal(size=D), rng.normal(size=D), rng.normal(size=(D, D))
    draws = sp.Randomness.from_seed(5).stream("noise").normal(0, 20000 * svec_size(D)).reshape(20000, -1)
    e = np.stack([unsvec(1.7 * z, D) for z in draws])
    made, stated = {
        "linear": (np.einsum("ij,nij->n", m, e), noise.through(m)),
        "quadratic": (np.einsum("i,nij,j->n", x, e, x), 1.7 * x @ x),
        "bilinear": (np.einsum("i,nij,j->n", x, e, y), noise.through(np.outer(x, y))),
    }[law]
    assert made.std() == pytest.approx(stated, rel=0.02)


def test_noise_about_a_mean_through_a_query_has_the_stated_sd():
    """The same, with the noise of sum and count."""
    rng, u = np.random.default_rng(3), np.array([0.5, 0.0, -0.9, 0.0, 0.2, 0.0])
    noise = GramNoise(9.9, D, (1.7, MeanNoise(u, 2.0)))
    draws = rng.normal(size=(20_000, svec_size(D) + D + 1))
    made = []
    for z in draws:
        e, g = z[-D - 1 : -1], z[-1]
        made.append(unsvec(z[: -D - 1], D) - np.outer(u, e) - np.outer(e, u) + 2.0 * g * np.outer(u, u))
    for matrix in (np.outer(u, u), np.outer(u, rng.normal(size=D)), rng.normal(size=(D, D))):
        found = 1.7 * np.einsum("ij,nij->n", matrix, np.array(made))
        assert found.std() == pytest.approx(noise.through(matrix), rel=0.02)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda r: queries.directional_variance(r, np.zeros(3)), "direction"),
        (lambda r: queries.directional_variance(r, [np.nan] * D), "direction"),
        (lambda r: queries.directional_variance(r, {"z": 1.0}), "direction='z'"),
        (lambda r: queries.captured_variance(r, np.ones((D, 2))), "orthonormal"),
        (lambda r: queries.captured_variance(r, np.ones((3, 1))), "subspace"),
        (lambda r: queries.directional_variance(r, np.eye(D)[0]).interval(95), "level=95"),
    ],
)
def test_bad_arguments_are_named(gram, call, names):
    with pytest.raises(errors.BadParameterError, match=names):
        call(release_of(gram, features=list("abcdef")))


def test_without_a_noise_law_there_is_no_error_bar(gram):
    answer = queries.directional_variance(release_of(gram, std=None), np.eye(D)[0])
    assert answer.std is None
    with pytest.raises(errors.NoReleaseError, match="noise_std"):
        answer.interval()
