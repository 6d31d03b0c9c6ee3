"""The doubling trick of DTTZ14 Algorithm 4, with a threshold that works for every epsilon.

A new epoch begins when X, the private estimate of OPT, passes the guess of OPT less a quantile of the noise in X; the
first guess is doubled until that threshold is at least half of it. (The paper's threshold: ``docs/theory/dttz14.md``.)

The last releases of the epochs before are added to those of the epoch: there are few (about log2 of OPT), so they add
little noise, and what was learnt from earlier rows is kept. No regret bound is proved for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca.linalg.eigen import top_sum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.privacy.budget import Budget
from streampca.privacy.gaussian import mu_of

#: Probability that X is above its noiseless value by more than the quantile at any release of an epoch.
FAILURE = 1e-3
#: What differs between the epochs of a run.
_CHANGING = "epoch", "start_row", "leaves", "opt_guess", "released", "variance"


@dataclass(frozen=True, eq=False)
class Doubling:
    """One epoch: its guess of OPT and its noise. An immutable value.

    Attributes
    ----------
    budget : of the whole stream; no epoch spends more.
    n_components, n_features : k and d.
    rows : horizon m in rows.
    make : builds the matrix factorization of an epoch from its mu and its number of releases.
    epoch : number of the epoch, from 0.
    start_row : rows before it.
    leaves : largest number of releases in the epoch.
    opt_guess : guess of OPT.
    released, variance : sum of the last releases of the epochs before, packed, and the variance of
        a diagonal entry of its noise. They are added to what the epoch releases: post-processing.

    Notes
    -----
    Epoch e runs at epsilon_e = min(epsilon, sqrt(k sqrt(d) log^2(m/delta) / OPT_e)),
    the paper's choice. X, the sum of the top k eigenvalues of the released
    matrix of the epoch, is post-processing, and so is every restart.
    """

    budget: Budget
    n_components: int
    n_features: int
    rows: int
    make: Callable[[float, int], MatrixFactorization]
    epoch: int
    start_row: int
    leaves: int
    opt_guess: float
    released: FloatArray
    variance: float = 0.0

    @classmethod
    def first(
        cls,
        budget: Budget,
        n_components: int,
        n_features: int,
        rows: int,
        leaves: int,
        make: Callable[[float, int], MatrixFactorization],
    ) -> Doubling:
        """The first epoch: its guess is doubled until the threshold is at least half of it."""
        scale = n_components * math.sqrt(n_features) * math.log(rows / budget.delta) ** 2
        nothing = np.zeros(svec_size(n_features))
        made = cls(budget, n_components, n_features, rows, make, 0, 0, leaves, scale / budget.epsilon**2, nothing)
        while made.opt_guess < 2.0 * made.quantile(leaves):
            made = replace(made, opt_guess=2.0 * made.opt_guess)
        return made

    @cached_property
    def mechanism(self) -> MatrixFactorization:
        """The matrix factorization of this epoch."""
        return self.make(self.mu, self.leaves)

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of this epoch."""
        scale = self.n_components * math.sqrt(self.n_features) * math.log(self.rows / self.budget.delta) ** 2
        epsilon = min(self.budget.epsilon, math.sqrt(scale / self.opt_guess))
        return mu_of(epsilon, self.budget.delta)

    def passed(self, packed: FloatArray, leaf: int) -> bool:
        """True if the private estimate of the epoch's OPT, from its own released matrix, passes the threshold."""
        found = top_sum(unpack_entries(packed, self.n_features), self.n_components)
        return found > self.opt_guess - self.quantile(leaf)

    def with_past(self, packed: FloatArray, std: float) -> tuple[FloatArray, float]:
        """The released matrix of all epochs so far, packed, and its noise_std, from those of this epoch."""
        return packed + self.released, math.sqrt(std**2 + self.variance)

    def restarted(self, row: int, leaves: int, released: FloatArray, std: float) -> Doubling:
        """The next epoch, with twice the guess, after ``row`` rows and with ``leaves`` releases to come.

        ``released`` and ``std`` are those of all epochs so far, from `with_past`.
        """
        return replace(
            self, epoch=self.epoch + 1, start_row=row, leaves=leaves, opt_guess=2.0 * self.opt_guess,
            released=released, variance=std**2,
        )  # fmt: skip

    def quantile(self, leaf: int) -> float:
        """K times a bound on the noise's largest eigenvalue that holds for all releases of the epoch at once.

        E lambda_1(GOE) <= sqrt(2 d), and lambda_1 is 1-Lipschitz in svec coordinates.
        """
        deviation = math.sqrt(2.0 * self.n_features) + math.sqrt(2.0 * math.log(max(self.leaves, 1) / FAILURE))
        return self.n_components * self.mechanism.std(leaf) * deviation

    def snapshot(self) -> dict[str, Any]:
        """Scalars and an array from which `restored` makes the same epoch."""
        return {name: getattr(self, name) for name in _CHANGING}

    def restored(self, snapshot: Mapping[str, Any]) -> Doubling:
        """The epoch of a snapshot, from the first epoch of the same run."""
        return replace(self, **{name: snapshot[name] for name in _CHANGING})
