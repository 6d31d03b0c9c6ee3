"""Runs whose releases are recorded in `golden.json`.

The name of a case is the label of its noise, so it must never change. Everything else in a case may be renamed or
moved, as long as the run remains the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import streampca as sp

D, K, N, HALF = 6, 2, 330, 170
BUDGET: dict[str, Any] = {"n_components": K, "epsilon": 1.0, "delta": 1e-6}
#: Budgets at which adaptive mechanisms and norm estimates find something in 330 rows.
RICH: dict[str, Any] = {"n_components": K, "epsilon": 20.0, "delta": 1e-2}
SEED = 7
#: Cases whose matrices are made of eigenvalues, or summed in single precision: their last bits are LAPACK's and BLAS's.
BY_LAPACK = frozenset({"gaussian-psd", "subspace-perturbation-fallback", "sketch", "sketch-center-replace"})
#: Public ranges that clip some of the rows of `rows`, one feature wider than the others.
RANGES = (np.full(D, -1.5), np.array([2.5, *[1.5] * (D - 1)]))

Algorithm = Callable[[], Any]
_PEOPLE: list[int] = np.random.default_rng(1).integers(0, 120, size=1000).tolist()
#: Cases are of the form of the papers where they do not say otherwise: not centered, a release after every row.
PLAIN: dict[str, Any] = {"center": False, "release_every": 1}
FPL, WINDOW, TUMBLING = partial(sp.PrivateFPL, **PLAIN), partial(sp.SlidingWindowPCA, **PLAIN), sp.Tumbling
GAUSSIAN = partial(sp.GaussianCovariance, center=False)

#: Algorithms, and keywords of the stream.
STREAMS: dict[str, tuple[Algorithm, dict[str, Any]]] = {}
#: Mechanisms, and their rows.
MECHANISMS: dict[str, tuple[Callable[[], Any], np.ndarray]] = {}


def rows(n: int = N) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, D)) * np.linspace(1.0, 0.2, D)


def gaps() -> np.ndarray:
    random = np.random.default_rng(1)
    made = np.where(random.random((N, D)) < np.linspace(0.0, 0.5, D), np.nan, rows())
    made[random.random(N) < 0.02] = np.inf
    return made


def ball(n: int) -> np.ndarray:
    made = rows(n)
    return made / (1.0 + np.linalg.norm(made, axis=1, keepdims=True))


def moved(n: int) -> np.ndarray:
    return 0.4 * ball(n) + np.linspace(0.5, 0.0, D)


def plane(n: int) -> np.ndarray:
    made = np.zeros((n, D))
    made[:, :2] = np.random.default_rng(0).integers(-99, 100, size=(n, 2))
    return made


def whose(algorithm: Any, start: int, stop: int) -> dict[str, Any]:
    """Return the argument that names the people of the rows from ``start`` to ``stop``, if they are the unit."""
    return {} if algorithm.unit is None else {"person": _PEOPLE[start:stop]}


def stream(name: str, algorithm: Algorithm, **options: Any) -> None:
    STREAMS[name] = algorithm, options if {"bounds", "row_norm"} & options.keys() else {"row_norm": 1.0} | options


def mechanism(name: str, made: Callable[[], Any], rows: np.ndarray) -> None:
    MECHANISMS[name] = made, rows


# -- PrivateFPL -----------------------------------------------------------------------------------
stream("fpl", lambda: FPL(**BUDGET, horizon=400))
stream("fpl-endless-replace", lambda: FPL(**BUDGET, adjacency="replace"))
stream("fpl-tree", lambda: FPL(**BUDGET, horizon=400, noise="tree", release_every=3))
stream("fpl-tree-replace", lambda: FPL(**BUDGET, horizon=400, noise="tree", release_every=3, adjacency="replace"))
stream("fpl-discrete", lambda: FPL(**BUDGET, horizon=340, noise=sp.Tree(discrete=True), release_every=7))
stream("fpl-regret", lambda: FPL(**BUDGET, horizon=400, release_every=2, publish_regret=True))
stream("fpl-regret-tree", lambda: FPL(**BUDGET, horizon=400, noise="tree", release_every=5, publish_regret=True))
stream("fpl-tracking", lambda: FPL(**BUDGET, solver="tracking", release_every=2))
stream("fpl-tracking-every-row", lambda: FPL(**BUDGET, solver="tracking", horizon=330))
stream("fpl-smoothed", lambda: FPL(**BUDGET, horizon=331, solver="smoothed", release_every=3))
stream("fpl-smoothed-drift", lambda: FPL(**BUDGET, solver=sp.Smoothed(drift=0.1), publish_regret=True))
stream("fpl-center", lambda: FPL(**BUDGET, horizon=400, center=True))
stream("fpl-center-replace", lambda: FPL(**BUDGET, adjacency="replace", release_every=4, center=True))
stream("fpl-center-tree", lambda: FPL(**BUDGET, horizon=400, noise="tree", release_every=3, center=True))
stream("fpl-center-discrete", lambda: FPL(**BUDGET, horizon=331, noise=sp.Tree(discrete=True), release_every=5,
       center=True))  # fmt: skip
stream("fpl-center-smoothed", lambda: FPL(**BUDGET, solver="smoothed", horizon=331, center=True, release_every=4))
stream("fpl-center-tracking-regret", lambda: FPL(**BUDGET, solver="tracking", release_every=2, publish_regret=True,
       center=True))  # fmt: skip
stream("fpl-bounds", lambda: FPL(**BUDGET, horizon=400, release_every=10), bounds=RANGES)
stream("fpl-bounds-center", lambda: FPL(**BUDGET, horizon=400, release_every=10, center=True), bounds=RANGES)
stream("fpl-row-norm", lambda: FPL(**BUDGET, horizon=400, release_every=10), row_norm=2.5)
stream("fpl-no-regret", lambda: FPL(**BUDGET, horizon=400), regret=None)
stream("fpl-warmup", lambda: FPL(**RICH, horizon=400, release_every=5), bounds="private", warmup=64)
stream("fpl-warmup-replace", lambda: FPL(**RICH, release_every=5, adjacency="replace"), bounds="private", warmup=64)
stream("fpl-warmup-center", lambda: FPL(**RICH, horizon=400, release_every=5, center=True), bounds="private", warmup=64)
stream(
    "fpl-doubling", lambda: sp.papers.DoublingFPL(n_components=1, epsilon=50.0, delta=0.5, horizon=400, release_every=1)
)
# -- people, each with about three rows (`whose`) --------------------------------------------------
PERSON = sp.Person()
stream("people", lambda: FPL(**BUDGET, horizon=400, release_every=5, unit=PERSON))
stream("people-replace-center", lambda: FPL(**BUDGET, horizon=400, release_every=5, adjacency="replace",
       unit=sp.Person(budget=2.0), center=True))  # fmt: skip
stream("people-tree", lambda: FPL(**BUDGET, horizon=400, release_every=5, noise="tree", unit=PERSON))
stream("people-regret", lambda: FPL(**BUDGET, horizon=400, release_every=5, publish_regret=True, unit=PERSON))
stream("people-window", lambda: WINDOW(**BUDGET, window=30, release_every=5, method="ring", unit=PERSON))
stream("people-oja", lambda: sp.PrivateOja(**BUDGET, horizon=400, release_every=5, unit=PERSON))
stream("people-tumbling", lambda: TUMBLING(GAUSSIAN(**BUDGET, unit=PERSON), release_every=25))
# -- other algorithms -----------------------------------------------------------------------------
stream("perturbed-leader", lambda: sp.papers.PerturbedLeader(**BUDGET, release_every=4, center=False))
stream("perturbed-leader-center", lambda: sp.papers.PerturbedLeader(**BUDGET, release_every=4, center=True))
stream("window-histogram", lambda: WINDOW(**BUDGET, window=32, release_every=5, method="histogram"))
stream("window-histogram-center", lambda: WINDOW(**BUDGET, window=32, release_every=5, method="histogram",
       center=True))  # fmt: skip
stream("window-histogram-replace", lambda: WINDOW(**RICH, window=64, release_every=4, method="histogram",
       adjacency="replace"))  # fmt: skip
stream("window-ring", lambda: WINDOW(**BUDGET, window=20, method="ring"))
stream("window-ring-center", lambda: WINDOW(**BUDGET, window=20, method="ring", center=True, release_every=4))
stream("window-smoothed", lambda: WINDOW(**BUDGET, window=20, method="smoothed", release_every=2))
stream("window-smoothed-sums", lambda: WINDOW(**BUDGET, window=40, method="smoothed", release_every=20))
stream("window-smoothed-center", lambda: WINDOW(**BUDGET, window=20, method="smoothed", release_every=2, center=True))
stream("window-forgetting", lambda: WINDOW(**BUDGET, window=20, method="forgetting", adjacency="replace"))
stream("window-forgetting-center", lambda: WINDOW(**BUDGET, window=20, method="forgetting", center=True))
stream("window-warmup", lambda: WINDOW(**RICH, window=40, method="ring", release_every=5), bounds="private", warmup=64)
stream("oja", lambda: sp.Oja(n_components=K, release_every=9))
stream("private-oja", lambda: sp.PrivateOja(**BUDGET, batch_size=16))
stream("private-oja-replace-clip", lambda: sp.PrivateOja(**RICH, batch_size=8, clip=0.5, adjacency="replace"))
stream("sketch", lambda: sp.PrivateSketch(**BUDGET, sketch_size=4, horizon=N, clip=0.4, release_every=37, center=False))
stream("sketch-center-replace", lambda: sp.PrivateSketch(**RICH, release_every=80, adjacency="replace"))
stream("dp-pca", lambda: sp.DPPCA(n_components=K, epsilon=50.0, delta=0.1, horizon=N, batch_size=55))
stream("tumbling", lambda: TUMBLING(GAUSSIAN(**BUDGET), release_every=40))
stream("tumbling-short", lambda: TUMBLING(GAUSSIAN(**BUDGET), release_every=40, horizon=N,
       keep_short=True))  # fmt: skip
stream("tumbling-center", lambda: TUMBLING(GAUSSIAN(**BUDGET, center=True), release_every=40))
stream("tumbling-warmup", lambda: TUMBLING(GAUSSIAN(**RICH), release_every=40), bounds="private",
       warmup=80)  # fmt: skip
stream("tumbling-wishart", lambda: TUMBLING(sp.papers.WishartCovariance(**BUDGET), release_every=25, horizon=N))
# -- missing cells, of `gaps` ---------------------------------------------------------------------
CELLS: dict[str, Any] = {"on_missing": "cell", "bounds": RANGES}
stream("cells-fpl-center", lambda: FPL(**BUDGET, horizon=400, center=True), **CELLS)
stream("cells-fpl-replace-every-7", lambda: FPL(**RICH, adjacency="replace", release_every=7), **CELLS)
stream("cells-fpl-public", lambda: FPL(**BUDGET, center=True, solver="tracking"), missing_rates=0.75, **CELLS)
stream("cells-fpl-filled", lambda: FPL(**BUDGET, center=True), correct=False, **CELLS)
stream("cells-window-smoothed", lambda: WINDOW(**RICH, window=40, release_every=20, center=True), **CELLS)
stream("cells-window-histogram", lambda: WINDOW(**RICH, window=64, release_every=4, method="histogram"), **CELLS)
stream("cells-people", lambda: FPL(**BUDGET, horizon=400, release_every=5, center=True, unit=PERSON), **CELLS)
stream("cells-tumbling", lambda: TUMBLING(GAUSSIAN(**RICH, center=True), release_every=40), **CELLS)
stream("tumbling-laplace", lambda: TUMBLING(sp.papers.LaplaceCovariance(n_components=K, epsilon=1.0), release_every=40))
# -- mechanisms -----------------------------------------------------------------------------------
PURE: dict[str, Any] = {"n_components": K, "epsilon": 1.0}
for _suffix, _adjacency in (("", "zero-out"), ("-replace", "replace")):
    _near: dict[str, Any] = {"adjacency": _adjacency}
    for _name, _made in {
        "gaussian": lambda near=_near: GAUSSIAN(**BUDGET, **near),
        "gaussian-discrete": lambda near=_near: GAUSSIAN(**BUDGET, **near, discrete_noise=True),
        "wishart": lambda near=_near: sp.papers.WishartCovariance(**BUDGET, **near),
        "laplace": lambda near=_near: sp.papers.LaplaceCovariance(**PURE, **near),
        "matrix-laplace": lambda near=_near: sp.MatrixLaplaceCovariance(**PURE, **near),
    }.items():
        mechanism(_name + _suffix, _made, ball(N))
    mechanism(
        f"adaptive{_suffix}", lambda near=_near: sp.AdaptiveCovariance(**BUDGET, **near, center=False), 0.4 * ball(3000)
    )
    mechanism(f"adaptive-laplace{_suffix}", lambda near=_near: sp.AdaptiveLaplaceCovariance(**PURE, **near,
              center=False), 0.4 * ball(3000))  # fmt: skip
    mechanism(f"adaptive-center{_suffix}", lambda near=_near: sp.AdaptiveCovariance(**RICH, **near), moved(3000))
    mechanism(f"adaptive-laplace-center{_suffix}", lambda near=_near: sp.AdaptiveLaplaceCovariance(n_components=K,
              epsilon=5.0, **near), moved(3000))  # fmt: skip
mechanism("gaussian-center", lambda: GAUSSIAN(**BUDGET, center=True), ball(N))
mechanism("subspace-perturbation", lambda: sp.papers.SubspacePerturbation(**BUDGET), np.eye(D)[np.arange(3000) % 2])
mechanism("subspace-perturbation-fallback", lambda: sp.papers.SubspacePerturbation(**BUDGET), ball(N))
mechanism("exact-subspace-blocks", lambda: sp.ExactSubspace(**BUDGET), plane(300))
mechanism("approximate-subspace", lambda: sp.papers.ApproximateSubspace(**BUDGET), plane(4400))
