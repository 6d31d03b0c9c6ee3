import json
import math
from dataclasses import replace

import numpy as np
import pytest

from streampca import (
    AdaptiveLaplaceCovariance,
    Guarantee,
    MatrixLaplaceCovariance,
    Person,
    PrivateFPL,
    Stream,
    Tumbling,
)
from streampca.errors import BadParameterError, UsageError
from streampca.papers import LaplaceCovariance
from streampca.privacy.gaussian import delta_at, epsilon_at, mu_of
from streampca.privacy.guarantee import laplace_delta
from streampca.views.facts import in_words


def gaussian(epsilon: float = 1.0, delta: float = 1e-6, adjacency: str = "zero-out", slack: float = 0.0) -> Guarantee:
    mu = mu_of(epsilon, delta - slack)
    return Guarantee(epsilon, delta, adjacency, "s", "t", "c", mu=mu, slack=slack)


def pure(epsilon: float = 1.0) -> Guarantee:
    return Guarantee(epsilon, 0.0, "zero-out", "s", "t", "c")


def test_gaussian_guarantees_price_every_delta() -> None:
    promised = gaussian()
    assert promised.epsilon_at(1e-6) == pytest.approx(1.0)
    assert promised.epsilon_at(1e-9) == epsilon_at(promised.mu or 0, 1e-9) > 1.0
    assert gaussian(slack=1e-7).epsilon_at(1e-7) == math.inf


def test_other_guarantees_hold_at_larger_deltas_only() -> None:
    assert pure().epsilon_at(0.0) == 1.0
    assert Guarantee(1.0, 1e-3, "zero-out", "s", "t", "c").epsilon_at(1e-4) == math.inf


def test_composition() -> None:
    both = gaussian().compose(gaussian())
    assert both.mu == pytest.approx(gaussian().mu * math.sqrt(2))  # type: ignore[operator]
    assert delta_at(both.mu or 0, both.epsilon) == pytest.approx(both.delta, rel=1e-6)
    assert pure(1.0).compose(pure(2.0)).epsilon == 3.0
    mixed = gaussian().compose(pure(0.5))
    assert (mixed.epsilon, mixed.delta, mixed.mu) == (1.5, 1e-6, None)
    approximate = Guarantee(1.0, 1e-6, "zero-out", "s", "t", "c").compose(
        Guarantee(0.5, 1e-7, "zero-out", "s", "t", "c")
    )
    assert (approximate.epsilon, approximate.delta) == (1.5, 1e-6 + 1e-7)
    half = Guarantee(1.0, 0.5, "zero-out", "s", "t", "c")
    assert not half.compose(half).is_private
    assert not pure(1e308).compose(pure(1e308)).is_private
    assert not gaussian().compose(Guarantee.none("why")).is_private
    with pytest.raises(UsageError, match="cannot compose"):
        gaussian().compose(gaussian(adjacency="replace"))


def test_composition_keeps_slack() -> None:
    both = gaussian(slack=1e-7).compose(gaussian(slack=2e-7))
    assert both.slack == pytest.approx(3e-7)
    assert delta_at(both.mu or 0, both.epsilon) + both.slack == pytest.approx(both.delta, rel=1e-6)


@pytest.mark.parametrize("slack", [0.4, 0.5])
def test_nothing_is_promised_where_slack_uses_up_delta(slack: float) -> None:
    wide = gaussian(delta=0.6, slack=slack)
    assert not wide.compose(wide).is_private


def test_seeded_guarantees_say_so_once() -> None:
    promised = gaussian().seeded()
    assert "not private against whoever knows the seed" in str(promised)
    assert promised.seeded() == promised
    assert not Guarantee.none("why").seeded().caveat


@pytest.mark.parametrize("promised", [gaussian(), pure(), Guarantee.none("why"), gaussian(slack=1e-8).seeded()])
def test_json_round_trip(promised: Guarantee) -> None:
    text = json.dumps(promised.to_dict(), allow_nan=False)
    assert Guarantee.from_dict(json.loads(text)) == promised


