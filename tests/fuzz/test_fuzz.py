"""Admission under fire: 0.2 CPU seconds of fuzzing per format, and inputs that random changes do not find.

The long form is ``tests/fuzz/fuzz.py``.
"""

import os
import zipfile
from collections import namedtuple
from contextlib import suppress
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

import streampca as sp
from streampca.errors import SourceError, StreamPCAError
from streampca.rows.admission import Admission
from streampca.sources.csv_rows import CsvRows


@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_random_changes(name: str) -> None:
    assert fuzz.blind(name, 10**6, seed=int.from_bytes(name.encode()[:4], "big"), seconds=0.2) > 10


@pytest.mark.long
@pytest.mark.parametrize("name", fuzz.FORMATS)
def test_a_million_random_changes(name: str) -> None:
    assert fuzz.blind(name, 10**6) == 10**6


def fresh(**options: Any) -> sp.Stream:
    return sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=2), row_norm=1.0, **options)


Pair, Block = namedtuple("Pair", ["a", "b"]), namedtuple("Block", ["kind", "values"])


def absorb(rows: list[Any], store: sp.Store | None = None) -> None:
    """Feed rows and blocks; check that each counts once or leaves no trace."""
    stream = fresh(store=store, features=["a", "b"])
    taken = 0
    for row in rows:
        with suppress(StreamPCAError):
            if isinstance(row, Block):
                with np.errstate(all="ignore"):
                    values = row.values.astype(row.kind)
                stream.push_many(values)
                taken += len(values)
            else:
                assert stream.push(row).t == taken + 1
                taken += 1
        assert stream.t == taken, row
    if store is not None:
        assert sp.Stream.resume(store).t == taken


class Broken(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: object) -> Any:
        raise KeyError(key)


TYPES = ("f8", ">f8", "f4", "i8", "u1", "b1", "c16", "M8[s]", "O", "S4", "U4", "f2")
anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5),
    st.complex_numbers(), st.dates(), st.lists(st.floats(), max_size=3),
    st.sampled_from([5e-324, -5e-324, 1.7976931348623157e308, 10**400, "1e999", "\ud800", "\0", np.float32(3e38),
                     np.datetime64("2020"), np.array(1.0), object()]),
)  # fmt: skip
mapping = st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 1)), anything, max_size=3)
kinds_of_rows = st.one_of(
    anything,
    st.lists(anything, max_size=3),
    mapping,
    mapping.map(Broken),
    st.builds(Pair, anything, anything),
    st.fixed_dictionaries({"a": st.floats(-1, 1), "b": st.floats(-1, 1)}),
    arrays(np.float64, st.tuples(st.integers(0, 3))),
    st.builds(Block, st.sampled_from(TYPES), arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(0, 3)))),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(kinds_of_rows, max_size=8), st.sampled_from([False, False, True]))
def test_anything_is_a_row_or_an_error_and_counted_once_in_the_store_too(rows: list[Any], stored: bool) -> None:
    absorb(rows, sp.Store(":memory:", commit_every=2) if stored else None)


def test_what_is_planted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that lets an overflow escape, and a source that loses a row."""
    rows: list[Any] = [{"a": 0.1, "b": 0.2}, {"a": 10**400, "b": 0.2}]
    absorb(rows)
    with monkeypatch.context() as patch:
        patch.setattr(Admission, "values", lambda self, row, number: np.asarray(list(row.values()), dtype=np.float64))
        with pytest.raises(OverflowError):
            absorb(rows)
    whole, reads = CsvRows.blocks, [0]

    def loses(self: CsvRows) -> Any:
        reads[0] += 1
        blocks = whole(self)
        if reads[0] % 2 == 0:
            next(blocks, None)
        yield from blocks

    monkeypatch.setattr(CsvRows, "blocks", loses)
    with pytest.raises(AssertionError, match="arrived"):
        fuzz.blind("csv", 500, seconds=20)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**52 - 1), st.booleans(), st.booleans())
def test_nan_payloads_are_bad_rows_and_never_reach_a_release(payload: int, negative: bool, block: bool) -> None:
    bits = (0x7FF << 52) | payload | (negative << 63)
    value = np.array([bits], dtype=np.uint64).view(np.float64)[0]
    stream = fresh(features=["a", "b"])
    rows = np.array([[0.5, 0.5], [value, 0.5]])
    for part in [rows] if block else rows[:, None]:
        stream.push_many(part)
    assert stream.admission.bad_rows == 1
    assert stream.release is not None
    assert np.isfinite(stream.release.gram).all()


@pytest.mark.parametrize("target", ["nothing", "rows", ".", "/dev/null"])
@pytest.mark.parametrize("read", [sp.sources.from_csv, sp.sources.from_parquet])
def test_links_to_nothing_themselves_folders_and_devices(tmp_path: Path, target: str, read: Any) -> None:
    path = tmp_path / "rows"
    path.symlink_to(tmp_path / target)
    with pytest.raises(SourceError):
        read(path)


def test_links_and_archives_are_read_and_write_nothing(tmp_path: Path) -> None:
    before, paths = sorted(os.listdir(tmp_path.parent)), [tmp_path / name for name in ("link.csv", "rows.zip")]
    (tmp_path / "rows.csv").write_bytes(b"a,b\n1,2\n")
    paths[0].symlink_to(tmp_path / "rows.csv")
    with zipfile.ZipFile(paths[1], "w") as archive:
        archive.write(tmp_path / "rows.csv", "../../climbed.csv")
    for path in paths:
        assert next(sp.sources.from_csv(path, columns="all").blocks()).tolist() == [[1.0, 2.0]]
    assert sorted(os.listdir(tmp_path.parent)) == before
