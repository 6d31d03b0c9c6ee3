"""The fingerprinting attack: it traces where nothing protects, and finds innocents only where something does."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.papers.approximate_subspace import ApproximateSubspace
from streampca.papers.laplace import LaplaceCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.papers.wishart import WishartCovariance
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Algorithm
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.tumbling import Tumbling

sys.path.insert(0, str(Path(__file__).parents[2] / "scenarios"))
from fingerprinting import (
    Evidence,
    TardosCode,
    algorithm_oracle,
    allowed,
    exact_pca,
    p_values,
    trace_contributors,
    unanimous,
)

SIZE = {"contributors": 2, "length": 64, "padding": 32}
EPSILON, DELTA = 1.0, 1e-6


def noise(name: str = "x", seed: int = 0):  # type: ignore[no-untyped-def]
    return Randomness.from_seed(seed).stream(name)


def test_scores_of_innocents_have_mean_0_and_variance_n() -> None:
    code = TardosCode.draw(400, 4, noise())
    assert (code.biases > 1 / 1201).all()
    assert (code.biases < 1 - 1 / 1201).all()
    pirate = np.where(noise("pirate").uniform(0, 400) < 0.5, 1.0, -1.0)
    scores = code.scores(code.words(4000, noise("words")), pirate)
    assert abs(scores.mean()) < 4 * np.sqrt(400 / 4000)
    assert scores.var() == pytest.approx(400, rel=0.2)


@pytest.mark.parametrize("strategy", ["majority", "minority", "first", "coin"])
def test_a_coalition_scores_2n_over_pi_whatever_its_strategy(strategy: str) -> None:
    totals = []
    for i in range(60):
        code = TardosCode.draw(600, 3, noise("code", i))
        words = code.words(3, noise("words", i))
        votes = words.sum(axis=0)
        own = {
            "majority": np.sign(votes),
            "minority": np.where(np.abs(votes) == 3, np.sign(votes), -np.sign(votes)),
            "first": words[0],
            "coin": np.where(noise("coin", i).uniform(0, 600) < 0.5, 1.0, -1.0),
        }[strategy]
        common = unanimous(words)
        pirate = np.where(common != 0.0, common, own)
        totals.append(code.scores(words, pirate).sum() / 600)
    # The cut-off of the biases leaves a little less than 2 / pi; sd of the mean is some 0.01.
    assert np.mean(totals) == pytest.approx(2 / np.pi, abs=0.06)


def test_p_values_are_ranks() -> None:
    innocent = np.arange(99.0)
    np.testing.assert_allclose(p_values(np.array([200.0, 98.0, 50.0, -1.0]), innocent), [0.01, 0.02, 0.5, 1.0])


def traced(oracle: object, trials: int = 12, **keywords: object) -> Evidence:
    return trace_contributors(oracle, trials=trials, **(SIZE | keywords))  # type: ignore[arg-type]


def test_pca_without_privacy_gives_contributors_away() -> None:
    for components in (1, 2):
        evidence = traced(exact_pca, length=128, n_components=components)
        assert evidence.trials_traced > 0.8  # 1 in the long run but for some 1 %
        assert evidence.agreement > 0.99  # the net of Algorithm 6 may miss the best direction by a little
        assert evidence.lower_bound() > allowed(claim(), evidence.rate)


def claim(epsilon: float = EPSILON) -> sp.Guarantee:
    return GaussianCovariance(n_components=1, epsilon=epsilon, delta=DELTA).guarantee


LOOSE: dict[str, Callable[[int], Algorithm]] = {
    "leader": lambda k: sp.papers.PerturbedLeader(n_components=k, epsilon=1e6, delta=DELTA),
    "fpl": lambda k: sp.PrivateFPL(n_components=k, epsilon=1e6, delta=DELTA),
    "tumbling": lambda k: Tumbling(GaussianCovariance(n_components=k, epsilon=1e6, delta=DELTA), release_every=2),
    "oja": lambda k: PrivateOja(n_components=k, epsilon=1e6, delta=DELTA, batch_size=2),
}


@pytest.mark.parametrize("name", LOOSE)
def test_so_does_one_with_a_budget_in_name_only(name: str) -> None:
    evidence = traced(algorithm_oracle(LOOSE[name]), length=128, trials=20)
    assert evidence.trials_traced > 0.9
    assert evidence.refutes(claim())  # of epsilon = 1
    assert not evidence.refutes(claim(1e6))


@pytest.mark.ci
def test_fresh_noise_averages_out_and_correlated_noise_does_not() -> None:
    leader = algorithm_oracle(
        lambda k: sp.papers.PerturbedLeader(n_components=k, epsilon=4.0, delta=DELTA), average=600
    )
    assert traced(leader, length=128, trials=6).trials_traced > 0.6
    private = algorithm_oracle(lambda k: sp.PrivateFPL(n_components=k, epsilon=4.0, delta=DELTA), average=600)
    evidence = traced(private, length=128, trials=6)
    assert evidence.agreement < 0.65
    assert not evidence.refutes(claim(4.0))


BUDGET = {"epsilon": EPSILON, "delta": DELTA}
PRIVATE: dict[str, Callable[[int], Algorithm]] = {
    "fpl": lambda k: sp.PrivateFPL(n_components=k, **BUDGET),
    "fpl-blt": lambda k: sp.PrivateFPL(n_components=k, horizon=2, **BUDGET),
    "fpl-tree": lambda k: sp.PrivateFPL(n_components=k, horizon=2, noise="tree", **BUDGET),
    "fpl-replace": lambda k: sp.PrivateFPL(n_components=k, horizon=2, noise="tree", adjacency="replace", **BUDGET),
    "fpl-doubling": lambda k: sp.papers.DoublingFPL(n_components=k, horizon=2, **BUDGET),
    "fpl-regret": lambda k: sp.PrivateFPL(n_components=k, horizon=2, publish_regret=True, **BUDGET),
    "gaussian": lambda k: Tumbling(GaussianCovariance(n_components=k, **BUDGET), release_every=2),
    "wishart": lambda k: Tumbling(WishartCovariance(n_components=k, **BUDGET), release_every=2),
    "laplace": lambda k: Tumbling(LaplaceCovariance(n_components=k, epsilon=EPSILON), release_every=2),
    "matrix-laplace": lambda k: Tumbling(MatrixLaplaceCovariance(n_components=k, epsilon=EPSILON), release_every=2),
    "subspace": lambda k: Tumbling(SubspacePerturbation(n_components=k, **BUDGET), release_every=2),
    "oja": lambda k: PrivateOja(n_components=k, batch_size=2, **BUDGET),
    "window-histogram": lambda k: SlidingWindowPCA(n_components=k, window=2, **BUDGET),
    "window-ring": lambda k: SlidingWindowPCA(n_components=k, window=2, method="ring", **BUDGET),
    "window-forgetting": lambda k: SlidingWindowPCA(n_components=k, window=4, method="forgetting", **BUDGET),
    "window-once": lambda k: SlidingWindowPCA(n_components=k, window=2, method="once", horizon=2, **BUDGET),
    "fpl-exact": lambda k: sp.PrivateFPL(n_components=k, horizon=2, noise=sp.Tree(discrete=True), **BUDGET),
    "exact-subspace": lambda k: Tumbling(ExactSubspace(n_components=k, **BUDGET), release_every=2),
    "approximate-subspace": lambda k: Tumbling(ApproximateSubspace(n_components=k, **BUDGET), release_every=2),
    "oja-rows": lambda k: PrivateOja(n_components=k, batch_size=1, **BUDGET),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_processors_give_nobody_away(name: str) -> None:
    """At epsilon = 1 a contributor is accused with probability 2.7 % at most: 2 of 72. More than 9: 1e-4."""
    make = PRIVATE[name]
    guarantee = make(1).guarantee
    assert guarantee.epsilon <= EPSILON
    evidence = traced(algorithm_oracle(make), trials=36)
    assert evidence.accused <= 9
    assert not evidence.refutes(guarantee)
    assert evidence.agreement < 0.75


def test_dp_pca_gives_nobody_away() -> None:
    """It takes many rows; all but two are zero."""
    make = lambda k: DPPCA(n_components=k, horizon=20_000, batch_size=3000, **BUDGET)  # noqa: E731
    evidence = traced(algorithm_oracle(make, zeros=19_998), trials=4)
    assert evidence.accused <= 3
    assert evidence.agreement < 0.75


def test_algorithm_6_gives_nobody_away_either() -> None:
    evidence = traced(algorithm_oracle(PRIVATE["fpl"]), trials=15, n_components=2)
    assert not evidence.refutes(claim())
    assert evidence.accused <= 6


def test_rates_and_lengths_are_checked() -> None:
    with pytest.raises(BadParameterError, match=r"rate=1e-05"):
        traced(exact_pca, rate=1e-5)
    with pytest.raises(BadParameterError, match="length=0"):
        traced(exact_pca, length=0)


def test_same_seed_same_evidence() -> None:
    first, second = (traced(algorithm_oracle(PRIVATE["fpl"]), trials=2) for _ in range(2))
    np.testing.assert_array_equal(first.contributors, second.contributors)
