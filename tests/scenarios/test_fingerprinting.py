"""The fingerprinting attack: it traces where nothing protects, and finds innocents only where something does."""

import numpy as np
import pytest
from fingerprinting import TardosCode, algorithm_oracle, exact_pca, p_values, trace_contributors, unanimous

import streampca as sp
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.randomness import Randomness
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
CLAIM = GaussianCovariance(n_components=1, **BUDGET).guarantee


def noise(name="x", seed=0):
    return Randomness.from_seed(seed).stream(name)


def traced(oracle, trials=12, length=64, **keywords):
    return trace_contributors(oracle, trials=trials, contributors=2, length=length, padding=32, **keywords)


def test_scores_of_innocents_have_mean_0_and_variance_n():
    code = TardosCode.draw(400, 4, noise())
    assert 1 / 1201 < code.biases.min() < code.biases.max() < 1 - 1 / 1201
    pirate = np.where(noise("pirate").draws(0).uniform(400) < 0.5, 1.0, -1.0)
    scores = code.scores(code.words(4000, noise("words")), pirate)
    assert abs(scores.mean()) < 4 * np.sqrt(400 / 4000)
    assert scores.var() == pytest.approx(400, rel=0.2)


@pytest.mark.parametrize("strategy", ["majority", "minority", "first", "coin"])
def test_a_coalition_scores_2n_over_pi_for_any_strategy(strategy):
    totals = []
    for i in range(60):
        code = TardosCode.draw(600, 3, noise("code", i))
        words = code.words(3, noise("words", i))
        votes = words.sum(axis=0)
        own = {
            "majority": np.sign(votes),
            "minority": np.where(np.abs(votes) == 3, np.sign(votes), -np.sign(votes)),
            "first": words[0],
            "coin": np.where(noise("coin", i).draws(0).uniform(600) < 0.5, 1.0, -1.0),
        }[strategy]
        common = unanimous(words)
        totals.append(code.scores(words, np.where(common != 0.0, common, own)).sum() / 600)
    # The cut-off of the biases leaves a little less than 2 / pi; sd of the mean is some 0.01.
    assert np.mean(totals) == pytest.approx(2 / np.pi, abs=0.06)


def test_p_values_are_ranks():
    scores = p_values(np.array([200.0, 98.0, 50.0, -1.0]), np.arange(99.0))
    np.testing.assert_allclose(scores, [0.01, 0.02, 0.5, 1.0])


def test_pca_without_privacy_gives_contributors_away():
    evidence = traced(exact_pca, length=128)
    assert evidence.trials_traced > 0.8  # 1 in the long run but for some 1 %
    assert evidence.agreement == 1.0
    assert evidence.refutes(CLAIM)


@pytest.mark.parametrize(
    "algorithm",
    [
        sp.PrivateFPL(n_components=1, epsilon=1e6, delta=1e-6),
        Tumbling(GaussianCovariance(n_components=1, epsilon=1e6, delta=1e-6), release_every=2),
        PrivateOja(n_components=1, epsilon=1e6, delta=1e-6, batch_size=2),
    ],
)
def test_so_does_one_with_a_budget_in_name_only(algorithm):
    evidence = traced(algorithm_oracle(algorithm), length=128, trials=20)
    assert evidence.trials_traced > 0.9
    assert evidence.refutes(CLAIM)  # of epsilon = 1
    assert not evidence.refutes(algorithm.guarantee)


PRIVATE = {
    "fpl": sp.PrivateFPL(n_components=1, **BUDGET),
    "fpl-replace": sp.PrivateFPL(n_components=1, horizon=2, noise="tree", adjacency="replace", **BUDGET),
    "fpl-discrete": sp.PrivateFPL(n_components=1, horizon=2, noise=sp.Tree(discrete=True), **BUDGET),
    "gaussian": Tumbling(GaussianCovariance(n_components=1, **BUDGET), release_every=2),
    "oja": PrivateOja(n_components=1, batch_size=2, **BUDGET),
    "window-histogram": SlidingWindowPCA(n_components=1, window=2, **BUDGET),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_processors_give_nobody_away(name):
    """At epsilon = 1 a contributor is accused with probability 2.7 % at most: 2 of 72. More than 9: 1e-4."""
    evidence = traced(algorithm_oracle(PRIVATE[name]), trials=36)
    assert evidence.accused <= 9
    assert not evidence.refutes(PRIVATE[name].guarantee)
    assert evidence.agreement < 0.75
