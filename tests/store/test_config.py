import json

import pytest

from streampca.errors import StoreCorruptError
from streampca.store.config import load


@pytest.mark.parametrize(
    "value",
    [3, {"\x00class": "PrivateFPL", "with": 3}, {"\x00class": ["x"], "with": {}}, {"\x00class": "Store", "with": {}}],
)
def test_what_is_no_configuration_is_told(value: object) -> None:
    with pytest.raises(StoreCorruptError, match="cannot be read"):
        load(json.dumps(value if isinstance(value, int) else {"processor": value}))


def test_a_refused_parameter_is_not_repeated_at_any_length() -> None:
    given = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6, "drift": "x" * 1000}
    with pytest.raises(StoreCorruptError, match="drift='x") as refused:
        load(json.dumps({"processor": {"\x00class": "PrivateFPL", "with": given}}))
    assert len(str(refused.value)) < 200
