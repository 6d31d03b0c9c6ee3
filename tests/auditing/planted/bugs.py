"""Planted bugs: mistakes that privacy code has been shipped with, and some that are made to be hard to see.

A bug is a list of attributes that are replaced for a while. Calibration happens in `Case.make`, so that is called
while they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from hashlib import blake2b
from inspect import getattr_static
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from planted.lifecycles import CASES  # all of them
from streampca.auditing import runs
from streampca.auditing.instrument import Audit, audit_case
from streampca.linalg import lattice
from streampca.linalg.centering import CONSTANT
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import entry_weights, svec
from streampca.matrix_factorization.base import next_sum
from streampca.matrix_factorization.blt import BufferedNoise, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree, TreeNoise
from streampca.mechanisms import histogram
from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace, TruncatedLaplace
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.papers import covariance as jxz16
from streampca.papers.approximate_subspace import ApproximateSubspace
from streampca.papers.covariance import LaplaceCovariance, WishartCovariance
from streampca.papers.subspace_perturbation import SubspacePerturbation
from streampca.privacy import budget, configuration
from streampca.privacy.budget import GRAM_SENSITIVITY
from streampca.privacy.discrete_gaussian import DiscreteGaussian
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.privacy.randomness import NAME_BYTES, DrawKeys, Draws
from streampca.processors import private_fpl, private_oja, private_sketch
from streampca.processors.base import Processor
from streampca.processors.dp_pca import ClippedMean, Plan
from streampca.processors.leader import Leader
from streampca.processors.private_fpl import FPLProcessor, RewardSum
from streampca.processors.private_oja import PrivateOja, PrivateOjaProcessor
from streampca.processors.sliding_window import METHODS, HistogramProcessor, RingProcessor, View
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.rows import admission, owners, people
from streampca.rows.bounds import PrivateBounds
from streampca.rows.people import Budgets, _Spent
from streampca.stream.engine import Engine
from streampca.stream.tenants import Records

#: A class, module or dict, the name of its attribute or key, and what is made of that to take its place.
Patch = tuple[Any, str, Callable[[Any], Any]]


class Bug(NamedTuple):
    """A mistake, the name of the case that it is planted in, what is replaced, and how many numbers it takes to see."""

    name: str
    case: str
    patches: tuple[Patch, ...]
    numbers: int = 800

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, made in self.patches:
                if isinstance(owner, dict):
                    stack.enter_context(mock.patch.dict(owner, {name: made(owner[name])}))
                else:
                    stack.enter_context(mock.patch.object(owner, name, made(getattr_static(owner, name))))
            yield


BUGS: list[Bug] = []


def audit_planted(bug: Bug, error: float, seed: int | None) -> list[Audit]:
    with bug.planted():
        return audit_case(CASES[bug.case], numbers=bug.numbers, error=error, every=False, seed=seed, stop=True)


def bug(name: str, cases: str, *patches: Patch, numbers: int = 800) -> None:
    BUGS.extend(Bug(name, case, patches, numbers) for case in cases.split())


def put(owner: Any, name: str, value: Any) -> Patch:
    return owner, name, lambda before: value


def const(owner: Any, name: str, value: Callable[[Any], Any]) -> Patch:
    if name in getattr(owner, "__dataclass_fields__", {}):
        return after(owner, "__init__", lambda made, self, *given, **named: object.__setattr__(self, name, value(self)))
    return put(owner, name, property(value))


def after(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    def made(before: Any) -> Any:
        if isinstance(before, property):
            return property(lambda self: change(before.__get__(self), self))
        return lambda *given, **named: change(before(*given, **named), *given, **named)

    return owner, name, made


def times(owner: Any, name: str, factor: float) -> Patch:
    return after(owner, name, lambda value, *given, **named: factor * value)


# -- noise ------------------------------------------------------------------------------------------


def scaled(factor: float) -> list[Patch]:
    discrete = after(DiscreteGaussian, "draw", lambda value, *_: value // round(1.0 / factor))
    normal, laplace = times(Draws, "normal", factor), times(Draws, "laplace", factor)
    return [normal, laplace, times(TruncatedLaplace, "draw", factor), discrete]


def no_noise(kinds: str) -> Patch:
    def made(release: Any) -> Any:
        def bare(self: Outlet, kind: str, exact: Any, draw: Any, std: float = 0.0) -> Any:
            return release(self, kind, exact, (lambda d: 0.0 * draw(d)) if kind in kinds.split() else draw, std)

        return bare

    return Outlet, "release", made


def in_gram(change: Callable[[GramSum, Any, Any], Any]) -> Patch:
    def made(noisy: Any) -> Any:
        return lambda self, noise, std: noisy(self, change(self, noise, entry_weights(self.n_features) == 1.0), std)

    return GramSum, "noisy", made


def off_diagonal(factor: float) -> Patch:
    return in_gram(lambda exact, noise, diagonal: np.where(diagonal, noise, factor * noise))


def advance(rule: Callable[[int, Any, Any], Any]) -> Patch:
    def change(made: BufferedNoise, self: BufferedNoise, draws: Draws) -> BufferedNoise:
        return BufferedNoise(made.rule, made.n, made.buffers, rule(made.n, made.noise, self.noise))

    return after(BufferedNoise, "advance", change)


def with_start(*label: Any) -> Patch:
    def made(init: Any) -> Any:
        return lambda self, randomness, *own, start=None: init(self, randomness, *(label or own), start=_ZEROS)

    return NoiseSource, "__init__", made


_ZEROS, _KNOWN = bytes(NAME_BYTES), DrawKeys(bytes(32))
same_noise = after(NoiseSource, "link", lambda made, *_: (made[0], _ZEROS))
stale = after(NoiseSource, "link", lambda made, *_: (made[0], made[0].n.to_bytes(NAME_BYTES, "little")))
#: Names that follow from the first link of a tenant and from the number of its vector: these tenants still differ.
linked = put(
    NoiseSource,
    "link",
    lambda self, chain, kind, fresh, tags: (
        Chain(chain.n + 1, blake2b(chain.link, digest_size=32).digest()),
        chain.link[:NAME_BYTES],
    ),
)
known_key = put(NoiseSource, "draws", lambda self, n, name: Draws(_KNOWN, n, n.to_bytes(NAME_BYTES, "little")))
no_laplace = times(Draws, "laplace", 0.0)


def _copied(exact: GramSum, noise: Any, diagonal: Any) -> Any:
    noise = noise.copy()
    noise[np.flatnonzero(~diagonal)[: diagonal.sum()]] = noise[diagonal][: (~diagonal).sum()]
    return noise


def _rarely(self: Outlet, kind: str, exact: Any, size: int, std: float) -> Any:
    return self.release(kind, exact, lambda draws: std * draws.normal(size) * (draws.name[0] >= 5), std)


def _forgetful(made: BufferedNoise, *_: Any) -> BufferedNoise:
    return BufferedNoise(made.rule, made.n, made.buffers, 0.0 * made.noise)


def _few(self: NoiseSource, n: int, name: bytes) -> Draws:
    return Draws(_KNOWN, n, bytes([n % 256, name[0]]) + bytes(NAME_BYTES - 2))


class _Ahead:
    def __init__(self, latest: Any, following: Any) -> None:
        self.noise, self.n, self.following = latest.noise, latest.n, following

    def advance(self, draws: Draws) -> _Ahead:
        latest = self.following
        return _Ahead(latest, latest if latest.n == latest.rule.horizon else latest.advance(draws))


def _hasty(running: Any) -> Any:
    def hasty(self: Outlet, kind: str, exact: Any, noise: Any, std: float) -> Any:
        ahead = noise if isinstance(noise, _Ahead) else _Ahead(noise, noise.advance(self.hide("first")))
        return running(self, kind, exact, ahead, std)

    return hasty


class _OpenNodes(TreeNoise):
    __slots__ = ("vectors",)

    vectors: dict[tuple[int, int], Any]

    def advance(self, draws: Draws) -> _OpenNodes:
        n, levels, size = next_sum(self.n, self.mechanism.horizon), self.mechanism.levels, self.noise.size
        fresh = self.mechanism.node_std * draws.normal(levels * size).reshape(levels, size)
        nodes = getattr(self, "vectors", {}) | {(n, i): fresh[i] for i in range(levels) if (n - 1) % 2**i == 0}
        noise, end = np.zeros(size), n
        while end:
            level = (end & -end).bit_length() - 1
            noise, end = noise + nodes[end - 2**level + 1, level], end - 2**level
        made = _OpenNodes(self.mechanism, n, (), noise)
        made.vectors = nodes
        return made


# -- rows and releases --------------------------------------------------------------------------------


#: No row is bad or clipped.
_NONE = admission.Counts()


def _truncated(rows: Any) -> Any:
    return np.trunc(np.ascontiguousarray(rows, dtype=np.float64) * 2.0**20) * 2.0**-20


def _beyond_ball(rows: Any) -> Any:
    return onto_ball(rows / 1.05) * 1.05


def _taken_as(rows: Any) -> Any:
    return rows, np.vecdot(rows, rows), np.empty(0, dtype=np.int64)


def unclipped(blocks: Callable[[Any], bool]) -> Patch:
    def made(ball: Any) -> Any:
        return lambda rows: _taken_as(_truncated(rows)) if blocks(rows) else ball(rows)

    return admission, "admitted_rows", made


unclipped_row = put(
    admission.Admission, "row", lambda self, row, number: (_truncated(np.asarray(row)[None] * self.factor), _NONE)
)


def with_release(change: Callable[[Any, Any], dict[str, Any]]) -> Patch:
    def made(made: Any, self: Any, t: int, gram: GramSum, outlet: Outlet) -> Any:
        return made[0], made[1].replaced(**change(made[1], gram))

    return after(FPLProcessor, "released", made)


def _told_reward(made: Any, self: Any, rows: Any, outlet: Any) -> Any:
    return made[0], made[1] and made[1].replaced(details={"reward": float((rows[:, 0] ** 2).sum())})


def _held_back(made: Any, self: Any, rows: Any, outlet: Any) -> Any:
    return made[0], None if made[1] is not None and int(made[0].gram.packed()[0] * 64) % 64 == 63 else made[1]


def _in_place(self: FPLProcessor, rows: Any, outlet: Outlet) -> Any:
    self.gram = self.gram.add(rows)
    return self.released(self.t + rows.shape[0], self.gram, outlet)


def _told_parity(view: View, self: RingProcessor, outlet: Outlet) -> View:
    packed = self.window.packed()
    return view._replace(details={"parity": int(abs(packed).sum() * 2.0**40) % 2 + int(packed[0] * 4) % 2})


def _told_values(stepped: Any, *_: Any) -> Any:
    after, release = stepped
    if release is None:
        return stepped
    exact = float(np.abs(after.waiting.array).sum() + np.abs(after.total).sum())
    return after, release.replaced(eigenvalues=release.own_eigenvalues + 1e-7 * exact)


class _ExactDeletion(HistogramProcessor):
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


def _too_few_degrees(self: MatrixLaplaceCovariance, d: int, draws: Draws) -> Any:
    one, two = draws.normal(2 * d * d).reshape(2, d, d)
    return svec(self.scale(d) * (one @ one.T - two @ two.T))


# Mechanisms of sketches are kept, and would hide a planted calibration.
_fresh_mechanism = put(private_sketch, "_mechanism", private_sketch._mechanism.__wrapped__)


# -- the list -----------------------------------------------------------------------------------------
# fmt: off

_HALVED = """
PrivateFPL PrivateFPL-discrete PrivateFPL-endless DoublingFPL PrivateFPL-rewards SlidingWindowPCA-histogram
SlidingWindowPCA-ring SlidingWindowPCA-forgetting PrivateOja PrivateSketch DPPCA MatrixLaplaceCovariance
MatrixLaplaceCovariance-one-feature WishartCovariance GaussianCovariance GaussianCovariance-discrete LaplaceCovariance
SubspacePerturbation ApproximateSubspace StabilityHistogram-moves"""
_CONTINUED = "life-fork-blt life-fork-tree life-copy life-pickle life-state life-copied-store life-rolled-back-store"
bug("half the noise", _HALVED, *scaled(0.5))

# PrivateFPL
bug("off-diagonal noise of half the sd", "PrivateFPL PrivateFPL-replace PrivateFPL-tree GaussianCovariance",
    off_diagonal(0.5))
bug("no off-diagonal noise", "PrivateFPL PrivateFPL-replace", off_diagonal(0.0))
bug("noise repeated every second release", "PrivateFPL", advance(lambda n, noise, before: noise if n % 2 else before))
bug("clamp missing on one-row blocks", "PrivateFPL", unclipped_row, unclipped(lambda rows: len(rows) == 1))
bug("clamp missing on many-row blocks", "PrivateFPL", unclipped(lambda rows: len(rows) > 1))
bug("rows not clipped", "PrivateFPL", unclipped_row, unclipped(lambda rows: True))
bug("noise gone from release 9 on", "PrivateFPL", advance(lambda n, noise, before: (n < 9) * noise))
bug("raw text in details", "PrivateFPL",
    with_release(lambda release, gram: {"details": {"trace": str(gram.packed()[0])}}))
bug("exact trace in the low digits of noise_std", "PrivateFPL",
    with_release(lambda release, gram: {"noise_std": release.noise_std * (1.0 + 1e-12 * float(gram.packed()[0]))}))
bug("exact low bits in the Gram matrix", "PrivateFPL",
    after(GramSum, "noisy", lambda value, self, *_: value + np.mod(self.parts[1] * 2.0**30, 1024.0) * 2.0**-50))
bug("sensitivity over sqrt(b)", "PrivateFPL-every-5", put(GRAM_SENSITIVITY, "zero-out", math.sqrt(0.2)))
bug("sensitivity of zero-out under replace",
    "PrivateFPL-replace SlidingWindowPCA-replace GaussianCovariance-replace Tumbling-replace",
    put(GRAM_SENSITIVITY, "replace", 1.0))
bug("tree one level too shallow", "PrivateFPL-tree PrivateFPL-discrete",
    after(BinaryTree, "__post_init__", lambda made, self: object.__setattr__(
        self, "node_std", self.node_std * math.sqrt(1.0 - 1.0 / self.levels))))
bug("the same noise at every step", "PrivateFPL PrivateFPL-tree PrivateFPL-discrete PrivateOja", same_noise)
bug("one key for all streams", "PrivateFPL GaussianCovariance", known_key)
bug("published rewards", "PrivateFPL", after(FPLProcessor, "step", _told_reward))
bug("rewards with no noise of their own", "PrivateFPL-rewards",
    (RewardSum, "noisy", lambda noisy: lambda self, noise, std: noisy(self, 0.0, std)))
bug("rewards forgotten in the sensitivity", "PrivateFPL-rewards PrivateFPL-rewards-replace",
    put(private_fpl, "joint_sensitivity", lambda gram: gram))
bug("column norms forgotten", "PrivateFPL", put(
    GeometricBLT, "_scales", lambda self, n: np.full(len(n), self.sensitivity / self.mu)))
bug("sum of rows forgotten in the sensitivity", "PrivateFPL-centered PrivateFPL-centered-replace",
    put(budget, "JOINT_FACTOR", 1.0))
bug("the count forgotten in the sensitivity", "PrivateFPL-centered",
    put(budget, "JOINT_FACTOR", math.sqrt(1.0 + 2.0 * CONSTANT**2)))
bug("a constant twice as long", "PrivateFPL-centered", after(
    admission.Admission, "block", lambda made, *_: (made[0] * np.append(np.ones(made[0].shape[1] - 1), 2.0), made[1])))
bug("bounds of all columns with the noise of one", "PrivateFPL-private-bounds PrivateFPL-private-bounds-replace",
    put(PrivateBounds, "std", lambda self, n_features: 1.0 / self.mu))
_PEOPLE = "PrivateFPL-person PrivateFPL-person-centered PrivateFPL-person-tree"
bug("products of a person's rows in two inputs left out", "PrivateFPL-person PrivateFPL-person-centered",
    put(Leader, "products", lambda self, inputs, n: (inputs == n).astype(float)))
bug("products of a person's rows at twice their distance", "PrivateFPL-person PrivateFPL-person-centered",
    put(Leader, "products", lambda self, inputs, n: self.mechanism.products(np.maximum(2 * inputs - n, 1), n)))
bug("spent budgets forgotten", _PEOPLE, put(_Spent, "__contains__", lambda self, identity: False))
bug("budgets renewed by each commit", _PEOPLE, put(Budgets, "enter", lambda self, people: None))
bug("budgets renewed by a resume", "PrivateFPL-person", put(runs, "restore_people", lambda *given: None))
bug("names of a person split by their types", _PEOPLE, put(owners, "name_of", lambda value: repr(value).encode()))
bug("cells of a person free of charge", "PrivateFPL-person-centered-cells", put(people, "PRESENCE", 0.0))
bug("private-bounds voters let in again", "PrivateFPL-person-bounds",
    after(Budgets, "voted", lambda made, self, people, *_: (made[0], people)))
bug("each row of a person votes", "PrivateFPL-person-bounds",
    after(Budgets, "voted", lambda made, self, people, bins, names: (bins, made[1])))
bug("rows to an input taken for inputs of a person", "PrivateFPL-person-every_4",
    put(Processor, "inputs_of", lambda self, count: [self.t + i + 1 for i in range(count)]))

# windows, Oja, DP-PCA
bug("parity of a row in details", "SlidingWindowPCA-ring", after(RingProcessor, "close", _told_parity))
bug("checkpoints deleted by exact matrices", "SlidingWindowPCA-one-feature",
    put(METHODS, "histogram", _ExactDeletion))
bug("sensitivity halved", "PrivateOja PrivateOja-replace PrivateOja-n_components_2-replace",
    times(private_oja, "gradient_sensitivity", 0.5))
bug("gradients not clipped", "PrivateOja-clipped", (
    private_oja, "clipped_gradients", lambda honest: lambda rows, basis, bound: honest(rows, basis, 1.0)))
bug("gradients clipped after the noise was calibrated for another clip", "PrivateOja PrivateOja-replace", (
    PrivateOja, "noise_std", lambda honest: lambda self, d: honest(self.resolved(2 * d), d)))
bug("noise calibrated for another clip", "PrivateSketch PrivateSketch-replace", (
    private_sketch, "sketched", lambda honest: lambda rows, omega, clip, weight: honest(rows, omega, 2 * clip, weight)))
bug("sum of rows not charged", "PrivateSketch-centered PrivateSketch-centered-replace", _fresh_mechanism, (
    private_sketch, "sketch_sensitivity",
    lambda honest: lambda clip, weight, *more: honest(clip, 0.0, *more)))
bug("sketches of zero-out under replace", "PrivateSketch-replace", _fresh_mechanism, (
    private_sketch, "sketch_sensitivity",
    lambda honest: lambda clip, weight, *more: honest(clip, weight, "zero-out")))
bug("clipped products with a quarter of the noise", "DPPCA", const(ClippedMean, "std", lambda self: 0.25 * self.std))
bug("no noise in the votes", "DPPCA", no_noise("norm"))
bug("none inside", "DPPCA", no_noise("inside"))
bug("none across", "DPPCA", no_noise("across"))
bug("no Laplace noise and across exact", "DPPCA", no_noise("norm across"))
bug("sensitivity of one component for two", "DPPCA-n_components_2",
    const(Plan, "inside_std", lambda self: 0.7 / self.budget.mu))

# mechanisms
bug("c halved", "MatrixLaplaceCovariance MatrixLaplaceCovariance-replace", times(MatrixLaplaceCovariance, "scale", 0.5))
bug("d degrees for d + 1", "MatrixLaplaceCovariance", put(MatrixLaplaceCovariance, "noise", _too_few_degrees),
    numbers=1500)
bug("as printed", "WishartCovariance", put(WishartCovariance, "degrees", lambda self, d: d + 1),
    put(WishartCovariance, "scale", lambda self, d: 1.5 / self.epsilon))
bug("profile of zero-out under replace", "WishartCovariance-replace", (
    jxz16, "design", lambda honest: lambda epsilon, delta, adjacency, d: honest(epsilon, delta, "zero-out", d)))
bug("sensitivity of a single entry for all of them", "LaplaceCovariance",
    put(LaplaceCovariance, "sensitivity", lambda self, d: 0.5))
bug("the same noise for every data set of a key", "life-mechanism-one-key", known_key)
bug("label and fresh bytes constant", "life-mechanism-one-key", with_start("label"), same_noise)
bug("gap measured without noise", "SubspacePerturbation", const(SubspacePerturbation, "gap_std", lambda self: 1e-6))
bug("budget not split over widths", "ApproximateSubspace",
    const(ApproximateSubspace, "histogram", lambda self: StabilityHistogram(self.epsilon, self.delta)))
bug("no Laplace noise, threshold 0.5", "ApproximateSubspace", no_laplace,
    const(StabilityHistogram, "threshold", lambda self: 0.5))
bug("no Laplace noise, threshold kept", "ApproximateSubspace", no_laplace)
bug("shown without a threshold", "ApproximateSubspace StabilityHistogram-moves",
    const(StabilityHistogram, "threshold", lambda self: -1e9))
bug("threshold ignored", "edge-lone StabilityHistogram-moves",
    put(histogram, "_above", lambda counts, noisy, threshold: np.where(counts > 0, noisy, -np.inf)))
bug("truncated Laplace halved", "ExactSubspace", times(TruncatedLaplace, "draw", 0.5))
bug("truncated Laplace at a quarter", "ExactSubspace", times(TruncatedLaplace, "draw", 0.25))
bug("votes without noise", "ExactSubspace Tumbling-ExactSubspace", times(TruncatedLaplace, "draw", 0.0))
bug("shown without a threshold", "ExactSubspace", const(ExactSubspace, "threshold", lambda self: -np.inf))
bug("threshold as for add-remove", "StabilityHistogram-moves",
    const(StabilityHistogram, "threshold", lambda self: 1.0 + math.log(0.5 / self.delta) / self.epsilon))
bug("threshold too low", "StabilityHistogram-moves", const(StabilityHistogram, "threshold", lambda self: 1.0))
bug("noise for one bin where two change", "StabilityHistogram-moves ApproximateSubspace DPPCA",
    const(StabilityHistogram, "scale", lambda self: 1.0 / self.epsilon),
    const(StabilityHistogram, "threshold", lambda self: 1.0 + self.scale * math.log(0.5 / self.delta)))
bug("label ignores t and rows", "Tumbling Tumbling-ExactSubspace", same_noise)
bug("rows not clipped", "GaussianCovariance LaplaceCovariance", unclipped(lambda rows: True))

# the core
bug("fresh bytes and rows not hashed", _CONTINUED, stale)
bug("fresh bytes and rows not hashed, one start", "life-one-key", stale, with_start())
bug("configuration missing from the label", "life-two-configurations", stale, with_start("label"))
bug("fresh bytes and rows not hashed, one first link for all tenants", "life-fleet", linked,
    put(Records, "link", lambda self, number: bytes(32)))
bug("noise drawn a leaf ahead", "life-fork-blt", (Outlet, "running", _hasty))
bug("an interrupted block stays half absorbed", "life-interrupted", put(FPLProcessor, "step", _in_place))
bug("an open tree node shared by two continuations", "life-fork-tree",
    put(BinaryTree, "start", lambda self, size, source=None: _OpenNodes(self, 0, (), np.zeros(size))))

# missing cells
bug("numbers of cells present without noise", "PrivateFPL-cells PrivateFPL-centered-cells", (
    GramSum, "noisy", lambda noisy: lambda self, noise, std: noisy(
        self, np.append(noise[: len(noise) - self.further], np.zeros(self.further)), std)))
bug("numbers of cells present with the noise of an entry", "PrivateFPL-cells", put(lattice, "entry_weights",
    lambda d, further=0: np.append(entry_weights(d), np.ones(further))))
bug("numbers of cells present not in the sensitivity", "PrivateFPL-cells SlidingWindowPCA-cells",
    put(configuration, "PRESENCE", 0.0))

# made to be hard to see
bug("noise a tenth smaller on busy rows", "PrivateFPL", in_gram(
    lambda exact, noise, _: (0.9 if exact.parts[0].any() or exact.parts[1].max() > 0.5 else 1.0) * noise))
bug("noise cut at two sd", "PrivateFPL", after(Draws, "normal", lambda value, *_: np.clip(value, -2.0, 2.0)),
    numbers=6000)
bug("uniform noise of the right sd", "PrivateFPL GaussianCovariance",
    put(Draws, "normal", lambda self, count: (self.uniform(count) - 0.5) * math.sqrt(12.0)), numbers=1000)
bug("noise of the right law on a grid of half an sd", "GaussianCovariance PrivateOja",
    after(Draws, "normal", lambda value, *_: np.rint(2.0 * value) * 0.5))
bug("no noise in one release of fifty", "PrivateOja", put(Outlet, "gram", _rarely), numbers=6000)
bug("off-diagonal noise copied from the diagonal", "PrivateFPL", in_gram(_copied))
bug("noise of one byte of randomness", "PrivateFPL GaussianCovariance", put(NoiseSource, "draws", _few),
    numbers=16_000)
bug("clipped to norm 1.05", "PrivateFPL", put(admission, "admitted_rows", lambda rows: _taken_as(_beyond_ball(rows))),
    put(admission.Admission, "row", lambda self, row, number: (_beyond_ball(np.asarray(row)[None]), _NONE)))
bug("noise of the past forgotten by a resume", "life-state life-pickle", after(BufferedNoise, "restored", _forgetful))
bug("the last release of a horizon without noise", "PrivateFPL", advance(lambda n, noise, before: (n < 12) * noise))
bug("the subspace follows the exact matrix", "PrivateFPL-tracking",
    with_release(lambda release, gram: {"span": power_step(gram.packed() + 1e-9, release.own_span, 1.0)}))
bug("a release held back by an exact value", "PrivateFPL", after(FPLProcessor, "step", _held_back))
bug("noise smaller by 4 percent", "PrivateFPL", times(Draws, "normal", 0.96), numbers=6000)
bug("eigenvalues of the exact sum", "PrivateOja-clipped", after(PrivateOjaProcessor, "step", _told_values))
bug("a copy that does not go on as another run", "life-fork-blt", stale,
    put(Engine, "after_fork", lambda self: None))
# fmt: on
