"""Sequences that grow: every value keeps what it holds, whatever is appended to it or to others."""

import numpy as np
import pytest

from streampca.linalg.memory import Recent, Rows


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
    np.testing.assert_array_equal(Rows.of(held).append(held[:1]).array, np.vstack([held, held[:1]]))


@pytest.mark.parametrize("length", [1, 2, 7, 40, 300])
def test_recent_items_are_kept_by_every_value(length):
    rng = np.random.default_rng(length)
    values = [(Recent(length, (3,), np.int32), np.empty((0, 3), dtype=np.int32))]
    for _ in range(300):
        value, held = values[-1] if rng.random() < 0.9 else values[rng.integers(len(values))]
        items = rng.integers(0, 1000, size=(rng.integers(1, 30), 3)).astype(np.int32)
        made = value.extend(items) if len(items) > 1 else value.append(items[0])
        values.append((made, np.vstack([held, items])))
    for value, held in values:
        assert value.n == len(held)
        np.testing.assert_array_equal(value.latest(), held[max(0, len(held) - length) :])
        if not value.n:
            continue
        np.testing.assert_array_equal(value.item(value.n), held[-1])
        first = max(1, value.n - length + 1)
        middle = (first + value.n) // 2
        np.testing.assert_array_equal(value.between(first, middle), held[first - 1 : middle])
        again = Recent.restored(length, value.n, value.latest())
        np.testing.assert_array_equal(again.append(held[0]).latest(), value.append(held[0]).latest())
        for outside in (first - 1, value.n + 1):
            with pytest.raises(IndexError):
                value.item(outside)


def test_recent_holds_little_more_than_can_be_read():
    value = Recent(10_000, (4,), np.int32)
    for _ in range(300):
        value = value.extend(np.ones((111, 4), dtype=np.int32))
    assert value.nbytes < 1.03 * 10_000 * 16
    assert Recent(5, (4,), np.int32).extend(np.ones((0, 4), dtype=np.int32)).n == 0
