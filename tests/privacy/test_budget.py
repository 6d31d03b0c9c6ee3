import math

import pytest

from streampca import Budget
from streampca.errors import BadParameterError


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
