"""Private Oja: exact sensitivity, noise, schedules, bits, memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.errors import BadParameter, HorizonReached
from streampca.linalg.lattice import onto_ball
from streampca.privacy.gaussian import delta_at, mu_of
from streampca.privacy.randomness import Randomness
from streampca.privacy.shuffling import largest_local_epsilon, shuffled_epsilon, shuffled_mu
from streampca.processors.base import Processor
from streampca.processors.private_oja import PrivateOja, gradient_sensitivity
from streampca.release import Release


def spiked(n: int, d: int, k: int, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, k)))[0]
    rows = (rng.normal(size=(n, k)) * np.sqrt(np.linspace(1.0, 0.5, k) / k)) @ directions.T
    return onto_ball(rows + noise * rng.normal(size=(n, d)) / np.sqrt(d))


def captured(basis: np.ndarray, rows: np.ndarray) -> float:
    gram = rows.T @ rows
    return float(np.trace(basis.T @ gram @ basis) / np.linalg.eigvalsh(gram)[-basis.shape[1] :].sum())


def feed(processor: Processor, rows: np.ndarray, *sizes: int) -> list[Release]:
    releases, start, i = [], 0, 0
    while start < len(rows):
        size = min(sizes[i % len(sizes)], processor.rows_until_release, len(rows) - start)
        release = processor.absorb(rows[start : start + size])
        start, i = start + size, i + 1
        if release is not None:
            releases.append(release)
    return releases


def make(d: int = 6, seed: int = 1, **kw: object) -> PrivateOja:
    processor = PrivateOja(**{"epsilon": 1.0, "delta": 1e-6, **kw})  # type: ignore[arg-type]
    processor.bind(d, Randomness.from_seed(seed))
    return processor


def gradient(row: np.ndarray, basis: np.ndarray, clip: float) -> np.ndarray:
    full = np.outer(row, row @ basis)
    return full * min(1.0, clip / max(float(np.linalg.norm(full)), 1e-300))


@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    clip=st.floats(0.05, 1.0),
    adjacency=st.sampled_from(["zero-out", "replace"]),
)
@settings(deadline=None, max_examples=100)
def test_no_pair_of_rows_exceeds_the_sensitivity(seed: int, k: int, clip: float, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(4, k)))[0]
    pairs = rng.normal(size=(50, 2, 4)) @ np.diag(rng.exponential(size=4))
    pairs /= np.maximum(np.linalg.norm(pairs, axis=2, keepdims=True), 1e-9) / rng.uniform(size=(50, 2, 1)) ** 0.1
    bound = gradient_sensitivity(k, clip, adjacency)  # type: ignore[arg-type]
    for a, b in pairs:
        other = np.zeros(4) if adjacency == "zero-out" else b
        moved = np.linalg.norm(gradient(a, basis, clip) - gradient(other, basis, clip))
        assert moved <= bound * (1.0 + 1e-12)


def test_the_sensitivity_is_attained() -> None:
    basis = np.eye(4)[:, :1]
    half = math.sqrt(0.5)
    a, b = np.array([half, half, 0, 0]), np.array([half, -half, 0, 0])
    assert np.linalg.norm(gradient(a, basis, 1.0) - gradient(b, basis, 1.0)) == pytest.approx(1.0)
    basis = np.eye(4)[:, :2]
    a, b = basis.T
    assert np.linalg.norm(gradient(a, basis, 1.0) - gradient(b, basis, 1.0)) == pytest.approx(math.sqrt(2.0))
    steep = math.sqrt(1.0 - 0.1**2)  # small clips: nearly opposite gradients, nearly 2 * clip
    a, b = np.array([0.1, steep, 0, 0]), np.array([0.1, -steep, 0, 0])
    apart = np.linalg.norm(gradient(a, basis[:, :1], 0.1) - gradient(b, basis[:, :1], 0.1))
    assert 0.99 * 0.2 < apart <= gradient_sensitivity(1, 0.1, "replace") == 0.2


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("k", [1, 2])
def test_noise_is_calibrated(adjacency: str, k: int) -> None:
    """Sd of 20 000 numbers within 3 % (false alarm 2e-9); 2/3 and 3/2 of it are rejected."""
    processor = make(4, n_components=k, adjacency=adjacency, batch_size=1)
    mu = mu_of(1.0, 1e-6)
    expected = gradient_sensitivity(k, 1.0, adjacency) / mu  # type: ignore[arg-type]
    assert processor.noise_std(4) == pytest.approx(expected, rel=1e-8)
    assert processor.noise_std(4) >= expected
    seen: list[np.ndarray] = []
    scale = processor._rates.scale
    processor._rates.scale = lambda g, *rest: (seen.append(g.copy()), scale(g, *rest))[1]  # type: ignore[method-assign]
    feed(processor, np.zeros((20_000 // (4 * k), 4)), 1000)
    ratio = float(np.concatenate(seen).std()) / expected
    assert abs(ratio - 1.0) < 0.03
    for wrong in (2.0 / 3.0, 1.5):
        assert abs(ratio / wrong - 1.0) > 0.03


@pytest.mark.parametrize(
    "kw",
    [
        {},
        {"horizon": 3000},
        {"batch_size": 130},
        {"batch_size": 130, "horizon": 3000, "release_every": 700},
        {"clip": 0.3},
        {"shuffle": 1500, "adjacency": "replace", "epsilon": 0.1},
    ],
)
def test_bits_do_not_depend_on_blocks(kw: dict[str, object]) -> None:
    rows = spiked(3000, 6, 2)
    one = feed(make(n_components=2, **kw), rows, 3000)
    other = feed(make(n_components=2, **kw), rows, 1, 7, 130)
    assert [r.t for r in one] == [r.t for r in other]
    assert [r.subspace.basis.tobytes() for r in one] == [r.subspace.basis.tobytes() for r in other]
    if "horizon" in kw:
        assert one[-1].t == 3000
        processor = make(n_components=2, **kw)
        feed(processor, rows, 500)
        assert processor.rows_until_release == 0
        with pytest.raises(HorizonReached):
            processor.absorb(rows[:1])


@pytest.mark.parametrize("kw", [{}, {"horizon": 2500}, {"shuffle": 1250, "adjacency": "replace", "epsilon": 0.1}])
def test_restores(kw: dict[str, object]) -> None:
    rows = spiked(2500, 6, 2)
    first, second = make(n_components=2, **kw), make(n_components=2, **kw)
    feed(first, rows[:1333], 100)
    second.restore(first.state())
    ends = [feed(p, rows[1333:], 90)[-1] for p in (first, second)]
    assert ends[0].t == ends[1].t
    assert ends[0].subspace.basis.tobytes() == ends[1].subspace.basis.tobytes()


def test_learns_the_subspace() -> None:
    rows = spiked(20_000, 50, 3)
    release = feed(make(50, n_components=3, horizon=20_000), rows, 20_000)[-1]
    assert captured(release.subspace.basis, rows) > 0.99
    basis = release.subspace.basis
    assert np.abs(basis.T @ basis - np.eye(3)).max() < 1e-12


def test_guarantee_is_known_before_any_row() -> None:
    processor = PrivateOja(epsilon=1.0, delta=1e-6)
    guarantee = processor.guarantee
    assert guarantee.mu == pytest.approx(mu_of(1.0, 1e-6))
    assert (guarantee.epsilon, guarantee.delta, guarantee.adjacency) == (1.0, 1e-6, "zero-out")
    assert processor.clone().parameters() == processor.parameters()


def test_memory_is_dk() -> None:
    """d = 5000, k = 5: chunks of 64 rows and a dozen (d, k) arrays, where d x d would be 200 MB."""
    d = 5000
    rows = np.zeros((600, d))
    rows[np.arange(600), np.arange(600)] = 0.5
    feed(make(d, batch_size=300), rows, 600)  # imports on first use are not its memory
    processor = PrivateOja(n_components=5, epsilon=1.0, delta=1e-6)
    tracemalloc.start()
    processor.bind(d, Randomness.from_seed(1))
    feed(processor, rows, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (64 + 15 * 5) * d * 8


# -- shuffling ------------------------------------------------------------------------


def test_closed_form_of_2021() -> None:
    """The formula, written out once more."""
    e0, dh, n = 1.0, 1e-6, 10_000
    x = math.exp(e0)
    expected = math.log(1 + (x - 1) / (x + 1) * (8 * math.sqrt(x * math.log(4 / dh) / n) + 8 * x / n))
    assert shuffled_epsilon(e0, dh, n) == pytest.approx(expected)
    assert largest_local_epsilon(n, dh) == pytest.approx(math.log(n / (16 * math.log(4 / dh))))


def test_refused_outside_its_validity() -> None:
    with pytest.raises(BadParameter, match="shuffl"):
        shuffled_epsilon(5.0, 1e-6, 10_000)
    with pytest.raises(BadParameter, match="shuffle"):
        PrivateOja(epsilon=1.0, delta=1e-6, adjacency="replace", shuffle=500)
    with pytest.raises(BadParameter, match="adjacency"):
        PrivateOja(epsilon=1.0, delta=1e-6, shuffle=50_000)
    with pytest.raises(BadParameter, match="batch_size"):
        PrivateOja(epsilon=1.0, delta=1e-6, adjacency="replace", shuffle=50_000, batch_size=10)
    with pytest.raises(BadParameter, match="divide"):
        PrivateOja(epsilon=1.0, delta=1e-6, adjacency="replace", shuffle=50_000, horizon=70_000)


def test_shuffled_calibration_is_within_budget() -> None:
    for epsilon, n in ((1.0, 100_000), (0.1, 5_000)):
        mu, delta = shuffled_mu(epsilon, 1e-6, n), 1e-6
        assert mu > mu_of(epsilon, delta)
        # The best local epsilon for that mu proves (epsilon, delta), and a fifth more mu does not.
        spent = []
        for step in (mu, 1.2 * mu):
            totals = []
            for e0 in np.linspace(0.01, largest_local_epsilon(n, delta / 2), 4000):
                total = shuffled_epsilon(e0, delta / 2, n)
                if total <= epsilon:
                    tail = (math.exp(epsilon) + 1) * (1 + math.exp(-e0) / 2) * n * delta_at(step, e0)
                    totals.append(delta / 2 + tail)
            spent.append(min(totals))
        assert spent[0] <= delta * 1.02  # the grid misses the chosen local epsilon by a little
        assert spent[1] > delta


def test_shuffled_passes_use_every_row_once() -> None:
    processor = make(3, n_components=1, epsilon=0.1, adjacency="replace", shuffle=1250)
    seen: list[bytes] = []
    add = processor._add
    processor._add = lambda rows: (seen.extend(r.tobytes() for r in rows), add(rows))[1]  # type: ignore[method-assign]
    rows = spiked(2500, 3, 1)
    feed(processor, rows, 400)
    for i in (0, 1):
        block = [r.tobytes() for r in rows[1250 * i : 1250 * (i + 1)]]
        got = seen[1250 * i : 1250 * (i + 1)]
        assert sorted(got) == sorted(block)
        assert got != block


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"clip": 1.5},
        {"clip": 0.0},
        {"batch_size": 0},
        {"adjacency": "near"},
        {"horizon": 0},
    ],
)
def test_bad_parameters(bad: dict[str, object]) -> None:
    with pytest.raises(BadParameter, match=next(iter(bad))):
        PrivateOja(**{"epsilon": 1.0, "delta": 1e-6, **bad})  # type: ignore[arg-type]
