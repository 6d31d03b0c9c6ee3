import math

import pytest

from streampca import Budget
from streampca.errors import BadParameterError


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, "1", None])
def test_epsilon_outside_its_domain(epsilon: object) -> None:
    with pytest.raises(BadParameterError, match="epsilon="):
        Budget(epsilon, 1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2, math.nan, "x"])
def test_delta_outside_its_domain(delta: object) -> None:
    with pytest.raises(BadParameterError, match="delta="):
        Budget(1.0, delta)  # type: ignore[arg-type]


def test_adjacency_is_one_of_two() -> None:
    with pytest.raises(BadParameterError, match="adjacency='swap'"):
        Budget(1.0, 1e-6, "swap")  # type: ignore[arg-type]
    assert Budget(1.0, 1e-6).sensitivity() == 1.0
    assert Budget(1.0, 1e-6, "replace").sensitivity() == math.sqrt(2)


def test_gaussian_noise_needs_delta() -> None:
    with pytest.raises(BadParameterError, match="delta"):
        _ = Budget(1.0).mu
