"""Subspace perturbation as printed (Dwork, Talwar, Thakurta and Zhang 2014, Algorithm 2). Not private."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streampca.linalg.counts import check_components
from streampca.linalg.eigen import top_eigh
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.release import Release, Terms


@dataclass(frozen=True, kw_only=True)
class PrintedSubspacePerturbation(Mechanism):
    """Noise on the projector with no refusal: claims (2 epsilon, 2 delta), has no guarantee.

    The sd ``D / (d_hat - 2 (1 + ln(1/delta) / epsilon))`` with ``D = (1 +
    sqrt(2 ln(1/delta))) / epsilon`` is used whatever its sign: it is squared. A
    small gap makes it small and negative, where it should be infinite. So one
    row that swaps the two largest eigenvalues is told with near certainty.
    Use `SubspacePerturbation`.

    Parameters
    ----------
    n_components : dimension of the released subspace.
    epsilon, delta : parameters of the paper, which claims twice as much.
    """

    n_components: int
    epsilon: float
    delta: float
    n_features: int | None = None

    def __post_init__(self) -> None:
        check_components(self.n_components, self.n_features)
        _ = Budget(self.epsilon, self.delta).mu

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none(
            "a small eigengap is not refused: it makes the noise scale negative, and the sign is squared away",
            "Dwork, Talwar, Thakurta, Zhang, STOC 2014, Algorithm 2 and Theorem 11",
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        """None: its noise depends on the rows."""
        return ()

    def _release(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        d, k = rows.shape[1], self.n_components
        gram = GramSum.of(rows)
        values, basis = top_eigh(unpack_entries(gram.packed(), d), min(k + 1, d))
        following = values[k] if k < d else 0.0
        gap = values[k - 1] - following + 2.0 / self.epsilon * outlet.hide("gap", *gram.hidden).laplace(1)[0]
        log = math.log(1.0 / self.delta)
        sd = (1.0 + math.sqrt(2.0 * log)) / self.epsilon / (gap - 2.0 * (1.0 + log / self.epsilon))
        noise = unpack_entries(sd * outlet.hide("projector", *gram.hidden).normal(svec_size(d)), d)
        top = basis[:, :k]
        return Release(t=t, n_components=k, terms=terms, basis=top_eigh(top @ top.T + noise, k)[1])
