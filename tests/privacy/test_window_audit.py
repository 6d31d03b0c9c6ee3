"""Can anyone tell neighbours apart beyond mu, from everything that SlidingWindowPCA releases?

Transcripts are all released matrices and, for the histogram, all sets of checkpoints, of a short stream with one row
or without it. Two attackers: a linear one, trained on half of the transcripts and tried on the
other half, and one who counts how often each set of checkpoints comes up. Both are
tried on a planted bug as well: deletion decided by exact matrices.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta

from streampca.linalg.psd import loewner_below
from streampca.linalg.svec import svec, unpack_entries
from streampca.linalg.words import copy, difference
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness
from streampca.processors import sliding_window
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.processors.window_histogram import HistogramEngine

MU, EPSILON = 1.5, 2.0
RUNS, T, W, AT, D = 600, 8, 4, 4, 2
ROW, OTHER = np.array([0.0, 1.0]), np.array([1.0, 0.0])
# The test alarms at 4 standard errors of the separation, sqrt(2/300) each: rate 3e-5 a test.
SLACK = 4.0 * np.sqrt(2.0 / (RUNS / 2))


def make(method, adjacency="zero-out"):
    given = {"overhang": 1.0, "eta": 0.9} if method == "histogram" else {}
    if method == "once":
        given = {"horizon": T}
    return SlidingWindowPCA(
        window=W,
        n_components=1,
        epsilon=EPSILON,
        delta=delta_at(MU, EPSILON),
        method=method,
        adjacency=adjacency,
        **given,
    )


def transcripts(method, having, seeds, adjacency="zero-out", stretch=1.0):
    """All releases of many runs, (runs, numbers), and all sets of checkpoints, as text."""
    x = np.tile([0.5, 0.0], (T, 1))
    x[AT] = ROW * stretch if having else (np.zeros(D) if adjacency == "zero-out" else OTHER)
    numbers, sets = [], []
    for seed in seeds:
        processor = make(method, adjacency)
        processor.bind(D, Randomness.from_seed(seed))
        if method == "histogram":  # privacy rests on no slack: this one makes the kept checkpoints vary most
            processor._engine.histogram._slack = lambda rows: 0.5
        seen, marks = [], []
        for start in range(T):
            if method == "once" and start:
                break
            release = processor.absorb(x if method == "once" else x[start : start + 1])
            seen.append(svec(release.gram))
            marks.append(processor.checkpoints if method == "histogram" else ())
        numbers.append(np.concatenate(seen))
        sets.append(str(marks))
    return np.array(numbers), np.array(sets)


def separation(yes, no):
    """d' of a linear test trained on the first halves and tried on the second."""
    half = len(yes) // 2
    pooled = np.vstack([yes[:half] - yes[:half].mean(axis=0), no[:half] - no[:half].mean(axis=0)])
    covariance = pooled.T @ pooled / len(pooled)
    direction = np.linalg.lstsq(covariance, yes[:half].mean(axis=0) - no[:half].mean(axis=0), rcond=1e-9)[0]
    a, b = yes[half:] @ direction, no[half:] @ direction
    return float((a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2.0))


def event_mu(yes, no, alpha=1e-4):
    """Lower bound on mu from which checkpoints were kept: events picked on the first halves, counted on the second."""
    half = len(yes) // 2
    kinds = sorted(set(yes[:half]) | set(no[:half]))
    likely = [k for k in kinds if np.sum(yes[:half] == k) > np.sum(no[:half] == k)]
    hits, alarms = np.isin(yes[half:], likely).sum(), np.isin(no[half:], likely).sum()
    n = len(yes) - half
    low = beta.ppf(alpha, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(1.0 - alpha, alarms + 1, n - alarms) if alarms < n else 1.0
    return float(ndtri(low) - ndtri(high)) if low > 0.0 and high < 1.0 else 0.0


@pytest.mark.parametrize(
    ("method", "adjacency"),
    [(method, "zero-out") for method in ("histogram", "ring", "forgetting", "once")] + [("histogram", "replace")],
)
def test_no_more_can_be_told_than_is_claimed(method, adjacency):
    yes, kept = transcripts(method, True, range(RUNS), adjacency)
    no, kept_without = transcripts(method, False, range(RUNS, 2 * RUNS), adjacency)
    assert separation(yes, no) < MU + SLACK
    assert separation(yes, no) > 0.6 * MU  # the attack is a real one
    if method == "histogram":
        assert len(set(kept)) > 5  # the sets do vary
        assert event_mu(kept, kept_without) < MU


@pytest.mark.parametrize("method", ["histogram", "ring"])
def test_a_row_of_norm_two_is_caught(method):
    """Planted bug: a row that escaped clipping moves the Gram matrix by 4."""
    monkey = pytest.MonkeyPatch()
    monkey.setattr("streampca.processors.base.is_admitted", lambda rows: True)
    with monkey.context():
        yes, _ = transcripts(method, True, range(RUNS // 2), stretch=2.0)
        no, _ = transcripts(method, False, range(RUNS, RUNS + RUNS // 2))
    monkey.undo()
    assert separation(yes, no) > MU + SLACK


class ExactDeletion(SpectralHistogram):
    """Planted bug: checkpoints are kept or deleted by comparing exact matrices, as the paper does."""

    engine: HistogramEngine

    def mark(self, t):
        if not hasattr(self, "exact"):
            self.exact = {1: (0 * self.engine.gram.words()[0], 0 * self.engine.gram.words()[1])}
        self.exact[t + 1] = copy(self.engine.gram.words())
        super().mark(t)

    def _is_close(self, i, first):
        now = self.engine.gram.words()
        a, b = (unpack_entries(difference(now, self.exact[self.starts[j]]), D) for j in (i, i + 2))
        return loewner_below(self._keep * a, b, 1e-9)


class LeakyEngine(HistogramEngine):
    def __init__(self, *given):
        super().__init__(*given)
        self.histogram.engine = self


def test_deletion_by_exact_matrices_is_caught(monkeypatch):
    monkeypatch.setattr(sliding_window, "SpectralHistogram", ExactDeletion)
    monkeypatch.setattr(sliding_window, "HistogramEngine", LeakyEngine)
    _, kept = transcripts("histogram", True, range(200))
    _, kept_without = transcripts("histogram", False, range(200, 400))
    assert event_mu(kept, kept_without) > 1.5 * MU


def test_deletion_by_private_matrices_leaks_nothing_new():
    """The kept checkpoints are a function of the private running sums: the same from sums alone."""
    processor = make("histogram")
    processor.bind(D, Randomness.from_seed(1))
    engine = processor._engine
    sums, plain = [], engine._private_sum

    def recorded():
        sums.append(plain())
        return sums[-1]

    engine._private_sum = recorded
    kept = []
    for _ in range(T):
        processor.absorb(np.array([[0.5, 0.0]]))
        kept.append(processor.checkpoints)
    replay = make("histogram")._histogram(D)
    for t, words in enumerate(sums, start=1):
        replay.advance(t, words)
        replay.mark(t)
        assert tuple(replay.starts) == kept[t - 1]
