"""One release beside the PCA of diffprivlib and of OpenDP on real tables, a section of docs/utility.

``python scenarios/peers.py`` measures and prints it. Both are installed beside streampca for this alone:
``pip install diffprivlib==0.6.6 "scikit-learn<1.6" "opendp[scikit-learn]==0.16.0" randomgen``.
"""

import importlib.metadata
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import real_tables as real
from scenario import Context, load

from streampca.errors import UsageError
from streampca.linalg.types import FloatArray

#: Distributions that are compared with, and what of ours.
PEERS, OURS = ("diffprivlib", "opendp"), ("Gaussian", "adaptive")
#: CPU seconds after which a release is given up, and most features: with more of them both stall.
PATIENCE, WIDEST = 20.0, 10
#: Releases of a cell; four times as many of a table of few rows.
DRAWS = 4


def versions() -> str:
    """The installed versions. Raises `UsageError` with the command that installs them if one is missing."""
    try:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PEERS)
    except importlib.metadata.PackageNotFoundError as missing:
        install = (__doc__ or "").split("``")[-2]
        raise UsageError(f"{missing.name} is not installed: {install}") from None


def beside_peers(context: Context) -> real.Found:
    """What one release of each captures, on tables of few features, at epsilon >= .3; what stalls is left out.

    ``all`` has in how many of the ``cells`` one of the peers captures more, by more than two standard errors of the
    difference, than any of ours.
    """
    versions()
    found: real.Found = {}
    cells, worse = 0, 0
    for _, rows, k, epsilon, cell in real.cells(context):
        if rows.shape[1] > WIDEST or epsilon < 0.3:
            continue
        ours, shares = real.mechanisms(rows.shape[1], k, epsilon, "replace"), {}
        for kind, release in ({kind: ours[kind] for kind in OURS} | peers(k, epsilon)).items():
            try:
                shares[kind] = found[f"{cell}, {kind}"] = real.captured(release, rows, k, real.seeds_of(context, rows))
            except TimeoutError:
                continue
        others = [kind for kind in shares if kind not in OURS]
        cells += 1
        worse += bool(others) and all(real.is_worse(kind, others, shares) for kind in OURS)
    return found | {"all": {"cells": float(cells), "worse": float(worse)}}


def peers(n_components: int, epsilon: float) -> dict[str, real.Basis]:
    """Functions from rows in the unit ball and a seed to a basis, (d, k), by name; both are (epsilon, 0)-DP.

    They get rows of norm at most 1, whose columns lie within 1/sqrt(d) of 0, and center them within their budget, as
    ours do. They raise `TimeoutError` after `PATIENCE`. OpenDP takes no seed.
    """

    @patience(PATIENCE)
    def diffprivlib(rows: FloatArray, seed: int) -> FloatArray:
        from diffprivlib.models import PCA

        side = 1.0 / math.sqrt(rows.shape[1])
        made = PCA(n_components, epsilon=epsilon, data_norm=1.0, bounds=(-side, side), random_state=seed).fit(rows)
        basis: FloatArray = made.components_.T
        return basis

    @patience(PATIENCE)
    def opendp(rows: FloatArray, _: int) -> FloatArray:
        import opendp.prelude as dp
        from opendp.extras.sklearn.decomposition import make_private_pca

        dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
        n, d = rows.shape
        # A domain without an origin: the mean is estimated, and rows are clamped about it.
        domain = dp.numpy.array2_domain(size=n, num_columns=d, T=float)
        release = make_private_pca(
            domain, dp.symmetric_distance(), float(epsilon), norm=1.0, num_components=n_components
        )  # fmt: skip
        basis: FloatArray = release(rows).Vt[:n_components].T
        return basis

    return {"diffprivlib": diffprivlib, "OpenDP": opendp}


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread when the CPU time is over."""
    over = []

    def stop(*_: object) -> None:
        over.append(True)
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except Exception:
        if over:  # a library may have made another exception of it
            raise TimeoutError from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def text(found: real.Found) -> str:
    """The section as Markdown."""
    return (
        f"{real.cells_table(found, [*OURS, *peers(1, 1.0)], real.CAPTURED)}\n\n"
        f"Means of {DRAWS} releases, and of {DRAWS * real.MORE} of tables of few rows. "
        f"{versions()}, for tables of at most {WIDEST} features: with more, both stall. All get the same rows in the "
        "unit ball and center them within the budget; all hold for the replacement of a row, as theirs do. Gaussian "
        "has delta 1e-6, as has adaptive except at epsilon 3 for up to 6 features; the others have delta 0 at "
        f"the same epsilon. -: no release within {PATIENCE:g} s of CPU time. In {found['all']['worse']:g} of "
        f"{found['all']['cells']:g} cells one of the two captures more than any of ours by more than two standard "
        "errors. Written by `python scenarios/peers.py`, which says what to install."
    )


if __name__ == "__main__":
    chosen = load("utility")
    print(text(beside_peers(Context(chosen.rows, chosen.seed, {**chosen.params, "draws": DRAWS}))))
