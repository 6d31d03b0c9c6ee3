import json
import math
from dataclasses import replace

import pytest

from streampca import Guarantee
from streampca.errors import BadParameterError
from streampca.privacy.gaussian import delta_at, epsilon_at, mu_of


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
    with pytest.raises(BadParameterError, match="cannot compose"):
        gaussian().compose(gaussian(adjacency="replace"))


def test_composition_keeps_slack() -> None:
    both = gaussian(slack=1e-7).compose(gaussian(slack=2e-7))
    assert both.slack == pytest.approx(3e-7)
    assert delta_at(both.mu or 0, both.epsilon) + both.slack == pytest.approx(both.delta, rel=1e-6)


@pytest.mark.parametrize("slack", [0.4, 0.5])
def test_nothing_is_promised_where_slack_uses_up_delta(slack: float) -> None:
    wide = gaussian(delta=0.6, slack=slack)
    assert not wide.compose(wide).is_private


@pytest.mark.parametrize(
    "bad",
    [{"mu": -1.0}, {"mu": math.inf}, {"slack": 1.0}, {"slack": -0.1}, {"epsilon": -1.0}, {"epsilon": math.inf},
     {"delta": 1.0}, {"delta": math.nan}, {"delta": True}],
)  # fmt: skip
def test_numbers_outside_their_domain(bad: dict[str, float]) -> None:
    with pytest.raises(BadParameterError, match=f"{next(iter(bad))}="):
        replace(gaussian(), **bad)  # type: ignore[arg-type]


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
