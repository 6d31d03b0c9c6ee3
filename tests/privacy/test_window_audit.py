"""Can anyone tell neighbours apart beyond mu, from everything that SlidingWindowPCA releases?

Transcripts are all released matrices and, for the histogram, all sets of checkpoints, of a short stream with one row or
without it. Two attackers: a linear one, trained on half of the transcripts and tried on the other half, and one who
counts how often each set of checkpoints comes up. Both are tried on a planted bug as well: deletion decided by exact
matrices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import beta

from streampca.linalg.lattice import GramInParts
from streampca.linalg.svec import svec
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.spectral_histogram import HistogramMethod, HistogramProcessor, SpectralHistogram

pytestmark = pytest.mark.ci

MU, EPSILON = 1.5, 2.0
RUNS, T, W, AT, D = 600, 8, 4, 4, 2
ROW, OTHER = np.array([0.0, 1.0]), np.array([1.0, 0.0])
# The test alarms at 4 standard errors of the separation, sqrt(2/300) each: rate 3e-5 a test.
SLACK = 4.0 * np.sqrt(2.0 / (RUNS / 2))


@pytest.fixture(autouse=True)
def half_a_unit_of_slack(monkeypatch):
    """Privacy rests on no slack: this one makes the kept checkpoints vary most."""
    monkeypatch.setattr(HistogramMethod, "slack", lambda self, n_features, rows: 0.5)


def make(method, adjacency="zero-out"):
    given = {"overhang": 1.0, "eta": 0.9} if method == "histogram" else {}
    budget = {"epsilon": EPSILON, "delta": delta_at(MU, EPSILON), "adjacency": adjacency}
    return SlidingWindowPCA(window=W, n_components=1, method=method, **budget, **given)


def transcripts(method, having, seeds, adjacency="zero-out", stretch=1.0):
    """All releases of many runs, (runs, numbers), and all sets of checkpoints, as text."""
    x = np.tile([0.5, 0.0], (T, 1))
    x[AT] = ROW * stretch if having else (np.zeros(D) if adjacency == "zero-out" else OTHER)
    numbers, sets = [], []
    for seed in seeds:
        processor = make(method, adjacency).start(D, Randomness.from_seed(seed))
        seen, marks = [], []
        for start in range(T):
            processor, release = processor.absorb(x[start : start + 1])
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
    [(method, "zero-out") for method in ("histogram", "ring", "forgetting")] + [("histogram", "replace")],
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


class ExactDeletion(HistogramProcessor):
    """Planted bug: checkpoints are kept or deleted by comparing exact matrices, as the paper does."""

    __slots__ = ("exact",)

    def begin(self):
        super().begin()
        self.exact = SpectralHistogram.first(replace(self.histogram.rules, slack=lambda rows: 1e-9))

    def close(self, outlet):
        self.exact = self.exact.advanced(self.t, self.gram.parts).marked(self.t)
        return super().close(outlet)

    @property
    def checkpoints(self):
        return self.exact.starts


def test_deletion_by_exact_matrices_is_caught(monkeypatch):
    monkeypatch.setattr(HistogramMethod, "processor", ExactDeletion)
    _, kept = transcripts("histogram", True, range(200))
    _, kept_without = transcripts("histogram", False, range(200, 400))
    assert event_mu(kept, kept_without) > 1.5 * MU


def test_deletion_by_private_matrices_leaks_nothing_new(monkeypatch):
    """The kept checkpoints are a function of the private running sums: the same from sums alone."""
    sums, noisy = [], GramInParts.noisy

    def recorded(self, noise, std):
        sums.append(noisy(self, noise, std))
        return sums[-1]

    monkeypatch.setattr(GramInParts, "noisy", recorded)
    processor = make("histogram").start(D, Randomness.from_seed(1))
    replay = SpectralHistogram.first(make("histogram").followed.rules(D))
    for t in range(1, T + 1):
        processor, _ = processor.absorb(np.array([[0.5, 0.0]]))
        assert len(sums) == t
        replay = replay.advanced(t, sums[-1]).marked(t)
        assert replay.starts == processor.checkpoints
