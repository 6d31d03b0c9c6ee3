"""What is measured of a run in a scenario. Curator only: exact functions of raw rows.

===================  =====================================================================
measure              after the rows seen so far
===================  =====================================================================
regret_per_row       (OPT - reward) / rows, in units of row_norm**2
relative_regret      (OPT - reward) / OPT
bound_per_row        the bound on the expected regret / rows
regret_over_bound    regret / bound
captured_variance    share of OPT that the subspace in play captures of all rows seen
recent_captured      the same for the rows since the last point of measurement only
reward_per_row       reward / rows
recent_reward        reward per row since the last point of measurement
spectral_error       ||released gram - exact gram||_2, if a release was just made
spectral_error_rel   the same over the largest eigenvalue of the exact Gram matrix
noise_std            sd of a diagonal entry of the noise in the last release
subspace_error       sine of the largest angle to the true subspace of a synthetic source
releases             releases made
bad_rows             rows absorbed as zero rows
seconds              wall time spent in the stream (not reproducible: never expect it)
===================  =====================================================================

A measure that does not apply to a run is left out.
"""

from __future__ import annotations

import time

import numpy as np

from streampca.linalg.eigen import top_sum
from streampca.linalg.types import FloatArray
from streampca.release import Subspace
from streampca.rows import RowSource
from streampca.sources.synthetic import Synthetic
from streampca.stream import Stream


class Meter:
    """Pushes rows into a stream and measures what comes of it."""

    def __init__(self, stream: Stream, source: RowSource) -> None:
        stream.adopt(source)
        self._stream = stream
        self._source = source
        self._releases = 0
        self._seconds = 0.0
        self._gram: FloatArray | None = None
        self._reward, self._t = 0.0, 0

    def push(self, block: FloatArray) -> None:
        """Push a block of rows."""
        started = time.perf_counter()
        self._releases += len(self._stream.push_many(block).releases)
        self._seconds += time.perf_counter() - started

    def measure(self) -> dict[str, float]:
        """All measures that apply, at this moment."""
        stream, record = self._stream, self._stream.regret.now()
        gram = stream.regret.exact_gram()
        recent = gram if self._gram is None else gram - self._gram
        best = top_sum(recent, stream.algorithm.n_components)
        values = {
            "regret_per_row": record.regret / record.t,
            "relative_regret": record.regret / record.opt if record.opt > 0.0 else 0.0,
            "bound_per_row": record.bound / record.t,
            "regret_over_bound": record.regret / record.bound,
            "captured_variance": record.captured,
            "recent_captured": stream.subspace.captured(recent) / best if best > 0.0 else 1.0,
            "reward_per_row": record.reward / record.t,
            "recent_reward": (record.reward - self._reward) / (record.t - self._t),
            "releases": float(self._releases),
            "bad_rows": float(stream.bad_rows),
            "seconds": self._seconds,
        }
        self._gram, self._reward, self._t = gram, record.reward, record.t
        values |= self._of_release(gram)
        if isinstance(self._source, Synthetic):
            truth = Subspace(self._source.truth_at(stream.t))
            values["subspace_error"] = float(np.sin(stream.subspace.angles(truth)[-1]))
        return {name: value for name, value in values.items() if not np.isnan(value)}

    def _of_release(self, gram: FloatArray) -> dict[str, float]:
        release = self._stream.release
        if release is None:
            return {}
        values = {} if release.noise_std is None else {"noise_std": release.noise_std}
        if release.has_gram and release.t == self._stream.t:
            square = self._stream.row_norm**2
            error = float(np.abs(np.linalg.eigvalsh(release.gram - gram * square)).max())
            values["spectral_error"] = error
            values["spectral_error_rel"] = error / (top_sum(gram, 1) * square)
        return values
