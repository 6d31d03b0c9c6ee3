"""Call the kernels with random arguments: each call returns or raises, and leaves no damage that a sanitizer reports.

``python tests/native/fuzz.py [COUNT]``; ``make test-sanitized`` runs it under AddressSanitizer.
"""

import random
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from test_bad_input import calls, kernel_of  # noqa: E402

from streampca import _native  # noqa: E402

_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 5e-324, 1e-300, 1e300, 1.7e308, 2.0**53)


def changed(draw: random.Random, value):
    """Return an argument of another value, shape, type or place in memory."""
    if not isinstance(value, np.ndarray):
        return draw.choice((*_NUMBERS, 0, -1, 2**70, None, "x", value))
    array, act = value.copy(), draw.randrange(8)
    if act <= 3 and array.size:  # other numbers
        places = array.reshape(-1)
        for _ in range(draw.choice((1, 1, 3, 10))):
            number = draw.choice(_NUMBERS)
            places[draw.randrange(array.size)] = number if array.dtype.kind == "f" else draw.randrange(100)
    elif act == 4:  # another shape
        array = np.resize(array, [draw.choice((0, 1, 2, n, n + 1, 2 * n)) for n in array.shape])
    elif act == 5:
        array = np.ascontiguousarray(array.T) if draw.random() < 0.5 else array[None]
    elif act == 6:
        array = array.astype(draw.choice((np.float32, np.int64, np.uint64, np.uint8)))
    else:
        array = array[::-1] if draw.random() < 0.5 or not array.size else np.broadcast_to(array.flat[0], array.shape)
    return array


def fuzz(count: int, seed: int = 0) -> tuple[int, int]:
    """Make ``count`` calls. Return how many returned, and how many were refused."""
    draw, good = random.Random(seed), calls()
    assert _native.compiled is not None, _native.kernels()
    returned = refused = 0
    for _ in range(count):
        name = draw.choice(tuple(good))
        arguments = [value.copy() if isinstance(value, np.ndarray) else value for value in good[name]]
        for _ in range(draw.choice((1, 1, 2, 3))):
            at = draw.randrange(len(arguments))
            arguments[at] = changed(draw, arguments[at])
        if draw.random() < 0.05:  # an output that is an input
            arguments[-1] = arguments[draw.randrange(len(arguments))]
        try:
            kernel_of(name)(*arguments)
            returned += 1
        except (TypeError, ValueError, BufferError, OverflowError, RuntimeError):
            refused += 1
    return returned, refused


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    print("{} calls returned, {} were refused".format(*fuzz(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
