import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from runs import payments
from scipy.sparse import csr_array
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import streampca as sp
from streampca import queries
from streampca.errors import BudgetExhaustedError, UsageError
from streampca.sklearn import PrivatePCA
from streampca.store.ledger import Account, Ledger

SCALES = np.array([0.35, 0.25, 0.1, 0.05, 0.05])
SHIFT = np.array([0.1, -0.2, 0.0, 0.3, 0.05])


def rows(n: int = 20_000, seed: int = 0) -> Any:
    # Rows of norm at most 1 are admitted unchanged, up to the lattice.
    made = np.random.default_rng(seed).normal(size=(n, 5)) * SCALES + SHIFT
    return made / np.maximum(1.0, np.linalg.norm(made, axis=1))[:, None]


def test_close_to_the_exact_one() -> None:
    X = rows()
    exact = PCA(n_components=2).fit(X)
    found = PrivatePCA(n_components=2, random_state=0, row_norm=1.0).fit(X)
    assert np.allclose(np.abs(np.einsum("ij,ij->i", exact.components_, found.components_)), 1.0, atol=1e-3)
    assert np.allclose(found.mean_, exact.mean_, atol=5e-3)
    assert np.allclose(found.explained_variance_, exact.explained_variance_, atol=2e-3)
    assert np.allclose(found.explained_variance_ratio_, exact.explained_variance_ratio_, atol=2e-2)
    agreeing = np.sign(np.einsum("ij,ij->i", exact.components_, found.components_))
    assert np.allclose(found.transform(X) * agreeing, exact.transform(X), atol=3e-2)
    assert np.allclose(
        found.inverse_transform(found.transform(X)), exact.inverse_transform(exact.transform(X)), atol=0.03
    )
    assert (found.n_samples_seen_, found.n_features_in_, found.components_.shape) == (20_000, 5, (2, 5))


def test_a_share_chooses_the_number_of_components() -> None:
    X = rows()
    shares = PrivatePCA(n_components=None, random_state=0, row_norm=1.0).fit(X).explained_variance_ratio_
    assert shares.shape == (5,)
    for share in (0.3, 0.8, 0.99):
        found = PrivatePCA(n_components=share, random_state=0, row_norm=1.0).fit(X)
        k = found.n_components_
        assert k == found.components_.shape[0] == found.release_.n_components == found.transform(X[:3]).shape[1]
        assert shares[:k].sum() >= share > shares[: k - 1].sum()
    batches = PrivatePCA(n_components=0.9, random_state=0, row_norm=1.0).partial_fit(X[:50])
    numbers = set()
    for i in range(20):
        before = batches.components_
        after = batches.partial_fit(X[: 500 * i + 200]).components_
        both = min(len(before), len(after))
        assert (np.einsum("ij,ij->i", before[:both], after[:both]) >= 0.0).all()  # signs stay
        numbers.add(len(after))
    assert len(numbers) > 1  # fifty rows are mostly noise
    with pytest.raises(ValueError, match="n_components"):
        PrivatePCA(n_components=1.5, row_norm=1.0).fit(X)
    with pytest.raises(ValueError, match="whiten"):
        PrivatePCA(whiten="yes", row_norm=1.0).fit(X)  # type: ignore[arg-type]


def test_the_model_is_that_of_scikit_learn() -> None:
    X = rows()
    for k in (2, 5):
        exact, found = PCA(n_components=k).fit(X), PrivatePCA(n_components=k, random_state=0, row_norm=1.0).fit(X)
        # Entries of the noise: at most 5 sd.
        assert np.allclose(found.get_covariance(), exact.get_covariance(), atol=5 * found.explained_variance_std_[0])
        assert np.allclose(found.get_precision() @ found.get_covariance(), np.eye(5), atol=1e-9)
        assert found.score(X) == pytest.approx(exact.score(X), abs=0.05)
        assert found.noise_variance_ == pytest.approx(exact.noise_variance_, abs=5 * found.explained_variance_std_[0])
        density = multivariate_normal(found.mean_, found.get_covariance())
        assert np.allclose(found.score_samples(X[:50]), density.logpdf(X[:50]))
    # Mostly noise: still a density.
    hidden = PrivatePCA(n_components=2, epsilon=0.01, random_state=0, row_norm=1.0).fit(X[:20])
    assert np.linalg.eigvalsh(hidden.get_covariance())[0] > 0.0
    assert np.isfinite(hidden.score(X))
    # A change of units by public bounds changes the density by its volume, and the covariance by its squares.
    units = np.array([1.0, 10.0, 1.0, 1.0, 0.1])
    same = PrivatePCA(n_components=2, epsilon=1e6, bounds=(-units, units)).fit(X * units)
    plain = PrivatePCA(n_components=2, epsilon=1e6, bounds=(-1.0, 1.0)).fit(X)
    assert np.allclose(same.get_covariance() / np.outer(units, units), plain.get_covariance(), atol=1e-5)
    assert same.score(X * units) == pytest.approx(plain.score(X) - np.log(units).sum(), abs=1e-2)


