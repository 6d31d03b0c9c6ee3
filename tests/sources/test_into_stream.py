"""Sources into `Stream.run`: same releases whatever the blocks, rows before a bad one counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import datasets

import streampca as sp
from streampca.errors import BadRowError
from streampca.sources import from_csv


def make(**options: Any) -> sp.Stream:
    return sp.Stream(
        sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, horizon=4096, release_every=50), seed=1, **options
    )


def final(stream: sp.Stream, rows: Any) -> bytes:
    for _ in stream.run(rows):
        pass
    assert stream.release is not None
    return stream.release.subspace.basis.tobytes()


def test_features_and_bounds_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n" + "1,2,3\n4,5,6\n" * 50)
    bounds = {"c": (0, 10), "a": (0, 5)}
    stream = make()
    basis = final(stream, from_csv(path, columns=["c", "a"], bounds=bounds))
    assert stream.features == ("c", "a")
    assert final(make(bounds=([0, 0], [10, 5])), [[3, 1], [6, 4]] * 50) == basis


def test_missing_rows_become_zero_rows_where_the_stream_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "0.1,0.2\n" * 60 + "0.1,NA\n" + "0.1,0.2\n" * 60)
    stream = make(on_bad_row="zero")
    basis = final(stream, from_csv(path, missing="nan"))
    assert (stream.t, stream.admission.bad_rows) == (121, 1)
    assert basis == final(make(), [[0.1, 0.2]] * 60 + [[0.0, 0.0]] + [[0.1, 0.2]] * 60)
    stream = make()
    with pytest.raises(BadRowError, match="row 61: feature 'b' is not finite"):
        list(stream.run(from_csv(path, missing="nan")))
    assert stream.t == 60


def test_river_rows_go_in_as_they_are() -> None:
    dataset = datasets.ImageSegments()
    stream = make(row_norm=1000.0)
    basis = final(stream, dataset)
    assert stream.t == 2310
    assert stream.features == tuple(next(iter(dataset))[0])
    rows = np.array([list(x.values()) for x, _ in dataset])
    assert final(make(row_norm=1000.0), rows) == basis
