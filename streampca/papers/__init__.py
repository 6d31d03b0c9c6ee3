"""Algorithms of the literature that another algorithm of the library dominates. Tested and audited, for comparison.

- `DoublingFPL`: the doubling trick of DTTZ14, Algorithm 4. `PrivateFPL` has less noise, and a proved regret bound.
- `PerturbedLeader` follows the leader with fresh noise: the online learner of DTTZ14, Algorithm 3. Not private.
- `LaplaceCovariance`: independent Laplace noise on entries (JXZ16, Algorithm 1). `MatrixLaplaceCovariance` has about
  0.85 sqrt(d) times less noise at the same epsilon.
- `WishartCovariance`: positive semidefinite noise (JXZ16, Algorithm 2, with the delta that it has). It loses 1.9 times
  as much variance as `GaussianCovariance` (geometric mean over twelve tables).
- `SubspacePerturbation`: noise on the projector where the gap is wide (DTTZ14, Algorithm 2, mended). It loses 1.08
  times as much variance as `GaussianCovariance`.
- `ApproximateSubspace`: a vote of blocks for a cell of subspaces (SS21, Algorithm 2). It needs many rows that lie
  close to one subspace, of which `AdaptiveCovariance` captures more.
"""

from streampca.papers.approximate_subspace import ApproximateSubspace
from streampca.papers.covariance import LaplaceCovariance, WishartCovariance
from streampca.papers.doubling import DoublingFPL
from streampca.papers.perturbed_leader import PerturbedLeader
from streampca.papers.subspace_perturbation import SubspacePerturbation

__all__ = [
    "ApproximateSubspace", "DoublingFPL", "LaplaceCovariance", "PerturbedLeader", "SubspacePerturbation",
    "WishartCovariance",
]  # fmt: skip
