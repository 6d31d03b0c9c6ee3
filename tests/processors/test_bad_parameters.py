"""What the algorithms refuse: a parameter outside its domain is named, with its value."""

import re
from functools import partial

import numpy as np
import pytest

import streampca as sp
from streampca.errors import UsageError
from streampca.processors.oja import EXACT_ROWS

BUDGET = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6}
FPL, OJA = partial(sp.PrivateFPL, **BUDGET), partial(sp.PrivateOja, **BUDGET)
WINDOW = partial(sp.SlidingWindowPCA, window=40, method="histogram", **BUDGET)

#: What makes an algorithm, and values that it refuses.
VALUES = (
    (FPL, {"epsilon": [0], "delta": [0.0], "horizon": [0, 2.5], "n_components": [0], "release_every": [0],
           "adjacency": ["x"]}),
    (WINDOW, {"window": [0], "method": ["jl"], "eta": [1.5, "x"], "overhang": [0.0], "failure_rate": [1.0],
              "delta": [0.0]}),
    (OJA, {"epsilon": [0.0], "delta": [0.0], "clip": [1.5, 0.0], "batch_size": [0, EXACT_ROWS + 1],
           "adjacency": ["near"], "horizon": [0]}),
    (partial(sp.Oja, n_components=1), {"learning_rate": ["fast", 0.0, -1.0, (1.0, -1.0), (1.0,), np.nan]}),
    (sp.Smoothed, {"drift": [-1.0, np.nan, np.inf, True, "1"]}),
)  # fmt: skip
#: Values that are refused beside others, and in which words.
TOGETHER = (
    (FPL, {"noise": "tree"}, "horizon=None: not supported by noise=Tree"),
    (FPL, {"solver": "magic"}, "solver='magic': expected one of 'exact', 'tracking', 'smoothed'"),
    (FPL, {"solver": sp.Smoothed}, "expected one of 'exact'"),
    (WINDOW, {"window": 9, "release_every": 10}, "window=9: expected at least release_every=10"),
    (WINDOW, {"method": "ring", "release_every": 3}, "window=40: expected a multiple of release_every=3"),
    (WINDOW, {"method": "ring", "checkpoint_every": 3}, "checkpoint_every=3: expected None with method='ring'"),
    (WINDOW, {"release_every": 4, "checkpoint_every": 6}, "checkpoint_every=6: expected a multiple"),
    (WINDOW, {"method": "smoothed", "window": 1001, "release_every": 7}, "expected at least 11"),
    (WINDOW, {"method": "smoothed", "release_every": 7}, "window=40: expected a multiple"),
    (WINDOW, {"method": "forgetting", "window": 2**23}, "window=8388608: expected at most"),
)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        *(
            (make, {name: one}, f"{name}={one!r}")
            for make, of in VALUES
            for name, values in of.items()
            for one in values
        ),
        *TOGETHER,
    ],
)
def test_bad_parameters_are_named(make, options, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        make(**options)
