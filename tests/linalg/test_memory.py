import numpy as np
import pytest

from streampca.linalg.memory import aligned_zeros


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 7), (16, 210), (2, 64)])
def test_rows_are_aligned_and_zero(rows: int, size: int) -> None:
    made = aligned_zeros(rows, size)
    assert made.shape == (rows, size)
    assert not made.any()
    for row in made:
        assert row.ctypes.data % 64 == 0
        assert row.flags.c_contiguous
    made += np.arange(rows)[:, None]
    assert made[-1].tolist() == [rows - 1.0] * size
