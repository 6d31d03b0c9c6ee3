"""Number of leading components of a released matrix that stand out from the noise of privacy.

Let ``Y = G + N`` be released, G positive semidefinite of rank rho, N noise of a stated law, and v_1, ..., v_k the
released components. Let q_m(alpha) be the upper quantile of the largest eigenvalue of N on a fixed space of dimension
m. Component i stands out if all before it do, its direction has an estimated cos**2 above 1/2, and

    the least eigenvalue of Y compressed to span(v_1, ..., v_i)  >  q_{d-i+1}(alpha).

r is the number of components that stand out. For eigenvectors of Y, the least eigenvalue is w_i.

*Theorem.* If the rows do not depend on releases, ``P(r > rho) <= alpha``.

*Proof.* r > rho needs step rho + 1 to pass. Let U be the orthogonal complement of the range of G, of dimension d -
rho. By Cauchy's interlacing, the compressed least eigenvalue of step rho + 1 is at most w_{rho+1}(Y), whatever v is.
By Courant and Fischer, w_{rho+1}(Y) is at most the maximum of x^T Y x = x^T N x over unit vectors x of U, which is the
largest eigenvalue of N on U. U is fixed, so that it exceeds q_{d-rho}(alpha) with probability at most alpha. The steps
have a fixed order, so that alpha is not divided; the condition on cos**2 only lowers r.

*Centered releases.* The longer rows (a, c) have a Gram matrix Y of side d + 1 with the same noise. Component i stands
out if the least eigenvalue of Y compressed to span(v_1, ..., v_i, e_last) exceeds q_{d-i+1}(alpha). If the rows that
are present span rho dimensions about their mean, the longer Gram matrix has rank rho + 1 (0 without rows). At step rho
+ 1 the compressed eigenvalue is at most w_{rho+2}(Y), at most the largest eigenvalue of the noise on d - rho
dimensions. The private mean and count do not enter: the theorem is exact, whatever rows are absent.

*Chosen rows.* If rows depend on earlier releases, U is not fixed. By Weyl's inequality each step compares with at most
the largest eigenvalue of the noise on all dimensions, the quantile of every step where ``adaptive``.

*Several looks.* Over m releases that are chosen before the run, ``P(r > rho at one of them) <= m alpha``.

The theorem is about the noise of privacy. It says nothing about the sampling of rows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.release.estimates import goe_quantile

Kind = Literal["gaussian", "laplace", "matrix-laplace", "wishart", "mean"]

#: Error rates: of one release, and of each of the `LOOKS` releases of a run at which components are marked.
ONE, IN_RUN, LOOKS = 0.05, 0.001, 50
#: Simulated matrices of a law, and the largest number of features of which it is simulated.
_RUNS, _LARGEST = 4000, 128
#: Eigenvalues below this share of the largest one are rounding.
_ROUNDING = 1e-12


class NoiseLaw(NamedTuple):
    """Law of the noise N of released matrices, for rows of norm at most 1."""

    #: ``"gaussian"`` (svec-GOE), ``"laplace"`` (independent entries of the upper triangle), ``"matrix-laplace"`` (the
    #: difference of two Wishart matrices of d + 1 degrees), ``"wishart"``, or ``"mean"``: of two Gaussian ones with
    #: weights, each of at most ``scale``.
    kind: Kind
    #: Standard deviation of a diagonal entry of Gaussian noise; of others, the factor of a standard matrix. None if it
    #: is stated by each release.
    scale: float | None = None
    degrees: int = 0  #: degrees of freedom of Wishart noise

    @classmethod
    def read(cls, kind: Any, scale: Any, degrees: Any) -> NoiseLaw:
        """Read a law among the values of a file. Raises `ValueError` if it is none."""
        is_scale = scale is None or 0.0 < float(scale) < math.inf
        if kind not in get_args(Kind) or not is_scale or not 0 <= int(degrees) < 2**20:
            raise ValueError("noise: expected the law of the noise.")
        return cls(kind, None if scale is None else float(scale), int(degrees))

    def std(self, n_features: int) -> float:
        """Return the standard deviation of an entry off the diagonal, times sqrt(2)."""
        factors = {"laplace": 2.0, "matrix-laplace": 2.0 * math.sqrt(n_features + 1.0)}
        return (self.scale or 0.0) * factors.get(self.kind, math.sqrt(2.0 * self.degrees) if self.degrees else 1.0)

    def quantile(self, size: int, n_features: int, tail: float) -> float:
        """Return an upper quantile of the largest eigenvalue on a fixed space of dimension ``size``."""
        # Gaussian noise has closed tables (`goe_quantile`). Other laws are simulated on all dimensions, an upper bound.
        # Wishart noise includes its mean. inf if the quantile is beyond the simulated values.
        if self.kind in ("gaussian", "mean"):
            # A mean exceeds a level only if one of the two does.
            return (self.scale or 0.0) * goe_quantile(size, tail if self.kind == "gaussian" else 0.5 * tail)
        # A new value exceeds the p-th largest of n with probability p / (n + 1).
        place = math.floor(tail * (_RUNS + 1))
        if not place or n_features > _LARGEST:
            return math.inf
        return (self.scale or 0.0) * float(_largest(self.kind, self.degrees, n_features)[-place])


@lru_cache(maxsize=32)
def _largest(kind: str, degrees: int, d: int) -> FloatArray:
    """Return ascending largest eigenvalues of simulated noise of scale 1, (runs,)."""
    # A fixed seed: the same release has the same marks in every process.
    source, found = np.random.default_rng([1609, degrees, d]), []
    for _ in range(40):
        if kind == "laplace":
            noise = np.triu(source.laplace(size=(_RUNS // 40, d, d)))
            noise += np.swapaxes(np.triu(noise, 1), 1, 2)
        else:
            noise = np.zeros((_RUNS // 40, d, d))
            for sign in (1.0, -1.0) if kind == "matrix-laplace" else (1.0,):
                wide = source.standard_normal((_RUNS // 40, d, degrees or d + 1))
                noise += sign * (wide @ np.swapaxes(wide, 1, 2))
        found.append(np.linalg.eigvalsh(noise)[:, -1])
    return np.sort(np.concatenate(found))


def leading(
    matrix: FloatArray, basis: FloatArray, quality: FloatArray, law: NoiseLaw, alpha: float, *, adaptive: bool = False
) -> int:
    """Return the number r of leading components that stand out from the noise, as the module states."""
    # ``matrix`` has side d, or d + 1 for a centered release; ``quality``, (k,), are estimated cos**2 of the angles of
    # the components in ``basis`` to the exact ones.
    d, k = int(basis.shape[0]), int(basis.shape[1])
    joint = len(matrix) - d  # 1 with the constant of centered rows, which comes first here
    axes = np.zeros((len(matrix), joint + k))
    axes[d:, :joint], axes[:d, joint:] = 1.0, basis
    inner: FloatArray = axes.T @ matrix @ axes
    rounding = _ROUNDING * float(np.abs(inner).max(initial=0.0))
    for i in range(1, k + 1):
        level = law.quantile(len(matrix) if adaptive else d - i + 1, len(matrix), alpha)
        if quality[i - 1] <= 0.5 or not np.linalg.eigvalsh(inner[: joint + i, : joint + i])[0] > max(level, rounding):
            return i - 1
    return k
