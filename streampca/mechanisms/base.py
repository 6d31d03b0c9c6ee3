"""What every mechanism is: public parameters, and one release of one data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streampca.errors import BadParameter, BadRow
from streampca.linalg.counts import check_components
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.release import Release, Terms

#: What the guarantee of a mechanism covers.
SCOPE = "one release of one data set"


class Mechanism(ABC):
    """One private release of one data set.

    A concrete mechanism is a frozen dataclass of public parameters (keywords;
    validated in ``__post_init__``) that provides `guarantee`, `constants` and `_release`.

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
    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number the noise is made with: standard deviations and scales.

        Two configurations that differ in one of them, by a bit, never share noise.
        """

    @abstractmethod
    def _release(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        """Release admitted rows, (n, d) with n >= 1. All randomness comes from ``outlet``."""

    def _admit(self, rows: FloatArray) -> FloatArray:
        """Bring each finite row into the mechanism's domain. Acts on each row by itself; idempotent."""
        return onto_ball(rows)

    def check(self, n_features: int) -> None:
        """Raise `BadParameter` unless rows of so many features fit the parameters."""
        if self.n_features not in (None, n_features):
            raise BadParameter(f"the mechanism was made for n_features={self.n_features}, the rows have {n_features}")
        check_components(self.n_components, n_features, optional=True)

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        """Release admitted rows of a longer run (`Tumbling`).

        Parameters
        ----------
        rows : (n, d) array with n >= 1, admitted by the run. Not written to.
        outlet : of the run; its label holds the mechanism and its `constants`.
        terms : of the run's releases.
        t : rows of the run so far, counting these.
        """
        return self._release(rows, outlet, terms, t)

    def release(
        self, rows: FloatArray, randomness: Randomness | None = None, *, t: int | None = None, seed: int | None = None
    ) -> Release:
        """Release the data set once.

        A repeated release has fresh noise, and the two together cost the budget twice.

        Parameters
        ----------
        rows : (n, d) array of finite numbers. Rows longer than 1 are scaled
            onto the unit ball.
        randomness : the key of the noise; fresh from the operating system if
            left out. It is as secret as the rows. Every release takes fresh
            bytes from the system besides, so a key alone reproduces nothing.
        t : rows seen so far, counting these; defaults to n.
        seed : integer in place of ``randomness``, for tests and scenarios: the
            same seed, rows and t give the same release again. Not private
            against whoever knows it.

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
        rows, d = self._admit(rows), rows.shape[1]
        terms = Terms(self.guarantee.seeded() if randomness.is_seeded else self.guarantee)
        t = rows.shape[0] if t is None else int(t)
        source = NoiseSource(randomness, "mechanism", repr(self), d, t, self.constants(d))
        return self._release(rows, source.outlet(source.first), terms, t)


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
