"""The card of a run, the words of its guarantee, and the error bars of loadings."""

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca.release.estimates import Estimates
from streampca.views.card import card, curator_card
from streampca.views.facts import Fact, in_words, percent, regret_facts, summary


def noise(rng, d, sigma):
    square = rng.normal(size=(d, d)) * sigma / np.sqrt(2.0)
    return np.triu(square, 1) + np.triu(square, 1).T + np.diag(rng.normal(size=d) * sigma)


def test_bars_of_loadings_are_their_standard_deviations():
    rng, sigma, k = np.random.default_rng(1), 0.4, 2
    exact = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    gram = exact @ np.diag([10.0, 6.0, 3.0, 1.0, 1.0, 1.0]) @ exact.T
    ratios = []
    for _ in range(200):
        made = Estimates(gram=gram + noise(rng, 6, sigma), noise_std=sigma, n_components=k, rows=100)
        vectors = np.linalg.eigh(made.gram)[1][:, ::-1][:, :k]
        vectors *= np.sign((vectors * exact[:, :k]).sum(axis=0))
        ratios.append((vectors - exact[:, :k]) / made.loading_std)
    spread = np.sqrt(np.mean(np.square(ratios), axis=(0, 1)))  # of 1200 values each: standard error about 0.03
    np.testing.assert_allclose(spread, 1.0, atol=0.15)
    np.testing.assert_allclose((made.loading_std**2).sum(axis=0), 2.0 * (1.0 - np.sqrt(made.direction_quality)))
    assert not Estimates(gram=gram, noise_std=0.0, n_components=k, rows=100).loading_std.any()


def a_release(*, sigma=0.4, k=2, features=("age", "a|b", "<b>x</b>", "q\x1b[31m"), **more):
    gram = np.diag([30.0, 20.0, 0.2, 0.1]) + noise(np.random.default_rng(2), 4, sigma)
    guarantee = sp.PrivateFPL(n_components=k, epsilon=1.0, release_every=1, center=False).guarantee
    return gram_release(gram, t=100, n_components=k, noise_std=sigma, guarantee=guarantee, features=features, **more)


RECORD = sp.RegretRecord(100, 40.0, 50.0, 10.0, 77.0, 0.98765432)


def test_a_card_tells_what_was_released_promised_and_seen():
    # Names of features are in facts about admission, too.
    further = [*regret_facts(RECORD), Fact("Budget in the ledger", "half", curator=True), Fact("c\x1b", "<b>x</b>\x1b")]
    made = card(a_release(k=2), releases=7, further=further)
    text = " ".join(made.text(120).split())
    for words in (
        "100 rows · 4 columns · about zero · 2 of 2 components stand out · 7 releases", "-DP for one row", "together",
        "curator only: captured, exactly 98.765 % of the best subspace", "budget in the ledger half", "±",
    ):  # fmt: skip
        assert words in text, words
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in made.text(80).splitlines())
    assert not made.is_publishable
    assert "<b>x</b>" not in made.html()
    assert "do not publish" in made.html()


def test_what_does_not_stand_out_is_not_shown():
    hidden = card(a_release(sigma=30.0, k=3)).text()
    assert "0 of 3" in hidden
    assert "No direction stands out from the noise (were there none," in hidden
    assert "plan -n 100 -d 4 -k 3" in " ".join(hidden.split())
    for words in ("age", "share of", "component 1", "±"):
        assert words not in hidden
    two = card(a_release(k=3))
    assert "Only 2 of 3 components stand out" in two.text()
    assert [len(row) for row in two.table()] == [3] * 6


@pytest.mark.parametrize(("epsilon", "least", "most"), [(3.0, 0, 1), (0.1, 9, 10)])
def test_a_card_of_centered_digits_says_that_nothing_stands_out_only_at_a_small_budget(epsilon, least, most):
    # One release captures .99 of the variance at epsilon = 3, .2 at .1. The noise along the mean, which is larger than
    # in other directions, must not hide the components. Seeds are fixed: there is no false alarm of the test.
    rows = pytest.importorskip("sklearn.datasets").load_digits().data / 8.0 - 1.0
    rows = rows[:, np.ptp(rows, axis=0) > 0.0] / 8.0
    mechanism, n = sp.GaussianCovariance(n_components=3, epsilon=epsilon), len(rows)
    algorithm = sp.PrivateFPL(n_components=3, epsilon=epsilon, horizon=n, release_every=n)
    releases = [
        [mechanism.release(rows, row_norm=1.0, seed=seed) for seed in range(10)],
        [sp.Stream(algorithm, row_norm=1.0, seed=seed).push_many(rows).releases[-1] for seed in range(10)],
    ]
    for made in releases:
        assert least <= sum("No direction stands out" in card(release).text() for release in made) <= most


@pytest.mark.parametrize("center", [False, True])
def test_equal_rows_have_nothing_to_capture_and_bad_rows_their_reasons(center):
    for value, words in ((0.5 if center else 0.0, "every usable row is the same"), (np.nan, "none of 60 (60 missing")):
        algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, center=center, horizon=60, release_every=60)
        stream = sp.Stream(algorithm, seed=0, row_norm=2.0, features=3)
        stream.push_many(np.full((60, 3), value))
        text = " ".join(curator_card(stream.release, stream.regret.now(), stream.admission).text().split())
        assert words in text
        assert "nothing to capture" in text
        assert "nan" not in text
        assert "100.0" not in text
        assert "nan" not in stream.regret._repr_html_()


def test_a_share_short_of_all_is_never_shown_as_all():
    assert percent(0.99999999) == "99.999 %"
    assert percent(1.0, 1) == "100.0 %"
    assert (percent(0.00999999), percent(0.987), percent(0.29, 0)) == ("0.999 %", "98.700 %", "29 %")


def a_promise(**changes):
    fields = {
        "epsilon": 1.0, "delta": 1e-6, "adjacency": "zero-out", "scope": "all releases",
        "theorem": "a theorem", "citation": "a paper", "mu": 0.2367,
    }  # fmt: skip
    return sp.Guarantee(**(fields | changes))


def test_words_name_what_there_is_and_what_weakens_it():
    text = " ".join(part for pair in in_words(a_promise(caveat="seeded: x")) for part in pair)
    found = "zeros", "2.72 times", "1 in 1 000 000", "1.84 %", "all releases", "a theorem [a paper]", "Seeded: x"
    for words in (*found, "mu = 0.2367"):
        assert words in text, words
    assert "any other values" in str(in_words(a_promise(adjacency="replace")))
    assert in_words(sp.Guarantee.none("it leaks"))[0][1].startswith("Nothing: it leaks")
    assert summary(sp.Guarantee.none("it leaks")) == "none"
    assert summary(a_promise()) == "(1, 1e-06)-DP for one row, zero-out"
