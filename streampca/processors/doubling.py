"""The doubling trick of DTTZ14 Algorithm 4, with a threshold that works.

The paper restarts when X > OPT_approx - 10 k sqrt(d) log^2(m/delta)/epsilon,
which with its own first guess is OPT_approx (1 - 10 epsilon): negative for
epsilon > 0.1, so that it restarts on every row. Here X is tested against
OPT_approx minus a quantile of the noise that X really contains, and the first
guess is doubled until that threshold is at least OPT_approx / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import PrefixSum
from streampca.privacy.budget import Budget
from streampca.privacy.gaussian import mu_of

#: Probability that X is above its noiseless value by more than the quantile at any release of an epoch.
FAILURE = 1e-3


class Doubling:
    """Guesses of OPT, the noise of each, and when to double.

    Parameters
    ----------
    budget : what the user spends; no epoch spends more.
    n_components, n_features : k and d.
    rows : horizon m in rows.
    leaves : releases until the horizon.
    make : builds the prefix-sum mechanism of an epoch from its mu and its number of releases.

    Notes
    -----
    Epoch e runs at epsilon_e = min(epsilon, sqrt(k sqrt(d) log^2(m/delta) / OPT_e)),
    the paper's choice. X, the sum of the top k eigenvalues of the released
    matrix of the epoch, is post-processing, and so is every restart.
    """

    def __init__(
        self,
        budget: Budget,
        n_components: int,
        n_features: int,
        rows: int,
        leaves: int,
        make: Callable[[float, int], PrefixSum],
    ) -> None:
        self._budget = budget
        self._k, self._d = n_components, n_features
        self._scale = n_components * math.sqrt(n_features) * math.log(rows / budget.delta) ** 2
        self._make = make
        self.epoch = 0
        self.start_row = 0
        self._leaves = leaves
        self.opt_guess = self._scale / budget.epsilon**2
        self.mechanism = self._calibrated()
        while self.opt_guess < 2.0 * self._quantile(leaves):
            self.opt_guess *= 2.0
            self.mechanism = self._calibrated()

    @property
    def mu(self) -> float:
        """Gaussian-DP parameter of this epoch."""
        epsilon = min(self._budget.epsilon, math.sqrt(self._scale / self.opt_guess))
        return mu_of(epsilon, self._budget.delta)

    def passed(self, eigenvalues: FloatArray | None, leaf: int) -> bool:
        """True if the private estimate of the epoch's OPT passes the threshold."""
        assert eigenvalues is not None
        return float(eigenvalues.sum()) > self.opt_guess - self._quantile(leaf)

    def restart(self, row: int, leaves: int) -> None:
        """Double the guess and start an epoch after ``row`` rows, with ``leaves`` releases to come."""
        self.epoch += 1
        self.start_row = row
        self._leaves = leaves
        self.opt_guess *= 2.0
        self.mechanism = self._calibrated()

    def _calibrated(self) -> PrefixSum:
        return self._make(self.mu, self._leaves)

    def _quantile(self, leaf: int) -> float:
        """K times a bound on the noise's largest eigenvalue, good for all releases of the epoch at once.

        E lambda_1(GOE) <= sqrt(2 d), and lambda_1 is 1-Lipschitz in svec coordinates.
        """
        deviation = math.sqrt(2.0 * self._d) + math.sqrt(2.0 * math.log(max(self._leaves, 1) / FAILURE))
        return self._k * self.mechanism.std(leaf) * deviation

    def state(self) -> dict[str, Any]:
        """Scalars from which `restore` continues."""
        return {"epoch": self.epoch, "start_row": self.start_row, "leaves": self._leaves, "opt_guess": self.opt_guess}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.epoch, self.start_row = state["epoch"], state["start_row"]
        self._leaves, self.opt_guess = state["leaves"], state["opt_guess"]
        self.mechanism = self._calibrated()
