"""Planted bugs: mistakes that privacy code has really been shipped with, each of which an audit must catch.

A bug is a context in which part of streampca is wrong. Calibration happens in
`Case.build`, so that is called inside the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca import admission
from streampca.linalg.types import FloatArray
from streampca.mechanisms import base as mechanisms_base
from streampca.mechanisms import histogram
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
from streampca.mechanisms.truncated_laplace import TruncatedLaplace
from streampca.prefix_sums.blt import GeometricBLT
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.budget import GRAM_SENSITIVITY
from streampca.privacy.discrete_gaussian import DiscreteGaussian
from streampca.privacy.randomness import NoiseStream
from streampca.processors import base as processors_base
from streampca.processors import private_fpl
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.rewards import RewardSum
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.processors.window_histogram import HistogramEngine
from streampca.users import UserStream


@dataclass(frozen=True)
class Bug:
    """A mistake, and the case of `streampca.auditing.cases` that shows it.

    Attributes
    ----------
    name : what is wrong.
    case : name of the case.
    plant : context manager in which it is wrong.
    """

    name: str
    case: str
    plant: Callable[[], AbstractContextManager[None]]


BUGS: list[Bug] = []


def bug(name: str, *cases: str) -> Callable[[Callable[[], Iterator[None]]], Any]:
    """Register a generator that plants a bug, for each of these cases."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        made = contextmanager(plant)
        BUGS.extend(Bug(name, one, made) for one in cases)
        return made

    return register


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute (or an item of a dict) for a while."""
    if isinstance(owner, dict):
        before, owner[name] = owner[name], value
    else:
        before = owner.__dict__[name]
        setattr(owner, name, value)
    try:
        yield
    finally:
        if isinstance(owner, dict):
            owner[name] = before
        else:
            setattr(owner, name, before)


@contextmanager
def half_noise() -> Iterator[None]:
    """All noise at half its size. Fits every case that draws normals, Laplace variables or discrete Gaussians."""
    normal, laplace, discrete = NoiseStream.normal, NoiseStream.laplace, DiscreteGaussian.draw

    def halved(self: NoiseStream, index: int, count: int, out: FloatArray | None = None) -> FloatArray:
        drawn = normal(self, index, count, out)
        drawn *= 0.5
        return drawn

    with (
        swapped(DiscreteGaussian, "draw", lambda self, *where: discrete(self, *where) // 2),
        swapped(NoiseStream, "normal", halved),
        swapped(NoiseStream, "laplace", lambda self, index, count: 0.5 * laplace(self, index, count)),
    ):
        yield


#: Cases that stay within their claim even at half the noise, and why.
SLACK_UNDER_HALF_NOISE = {
    "PrivateFPL-endless": "its noise covers 2**32 rows, of which an audit sees a few",
    "PrivateFPL-doubling": "it spends far less than its budget in the first epoch",
    "PrivateOja": "of its noisy sums, only bases and eigenvalues are seen; see PrivateOja-transcript",
    "ExactSubspace": "its noise comes from `TruncatedLaplace`",
    "ExactSubspace-lone-row": "it never shows anything",
    "ApproximateSubspace": "the claim is about delta; see the bug without a threshold",
    "DPPCA": "of its private values, only bases and eigenvalues are seen; each is audited in tests/processors",
    "StabilityHistogram-lone-vote": "the claim is about delta; see the bug 'threshold too low'",
}


@bug("sensitivity of zero-out under replace", "PrivateFPL-replace", "GaussianCovariance-replace")
def _sensitivity() -> Iterator[None]:
    with swapped(GRAM_SENSITIVITY, "replace", 1.0):
        yield


@bug("sensitivity of a single entry for all of them", "LaplaceCovariance")
def _single_entry() -> Iterator[None]:
    with swapped(LaplaceCovariance, "sensitivity", lambda self, n_features: 0.5):
        yield


@bug("tree one level too shallow", "PrivateFPL-tree", "PrivateFPL-exact")
def _depth() -> Iterator[None]:
    def shallow(self: BinaryTree) -> float:
        return float(np.sqrt(self.levels - 1)) * self.sensitivity / self.mu

    with swapped(BinaryTree, "node_std", property(shallow)):
        yield


@bug("column norms forgotten", "GeometricBLT")
def _columns() -> Iterator[None]:
    with swapped(GeometricBLT, "scales", lambda self, first, last: np.ones(last - first + 1)):
        yield


@bug("rows not clipped", "PrivateFPL-long-row")
def _unclipped() -> Iterator[None]:
    with swapped(admission, "onto_ball", _as_it_is), swapped(processors_base, "is_admitted", lambda rows: True):
        yield


@bug("rows not clipped", "GaussianCovariance-long-row")
def _unclipped_mechanism() -> Iterator[None]:
    with swapped(mechanisms_base, "onto_ball", _as_it_is):
        yield


@bug("the same noise at every step", "PrivateFPL", "PrivateFPL-tree", "PrivateFPL-haar", "PrivateFPL-exact")
def _reused() -> Iterator[None]:
    seek = NoiseStream._seek
    with swapped(NoiseStream, "_seek", lambda self, index, place=0: seek(self, 0, place)):
        yield


@bug("one key for all streams", "PrivateFPL")
def _known_key() -> Iterator[None]:
    # Noise that an attacker can subtract: the same in every run.
    init = NoiseStream.__init__
    with swapped(NoiseStream, "__init__", lambda self, key: init(self, bytes(32))):
        yield


@bug("published rewards", "PrivateFPL")
def _rewards() -> Iterator[None]:
    absorb = PrivateFPL._absorb

    def telling(self: PrivateFPL, rows: FloatArray) -> Any:
        release = absorb(self, rows)
        if release is not None:
            release.details["reward"] = float((rows[:, 0] ** 2).sum())
        return release

    with swapped(PrivateFPL, "_absorb", telling):
        yield


@bug("rewards with no noise of their own", "PrivateFPL-regret")
def _bare_rewards() -> Iterator[None]:
    noisy = RewardSum.noisy
    with swapped(RewardSum, "noisy", lambda self, noise, std, n: noisy(self, 0.0, std, n)):
        yield


@bug("gap measured without noise", "SubspacePerturbation-gram")
def _exact_gap() -> Iterator[None]:
    with swapped(SubspacePerturbation, "gap_std", property(lambda self: 1e-6)):
        yield


@bug("histogram noise for one changed bin where two change", "StabilityHistogram")
def _moves() -> Iterator[None]:
    with swapped(histogram._CHANGED_BINS, "moves", 1):
        yield


@bug("threshold too low", "StabilityHistogram-lone-vote")
def _threshold() -> Iterator[None]:
    with swapped(histogram.StabilityHistogram, "threshold", property(lambda self: 1.0)):
        yield


@bug("subspaces shown without a threshold", "ExactSubspace-lone-row", "ApproximateSubspace")
def _any_subspace() -> Iterator[None]:
    always = property(lambda self: -np.inf)
    with (
        swapped(ExactSubspace, "vote_threshold", always),
        swapped(histogram.StabilityHistogram, "threshold", property(lambda self: -1e9)),
    ):
        yield


@bug("gap of the two best subspaces without noise", "ExactSubspace")
def _exact_count() -> Iterator[None]:
    with swapped(TruncatedLaplace, "draw", lambda self, noise, index, count: np.zeros(count)):
        yield


@bug("checkpoints deleted by exact matrices", "SlidingWindowPCA")
def _exact_deletion() -> Iterator[None]:
    # What UU21 prints: rows are added exactly, and which checkpoints are kept is decided by comparing exact sums.
    look = HistogramEngine.look

    def telling(self: HistogramEngine, t: int) -> Any:
        if not hasattr(self, "shadow"):
            self.shadow = SpectralHistogram(self.histogram.n_features, 4, 0.5, lambda rows: 0.0, 4)  # type: ignore[attr-defined]
        view = look(self, t)
        self.shadow.advance(t, self.gram.words())  # type: ignore[attr-defined]
        view.details["checkpoints"] = len(self.shadow.starts)  # type: ignore[attr-defined]
        self.shadow.mark(t)  # type: ignore[attr-defined]
        return view

    with swapped(HistogramEngine, "look", telling):
        yield


@bug("users taken for rows", "PrivateFPL-user")
def _one_row_a_user() -> Iterator[None]:
    with swapped(private_fpl, "user_factor", lambda *given: 1.0):
        yield


@bug("rows past the cap let in", "PrivateFPL-user")
def _no_cap() -> Iterator[None]:
    with swapped(UserStream, "_capped", lambda self, rows, over: rows):
        yield


def _as_it_is(rows: FloatArray) -> FloatArray:
    return np.ascontiguousarray(rows, dtype=np.float64)
