import math

import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from streampca import Budget
from streampca.errors import BadParameterError
from streampca.privacy.gaussian import delta_at, epsilon_at, mu_of


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"), [(1, 1e-6, 0.236704), (1, 1e-5, 0.268051), (2, 1e-6, 0.448335), (0.1, 1e-6, 0.027545)]
)
def test_reference_calibrations(epsilon: float, delta: float, mu: float) -> None:
    assert mu_of(epsilon, delta) == pytest.approx(mu, abs=5e-7)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-12, 1e-12), (1e-12, 1e-16), (1e-14, 1e-30), (1e-10, 1e-100), (1e-9, 1e-300), (1e-200, 1e-200), (1e-6, 1e-9)],
)
def test_tiny_budgets_are_not_overspent_by_rounding(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    start = epsilon / mu - mu / 2
    spent, _ = quad(
        lambda s: math.exp(-s * (start + s / 2)) * -math.expm1(-mu * s) / mu, 0, 40 / max(1.0, start), epsabs=0
    )
    assert spent * mu * norm.pdf(start) == pytest.approx(delta, rel=3e-6, abs=0.0)


@given(mu=st.floats(1e-3, 20), delta=st.floats(1e-12, 0.5))
def test_epsilon_and_delta_are_inverse(mu: float, delta: float) -> None:
    epsilon = epsilon_at(mu, delta)
    assert delta_at(mu, epsilon) <= delta
    if epsilon > 1e-9:
        assert delta_at(mu, epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@given(epsilon=st.floats(1e-3, 50), delta=st.floats(1e-12, 0.5))
def test_calibration_spends_the_budget_and_no_more(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_at(mu, epsilon) <= delta
    assert delta_at(mu * (1 + 1e-6), epsilon) > delta * (1 - 1e-9)


def test_edges() -> None:
    assert delta_at(0.0, 0.1) == 0.0
    assert delta_at(math.inf, 5.0) == 1.0
    assert epsilon_at(1.0, 0.0) == math.inf
    assert epsilon_at(0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", bad) for bad in (0, -1.0, math.inf, math.nan, "1", None)]
    + [("delta", bad) for bad in (-1e-9, 1.0, 2, math.nan, "x")],
)
def test_numbers_outside_their_domain(name: str, value: object) -> None:
    with pytest.raises(BadParameterError, match=f"{name}="):
        Budget(**{"epsilon": 1.0, "delta": 1e-6, name: value})  # type: ignore[arg-type]


def test_adjacency_is_one_of_two() -> None:
    with pytest.raises(BadParameterError, match="adjacency='swap'"):
        Budget(1.0, 1e-6, "swap")  # type: ignore[arg-type]
    assert Budget(1.0, 1e-6).sensitivity() == 1.0
    assert Budget(1.0, 1e-6, "replace").sensitivity() == math.sqrt(2)


def test_gaussian_noise_needs_delta() -> None:
    with pytest.raises(BadParameterError, match="delta"):
        _ = Budget(1.0).mu
