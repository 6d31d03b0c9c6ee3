import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import StreamPCAWarning, UsageError
from streampca.rows import advice
from streampca.rows.advice import size_warnings

fpl = partial(sp.PrivateFPL, n_components=1, epsilon=1.0, center=False, release_every=1, horizon=60)


def rows_of(spikes: bool) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(60, 3)) * 0.01
    return rows + np.array([0.9, 0.0, 0.0]) if spikes else rows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 10.5}, "epsilon=10.5: the guarantee is weak"),
        ({"delta": 0.02}, r"delta=0.02 is too large for 60 rows.* Choose at most 0.001."),
    ],
)
def test_weak_guarantees_are_told_when_a_stream_is_made(changes: dict[str, float], message: str) -> None:
    with pytest.warns(StreamPCAWarning, match=message) as told:
        sp.Stream(fpl(**changes), row_norm=1.0)
    assert [one.filename for one in told] == [__file__]


def test_good_settings_and_no_promise_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = sp.Stream(fpl(epsilon=10.0, delta=0.1 / 60.0), row_norm=1.0)
        stream.push_many(rows_of(spikes=True)[:59])
        sp.Stream(sp.Oja(n_components=1), row_norm=1.0, features=3)
        list(sp.Stream(sp.Oja(n_components=1), row_norm=1.0, features=3).run(rows_of(spikes=True)))


def test_warnings_that_are_errors_leave_a_stream_whole() -> None:
    rows = rows_of(spikes=False)
    stream = sp.Stream(fpl(n_components=3), row_norm=1.0, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for push in (lambda: stream.push(rows[0]), lambda: stream.push_many(rows)):
            with pytest.raises(StreamPCAWarning, match="n_components=3 is the number of features"):
                push()
            assert stream.t == 0


def test_a_stream_without_end_is_warned_of_where_the_rows_end() -> None:
    stream = sp.Stream(fpl(horizon=None, delta=0.02, epsilon=3.0), row_norm=1.0, seed=0)
    with pytest.warns(StreamPCAWarning, match=r"delta=0.02 is too large for 60 rows"):
        list(stream.run(rows_of(spikes=True)))


@pytest.mark.parametrize(
    "algorithm",
    [
        fpl(),
        sp.Tumbling(sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False), release_every=2),
        sp.SlidingWindowPCA(window=8, release_every=2, center=False, n_components=2, epsilon=1.0),
    ],
)
def test_matrices_that_do_not_fit_are_refused_before_the_budget_is_paid(
    tmp_path: Path, algorithm: sp.Algorithm
) -> None:
    with sp.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("rows", sp.Budget(9.0, 1e-5))
        stream = sp.Stream(algorithm, row_norm=1.0, account=ledger.account("rows"))
        with pytest.raises(UsageError, match=r"400000 features: .* GB of memory, and .* PrivateOja"):
            stream.push_many(np.zeros((2, 400_000)))
        assert not ledger.balance("rows").entries
    assert size_warnings(2, 5000, algorithm.square_bytes)[0].startswith("5000 features: matrices of all pairs")


def test_large_matrices_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "_LARGE_MEMORY", 1e4)
    with pytest.warns(StreamPCAWarning, match=r"100 features: .* require about 0.0013 GB"):
        sp.Stream(fpl(), row_norm=1.0, regret=None).push(np.zeros(100))
    assert size_warnings(2, 10**6, sp.PrivateOja(n_components=2, epsilon=1.0, horizon=9).square_bytes) == []