def test_whitened_scores_have_unit_variance_and_come_back() -> None:
    X = rows()
    found = PrivatePCA(n_components=2, whiten=True, random_state=0, row_norm=1.0).fit(X)
    scores = found.transform(X)
    assert np.allclose(scores.std(axis=0), 1.0, atol=0.02)
    plain = PrivatePCA(n_components=2, random_state=0, row_norm=1.0).fit(X)
    assert np.allclose(found.inverse_transform(scores), plain.inverse_transform(plain.transform(X)), atol=1e-12)
    hidden = PrivatePCA(n_components=2, epsilon=0.01, whiten=True, random_state=0, row_norm=1.0).fit(X[:20])
    assert np.isfinite(hidden.transform(X)).all()


def test_sparse_rows_and_float32() -> None:
    X = np.where(rows(3_000) > 0.1, rows(3_000), 0.0)
    sparse = csr_array(X)
    dense, from_sparse = (PrivatePCA(random_state=0, row_norm=1.0).fit(table) for table in (X, sparse))
    assert from_sparse.release_.to_json() == dense.release_.to_json()
    assert np.array_equal(from_sparse.transform(sparse), dense.transform(X))
    assert np.allclose(from_sparse.score_samples(sparse), dense.score_samples(X))
    one, two = (PrivatePCA(random_state=0, row_norm=1.0) for _ in range(2))
    for part in (slice(0, 10), slice(10, 3_000)):
        assert one.partial_fit(X[part]).release_.to_json() == two.partial_fit(sparse[part]).release_.to_json()
    narrow = X.astype(np.float32)
    scores = PrivatePCA(random_state=0, row_norm=1.0).fit(narrow).transform(narrow)
    assert scores.dtype == dense.inverse_transform(scores).dtype == np.float32
    assert dense.transform(X).dtype == np.float64


def test_the_noise_is_that_of_one_release_a_batch() -> None:
    for center, factor in ((False, 1.0), (True, 1.125)):
        release = PrivatePCA(n_components=2, center=center, row_norm=3.0).fit(rows(500)).release_
        found = release.noise_std
        assert release.is_centered == center
        one = factor * 9.0 / sp.Budget(1.0, 1e-6).mu
        assert one * (1.0 - 1e-5) <= found <= (np.inf if center else one * (1.0 + 1e-6))
    pca = PrivatePCA(center=False, row_norm=1.0)
    plain = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=1, center=False)
    for i, size in enumerate((1, 7, 30_000, 30, 1), 1):
        pca.partial_fit(rows(size, seed=i))
        assert pca.release_.noise_std == pytest.approx(plain.noise_std(i), rel=1e-12)
    assert pca.n_samples_seen_ == 30_039
    assert pca.guarantee_.epsilon == 1.0


def test_batches_add_up() -> None:
    X = rows(4_000)
    pca = PrivatePCA(epsilon=1e6, random_state=1, center=False, row_norm=1.0)
    for start in range(0, 4_000, 500):
        pca.partial_fit(X[start : start + 500])
    assert np.allclose(pca.release_.gram, X.T @ X, atol=0.05)


@pytest.mark.parametrize("center", [True, False])
def test_intervals_are_those_of_the_release(center: bool) -> None:
    pca = PrivatePCA(center=center, random_state=0, row_norm=1.0).fit(rows(3_000))
    divisor = pca.release_.details["count"] - 1.0 if center else 3_000
    expected = np.divide(queries.pca(pca.release_).interval(0.9), divisor)
    np.testing.assert_allclose(pca.explained_variance_interval(0.9), expected)
    assert (expected[0] > 0.0).all()
    assert 0.0 < pca.explained_variance_std_[0] < float((expected[1] - expected[0])[0])


