"""Private PCA as river transformers.

>>> from river import datasets
>>> from streampca.integrations.river import PrivatePCA
>>> model = PrivatePCA(n_components=3, epsilon=1.0, delta=1e-6, row_norm=500.0)
>>> for x, _ in datasets.ImageSegments():
...     model.learn_one(x)
>>> model.guarantee.epsilon
1.0

**What is private.** ``components``, ``release`` and whatever is computed from
them. Scores from ``transform_one`` are those of a raw row and as sensitive as
it is, and so is a model that is trained on them further down a pipeline.

**What would break it.** A step *before* this one that learns from rows, such
as ``StandardScaler``, lets one row change all that follow: the guarantee is
then about its output and no longer about your rows. Scale with public numbers:
``bounds=`` or ``row_norm=`` here, or a function of one row at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from streampca.admission import Bounds, OnBadRow
from streampca.integrations._features import OnMissing, OnUnseen
from streampca.integrations._river_base import RiverAdapter
from streampca.privacy.budget import Adjacency
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA

__all__ = ["PrivateOjaPCA", "PrivatePCA", "PrivateWindowPCA"]

_COMMON = """row_norm : longer rows are scaled onto the ball of this radius. Public: never
        read it off the rows. At the default of 1, rows in other units are all cut to length 1.
    bounds : public ranges of the features, mapped into that ball: ``{feature:
        (lower, upper)}``, or ``(lower, upper)`` for all.
    features : names of the features, in order. Left out, they are those of the
        first row in alphabetical order; give them where *which* features a row
        has is itself a secret, as with bags of words.
    on_unseen : ``"ignore"`` leaves other features out, ``"raise"`` refuses such rows.
    on_missing : ``"fill"`` counts an absent feature as 0 (the middle of its
        range, if it has bounds), which contributes nothing; ``"raise"`` refuses such rows.
    on_bad_row : ``"raise"`` refuses a row with a value that is no finite number, before
        anything changes; ``"zero"`` learns a zero row in its place.
    align : turn each basis within its subspace as close as can be to the one
        used before, so that scores do not flip or swap. They are then
        not sorted by variance; `components` is. False uses the eigenvectors as they are.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    ledger, data_set : path of a ledger file and name of the data set whose
        budget pays, before the first row. A clone or a copy that learns pays again.
    seed : for tests: not private against whoever knows it. Left out, the key is
        fresh from the system."""

_NOTES = """Scores are linear in the row: it is scaled by ``bounds``, but not clamped or clipped.

    *Copies.* A pickle or a deep copy of a model that has learnt holds exact sums
    of raw rows and the keys of past noise: it is as secret as the rows. It goes on as another run,
    with noise of its own (a seeded one repeats the seed's): with a ledger it pays before its next row.
    Two runs on the same rows cost sqrt(2) times mu. ``clone()`` starts anew, which is a second run too.

    *Interrupts.* After any exception in `learn_one` the model has learnt from the row or has not, and ``t``
    says which. `learn_many` may stop between releases."""


class PrivatePCA(RiverAdapter):
    """Private PCA of all rows so far (`streampca.PrivateFPL`).

    Parameters
    ----------
    n_components : number of components.
    epsilon, delta : budget for all releases of the stream together.
    horizon : number of rows the noise is calibrated for; None for an endless stream, with some 20 % more noise.
    release_every : rows between releases. Noise and time both fall with it.
    {common}
    center : take the mean out, from the same private release; doubles the
        noise. Scores are of the row itself in any case.

    Notes
    -----
    {notes}

    Examples
    --------
    >>> from river import datasets
    >>> model = PrivatePCA(n_components=2, row_norm=500.0)
    >>> for x, _ in datasets.ImageSegments().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['pc0', 'pc1']
    """

    def __init__(
        self,
        n_components: int = 2,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        horizon: int | None = None,
        release_every: int = 1,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        features: Sequence[Hashable] | None = None,
        on_unseen: OnUnseen = "ignore",
        on_missing: OnMissing = "fill",
        on_bad_row: OnBadRow = "raise",
        center: bool = False,
        align: bool = True,
        adjacency: Adjacency = "zero-out",
        ledger: str | None = None,
        data_set: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.release_every = release_every
        self.row_norm = row_norm
        self.bounds = bounds
        self.features = features
        self.on_unseen = on_unseen
        self.on_missing = on_missing
        self.on_bad_row = on_bad_row
        self.center = center
        self.align = align
        self.adjacency = adjacency
        self.ledger = ledger
        self.data_set = data_set
        self.seed = seed
        algorithm = PrivateFPL(
            n_components=n_components, epsilon=epsilon, delta=delta, horizon=horizon, release_every=release_every,
            adjacency=adjacency,
        )  # fmt: skip
        self._settle_in(algorithm, center=center)


class PrivateWindowPCA(RiverAdapter):
    """Private PCA of the last ``window`` rows (`streampca.SlidingWindowPCA`), without end.

    Parameters
    ----------
    n_components : number of components.
    epsilon, delta : budget for all releases of the stream together.
    window : rows in the window. Memory grows with its logarithm.
    release_every : rows between releases, at most ``window``. Noise and time both fall with it.
    {common}

    Notes
    -----
    {notes}

    Examples
    --------
    >>> from river import datasets
    >>> model = PrivateWindowPCA(n_components=2, window=100, row_norm=500.0)
    >>> for x, _ in datasets.ImageSegments().take(200):
    ...     model.learn_one(x)
    >>> model.components.shape
    (2, 18)
    """

    def __init__(
        self,
        n_components: int = 2,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        window: int = 1000,
        release_every: int = 10,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        features: Sequence[Hashable] | None = None,
        on_unseen: OnUnseen = "ignore",
        on_missing: OnMissing = "fill",
        on_bad_row: OnBadRow = "raise",
        align: bool = True,
        adjacency: Adjacency = "zero-out",
        ledger: str | None = None,
        data_set: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.window = window
        self.release_every = release_every
        self.row_norm = row_norm
        self.bounds = bounds
        self.features = features
        self.on_unseen = on_unseen
        self.on_missing = on_missing
        self.on_bad_row = on_bad_row
        self.align = align
        self.adjacency = adjacency
        self.ledger = ledger
        self.data_set = data_set
        self.seed = seed
        algorithm = SlidingWindowPCA(
            window=window, n_components=n_components, epsilon=epsilon, delta=delta, release_every=release_every,
            adjacency=adjacency,
        )  # fmt: skip
        self._settle_in(algorithm)


class PrivateOjaPCA(RiverAdapter):
    """Private PCA in memory ``n_features * n_components`` (`streampca.PrivateOja`), for very many features.

    Parameters
    ----------
    n_components : number of components.
    epsilon, delta : budget for all releases of the stream together.
    horizon : number of rows, if known. No more are taken.
    batch_size : rows to a step; ``"auto"`` makes steps longer and longer. Every step
        adds the same noise, whatever its length. A release follows every step.
    {common}

    Notes
    -----
    {notes}

    Examples
    --------
    >>> from river import datasets
    >>> model = PrivateOjaPCA(n_components=2, row_norm=500.0)
    >>> for x, _ in datasets.ImageSegments().take(300):
    ...     model.learn_one(x)
    >>> model.release.t
    256
    """

    def __init__(
        self,
        n_components: int = 2,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        horizon: int | None = None,
        batch_size: int | str = "auto",
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        features: Sequence[Hashable] | None = None,
        on_unseen: OnUnseen = "ignore",
        on_missing: OnMissing = "fill",
        on_bad_row: OnBadRow = "raise",
        align: bool = True,
        adjacency: Adjacency = "zero-out",
        ledger: str | None = None,
        data_set: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.batch_size = batch_size
        self.row_norm = row_norm
        self.bounds = bounds
        self.features = features
        self.on_unseen = on_unseen
        self.on_missing = on_missing
        self.on_bad_row = on_bad_row
        self.align = align
        self.adjacency = adjacency
        self.ledger = ledger
        self.data_set = data_set
        self.seed = seed
        algorithm = PrivateOja(
            n_components=n_components, epsilon=epsilon, delta=delta, horizon=horizon,
            batch_size=batch_size, adjacency=adjacency,  # type: ignore[arg-type]
        )  # fmt: skip
        self._settle_in(algorithm)


for _adapter in (PrivatePCA, PrivateWindowPCA, PrivateOjaPCA):
    # Under `python -OO` there are no docstrings to complete.
    _adapter.__doc__ = (_adapter.__doc__ or "").replace("{common}", _COMMON).replace("{notes}", _NOTES)
