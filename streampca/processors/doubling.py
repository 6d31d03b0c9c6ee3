"""The doubling trick of DTTZ14 Algorithm 4, with a threshold that works.

The paper restarts when X > OPT_approx - 10 k sqrt(d) log^2(m/delta)/epsilon,
which with its own first guess is OPT_approx (1 - 10 epsilon): negative for
epsilon > 0.1, so that it restarts on every row. Here X is tested against
OPT_approx minus a quantile of the noise that X really contains, and the first
guess is doubled until that threshold is at least OPT_approx / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.privacy.budget import Budget
from streampca.privacy.gaussian import mu_of

#: Probability that X is above its noiseless value by more than the quantile at any release of an epoch.
FAILURE = 1e-3


@dataclass(frozen=True, eq=False)
class Doubling:
    """One epoch: its guess of OPT and its noise. An immutable value.

    Attributes
    ----------
    budget : what the user spends; no epoch spends more.
    n_components, n_features : k and d.
    rows : horizon m in rows.
    make : builds the matrix factorization of an epoch from its mu and its number of releases.
    epoch : number of the epoch, from 0.
    start_row : rows before it.
    leaves : releases that the epoch may have.
    opt_guess : guess of OPT.

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
        made = cls(budget, n_components, n_features, rows, make, 0, 0, leaves, scale / budget.epsilon**2)
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

    def passed(self, eigenvalues: FloatArray, leaf: int) -> bool:
        """True if the private estimate of the epoch's OPT passes the threshold."""
        return float(eigenvalues.sum()) > self.opt_guess - self.quantile(leaf)

    def restarted(self, row: int, leaves: int) -> Doubling:
        """The next epoch, with twice the guess, after ``row`` rows and with ``leaves`` releases to come."""
        return replace(self, epoch=self.epoch + 1, start_row=row, leaves=leaves, opt_guess=2.0 * self.opt_guess)

    def quantile(self, leaf: int) -> float:
        """K times a bound on the noise's largest eigenvalue, good for all releases of the epoch at once.

        E lambda_1(GOE) <= sqrt(2 d), and lambda_1 is 1-Lipschitz in svec coordinates.
        """
        deviation = math.sqrt(2.0 * self.n_features) + math.sqrt(2.0 * math.log(max(self.leaves, 1) / FAILURE))
        return self.n_components * self.mechanism.std(leaf) * deviation

    def snapshot(self) -> dict[str, Any]:
        """Scalars from which `restored` makes the same epoch."""
        return {"epoch": self.epoch, "start_row": self.start_row, "leaves": self.leaves, "opt_guess": self.opt_guess}

    def restored(self, snapshot: Mapping[str, Any]) -> Doubling:
        """The epoch of a snapshot, from the first epoch of the same run."""
        return replace(self, **{name: snapshot[name] for name in ("epoch", "start_row", "leaves", "opt_guess")})
