"""What `streampca audit` knows by name: algorithms, matrix factorizations and mechanisms on their worst neighbours.

To add one, write a function that returns an `Experiment` and put `case` above it.
Budgets are large (mu near 2.5), where few runs say much; a calibration is as
right or wrong at any other budget, since noise is proportional to 1/mu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.auditing.experiment import Experiment, neighbours, of_algorithm, of_mechanism, of_samples
from streampca.auditing.statistic import Transcript
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
from streampca.mechanisms.wishart import WishartCovariance
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import gaussian_guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.tumbling import Tumbling

EPSILON, DELTA = 8.0, 1e-2
MU = Budget(EPSILON, DELTA).mu


@dataclass(frozen=True)
class Case:
    """A named audit.

    Attributes
    ----------
    name : for the command line.
    build : makes the experiment; calibration happens here.
    tight : whether an attacker should reach 85 % of the claim at the default number of runs.
    runs : runs in proportion to the number asked for.
    """

    name: str
    build: Callable[[], Experiment]
    tight: bool
    runs: float


CASES: dict[str, Case] = {}


def case(name: str, *, tight: bool = True, runs: float = 1.0) -> Callable[[Callable[[], Experiment]], Any]:
    """Register a function that builds an experiment."""

    def register(build: Callable[[], Experiment]) -> Callable[[], Experiment]:
        CASES[name] = Case(name, build, tight, runs)
        return build

    return register


def outlet_of(seed: int | None) -> Outlet:
    """An outlet for parts that are audited by themselves; its noise is fresh if there is no seed."""
    source = NoiseSource(Randomness() if seed is None else Randomness.from_seed(seed), "audit")
    return source.outlet(source.first)


# -- matrix factorizations: all coordinates are independent repetitions, so runs are cheap ----------


def _factorization(
    name: str, make: Callable[[], MatrixFactorization], position: int, *, length: int = 8, tight: bool = True
) -> None:
    @case(name, tight=tight, runs=4.0)
    def build() -> Experiment:
        mechanism = make()

        def draw(changed: bool, count: int, seed: int | None) -> FloatArray:
            outlet, noise, outputs = outlet_of(seed), mechanism.start(count), np.empty((length, count))
            for output in outputs:
                noise = noise.advance(outlet.hide("sum"))
                output[:] = noise.noise
            outputs[position:] += mechanism.sensitivity * changed
            return outputs.T

        claim = gaussian_guarantee(
            mechanism.mu, EPSILON, DELTA, adjacency="zero-out", scope=f"{length} sums", theorem="matrix mechanism",
            citation="streampca.matrix_factorization.base",
        )  # fmt: skip
        return of_samples(name, claim, draw)


_factorization("GeometricBLT", lambda: GeometricBLT(8, MU, 1.5), 3)
_factorization("BinaryTree", lambda: BinaryTree(8, MU, 1.5), 0)
_factorization("BinaryTree-topped-up", lambda: BinaryTree(8, MU, 1.5, topped_up=True), 0, tight=False)
_factorization("AnytimeBLT", lambda: AnytimeBLT(MU, 1.5, restart_after=8), 0)


# -- algorithms ----------------------------------------------------------------------------------


def _leader(name: str, *, d: int = 1, rows: int = 4, position: int = 1, tight: bool = True, **options: Any) -> None:
    canary = options.pop("canary", None)

    @case(name, tight=tight)
    def build() -> Experiment:
        given = {"n_components": 1, "n_features": d, "epsilon": EPSILON, "delta": DELTA, "horizon": rows, **options}
        pair = neighbours(rows, d, adjacency=options.get("adjacency", "zero-out"), position=position, canary=canary)
        return of_algorithm(PrivateFPL(**given), pair, name=name)


_leader("PrivateFPL")
_leader("PrivateFPL-replace", d=2, rows=2, adjacency="replace")
_leader("PrivateFPL-tree", noise="tree", rows=3, position=0)
_leader("PrivateFPL-exact", noise="tree", exact=True, rows=3, position=0)
_leader("PrivateFPL-blocks", release_every=2, rows=5, position=2)
_leader("PrivateFPL-last-row", rows=3, position=-1)
_leader("PrivateFPL-long-row", rows=2, canary=[2.0])
_leader("PrivateFPL-regret", publish_regret=True)
_leader("PrivateFPL-endless", horizon=None, tight=False)
_leader("PrivateFPL-doubling", regularisation="doubling", tight=False)


@case("Tumbling")
def _tumbling() -> Experiment:
    mechanism = GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA)
    return of_algorithm(Tumbling(mechanism, every=2), neighbours(4, 1, position=2), name="Tumbling")


# -- mechanisms ----------------------------------------------------------------------------------


@case("GaussianCovariance", runs=2.0)
def _gaussian() -> Experiment:
    return of_mechanism(
        GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA), neighbours(2, 1), name="GaussianCovariance"
    )


@case("GaussianCovariance-exact", runs=2.0)
def _gaussian_exact() -> Experiment:
    mechanism = GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA, exact=True)
    return of_mechanism(mechanism, neighbours(2, 1), name="GaussianCovariance-exact")


@case("GaussianCovariance-long-row", runs=2.0)
def _gaussian_long() -> Experiment:
    mechanism = GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA)
    return of_mechanism(mechanism, neighbours(2, 1, canary=[2.0]), name="GaussianCovariance-long-row")


@case("GaussianCovariance-replace", runs=2.0)
def _gaussian_replace() -> Experiment:
    mechanism = GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA, adjacency="replace")
    return of_mechanism(mechanism, neighbours(2, 2, adjacency="replace"), name="GaussianCovariance-replace")


@case("GaussianCovariance-psd", tight=False)
def _gaussian_psd() -> Experiment:
    mechanism = GaussianCovariance(n_components=1, epsilon=EPSILON, delta=DELTA, project="psd")
    return of_mechanism(mechanism, neighbours(2, 2), name="GaussianCovariance-psd")


@case("LaplaceCovariance", tight=False, runs=4.0)
def _laplace() -> Experiment:
    # The row (1, 1)/sqrt(2) moves all three entries by 1/2, which is all of the l1 sensitivity; the
    # log-ratio of the two densities is the best score there is.
    mechanism = LaplaceCovariance(n_components=1, epsilon=1.0)
    half = np.sqrt(0.5)

    def log_ratio(transcript: Transcript) -> float:
        return sum(abs(transcript[name]) - abs(transcript[name] - 0.5) for name in ("0/00", "0/01", "0/11"))

    made = of_mechanism(mechanism, neighbours(1, 2, canary=[half, half]), name="LaplaceCovariance")
    return Experiment(made.name, made.guarantee, made.sample, log_ratio)


@case("MatrixLaplaceCovariance-one-feature", tight=False, runs=2.0)
def _matrix_laplace_1() -> Experiment:
    mechanism = MatrixLaplaceCovariance(n_components=1, epsilon=1.0)
    return of_mechanism(mechanism, neighbours(1, 1), name="MatrixLaplaceCovariance-one-feature")


@case("MatrixLaplaceCovariance", tight=False, runs=2.0)
def _matrix_laplace() -> Experiment:
    mechanism = MatrixLaplaceCovariance(n_components=1, epsilon=1.0)
    return of_mechanism(mechanism, neighbours(1, 3), name="MatrixLaplaceCovariance")


@case("WishartCovariance", tight=False, runs=2.0)
def _wishart() -> Experiment:
    mechanism = WishartCovariance(n_components=1, epsilon=1.0, delta=0.05)
    return of_mechanism(mechanism, neighbours(1, 2), name="WishartCovariance")


@case("SubspacePerturbation-projector", tight=False)
def _subspace() -> Experiment:
    # A gap wide enough for the projector to be released, and the row that turns it most.
    rows = np.tile([1.0, 0.0], (20, 1))
    half = np.sqrt(0.5)
    return of_mechanism(
        SubspacePerturbation(n_components=1, epsilon=EPSILON, delta=DELTA),
        neighbours(20, 2, rows=rows, canary=[half, half]),
        name="SubspacePerturbation-projector",
    )


@case("SubspacePerturbation-gram", tight=False)
def _subspace_gram() -> Experiment:
    mechanism = SubspacePerturbation(n_components=1, epsilon=EPSILON, delta=DELTA)
    return of_mechanism(mechanism, neighbours(2, 2), name="SubspacePerturbation-gram")


@case("StabilityHistogram", tight=False, runs=4.0)
def _histogram() -> Experiment:
    mechanism = StabilityHistogram(1.0, 0.05, "moves")

    def draw(changed: bool, count: int, seed: int | None) -> FloatArray:
        counts = np.tile([9, 11] if changed else [10, 10], (count, 1))
        noisy = mechanism.noisy_counts(counts, outlet_of(seed), "counts")
        return np.where(np.isfinite(noisy), noisy, 0.0)

    def log_ratio(transcript: Transcript) -> float:
        return _between(transcript["1"], 10.0, 11.0) - _between(transcript["0"], 9.0, 10.0)

    return of_samples("StabilityHistogram", mechanism.guarantee, draw, log_ratio)


@case("StabilityHistogram-lone-vote", tight=False, runs=4.0)
def _lone_vote() -> Experiment:
    mechanism = StabilityHistogram(1.0, 0.05, "add-remove")

    def draw(changed: bool, count: int, seed: int | None) -> FloatArray:
        noisy = mechanism.noisy_counts(np.full((count, 1), int(changed)), outlet_of(seed), "counts")
        return np.where(np.isfinite(noisy), noisy, 0.0)

    return of_samples("StabilityHistogram-lone-vote", mechanism.guarantee, draw)


def _between(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