def test_text_says_what_is_promised() -> None:
    assert str(gaussian()).startswith("(1, 1e-06)-DP [0.236704-GDP] for one row, zero-out adjacency")
    assert str(Guarantee.none("fresh noise")) == "no privacy guarantee: fresh noise"
    with pytest.raises(BadParameterError, match=r"delta=1\.0"):
        gaussian().epsilon_at(1.0)
    with pytest.raises(BadParameterError, match="delta=2"):
        gaussian().epsilon_at(2)


def counted_delta(epsilon: float, blocks: int = 300, size: int = 1000) -> float:
    """Delta of Laplace noise of 53 bits, of scale 1, on a grid of 2**-20, by the values that fall into each cell.

    One number moves by epsilon. Cells are sampled in blocks, one for each of so many parts of their range.
    """
    exact, grid, rng = np.longdouble, 2.0**-20, np.random.default_rng(0)
    first, cells = int(-40.0 / grid), int((80.0 + epsilon) / grid)

    def below(x: np.ndarray) -> np.ndarray:
        """How many of the 2**54 equally likely values of the noise are at most x."""
        tail = np.floor(np.exp(-np.abs(x)) * exact(2) ** 53 + exact(0.5)).clip(0, 2**53)
        return np.where(x < 0, tail, exact(2) ** 54 - tail)

    edges = [
        (first + cells // blocks * i + rng.integers(cells // blocks - size) + np.arange(size + 1, dtype=exact) - 0.5)
        * exact(grid)
        for i in range(blocks)
    ]
    place = exact(rng.random())
    counts = (np.diff(below(np.array(edges) - shift - place)) for shift in (exact(0.0), exact(epsilon)))
    one, other = counts
    share = cells // blocks / size * 2.0**-54
    return float(max((one - np.exp(exact(epsilon)) * other).clip(0).sum(),
                     (other - np.exp(exact(epsilon)) * one).clip(0).sum())) * share  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_the_delta_of_laplace_noise_in_floating_point_is_bounded(epsilon: float) -> None:
    assert 0.4 * laplace_delta(1, epsilon) < counted_delta(epsilon) < laplace_delta(1, epsilon)


def test_pure_mechanisms_state_what_floating_point_adds() -> None:
    mechanism = LaplaceCovariance(n_components=1, epsilon=1.0)
    assert mechanism.guarantee.floating_delta is None
    assert "for each number that is released" in str(mechanism.guarantee)
    added = laplace_delta(10, 1.0)
    assert added == 2.0**-32 * (19.0 + math.e)
    one = mechanism.release(np.eye(4), seed=0, row_norm=1.0)
    stream = Stream(Tumbling(mechanism, release_every=2), row_norm=1.0, regret=None)
    assert stream.guarantee.floating_delta is None
    stream.push_many(np.eye(4))
    assert stream.release is not None
    for promised in (one.guarantee, stream.guarantee, stream.release.guarantee):
        assert promised.floating_delta == added
        assert Guarantee.from_dict(json.loads(json.dumps(promised.to_dict()))) == promised
        assert f"up to {added:.2g} to delta" in str(promised)
        assert f"up to {added:.2g} to delta" in dict(in_words(promised))["Caveat"]
    header = json.loads(next(iter(stream.release.to_json().splitlines())))
    assert header["guarantee"]["floating_delta"] == added
    assert one.guarantee.compose(one.guarantee).floating_delta == 2.0 * added
    assert one.guarantee.compose(mechanism.guarantee).floating_delta is None
    for adjacency, numbers in (("zero-out", 2), ("replace", 3)):
        for center, share in ((False, 0.11), (True, 0.099)):  # the noise of the mean is computed from normals
            adaptive = AdaptiveLaplaceCovariance(n_components=1, epsilon=2.0, adjacency=adjacency, center=center)
            assert adaptive.guarantee.floating_delta == pytest.approx(laplace_delta(numbers, 2.0 * share), rel=1e-12)
    for exact in (gaussian(), pure(), MatrixLaplaceCovariance(n_components=1, epsilon=1.0).guarantee):
        assert exact.floating_delta == 0.0
        assert "floating" not in str(exact)
    assert laplace_delta(3, 1e9) == 1.0
    with pytest.raises(BadParameterError, match="floating_delta"):
        replace(pure(), floating_delta=-1.0)


#: By epsilon, at delta = 1e-6: mu, rho, and attack success at 1 % false alarms and advantage, to three digits.
FIGURES = {
    0.3: ("0.077", "0.0030", "0.012", "0.031"), 1.0: ("0.237", "0.0280", "0.018", "0.094"),
    3.0: ("0.648", "0.210", "0.047", "0.254"), 8.0: ("1.532", "1.173", "0.213", "0.556"),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", FIGURES)
def test_figures_of_a_gaussian_guarantee(epsilon: float) -> None:
    promised = gaussian(epsilon)
    numbers = promised.mu or 0.0, promised.rho or 0.0, promised.attack_success(), promised.advantage
    for number, text in zip(numbers, FIGURES[epsilon], strict=True):
        assert f"{number:.{len(text) - 2}f}" == text


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 2000.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.2])
def test_attacks_on_epsilon_and_delta_are_those_on_the_worst_mechanism(epsilon: float, delta: float) -> None:
    promised = Guarantee(epsilon, delta, "zero-out", "s", "t", "c")
    # It shows the input with probability delta, and else lies with odds 1 : e**epsilon. The best test accepts its
    # outputs by descending likelihood ratio (Neyman and Pearson), the last one by chance.
    odds = math.exp(min(epsilon, 700.0))
    there = np.array([delta, (1 - delta) * (odds / (1 + odds)), (1 - delta) / (1 + odds), 0.0])
    for fpr in (1e-3, 0.01, 0.05, 0.5, 0.9):
        best = float(np.interp(fpr, np.cumsum([0.0, *there[::-1]]), np.cumsum([0.0, *there])))
        assert promised.attack_success(fpr) == pytest.approx(max(best, fpr), abs=1e-12)
    assert promised.advantage == pytest.approx(0.5 * float(np.abs(there - there[::-1]).sum()), abs=1e-12)


