import math

import numpy as np
import pytest
from scipy.stats import norm

import streampca as sp
from streampca.privacy.gaussian import delta_at
from streampca.views.facts import in_words, most_found, summary


def promise(**changes):
    fields = {
        "epsilon": 1.0, "delta": 1e-6, "adjacency": "zero-out", "scope": "all releases",
        "theorem": "a theorem", "citation": "a paper", "mu": 0.2367,
    }  # fmt: skip
    return sp.Guarantee(**(fields | changes))


def test_the_best_attack_finds_exactly_what_the_words_say():
    # N(0, 1) against N(mu, 1): the likelihood ratio test is best, and thresholds are its only choice.
    mu = 1.3
    rng = np.random.default_rng(0)
    threshold = norm.ppf(0.95)
    found = float(np.mean(rng.normal(mu, 1.0, 200_000) > threshold))
    guarantee = promise(mu=mu, epsilon=6.0, delta=delta_at(mu, 6.0))
    assert found == pytest.approx(most_found(guarantee, 0.05), abs=4.5 * math.sqrt(0.25 / 200_000))
    assert most_found(promise(mu=2 * mu / 3, epsilon=6.0, delta=1e-3), 0.05) < found - 0.05


def test_pairs_without_mu_use_the_trade_off_of_epsilon_and_delta():
    pure = promise(mu=None, delta=0.0, epsilon=math.log(3.0))
    assert most_found(pure, 0.05) == pytest.approx(0.15)
    assert most_found(pure, 0.5) == pytest.approx(1 - (1 - 0.5) / 3)
    assert most_found(sp.Guarantee.none("nothing"), 0.05) == 1.0


def test_words_name_what_there_is_and_what_weakens_it():
    text = " ".join(part for pair in in_words(promise(caveat="seeded: x")) for part in pair)
    found = "zeros", "2.72 times", "1 in 1 000 000", "8 %", "all releases", "a theorem [a paper]", "Seeded: x"
    for words in (*found, "mu = 0.2367"):
        assert words in text, words
    assert "any other values" in str(in_words(promise(adjacency="replace")))
    assert in_words(sp.Guarantee.none("it leaks"))[0][1].startswith("Nothing: it leaks")
    assert summary(sp.Guarantee.none("it leaks")) == "none"
    assert summary(promise()) == "(1, 1e-06)-DP for one row, zero-out"