def test_the_error_of_a_variance_is_as_stated_though_the_mean_is_long() -> None:
    X = np.random.default_rng(0).normal(size=(1000, 3)) * [0.3, 0.1, 0.02] + [0.0, 0.0, 0.8]
    models = [PrivatePCA(n_components=1, epsilon=5.0, random_state=seed, row_norm=1.0).fit(X) for seed in range(80)]
    stated = np.mean([model.explained_variance_std_[0] for model in models])
    assert np.std([model.explained_variance_[0] for model in models]) == pytest.approx(stated, rel=0.3)
    assert max(model.noise_variance_ for model in models) < 0.02


def test_bounds_scale_and_come_back() -> None:
    ranges = (np.array([0.0, 10.0, -1.0]), np.array([100.0, 20.0, 1.0]))
    X = np.random.default_rng(0).uniform(0.3, 0.7, size=(30_000, 3)) * (ranges[1] - ranges[0]) + ranges[0]
    X[:, 2] = (X[:, 0] - 50.0) / 50.0
    pca = PrivatePCA(n_components=2, bounds=ranges, random_state=0).fit(X)
    assert np.allclose(pca.scale_, 1.0 / np.sqrt(3.0) / np.array([50.0, 5.0, 1.0]))
    assert np.allclose((pca.mean_ - X.mean(axis=0)) * pca.scale_, 0.0, atol=0.02)
    # The third is a copy of the first, so that two components have all there is.
    assert np.allclose((pca.inverse_transform(pca.transform(X)) - X) * pca.scale_, 0.0, atol=0.03)
    table = pd.DataFrame(X, columns=["u", "v", "w"])
    named = {name: (ranges[0][j], ranges[1][j]) for j, name in enumerate("uvw")}
    same = PrivatePCA(n_components=2, bounds=named, random_state=0).fit(table)
    assert np.array_equal(same.components_, pca.components_)
    assert list(same.feature_names_in_) == ["u", "v", "w"]
    assert same.release_.features == ("u", "v", "w")
    with pytest.raises(UsageError, match="bounds by name: expected named features"):
        PrivatePCA(bounds=named).fit(X)


def test_fit_discards_secrets() -> None:
    X = rows(300)
    pca = PrivatePCA(random_state=0, row_norm=1.0).partial_fit(X)
    assert "_stream" in vars(pca)
    pca.fit(X)
    assert "_stream" not in vars(pca)
    # All that is left is a parameter, or is computed from the release and the public shape.
    state = pickle.loads(pickle.dumps(pca)).__dict__
    assert {name for name in state if not name.endswith("_")} == set(pca.get_params())
    pca.partial_fit(X[:50])
    assert pca.n_samples_seen_ == 50
    again = pickle.loads(pickle.dumps(pca))
    assert again.partial_fit(X[50:]).n_samples_seen_ == pca.partial_fit(X[50:]).n_samples_seen_ == 300


def test_a_fresh_key_unless_seeded() -> None:
    X = rows(100)
    state, drawn = np.random.RandomState(0), []
    for source in (None, None, state, state):
        np.random.seed(0)  # noqa: NPY002  must not matter
        drawn.append(PrivatePCA(random_state=source, row_norm=1.0).fit(X).components_.tobytes())
    assert len(set(drawn)) == 4
    seeded = PrivatePCA(random_state=5, row_norm=1.0)
    assert np.array_equal(seeded.fit(X).components_, clone(seeded).fit(X).components_)
    assert "seed" in seeded.guarantee_.caveat
    assert PrivatePCA(row_norm=1.0).fit(X).guarantee_.caveat == ""