@pytest.mark.parametrize("promised", [gaussian(2.0), pure(2.0), gaussian(1.0, 0.01, slack=0.004)])
def test_the_advantage_is_the_largest_gain_of_an_attack(promised: Guarantee) -> None:
    gains = [promised.attack_success(fpr) - fpr for fpr in np.linspace(0.0005, 0.9995, 2000).tolist()]
    assert max(gains) == pytest.approx(promised.advantage, abs=1e-3)


def test_the_guarantee_in_one_sentence() -> None:
    promised = gaussian()
    assert promised.sentence == (
        "Somebody who knows everything but whether one row is in the data, and accepts to be wrong about 1 in 100 "
        "others, recognizes it with a probability of at most 1.84 % instead of 1 %."
    )
    assert "which of two versions of one row" in gaussian(adjacency="replace").sentence
    assert any("m times mu = 0.2367" in one for one in promised.unprotected)
    assert "number of rows and their positions" in str(promised.unprotected)
    nothing = Guarantee.none("it leaks")
    assert (nothing.attack_success(), nothing.advantage) == (1.0, 1.0)
    assert "it leaks" in nothing.sentence
    with pytest.raises(BadParameterError) as problem:
        promised.attack_success(0.0)
    assert problem.value.parameter == "fpr"
    people = PrivateFPL(n_components=1, epsilon=1.0, horizon=64, release_every=1, unit=Person(budget=3.0)).guarantee
    assert "joint effect equals that of 3 full rows, at most 64 rows" in people.contribution
    assert Guarantee.from_dict(people.to_dict()) == people
    assert people.compose(people).contribution == people.contribution
    for words in ("in one sentence", "1.84 %", "rho", "advantage"):
        assert words in promised._repr_html_()
