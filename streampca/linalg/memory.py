"""Arrays whose rows begin where a cache line begins."""

from __future__ import annotations

import numpy as np

from streampca.linalg.types import FloatArray

_LINE = 8  # floats


def aligned_zeros(rows: int, size: int) -> FloatArray:
    """Zeros, (rows, size), each row contiguous and aligned to 64 bytes: no load or store straddles two cache lines."""
    stride = -(-size // _LINE) * _LINE
    raw = np.zeros(rows * stride + _LINE)
    first = -raw.ctypes.data % (8 * _LINE) // 8
    return raw[first : first + rows * stride].reshape(rows, stride)[:, :size]
