"""`PrivateFPL` with ``scaling="norm"``: noise for rows as long as most of them are, instead of rows of norm 1.

A stream has three kinds of epochs, of rows that no two of them share:

1. *Gauge.* Of the first ``12 / mu`` rows only the histogram of their norms is released, with the whole budget. The
   radius rho is the upper edge of its median (`mechanisms.norm_maps`).
2. *Clipped*, if rho < 0.9. Rows are divided by rho and clipped onto the unit ball; their Gram matrix is released with
   the share 1 - s of mu**2 and multiplied by rho**2. The Gram matrix of the rows as they are, the shadow, is released
   with the share s.
3. *Whole.* Rows as they are with the whole budget. It follows 1 if rho >= 0.9, and 2 as soon as the shadow shows that
   clipping hides a direction that matters; the last release of the shadow is then added to its releases.

*Proof.* Rows have public numbers, so the row that differs is in one epoch. Which epochs there are, and rho, are
functions of earlier releases, and the mechanism of an epoch has its guarantee given these. In 1 the row adds 1 to one
count, a zero row to none: the histogram moves by at most 1 (zero-out), or by sqrt(2) (replace, two counts), and has
noise of 1 / mu or sqrt(2) / mu. In 2 a row is clipped by itself, so both sums move by at most the norm of one outer
product, or sqrt(2) of it: they are matrix mechanisms of mu sqrt(1 - s) and mu sqrt(s) on the same rows, which may
depend on earlier releases of both. Side by side they are one matrix mechanism, whose columns have squared norms
``(1 - s) mu**2 + s mu**2`` (`matrix_factorization.base`). 3 is the mechanism without scaling. So all releases together
are mu-GDP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_share
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import mirror, svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization, RunningNoise
from streampca.mechanisms.norm_maps import BINS, CLEAR, GRID, Norms, energy_outside, norm_counts
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.processors.leader import PANEL_ENDS, Leader, LeaderProcessor
from streampca.release import Release, Terms

#: Rows of the gauge times mu, so that a count of a fifth of them stands out of its noise.
_GAUGED = 12.0
#: From this radius on rows are not clipped.
_WHOLE = 0.9


@dataclass(frozen=True, eq=False)
class NormScaling:
    """The public parameters of the epochs.

    Attributes
    ----------
    budget : of the whole stream.
    horizon, release_every : of the stream; None for an endless one.
    share : of mu**2, for the shadow.
    make : builds the matrix factorization of an epoch from its mu and its number of releases.
    """

    budget: Budget
    horizon: int | None
    release_every: int
    share: float
    make: Callable[[float, int | None], MatrixFactorization]

    def __post_init__(self) -> None:
        check_share("shadow", self.share)
        self.gauge_end(0)

    def gauge_end(self, warmup: int) -> int:
        """Rows after which the gauge ends, of which the first ``warmup`` do not count; fewer than the horizon."""
        end = warmup + math.ceil(_GAUGED / self.budget.mu)
        if self.horizon is not None and end >= self.horizon:
            raise BadParameterError(
                f"scaling='norm' measures norms on the first {end} rows, and horizon={self.horizon} leaves none after "
                "them; use scaling='none'"
            )
        return end

    @property
    def gauge_std(self) -> float:
        """Standard deviation of the noise in each count of the histogram of norms."""
        return self.budget.gram_sensitivity / self.budget.mu  # a row moves as many counts as outer products

    def _of_share(self, share: float) -> MatrixFactorization:
        every, horizon = self.release_every, self.horizon
        leaves = None if horizon is None else -(-horizon // every) - self.gauge_end(0) // every
        return self.make(self.budget.mu * math.sqrt(share), leaves)

    @cached_property
    def parts(self) -> dict[str, MatrixFactorization]:
        """What releases running sums, by the kind of its noise: of clipped rows, and of rows as they are.

        That is the shadow beside clipped rows, or a Gram matrix with the whole budget.
        """
        shares = {"clipped": 1.0 - self.share, "shadow": self.share, "gram": 1.0}
        return {kind: self._of_share(share) for kind, share in shares.items()}

    def constants(self) -> tuple[object, ...]:
        """Every number of the noise."""
        return (self.gauge_std, *(number for part in self.parts.values() for number in part.constants()))


class Shadow(NamedTuple):
    """The rows of the clipped epoch as they are: their exact Gram matrix, and the noise of its latest release."""

    gram: GramSum
    noise: RunningNoise


class ScaledFPLProcessor(LeaderProcessor):
    """State of a run.

    Attributes
    ----------
    rule : the epochs.
    gauge_end : rows after which the gauge ends.
    counts : exact histogram of norms, (BINS,), during the gauge.
    radius : rho; 1 where rows are not clipped, and during the gauge.
    noise : of the latest release of the epoch, of `gram`; none during the gauge.
    shadow : in the clipped epoch.
    past, variance : the shadow's last release, packed, and the variance of a diagonal entry of its noise, in a whole
        epoch after a clipped one; zero otherwise.
    """

    __slots__ = ("counts", "gauge_end", "noise", "past", "radius", "rule", "shadow", "variance")

    def __init__(
        self, rule: NormScaling, algorithm: Leader, n_features: int, source: NoiseSource, terms: Terms
    ) -> None:
        self.rule, self.gauge_end = rule, rule.gauge_end(terms.warmup)
        super().__init__(algorithm, n_features, source, terms)
        self.rows_until_release = self._due(0)
        self.counts, self.radius = np.zeros(BINS), 1.0
        self.noise: RunningNoise | None = None
        self.shadow: Shadow | None = None
        self.past: FloatArray | float = 0.0
        self.variance = 0.0

    def _due(self, t: int) -> int:
        """Rows until the next release: the first one comes after the gauge."""
        due = self.algorithm.due(max(t, self.gauge_end))
        return due + max(0, self.gauge_end - t)

    def after(self, t: int, chain: Chain, **changes: Any) -> ScaledFPLProcessor:
        """The processor after some rows: a copy with other values."""
        made = super().after(t, chain, **changes)
        made.rows_until_release = self._due(t)
        return made

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[ScaledFPLProcessor, Release | None]:
        """Count the norms of the rows of the gauge; add the others to the sums, and release these if that is due."""
        left = self.gauge_end - self.t
        if left > 0:
            made = self._gauged(rows[:left], outlet)
            return (made, None) if rows.shape[0] <= left else made.step(rows[left:], outlet)
        t = self.t + rows.shape[0]
        gram = self.gram.add(rows if self.radius == 1.0 else onto_ball(rows * (1.0 / self.radius)))
        shadow = None if self.shadow is None else self.shadow._replace(gram=self.shadow.gram.add(rows))
        made = self.after(t, self.chain, gram=gram, shadow=shadow)
        if t % self.algorithm.release_every and t != self.algorithm.horizon:
            return made, None
        return made.released(t, gram, outlet)

    def _gauged(self, rows: FloatArray, outlet: Outlet) -> ScaledFPLProcessor:
        """The processor after rows of the gauge."""
        rule, t, counts = self.rule, self.t + rows.shape[0], self.counts + norm_counts(rows)
        if t < self.gauge_end:
            return self.after(t, self.chain, counts=counts)
        noisy = outlet.gaussian("norms", counts, rule.gauge_std, GRID)
        norms = Norms.read(noisy, rule.gauge_std, t - self.terms.warmup)
        radius = 1.0 if norms is None or norms.median >= _WHOLE else norms.median
        size, clips = svec_size(self.n_features), radius < 1.0
        return self.after(
            t,
            outlet.chain,
            counts=np.zeros(BINS),
            radius=radius,
            noise=rule.parts["clipped" if clips else "gram"].start(size),
            shadow=Shadow(GramSum(self.n_features), rule.parts["shadow"].start(size)) if clips else None,
        )

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[ScaledFPLProcessor, Release]:
        """The processor after a release, and the release."""
        rule, shadow, k, noise = self.rule, self.shadow, self.n_components, self.noise
        assert noise is not None  # there are no releases before the gauge ends
        n, square = noise.n + 1, self.radius**2
        kind = self.kind_of_gram
        std = rule.parts[kind].std_chunks.at(n)
        noise, packed = outlet.running(kind, gram, noise, std)
        packed = packed * square + self.past
        std = math.sqrt((square * std) ** 2 + self.variance)
        details: dict[str, Any] = {"clip_radius": self.radius, "rows": t - self.gauge_end}
        changes: dict[str, Any] = {"noise": noise}
        if shadow is not None:
            shadow_std = rule.parts["shadow"].std_chunks.at(n)
            shadow_noise, seen = outlet.running("shadow", shadow.gram, shadow.noise, shadow_std)
            at = mirror(self.n_features).diagonal()
            details["lost_energy"] = float(seen[at].sum() - packed[at].sum())
            details["lost_energy_std"] = math.sqrt(self.n_features) * math.hypot(shadow_std, std)
            changes["shadow"] = Shadow(shadow.gram, shadow_noise)
            if n in PANEL_ENDS and hides_a_direction(packed, seen, k, shadow_std):
                packed, std = seen, shadow_std
                changes = {
                    "gram": GramSum(self.n_features), "noise": rule.parts["gram"].start(packed.size), "shadow": None,
                    "radius": 1.0, "past": seen, "variance": std**2,
                }  # fmt: skip
                details["clip_radius"] = 1.0
        release = Release(
            t=t, n_components=k, terms=self.terms, packed_gram=packed.copy(), noise_std=std, details=details
        )
        return self.after(t, outlet.chain, **changes), release

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in a release of this epoch after t rows."""
        made = 0 if self.noise is None else self.noise.n
        n = made + self._releases(t) - self._releases(self.t)
        std = self.rule.parts[self.kind_of_gram].std(max(1, n))
        return math.hypot(self.radius**2 * std, math.sqrt(self.variance))

    @property
    def kind_of_gram(self) -> str:
        """The kind of the noise of `gram`, after the gauge."""
        return "gram" if self.shadow is None else "clipped"

    def _releases(self, t: int) -> int:
        """Ends of leaves up to row t."""
        return self.algorithm.leaves(t) if t == self.algorithm.horizon else t // self.algorithm.release_every

    def regret_bound(self, t: int, opt: float) -> float | None:
        """None: nothing is proved of clipped rows."""
        return None

    def curator_gram(self) -> GramSum | None:
        """None: `gram` is of the epoch's clipped rows."""
        return None

    def snapshot(self) -> dict[str, Any]:
        """See `Processor.snapshot`."""
        shadow = self.shadow
        return {
            **super().snapshot(),
            "counts": self.counts,
            "radius": self.radius,
            "noise": None if self.noise is None else self.noise.snapshot(),
            "shadow": None if shadow is None else [shadow.gram.snapshot(), shadow.noise.snapshot()],
            "past": self.past,
            "variance": self.variance,
        }

    def restored(self, snapshot: Mapping[str, Any]) -> ScaledFPLProcessor:
        """See `Processor.restored`."""
        made, d, rule = super().restored(snapshot), self.n_features, self.rule
        made.counts, made.radius = np.asarray(snapshot["counts"]), float(snapshot["radius"])
        made.past, made.variance = snapshot["past"], float(snapshot["variance"])
        size, noise, shadow = svec_size(d), snapshot["noise"], snapshot["shadow"]
        if shadow is not None:
            seen = rule.parts["shadow"].restore(size, shadow[1], self.source)
            made.shadow = Shadow(GramSum.restored(d, shadow[0]), seen)
        if noise is not None:
            made.noise = rule.parts[made.kind_of_gram].restore(size, noise, self.source)
        return made


def hides_a_direction(clipped: FloatArray, whole: FloatArray, k: int, std: float) -> bool:
    """Whether the Gram matrix of the rows as they are shows a direction that belongs to the subspace of k directions.

    That is one with energy outside the top k directions of the other matrix, clearly more than there is in that
    matrix, and than in the weakest of the k directions. Of released matrices: post-processing.

    Parameters
    ----------
    clipped, whole : packed matrices, of clipped rows and of the rows as they are.
    k : dimension of the subspace.
    std : standard deviation of a diagonal entry of the noise in ``whole``.
    """
    d = math.isqrt(8 * whole.size + 1) // 2
    found, expected, least = energy_outside(unpack_entries(clipped, d), unpack_entries(whole, d), k)
    return found - CLEAR * std * math.sqrt(0.5 * d) > max(expected, least)
