"""What users of scikit-learn, river and OpenDP type before they read: it works, or the error has the right word."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import streampca as sp
import streampca.river
import streampca.sklearn
from streampca.errors import ANSWERS

WORK = """
sp.pca(X, 2, 1.0, row_norm=3)
sp.pca(X, n_components=2, epsilon=1.0, row_norm=3)
sp.pca(X, 0.9, epsilon=1.0, row_norm=3)
sp.pca(df, 2, epsilon=1.0, bounds={"a": (-3, 3), "b": (-3, 3), "c": (-3, 3)})
sp.pca(df, 2, 1.0, columns=["a", "b", "c"], bounds=(-3, 3))
sp.pca(X, 2, 1.0, bounds=[(-3, 3)] * 3)
sp.pca(X, 2, 1.0, bounds=([-3, -3, -3], [3, 3, 3]))
sp.pca(X.tolist(), 2, 1.0, row_norm=3)
sp.pca(df.to_dict("records"), 2, 1.0, bounds={"a": (-3, 3), "b": (-3, 3)})
sp.pca(X, 2, 1.0, row_norm=3, account=ledger.account("rows"))
release.components
release.explained_variance
release.explained_variance_ratio
release.mean
release.n_components
release.features
release.to_frame()
release.save(path)
next(iter(sp.read_releases(path)))
release.transform(X)
release.gram
release.eigenvalues
release.subspace.projector
release.subspace.distance(release.subspace)
release.subspace.angles(release.subspace)
release.guarantee.epsilon
release.guarantee.delta
release.guarantee.mu
release.guarantee.rho
release.guarantee.epsilon_at(1e-9)
sp.check(df, epsilon=1.0)
sp.plan(n_rows=1000, n_features=3, n_components=2, epsilon=1.0).best
sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0), row_norm=3)
sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0), bounds=(-3, 3)).push_many(df)
stream.push(X[0])
stream.push([0.1, 0.2, 0.3])
stream.push_many(X)
[step.release for step in stream.run(X)]
stream.release.components
stream.regret.now().regret
stream.regret.to_frame()
stream.guarantee
stream.t
stream.close()
sp.SlidingWindowPCA(n_components=2, epsilon=1.0, window=100)
sp.PrivateOja(n_components=2, epsilon=1.0, horizon=1000)
sp.GaussianCovariance(n_components=2, epsilon=1.0).release(X, row_norm=3)
streampca.sklearn.PrivatePCA(n_components=2, row_norm=3).fit(X).components_
streampca.sklearn.PrivatePCA(row_norm=3).fit_transform(X)
streampca.sklearn.PrivatePCA(row_norm=3).fit(X).explained_variance_ratio_
streampca.sklearn.PrivatePCA(row_norm=3).partial_fit(X).mean_
clone(streampca.sklearn.PrivatePCA(row_norm=3)).fit(X).inverse_transform(X[:, :2])
make_pipeline(FunctionTransformer(), streampca.sklearn.PrivatePCA(row_norm=3)).fit(X)
streampca.river.PrivatePCA(row_norm=3).learn_one({"a": 1.0, "b": 2.0, "c": 0.5})
streampca.river.PrivatePCA(row_norm=3).transform_one({"a": 1.0, "b": 2.0, "c": 0.5})
ledger.remaining("rows")
ledger.balance("rows").spent
sp.Budget(1.0, 1e-6)
"""
ANSWERED = """
sp.PrivatePCA
sp.IncrementalPCA
sp.read_csv
sp.Accountant
sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0), row_norm=3, n_components=2)
sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0), data_norm=3)
sp.PrivateFPL(k=2, epsilon=1.0)
sp.PrivateFPL(n_components=2, rho=1.0)
sp.PrivateFPL(n_components=2, mu=1.0)
sp.plan(n=1000, d=3, k=2, epsilon=1.0)
ledger.set_budget("other", epsilon=1.0, delta=1e-6)
ledger.spent
stream.update(X[0])
stream.partial_fit(X)
stream.releases
stream.plot()
release.basis
release.loadings
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guesses")
    X = np.random.default_rng(0).normal(size=(200, 3)).clip(-1.5, 1.5)
    ledger = sp.Ledger(folder / "ledger.db")
    ledger.set_budget("rows", sp.Budget(2.0, 1e-5))
    stream = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0), row_norm=3, features=3)
    stream.push_many(X)
    yield {
        "sp": sp, "streampca": streampca, "X": X, "df": pd.DataFrame(X, columns=["a", "b", "c"]), "ledger": ledger,
        "stream": stream, "release": sp.pca(X, 2, 1.0, row_norm=3), "path": folder / "release.jsonl", "clone": clone,
        "make_pipeline": make_pipeline, "FunctionTransformer": FunctionTransformer,
    }  # fmt: skip
    ledger.close()


@pytest.mark.filterwarnings("ignore::streampca.errors.StreamPCAWarning")
@pytest.mark.parametrize("guess", WORK.split("\n")[1:-1])
def test_it_works(guess, names):
    eval(guess, names)


@pytest.mark.parametrize("guess", ANSWERED.split("\n")[1:-1])
def test_the_error_has_the_right_word(guess, names):
    with pytest.raises((AttributeError, TypeError), match=r"there is no .*\. Use \S"):
        eval(guess, names)


def test_answers_name_what_exists():
    classes = (sp.Stream, sp.Release, sp.Ledger, sp.PrivateFPL, sp.Guarantee)
    known = {*dir(sp), *(name for kind in classes for name in [*dir(kind), *inspect.signature(kind).parameters])}
    known |= set(inspect.signature(sp.plan).parameters)
    assert sum(map(len, ANSWERS.values())) <= 40
    for answers in ANSWERS.values():
        for answer in answers.values():
            assert known.intersection(re.findall(r"\w+", answer)), answer
