"""The fingerprinting attack traces where nothing protects; `scenarios/traitor.toml` has where something does."""

import numpy as np
import pytest
from fingerprinting import TardosCode, exact_pca, trace_contributors, unanimous

from streampca.mechanisms.covariance import GaussianCovariance
from streampca.privacy.randomness import Randomness


def noise(name="x", seed=0):
    return Randomness.from_seed(seed).stream(name)


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


def test_pca_without_privacy_gives_contributors_away():
    evidence = trace_contributors(exact_pca, trials=12, contributors=2, length=128, padding=32)
    assert evidence.trials_traced > 0.8  # 1 in the long run but for some 1 %
    assert evidence.agreement == 1.0
    assert evidence.refutes(GaussianCovariance(n_components=1, epsilon=1.0, center=False).guarantee)
