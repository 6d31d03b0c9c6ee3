"""DP-PCA: error that falls with the rows' own noise, schedules, fallbacks, bits, memory."""

import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from feeding import Overheard, feed

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.linalg.lattice import onto_ball
from streampca.linalg.svec import svec_size, unsvec
from streampca.privacy.gaussian import mu_of
from streampca.processors import dp_pca
from streampca.processors.dp_pca import DPPCA, DPPCAProcessor, Segment

D, EPSILON, DELTA = 50, 1.0, 1e-5
MARGIN = dp_pca.MARGIN


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_pca, "MARGIN", 1)


def signal_noise(n: int, sigma: float, seed: int, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    # Example 4.1 of LKJO22: plus or minus a unit vector, plus noise; public row_norm 1.5.
    rng = np.random.default_rng(seed)
    v = rng.normal(size=d)
    v /= np.linalg.norm(v)
    rows = rng.choice([-1.0, 1.0], size=n)[:, None] * v + sigma * rng.normal(size=(n, d))
    return onto_ball(rows / 1.5), v


def last(processor: sp.Processor, rows: np.ndarray) -> sp.Release:
    return feed(processor, rows, len(rows))[1][-1]


def make(d: int = D, seed: int = 1, **kw: object) -> DPPCAProcessor:
    algorithm = DPPCA(**{"n_components": 1, "epsilon": EPSILON, "delta": DELTA, **kw})  # type: ignore[arg-type]
    processor = algorithm.start(d, sp.Randomness.from_seed(seed))
    assert isinstance(processor, DPPCAProcessor)
    return processor


def sine(release: sp.Release, v: np.ndarray) -> float:
    w = release.subspace.basis[:, 0]
    return float(np.linalg.norm(w - v * (v @ w)))


def slope(sigmas: tuple[float, ...], sines: list[float]) -> float:
    return float(np.polyfit(np.log(sigmas), np.log(sines), 1)[0])


def test_error_falls_with_sigma_and_that_of_private_oja_does_not() -> None:
    """Geometric means over 3 seeds at n = 20 000; slopes of log sine against log sigma."""
    sigmas = (0.1, 0.03, 0.01, 0.003, 0.001)
    found: dict[str, list[float]] = {"dp_pca": [], "private_oja": [], "gaussian": [], "exact": []}
    for sigma in sigmas:
        logs: dict[str, list[float]] = {name: [] for name in found}
        for seed in range(3):
            rows, v = signal_noise(20_000, sigma, seed)
            oja = sp.PrivateOja(n_components=1, epsilon=EPSILON, delta=DELTA, horizon=20_000).start(
                D, sp.Randomness.from_seed(seed)
            )
            release = last(make(seed=seed, horizon=20_000), rows)
            logs["dp_pca"].append(math.log(sine(release, v)))
            logs["private_oja"].append(math.log(sine(last(oja, rows), v)))
            noise = np.random.default_rng(seed).normal(size=svec_size(D)) / mu_of(EPSILON, DELTA)
            for name, gram in (("gaussian", rows.T @ rows + unsvec(noise, D)), ("exact", rows.T @ rows)):
                w = np.linalg.eigh(gram)[1][:, -1]
                logs[name].append(math.log(float(np.linalg.norm(w - v * (v @ w)))))
        for name, values in logs.items():
            found[name].append(math.exp(float(np.mean(values))))
    assert 0.85 < slope(sigmas, found["dp_pca"]) < 1.2
    low = slope(sigmas[2:], found["private_oja"][2:])
    assert low < 0.1
    assert slope(sigmas[2:], found["gaussian"][2:]) < 0.1
    assert found["dp_pca"][-1] < 0.1 * found["gaussian"][-1]
    assert found["dp_pca"][-1] < 3.0 * found["exact"][-1]
    assert found["gaussian"][0] < found["dp_pca"][0]  # where the rows are noisy, the Gaussian mechanism wins


def test_two_components() -> None:
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    signs = rng.choice([-1.0, 1.0], size=(60_000, 2)) * np.sqrt([0.6, 0.3])
    rows = onto_ball(signs @ basis.T + 0.01 * rng.normal(size=(60_000, 20)))
    release = last(make(20, n_components=2, horizon=60_000), rows)
    error = math.sin(release.subspace.angles(type(release.subspace)(basis)).max())
    assert error < 0.002
    assert (np.diff(release.eigenvalues) <= 0.0).all()  # type: ignore[arg-type]
    assert release.eigenvalues is not None
    assert release.eigenvalues / 60_000 == pytest.approx([0.6, 0.3], rel=0.1)


def test_refuses_before_any_row_is_spent() -> None:
    with pytest.raises(UsageError, match=r"horizon=5000 rows are too few .* need \d+\. .*GaussianCovariance"):
        sp.Stream(DPPCA(n_components=1, epsilon=1.0, delta=1e-5, horizon=5000), row_norm=1.0, features=D)
    with pytest.raises(UsageError, match="horizon=5000"):
        DPPCA(n_components=1, epsilon=1.0, delta=1e-5, horizon=5000).start(D)
    with pytest.raises(BadParameterError, match="expected at most"):
        DPPCA(n_components=1, epsilon=1.0, delta=1e-5, horizon=2**27 + 1)
    with pytest.raises(BadParameterError, match="batch_size=100: expected at least"):
        DPPCA(n_components=1, epsilon=1.0, delta=1e-5, horizon=50_000, batch_size=100).check(D)
    with pytest.raises(TypeError):
        DPPCA(n_components=1, epsilon=1.0, delta=1e-5)  # type: ignore[call-arg]


def test_too_few_rows_to_be_sure_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows: at 100 features and 12 000 rows one run in four fails; from the least horizon on none of 5 does."""
    monkeypatch.setattr(dp_pca, "MARGIN", MARGIN)
    given: dict[str, Any] = {"n_components": 1, "epsilon": 1.0}
    with pytest.raises(UsageError, match=r"need (\d+) for fewer than 1 run in 100 to fail.*batch_size") as refusal:
        DPPCA(horizon=12_000, **given).check(20)
    numbers = re.findall(r"need (\d+) for|batch_size=(\d+) it needs (\d+)", str(refusal.value))
    least, batch_size, shortest = int(numbers[0][0]), int(numbers[1][1]), int(numbers[1][2])
    assert 2 * shortest <= least
    DPPCA(horizon=shortest, batch_size=batch_size, **given).check(20)
    with pytest.raises(UsageError, match="too few"):
        DPPCA(horizon=least - 1, **given).check(20)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = 0.1 * rng.normal(size=(least, 20))
        rows[:, 0] += rng.normal(size=least)
        processor = DPPCA(horizon=least, **given).start(20, sp.Randomness.from_seed(seed))
        assert last(processor, onto_ball(rows / 4.0)).subspace.basis[0, 0] ** 2 > 0.9


@pytest.mark.parametrize("batch_size", ["auto", 6000])
def test_every_row_is_in_one_segment(batch_size: object) -> None:
    algorithm = DPPCA(epsilon=1.0, delta=1e-5, horizon=700_001, n_components=2, batch_size=batch_size)  # type: ignore[arg-type]
    start = 0
    for segment in algorithm.plan(D).segments:
        assert segment.stop - segment.rows == start < segment.stop <= segment.used
        start = segment.stop
    assert start == 700_001


def test_hostile_rows_fall_back_and_count() -> None:
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-5, 0, size=20_000)
    rows = onto_ball(rng.standard_cauchy(size=(20_000, 10)) * scale[:, None])
    release = last(make(10, horizon=20_000), rows)
    assert release.details["fallbacks"]["norm"] > 0
    assert np.isfinite(release.subspace.basis).all()
    zeros = last(make(10, horizon=20_000), np.zeros((20_000, 10)))
    assert np.isfinite(zeros.subspace.basis).all()


def test_constants_hold_every_scale() -> None:
    algorithm = DPPCA(n_components=1, epsilon=1.0, delta=1e-5, horizon=50_000)
    plan, constants = algorithm.plan(D), algorithm.constants(D)
    expected = plan.votes.scale, plan.inside_std, plan.across(0.5).std
    assert set(expected) <= set(constants)
    assert algorithm.constants(D + 1) != constants


def test_memory_has_no_d_by_d_array() -> None:
    """d = 3000: a d x d array would be 72 MB; 64 rows are 1.5 MB."""
    d = 3000
    algorithm = DPPCA(n_components=5, epsilon=8.0, delta=1e-5, horizon=60_000)
    rows = np.zeros((64, d))
    rows[:, 0] = 0.5
    oja = sp.PrivateOja(n_components=1, epsilon=1.0, delta=1e-5, batch_size=64).start(d, sp.Randomness.from_seed(1))
    feed(oja, rows, 64)  # imports on first use are not its memory
    tracemalloc.start()
    processor, releases = algorithm.start(d, sp.Randomness.from_seed(1)), []
    while not releases:
        processor, releases = feed(processor, rows, 64)
        assert processor.t < 8000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * d * d * 8


def test_each_row_reaches_one_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """What parallel composition needs at run time: no row is handed over twice, and none to two purposes."""
    horizon = 20_001
    rows = np.zeros((horizon, 10))
    rows[:, 0] = np.arange(1, horizon + 1) * 2.0**-20  # every row is another
    seen: list[float] = []
    take = DPPCAProcessor.take

    def spy(self: DPPCAProcessor, segment: Segment, block: np.ndarray) -> None:
        seen.extend(block[:, 0])
        take(self, segment, block)

    monkeypatch.setattr(DPPCAProcessor, "take", spy)
    feed(make(10, horizon=horizon), rows, 777)
    assert len(seen) == len(set(seen)) == horizon


@pytest.mark.parametrize(("adjacency", "factor"), [("zero-out", 1.0), ("replace", 2.0)])
def test_noise_is_calibrated_to_the_released_radius(
    adjacency: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise that privacy rests on, read off each segment; a planted half of it, or a stale radius, is caught."""
    processor: sp.Processor = make(10, horizon=20_000, n_components=2, adjacency=adjacency)
    rows, mu, close = signal_noise(20_000, 0.05, 1, 10)[0], mu_of(EPSILON, DELTA), DPPCAProcessor.close
    steps: list[int] = []
    released: list[float] = []

    def spy(self: DPPCAProcessor, segment: Segment, outlet: Overheard) -> None:
        radius = self.radius
        close(self, segment, outlet)
        if segment.purpose == "norm":
            released.append(self.radius)
        elif segment.purpose == "across":
            assert radius == released[-1]
            assert factor * radius <= outlet.released[-1][1] * mu <= factor * radius * (1.0 + 1e-6)
            steps.append(segment.step)
        else:
            assert math.sqrt(factor) <= outlet.released[-1][1] * mu <= math.sqrt(factor) * (1.0 + 1e-6)

    monkeypatch.setattr(DPPCAProcessor, "close", spy)
    while processor.rows_until_release:
        due = rows[processor.t : processor.t + processor.rows_until_release]
        processor, _ = processor.absorb(due, Overheard(processor))
    assert steps == list(range(len(steps)))
    assert len(released) == len(steps) >= 6
