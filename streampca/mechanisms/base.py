"""Base classes of mechanisms: one private release of one data set."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from streampca.conversion import as_block, as_floats
from streampca.errors import BadParameterError, BadRowError, UsageError, reason
from streampca.linalg.centering import with_constant
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.configuration import Configuration
from streampca.privacy.guarantee import Account, check_account
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.release.clear import NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.state import label_of


class Mechanism(Configuration):
    """One private release of one data set.

    A concrete mechanism is a frozen dataclass of public parameters (keywords) that provides the ``theorem`` and the
    ``citation`` of its `guarantee`, `constants` and `released`. A parameter outside its domain raises
    `UsageError`.
    """

    scope = "one release of one data set"
    #: Whether rows keep their exact value; others are scaled onto the unit ball and rounded to the lattice.
    is_exact: ClassVar[bool] = False

    @abstractmethod
    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        """Release admitted rows. All randomness comes from ``outlet``.

        Parameters
        ----------
        rows : (n, d) array with n >= 1, admitted. Not written to.
        outlet : its label holds the mechanism and its `constants`.
        terms : of the release, or of the releases of a longer run (`Tumbling`).
        t : rows of the run so far, counting these.
        """

    def noise_law(self, n_features: int) -> NoiseLaw | None:
        """Return the law of the noise in Gram matrices, for the terms of releases; None as in `Terms`."""
        return None

    def release(
        self,
        rows: Any,
        randomness: Randomness | None = None,
        *,
        t: int | None = None,
        seed: int | None = None,
        ledger: Account | None = None,
    ) -> Release:
        """Release the data set once.

        A second release has fresh noise, and the two together cost the budget twice.

        Parameters
        ----------
        rows : (n, d) array of finite numbers. Rows longer than 1 are scaled onto the unit ball, except by a
            `SubspaceFinder`.
        randomness : the key of the noise, as secret as the rows; None draws one. Every release also draws fresh bytes
            from the system, so the key does not reproduce it.
        t : rows of the run so far, counting these; None for n.
        seed : integer in place of ``randomness``, for tests and scenarios: equal seed, rows and t give equal releases.
            Not private against a reader of the seed.
        ledger : the account that is debited, ``Ledger(file).account(data_set)``: once a call, after the rows are
            checked and before noise is drawn.

        Returns
        -------
        Release
            Publishable under its `guarantee`.

        Raises
        ------
        UsageError
            If the shape does not fit the parameters, or another argument is outside its domain.
        BadRowError
            If a row is not finite. Nothing was drawn or released.
        BudgetExhaustedError
            If the account does not cover the guarantee. Nothing was drawn or released.
        """
        check_account(ledger)
        rows = _checked(rows)
        self.check(rows.shape[1])
        if t is not None and (isinstance(t, bool) or not isinstance(t, (int, np.integer)) or t < rows.shape[0]):
            raise BadParameterError("t", t, f"an integer of at least the number of rows, {rows.shape[0]}")
        if randomness is None:
            randomness = Randomness() if seed is None else Randomness.from_seed(seed)
        elif seed is not None or not isinstance(randomness, Randomness):
            raise UsageError(f"randomness={randomness!r}, seed={seed!r}: expected a Randomness, a seed, or neither")
        d = rows.shape[1]  # before a constant is appended
        # Each row depends on itself only. Minus zero becomes zero, so that equal rows have equal bits.
        rows = rows + 0.0 if self.is_exact else onto_ball(rows)
        if self.center:
            rows = with_constant(rows)
        guarantee = self.guarantee_for(d)
        # Debit before any noise exists: a failure in between loses budget, never privacy.
        if ledger is not None:
            ledger.debit(guarantee, os.urandom(NAME_BYTES))
        terms = Terms(guarantee.seeded() if randomness.is_seeded else guarantee, noise=self.noise_law(d))
        t = rows.shape[0] if t is None else int(t)
        source = NoiseSource(randomness, "mechanism", label_of(self), d, t, self.constants(d))
        return self.released(rows, Outlet(source, source.first), terms, t)


class SubspaceFinder(Mechanism):
    """A mechanism that releases a subspace that holds nearly all rows, or nothing. Rows are not scaled nor rounded.

    Attributes
    ----------
    delta : see `Budget`.
    max_components : largest dimension considered if n_components is None.
    block_rows : rows in a block, which votes for the subspace of its rows; None for the default.
    """

    delta: float
    max_components: int
    block_rows: int | None
    _largest: int  # largest dimension considered
    finds_components = True
    is_exact = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_components", self.max_components)
        check_count("block_rows", self.block_rows, optional=True)
        object.__setattr__(self, "_largest", self.n_components or self.max_components)
        # A smaller block spans fewer dimensions, so that it could not vote for a subspace of the largest one.
        if self.block_rows is not None and self.block_rows < self._largest:
            raise BadParameterError("block_rows", self.block_rows, f"at least {self._largest}, the dimension")


def _checked(rows: Any) -> FloatArray:
    """Return the rows as a 2-D float array, or raise one clear error."""
    block = as_block(rows)
    try:
        checked = as_floats(block)
    except (TypeError, ValueError, OverflowError) as problem:
        raise BadRowError(
            None, f"rows are not all numbers ({reason(problem)}). Pass an (n, d) array or a table of finite numbers"
        ) from None
    if checked.ndim != 2 or 0 in checked.shape:
        raise BadParameterError("rows", checked, "(n, d) with n >= 1 and d >= 1")
    bad = np.flatnonzero(~np.isfinite(checked).all(axis=1))
    if bad.size:
        raise BadRowError(int(bad[0]), "not finite. Correct or drop it before the release")
    return checked