pca = partial(PrivatePCA, row_norm=1.0)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: pca(n_components=6).fit(rows(10)), UsageError, "n_components=6 exceeds n_features=5"),
        (lambda: pca(data_set="people").fit(rows(10)), UsageError, "the path of a ledger and the name"),
        (lambda: PrivatePCA(bounds="private").partial_fit(rows(10)), UsageError, "needs all rows"),
        (lambda: pca().inverse_transform(rows(2)[:, :2]), NotFittedError, "not fitted"),
        (lambda: pca().explained_variance_interval(), NotFittedError, "not fitted"),
        (lambda: pca().fit(rows(9)).inverse_transform(csr_array(np.eye(2))), TypeError, "toarray"),
    ],
)
def test_bad_input(act: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act()


def test_bad_rows_count_for_nothing_and_the_curator_is_told(caplog: pytest.LogCaptureFixture) -> None:
    good = rows(300)
    bad = np.insert(good, [3, 100, 200], [[np.nan], [np.inf], [-np.inf]], axis=0)
    models = [PrivatePCA(row_norm=1.0, random_state=1, center=center).fit(bad) for center in (True, False)]
    for model in models:
        assert model.admission.zero_rows_by_reason == {"missing value": 1, "infinite value": 2}
        assert model.n_samples_seen_ == 303
        assert np.isfinite(model.components_).all()
    assert [r.name for r in caplog.records] == ["streampca.curator"] * 2
    assert "3 of 303 rows could not be used" in caplog.records[0].message


def test_every_fit_of_a_grid_search_pays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.set_budget("people", sp.Budget(2.0, 1e-6))
        ledger.set_budget("few", sp.Budget(0.1, 1e-6))
    X = rows(400)
    paying = PrivatePCA(epsilon=0.25, ledger=str(path), data_set="people", row_norm=1.0)
    pipeline = make_pipeline(paying, LinearRegression())
    search = GridSearchCV(pipeline, {"privatepca__n_components": [1, 2]}, cv=3, error_score="raise")
    search.fit(X, X[:, 0])
    # Two values in three folds, and one more on all rows with the better of them.
    assert payments(path, "people") == 7
    refused = PrivatePCA(epsilon=0.25, ledger=path, data_set="few", row_norm=1.0)
    for fit in (refused.fit, refused.partial_fit):
        with pytest.raises(BudgetExhaustedError):
            fit(X)
        assert not hasattr(refused, "components_")


def test_a_first_batch_that_is_interrupted_after_its_debit_pays_once(tmp_path: Path) -> None:
    path, debit = tmp_path / "ledger.db", Account.debit
    with Ledger(path) as ledger:
        ledger.set_budget("people", sp.Budget(9.0, 1e-6))

    def interrupted(*given: Any) -> None:
        debit(*given)
        raise KeyboardInterrupt

    pca = PrivatePCA(ledger=path, data_set="people", random_state=np.random.RandomState(0), row_norm=1.0)
    # The third has another parameter, and the fourth other features: each is another run.
    changes = [(5, {}), (5, {}), (5, {"epsilon": 2.0}), (4, {"epsilon": 2.0})]
    for (d, parameters), debits in zip(changes, (1, 1, 2, 3), strict=True):
        pca.set_params(**parameters)
        with mock.patch.object(Account, "debit", interrupted), pytest.raises(KeyboardInterrupt):
            pca.partial_fit(rows(50)[:, :d])
        assert not hasattr(pca, "components_")
        assert payments(path, "people") == debits
    pca.partial_fit(rows(50)[:, :4]).partial_fit(rows(50)[:, :4])
    assert pca.n_samples_seen_ == 100
    assert payments(path, "people") == 3


def test_private_bounds() -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 3)) * [30, 8, 1] + [100, 0, 0]
    found = PrivatePCA(n_components=2, bounds="private", random_state=0).fit(X)
    assert "bounds of the columns from the first" in str(found.guarantee_)
    assert found.admission is not None
    assert 0 < max(found.admission.share_clamped.values()) < 0.2
    assert "AdmissionReport" not in found._repr_html_()
    kept = len(X) - found.release_.terms.warmup
    assert found.explained_variance_ == pytest.approx(found.release_.eigenvalues / (kept - 1))
    assert (np.abs(found.mean_ - X.mean(axis=0)) * found.scale_ < 0.05).all()


def test_shares_of_noise_are_zero() -> None:
    noise = PrivatePCA(n_components=3, row_norm=1.0, random_state=0).fit(np.zeros((500, 6)))
    assert (noise.n_clear_, noise.explained_variance_ratio_.tolist()) == (0, [0.0] * 3)
    assert noise.components_.shape == (3, 6)
    assert noise.release_.explained_variance_ratio.sum() > 0.0
    assert PrivatePCA(n_components=0.9, row_norm=1.0, random_state=0).fit(np.zeros((500, 6))).n_components_ == 1
    rows = np.random.default_rng(0).normal(size=(5000, 6)) * [0.4, 0.2, 0.0, 0.0, 0.0, 0.0]
    found = PrivatePCA(n_components=3, row_norm=1.0, random_state=0).fit(rows)
    assert found.n_clear_ == 2
    assert (found.explained_variance_ratio_ > 0.0).tolist() == [True, True, False]
