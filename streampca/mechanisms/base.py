"""Base classes of mechanisms: one private release of one data set."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from streampca.conversion import as_block
from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_count
from streampca.linalg.scale import Bounds, check_row_norm, check_scale, in_norm
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.configuration import Configuration, for_missing
from streampca.privacy.guarantee import Account, check_account
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import NAME_BYTES, Randomness
from streampca.release.clear import NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.rows.admission import Admission, Shares
from streampca.rows.owners import named_values, owned
from streampca.rows.people import commonly_weighted
from streampca.rows.report import AdmissionReport, tell_curator
from streampca.state import label_of


class Mechanism(Configuration):
    """One private release of one data set.

    A concrete mechanism is a frozen dataclass of public parameters (keywords) that provides the ``theorem`` and the
    ``citation`` of its `guarantee`, `constants` and `released`.
    """

    scope = "one release of one data set"
    is_one_release = True
    #: Whether rows keep their exact value; others are scaled onto the unit ball and rounded to the lattice.
    is_exact: ClassVar[bool] = False

    @abstractmethod
    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        """Release admitted rows, (n, d), the last of which is row t of the run. All randomness comes from ``outlet``.

        The label of the outlet holds the mechanism and its `constants`. ``terms`` may be those of a longer run.
        """

    def noise_law(self, n_features: int) -> NoiseLaw | None:
        """Return the law of the noise in Gram matrices, for the terms of releases; None as in `Terms`."""
        return None

    def release(
        self, rows: Any, randomness: Randomness | None = None, *, bounds: Bounds | None = None,
        row_norm: float | None = None, t: int | None = None, seed: int | None = None, account: Account | None = None,
        on_missing: Literal["bad", "cell"] = "bad", missing_rates: Shares = None, correct: bool = True,
        person: Any = ..., curator: Callable[[AdmissionReport], None] = tell_curator,
    ) -> Release:  # fmt: skip
        """Release the data set once.

        A second release has fresh noise, and the two together cost the budget twice.

        Parameters
        ----------
        rows : (n, d) array, or a table. A row with a cell that is missing, infinite or no number is absent: a zero
            vector, without the constant of the mean (`linalg.centering`). It is counted for the curator, in a record of
            the logger ``streampca.curator``.
        bounds, row_norm : the scale of the rows, exactly one of them, public and not computed from the rows. Values are
            clamped to their ``(lower, upper)``, and ranges mapped to ``[-1, 1] / sqrt(d)``; or rows longer than
            ``row_norm`` are scaled onto that norm. A `SubspaceFinder` divides by ``row_norm``, without a limit on
            longer rows, and accepts no bounds.
        randomness : the key of the noise, as secret as the rows; None draws one. Every release also draws fresh bytes
            from the system, so the key does not reproduce it.
        t : rows of the run so far, counting these; None for n.
        seed : integer in place of ``randomness``, for tests and scenarios: equal seed, rows and t give equal releases.
            Not private against a reader of the seed.
        account : the account that is debited, ``Ledger(file).account(data_set)``: once a call, after the rows are
            checked and before noise is drawn.
        person : with ``unit=``, the name of the person of each row, in place of the columns of the unit.
        on_missing, missing_rates, correct : what becomes of missing cells, as in `Stream`.
        curator : what is told of the rows, and when all is released; by default a record of the logger.

        Returns
        -------
        Release
            Publishable under its `guarantee`, which covers bad rows: the zero vector is in the domain of every
            mechanism, and the sensitivity of a centered one is that against an absent row. After an error, as where the
            account does not cover the guarantee, nothing was drawn or released.
        """
        check_account(account)
        check_scale(bounds, row_norm)
        if self.is_exact and bounds is not None:
            raise UsageError(f"bounds: {type(self).__name__} keeps the values of rows. Pass row_norm=1.0")
        if self.unit is not None and self.unit.period is not None:
            raise UsageError(f"unit.period={self.unit.period!r}: one release has no periods. Omit it, or use a Stream")
        block, names = owned(self.unit, as_block(rows), person, "release(rows, person=[...])")
        admission, rows = _values(
            block, bounds, row_norm, center=self.center, on_missing=on_missing, missing_rates=missing_rates,
            correct=correct,
        )  # fmt: skip
        rows = named_values(rows, names)
        self, (n, d) = for_missing(self, admission.present), rows.shape
        self.check(d)
        if t is not None and (isinstance(t, bool) or not isinstance(t, (int, np.integer)) or t < n):
            raise BadParameterError("t", t, f"an integer of at least the number of rows, {n}")
        if randomness is None:
            randomness = Randomness() if seed is None else Randomness.from_seed(seed)
        elif seed is not None or not isinstance(randomness, Randomness):
            raise UsageError(f"randomness={randomness!r}, seed={seed!r}: expected a Randomness, a seed, or neither")
        # Each row depends on itself only.
        values, (rows, marks) = rows, admission.block(rows, 1)
        report = AdmissionReport.of(admission, marks.counts(), n)
        if names is not None and self.unit is not None:
            rows = commonly_weighted(rows, names, self.unit.budget * self.full_row, d * int(self.counts_cells))
        if self.is_exact:
            kept = values if marks.reasons is None else np.where(marks.reasons[:, None] < 0, values, 0.0)
            kept = kept if marks.gaps is None else np.where(marks.gaps, 0.0, kept)
            # Minus zero becomes zero, so that equal rows have equal bits.
            rows = in_norm(kept, admission.row_norm) + 0.0
            report = replace(report, share_scaled=0.0, ball_used=1.0)
        guarantee = self.guarantee_for(d)
        # Debit before any noise exists: a failure in between loses budget, never privacy.
        if account is not None:
            account.debit(guarantee, os.urandom(NAME_BYTES))
        middle, factor = admission.ranges()
        scale: dict[str, Any] = (
            {"middle": middle, "scale": factor} if bounds is not None else {"row_norm": admission.row_norm}
        )
        guarantee = guarantee.seeded() if randomness.is_seeded else guarantee
        present = admission.present
        terms = Terms(guarantee, features=admission.features, **scale, noise=self.noise_law(d), present=present)
        t = n if t is None else int(t)
        # Privacy: releases that differ in a public number share no noise.
        public: tuple[Any, ...] = tuple((name, tuple(np.reshape(part, -1).tolist())) for name, part in scale.items())
        public += () if on_missing == "bad" else ((on_missing, present),)
        source = NoiseSource(randomness, "mechanism", label_of(self), d, t, self.constants(d), public)
        release = self.released(rows, Outlet(source, source.first), terms, t)
        curator(report)
        return release


@dataclass(frozen=True, kw_only=True)
class BudgetedMechanism(Mechanism):
    """A mechanism that spends an epsilon and a delta."""

    n_components: int
    epsilon: float
    delta: float = DELTA
    adjacency: Adjacency = "zero-out"


@dataclass(frozen=True, kw_only=True)
class SubspaceFinder(BudgetedMechanism):
    """A mechanism that releases a subspace that holds nearly all rows, or nothing. Rows are not scaled nor rounded."""

    n_components: int | None = None  # type: ignore[assignment]
    max_components: int = 3  # largest dimension considered if n_components is None
    block_rows: int | None = None  # rows in a block, which votes for the subspace of its rows
    _largest: int = field(init=False, repr=False, compare=False)  # largest dimension considered
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


def _values(
    rows: Any, bounds: Bounds | None, row_norm: float | None, **further: Any
) -> tuple[Admission, FloatArray]:  # fmt: skip
    """Return the admission of a data set and its numbers, (n, d), with nan in rows of other cells."""
    block, features = rows, None
    shape = np.shape(block) if hasattr(block, "shape") else (len(block), 1)
    if len(shape) != 2 or 0 in shape:
        raise BadParameterError("rows", block, "(n, d) with n >= 1 and d >= 1")
    # Rows that are mappings have the names of the bounds: an absent name is a missing value.
    if isinstance(block, (list, tuple)) and isinstance(block[0], Mapping):
        if not isinstance(bounds, Mapping):
            raise UsageError("the first row would determine the names of the columns. Pass bounds by name, or a frame")
        features = tuple(bounds)
    norm = 1.0 if bounds is not None else check_row_norm(row_norm)
    admission = Admission(row_norm=norm, bounds=bounds, features=features, **further).fixed_by_block(block)
    return admission, admission.all_values(block, 1)
