"""Sequences that grow: every value keeps what it holds, whatever is appended to it or to others."""

import numpy as np
import pytest

from streampca.errors import UsageError
from streampca.linalg import lattice
from streampca.linalg.memory import History, Recent, Rows, available_memory


def test_rows_are_kept_by_every_value():
    rng = np.random.default_rng(0)
    values = [(Rows(2), np.empty((0, 2)))]
    for _ in range(200):
        value, held = values[rng.integers(len(values))]
        rows = rng.normal(size=(rng.integers(1, 5), 2))
        values.append((value.append(rows), np.vstack([held, rows])))
    for value, held in values:
        assert value.count == len(held)
        np.testing.assert_array_equal(value.array, held)
    np.testing.assert_array_equal(Rows(2, held).append(held[:1]).array, np.vstack([held, held[:1]]))


@pytest.mark.parametrize("length", [1, 2, 7, 40, 300])
def test_recent_items_are_kept_by_every_value(length):
    rng = np.random.default_rng(length)
    values = [(Recent(length, (3,), np.int32), np.empty((0, 3), dtype=np.int32))]
    for _ in range(300):
        value, held = values[-1] if rng.random() < 0.9 else values[rng.integers(len(values))]
        items = rng.integers(0, 1000, size=(rng.integers(1, 30), 3)).astype(np.int32)
        made = value.extend(items)
        values.append((made, np.vstack([held, items])))
    for value, held in values:
        assert value.n == len(held)
        np.testing.assert_array_equal(value.latest, held[max(0, len(held) - length) :])
        if not value.n:
            continue
        np.testing.assert_array_equal(value.item(value.n), held[-1])
        first = max(1, value.n - length + 1)
        middle = (first + value.n) // 2
        np.testing.assert_array_equal(value.between(first, middle), held[first - 1 : middle])
        again = Recent(length, value.latest.shape[1:], value.latest.dtype).restored(value.snapshot())
        np.testing.assert_array_equal(again.extend(held[:1]).latest, value.extend(held[:1]).latest)
        for outside in (first - 1, value.n + 1):
            with pytest.raises(IndexError):
                value.item(outside)


def test_recent_holds_little_more_than_can_be_read():
    value = Recent(10_000, (4,), np.int32)
    for _ in range(300):
        value = value.extend(np.ones((111, 4), dtype=np.int32))
    assert sum(block.array.nbytes for block in value._blocks) < 1.03 * 10_000 * 16
    assert Recent(5, (4,), np.int32).extend(np.ones((0, 4), dtype=np.int32)).n == 0


@pytest.mark.parametrize("limit", [None, 4])
def test_a_history_keeps_its_records_and_halves_them_past_its_limit(limit):
    values, history = [], History(int, limit)
    for t in range(1, 40):
        if t % history.step == 0:
            history = history.append(t)
            values.append((history, list(history.records)))
        assert history.records == list(range(history.step, t + 1, history.step))
        assert history.count == len(history.records) <= (limit or t)
    assert history.step == (1 if limit is None else 8)
    # Another continuation of an earlier value changes neither.
    earlier, held = values[2]
    assert earlier.append(-1).records == [*held, -1]
    assert all(value.records == records for value, records in values)


def test_too_many_features_are_told_before_memory_is_taken(monkeypatch):
    monkeypatch.setattr(lattice, "available_memory", lambda: 1.0e9)
    with pytest.raises(UsageError, match=r"5000 features: .* 1\.1 GB of memory, and 1 GB are available"):
        lattice.GramSum(5000)
    monkeypatch.setattr(lattice, "available_memory", lambda: 1.2e9)
    assert lattice.GramSum(5000).n_features == 5000


def test_the_system_says_how_much_memory_there_is():
    assert available_memory() > 2**20
