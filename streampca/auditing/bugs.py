"""Planted bugs: mistakes that privacy code has really been shipped with, each of which an audit must catch.

A bug is a context in which part of streampca is wrong. Calibration happens in
`Case.build`, so that is called inside the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca import admission
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import next_sum
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree, TreeNoise
from streampca.mechanisms import base as mechanisms_base
from streampca.mechanisms import histogram
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
from streampca.mechanisms.truncated_laplace import TruncatedLaplace
from streampca.privacy.budget import GRAM_SENSITIVITY
from streampca.privacy.discrete_gaussian import DiscreteGaussian
from streampca.privacy.outlet import Chain, Exact, NoiseSource, Outlet
from streampca.privacy.randomness import NAME_BYTES, DrawKeys, Draws
from streampca.processors import base as processors_base
from streampca.processors import private_fpl, sliding_window
from streampca.processors.private_fpl import FPLProcessor
from streampca.processors.rewards import RewardSum
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.processors.window_processors import HistogramProcessor, View
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
    normal, laplace, discrete = Draws.normal, Draws.laplace, DiscreteGaussian.draw

    def integers(self: DiscreteGaussian, draws: Draws, count: int | None = None) -> IntArray:
        return discrete(self, draws, count) // 2

    with (
        swapped(DiscreteGaussian, "draw", integers),
        swapped(Draws, "normal", lambda self, count: 0.5 * normal(self, count)),
        swapped(Draws, "laplace", lambda self, count: 0.5 * laplace(self, count)),
    ):
        yield


#: Cases that stay within their claim even at half the noise, and why.
SLACK_UNDER_HALF_NOISE = {
    "PrivateFPL-fork-then-row": "the row is in one of the two runs that are priced",
    "PrivateFPL-fork-then-row-tree": "the row is in one of the two runs that are priced",
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


@bug("the same noise at every step", "PrivateFPL", "PrivateFPL-tree", "PrivateFPL-exact")
def _reused() -> Iterator[None]:
    link = NoiseSource.link
    with swapped(NoiseSource, "link", lambda self, *given: (link(self, *given)[0], bytes(NAME_BYTES))):
        yield


@bug("one key for all streams", "PrivateFPL", "GaussianCovariance")
def _known_key() -> Iterator[None]:
    # Noise that an attacker can subtract: a function of its number alone.
    hide, keys = Outlet.hide, DrawKeys(bytes(32))

    def known(self: Outlet, kind: str, *exact: Any) -> Draws:
        n = hide(self, kind, *exact).n
        return Draws(keys, n, n.to_bytes(NAME_BYTES))

    with swapped(Outlet, "hide", known):
        yield


@bug("nothing fresh and rows not hashed", "PrivateFPL-fork-then-row", "PrivateFPL-fork-then-row-tree")
def _shared_noise() -> Iterator[None]:
    link = NoiseSource.link
    blind = swapped(NoiseSource, "link", lambda self, chain, kind, fresh, exact: link(self, chain, kind, fresh, ()))
    with _nothing_fresh(), blind:
        yield


@bug("nothing fresh", "PrivateFPL-fork-then-row", "PrivateFPL-fork-then-row-tree")
def _stale() -> Iterator[None]:
    # Equal histories have equal releases, so whether a row differs is seen.
    with _nothing_fresh():
        yield


def _nothing_fresh() -> AbstractContextManager[None]:
    made = Outlet.__init__

    def stale(self: Outlet, source: NoiseSource, chain: Chain, recorded: Sequence[bytes] | None = None) -> None:
        made(self, source, chain, [bytes(NAME_BYTES)] * 16)

    return swapped(Outlet, "__init__", stale)


@bug("noise drawn a leaf ahead", "PrivateFPL-fork-then-row")
def _ahead() -> Iterator[None]:
    running = Outlet.running

    def hasty(self: Outlet, kind: str, exact: Exact[Any], noise: Any, std: float) -> Any:
        ahead = noise if isinstance(noise, _Ahead) else _Ahead(noise, noise.advance(self.hide("first")))
        return running(self, kind, exact, ahead, std)

    with swapped(Outlet, "running", hasty):
        yield


class _Ahead:
    """Running noise, and that of the next sum, which is drawn already."""

    def __init__(self, latest: Any, following: Any) -> None:
        self.noise, self.n, self.following = latest.noise, latest.n, following

    def advance(self, draws: Draws) -> _Ahead:
        latest = self.following
        return _Ahead(latest, latest if latest.n == latest.rule.horizon else latest.advance(draws))


@bug("tree nodes drawn where they begin", "PrivateFPL-fork-then-row-tree")
def _open_nodes() -> Iterator[None]:
    def start(self: BinaryTree, size: int, source: NoiseSource | None = None) -> _OpenNodes:
        return _OpenNodes(self, 0, (), np.zeros(size))

    with swapped(BinaryTree, "start", start):
        yield


class _OpenNodes(TreeNoise):
    """Tree noise with a vector for each node from its first leaf on, which continuations share."""

    __slots__ = ("vectors",)

    vectors: dict[tuple[int, int], FloatArray]

    def advance(self, draws: Draws) -> _OpenNodes:
        n, levels, size = next_sum(self.n, self.mechanism.horizon), self.mechanism.levels, self.noise.size
        fresh = self.mechanism.node_std * draws.normal(levels * size).reshape(levels, size)
        nodes = getattr(self, "vectors", {}) | {
            (n, level): fresh[level] for level in range(levels) if (n - 1) % 2**level == 0
        }
        noise, end = np.zeros(size), n
        while end:
            level = (end & -end).bit_length() - 1
            noise, end = noise + nodes[end - 2**level + 1, level], end - 2**level
        after = _OpenNodes(self.mechanism, n, (), noise)
        after.vectors = nodes
        return after


@bug("an interrupted piece stays half absorbed", "PrivateFPL-interrupted")
def _adds_twice() -> Iterator[None]:
    def in_place(self: FPLProcessor, rows: FloatArray, outlet: Outlet) -> Any:
        self.gram = self.gram.add(rows)
        return self._after(self.t + rows.shape[0], self.gram, outlet)

    with swapped(FPLProcessor, "step", in_place):
        yield


@bug("published rewards", "PrivateFPL")
def _rewards() -> Iterator[None]:
    step = FPLProcessor.step

    def telling(self: FPLProcessor, rows: FloatArray, outlet: Outlet) -> Any:
        after, release = step(self, rows, outlet)
        if release is not None:
            release = release.replaced(details={**release.details, "reward": float((rows[:, 0] ** 2).sum())})
        return after, release

    with swapped(FPLProcessor, "step", telling):
        yield


@bug("rewards with no noise of their own", "PrivateFPL-regret")
def _bare_rewards() -> Iterator[None]:
    noisy = RewardSum.noisy
    with swapped(RewardSum, "noisy", lambda self, noise, std: noisy(self, 0.0, std)):
        yield


@bug("gap measured without noise", "SubspacePerturbation-gram")
def _exact_gap() -> Iterator[None]:
    with swapped(SubspacePerturbation, "gap_std", property(lambda self: 1e-6)):
        yield


@bug("histogram noise for one changed bin where two change", "StabilityHistogram")
def _moves() -> Iterator[None]:
    with swapped(histogram.StabilityHistogram, "scale", property(lambda self: 1.0 / self.epsilon)):
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
    with swapped(TruncatedLaplace, "draw", lambda self, draws, count: np.zeros(count)):
        yield


@bug("checkpoints deleted by exact matrices", "SlidingWindowPCA")
def _exact_deletion() -> Iterator[None]:
    with swapped(sliding_window.PROCESSORS, "histogram", _ExactDeletion):
        yield


class _ExactDeletion(HistogramProcessor):
    """What UU21 prints: rows are added exactly, and which checkpoints are kept is decided by comparing exact sums."""

    __slots__ = ("exact",)

    def begin(self) -> None:
        super().begin()
        rules = replace(self.histogram.rules, keep=0.75, slack=lambda rows: 0.0, pin_every=4)
        self.exact = SpectralHistogram.first(rules)

    def close(self, outlet: Outlet) -> View:
        view = super().close(outlet)
        exact = self.exact.advanced(self.t, self.gram.parts)
        self.exact = exact.marked(self.t)
        return view._replace(details={**view.details, "checkpoints": len(exact.starts)})


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
