"""One release beside the PCA of diffprivlib and of OpenDP on real tables, a section of docs/utility.

``python scenarios/peers.py`` measures and prints it. Both are installed beside streampca for this alone:
``pip install diffprivlib==0.6.6 "scikit-learn<1.6" "opendp[scikit-learn]==0.16.0" randomgen``.
"""

from __future__ import annotations

import importlib.metadata
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import real_tables as real
from scenario import Context

from streampca.errors import UsageError
from streampca.linalg.types import FloatArray

#: Distributions that are compared with, and what of ours.
PEERS, OURS = ("diffprivlib", "opendp"), ("Gaussian", "adaptive", "matrix Laplace")
#: Seconds after which a release is given up, and most features: with more of them both stall.
PATIENCE, WIDEST = 20.0, 10


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
                shares[kind] = found[f"{cell}, {kind}"] = real.captured(release, rows, k, real.seeds_of(context))
            except TimeoutError:
                continue
        others = [kind for kind in shares if kind not in OURS]
        cells += 1
        worse += bool(others) and all(real.is_worse(kind, others, shares) for kind in OURS)
    return found | {"all": {"cells": float(cells), "worse": float(worse)}}


def peers(n_components: int, epsilon: float) -> dict[str, real.Basis]:
    """Functions from rows in the unit ball and a seed to a basis, (d, k), by name; both are (epsilon, 0)-DP.

    They are told that rows are not to be centered and have norm at most 1, as ours are, and raise `TimeoutError` after
    `PATIENCE`. OpenDP takes no seed.
    """

    @patience(PATIENCE)
    def diffprivlib(rows: FloatArray, seed: int) -> FloatArray:
        from diffprivlib.models import PCA

        made = PCA(n_components, epsilon=epsilon, data_norm=1.0, centered=True, random_state=seed).fit(rows)
        basis: FloatArray = made.components_.T
        return basis

    @patience(PATIENCE)
    def opendp(rows: FloatArray, _: int) -> FloatArray:
        import opendp.prelude as dp
        from opendp.extras.sklearn.decomposition import make_private_pca

        dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
        n, d = rows.shape
        domain = dp.numpy.array2_domain(p=2, norm=1.0, origin=np.zeros(d), size=n, num_columns=d, T=float)
        release = make_private_pca(domain, dp.symmetric_distance(), float(epsilon), num_components=n_components)
        basis: FloatArray = release(rows).Vt[:n_components].T
        return basis

    return {"diffprivlib": diffprivlib, "OpenDP": opendp}


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread when the time is over."""
    over = []

    def stop(*_: object) -> None:
        over.append(True)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception:
        if over:  # a library may have made another exception of it
            raise TimeoutError from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def text(found: real.Found) -> str:
    """The section as Markdown."""
    return (
        f"{real.cells_table(found, [*OURS, *peers(1, 1.0)], real.CAPTURED)}\n\n"
        f"{versions()}, for tables of at most {WIDEST} features: with more, both stall. All get the same rows in the "
        "unit ball and are told not to center them; all hold for the replacement of a row, as theirs do. Gaussian and "
        "adaptive have delta 1e-6; the others have delta 0 at the same epsilon. -: no release within "
        f"{PATIENCE:g} s. In {found['all']['worse']:g} of {found['all']['cells']:g} cells one of the two captures more "
        "than any of ours by more than two standard errors. Written by `python scenarios/peers.py`, which says what to "
        "install."
    )


if __name__ == "__main__":
    print(text(real.measured("utility", beside_peers)))
