"""What every mechanism is: public parameters, and one release of one data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Any

import numpy as np

from streampca.errors import BadParameter, BadRow
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.release import Release

#: What the guarantee of a mechanism covers.
SCOPE = "one release of one data set"


class Draws:
    """The noise of one release: one independent stream for each named part of it.

    Streams are keyed by the mechanism with all its parameters, by ``t`` and by
    the rows themselves. So a repeated release repeats its noise (and tells
    nothing new), while other rows, another t or another mechanism under the
    same key never share noise, which would let the difference cancel it.
    """

    def __init__(self, randomness: Randomness, *label: str | int) -> None:
        self._randomness = randomness
        self._label = label

    def stream(self, part: str) -> NoiseStream:
        """Return the noise stream of one part of the release."""
        return self._randomness.stream("mechanism", *self._label, part)


class Mechanism(ABC):
    """One private release of one data set.

    A concrete mechanism is a frozen dataclass of public parameters (keywords;
    validated in ``__post_init__``) that provides `guarantee` and `_release`.

    Attributes
    ----------
    n_components : dimension of the released subspace; None where the mechanism finds it.
    n_features : number of features, or None for that of the rows.
    """

    n_components: int | None
    n_features: int | None = None

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one release promises. Known before any row; its scope is `SCOPE`."""

    @abstractmethod
    def _release(self, rows: FloatArray, draws: Draws, guarantee: Guarantee, t: int) -> Release:
        """Release admitted rows, (n, d) with n >= 1. All randomness comes from ``draws``."""

    def _admit(self, rows: FloatArray) -> FloatArray:
        """Bring each finite row into the mechanism's domain. Acts on each row by itself; idempotent."""
        return onto_ball(rows)

    def check(self, n_features: int) -> None:
        """Raise `BadParameter` unless rows of so many features fit the parameters."""
        if self.n_features not in (None, n_features):
            raise BadParameter(f"the mechanism was made for n_features={self.n_features}, the rows have {n_features}")
        if self.n_components is not None:
            check_components(self.n_components, n_features)

    def release(
        self, rows: FloatArray, randomness: Randomness | None = None, *, t: int | None = None, seed: int | None = None
    ) -> Release:
        """Release the data set once.

        Parameters
        ----------
        rows : (n, d) array of finite numbers. Rows longer than 1 are scaled
            onto the unit ball.
        randomness : where the noise comes from; fresh from the operating
            system if left out. Its key is as secret as the rows.
        t : rows seen so far, counting these; defaults to n. Data sets that
            share a key need a t of their own each.
        seed : integer for reproducible noise in place of ``randomness``, for
            tests and scenarios: not private against whoever knows it.

        Returns
        -------
        Release
            Publishable under its `guarantee`.

        Raises
        ------
        BadParameter
            If the shape does not fit the parameters, or another argument is bad.
        BadRow
            If a row is not finite. Nothing was drawn or released.
        """
        rows = checked_rows(rows)
        self.check(rows.shape[1])
        if t is not None and (isinstance(t, bool) or not isinstance(t, (int, np.integer)) or t < rows.shape[0]):
            raise BadParameter(f"t={t!r} must be an integer of at least the {rows.shape[0]} rows given")
        if randomness is None:
            randomness = Randomness() if seed is None else Randomness.from_seed(seed)
        elif seed is not None or not isinstance(randomness, Randomness):
            raise BadParameter(
                f"randomness={randomness!r}, seed={seed!r}: give a Randomness, an integer seed= or neither"
            )
        rows = self._admit(rows)
        guarantee = self.guarantee.seeded() if randomness.is_seeded else self.guarantee
        t = rows.shape[0] if t is None else int(t)
        return self._release(rows, Draws(randomness, repr(self), t, digest(rows)), guarantee, t)


def digest(rows: FloatArray) -> str:
    """Hash an array's shape and bits. Curator only: it goes into noise keys and nowhere else."""
    rows = np.ascontiguousarray(rows)
    return blake2b(rows.data, digest_size=32, salt=rows.shape[1].to_bytes(16, "big")).hexdigest()


def checked_rows(rows: Any) -> FloatArray:
    """Return the rows as a 2-D float array, or raise one clear error."""
    try:
        checked: FloatArray = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise BadRow(f"rows are not all numbers ({problem}); give an (n, d) array of finite numbers") from problem
    if checked.ndim != 2 or 0 in checked.shape:
        raise BadParameter(f"rows of shape {checked.shape} given; (n, d) with n >= 1 and d >= 1 expected")
    bad = np.flatnonzero(~np.isfinite(checked).all(axis=1))
    if bad.size:
        raise BadRow(f"row {bad[0]} is not finite; mend or drop it before the release")
    return checked


def check_components(n_components: object, n_features: object = None, *, optional: bool = False) -> None:
    """Raise `BadParameter` unless 1 <= n_components <= n_features (None: not known yet).

    With ``optional``, n_components may be None too: the mechanism finds it.
    """
    if n_features is not None:
        _check_count("n_features", n_features)
    if optional and n_components is None:
        return
    _check_count("n_components", n_components)
    if n_features is not None and n_components > n_features:  # type: ignore[operator]
        raise BadParameter(f"n_components={n_components} exceeds n_features={n_features}; ask for fewer components")


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise BadParameter(f"{name}={value!r} must be an integer of at least 1")
