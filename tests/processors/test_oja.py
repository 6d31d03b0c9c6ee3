"""Oja: accuracy, bits, snapshots, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from streampca.errors import BadParameterError
from streampca.linalg.lattice import onto_ball
from streampca.privacy.randomness import Randomness
from streampca.processors.ascent import orthonormalise
from streampca.processors.base import Processor
from streampca.processors.oja import Oja
from streampca.release.release import Release


def spiked(n: int, d: int, k: int, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, k)))[0]
    rows = (rng.normal(size=(n, k)) * np.sqrt(np.linspace(1.0, 0.5, k) / k)) @ directions.T
    return onto_ball(rows + noise * rng.normal(size=(n, d)) / np.sqrt(d))


def captured(basis: np.ndarray, rows: np.ndarray) -> float:
    gram = rows.T @ rows
    return float(np.trace(basis.T @ gram @ basis) / np.linalg.eigvalsh(gram)[-basis.shape[1] :].sum())


def feed(processor: Processor, rows: np.ndarray, *sizes: int) -> tuple[Processor, list[Release]]:
    releases, start, i = [], 0, 0
    while start < len(rows):
        size = min(sizes[i % len(sizes)], processor.rows_until_release, len(rows) - start)
        processor, release = processor.absorb(rows[start : start + size])
        start, i = start + size, i + 1
        if release is not None:
            releases.append(release)
    return processor, releases


def started(algorithm: Oja, d: int, seed: int = 1) -> Processor:
    return algorithm.start(d, Randomness.from_seed(seed))


def last(algorithm: Oja, rows: np.ndarray) -> Release:
    return feed(started(algorithm, rows.shape[1]), rows, len(rows))[1][-1]


@pytest.mark.parametrize("d", [20, 100])
@pytest.mark.parametrize("rate", ["adaptive", (20.0, 20.0)])
def test_captures_what_exact_pca_does(d: int, rate: object) -> None:
    rows = spiked(20_000, d, 5)
    release = last(Oja(n_components=5, learning_rate=rate), rows)  # type: ignore[arg-type]
    assert captured(release.subspace.basis, rows) >= 0.995
    assert not release.guarantee.is_private


def test_a_rate_that_is_too_low_does_not() -> None:
    rows = spiked(20_000, 100, 5)
    assert captured(last(Oja(n_components=5, learning_rate=(0.5, 50.0)), rows).subspace.basis, rows) < 0.9


@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_bits_do_not_depend_on_blocks(batch_size: int) -> None:
    rows = spiked(500, 12, 3)
    algorithm = Oja(n_components=3, batch_size=batch_size, release_every=50)
    one = [r.subspace.basis.tobytes() for r in feed(started(algorithm, 12), rows, 1)[1]]
    other = [r.subspace.basis.tobytes() for r in feed(started(algorithm, 12), rows, 3, 40, 11)[1]]
    assert len(one) == 10
    assert one == other


def test_snapshots_continue_bit_for_bit() -> None:
    rows = spiked(500, 12, 3)
    algorithm, randomness = Oja(n_components=3, release_every=100), Randomness()
    first, _ = feed(algorithm.start(12, randomness), rows[:233], 50)
    second = algorithm.start(12, randomness, start=first.source.start, snapshot=first.snapshot())
    assert second.rows_until_release == 67
    ends = [feed(p, rows[233:], 50)[1][-1] for p in (first, second)]
    assert ends[0].subspace.basis.tobytes() == ends[1].subspace.basis.tobytes()
    assert np.array_equal(ends[0].eigenvalues, ends[1].eigenvalues)  # type: ignore[arg-type]


def test_a_processor_is_a_value() -> None:
    """The processor before a step may go on any number of times, and a snapshot does not change."""
    rows = spiked(300, 12, 3)
    algorithm = Oja(n_components=3, batch_size=16, release_every=50)
    before, _ = feed(started(algorithm, 12), rows[:23], 10)
    snapshot = before.snapshot()
    held = {name: np.copy(value) for name, value in snapshot.items() if isinstance(value, np.ndarray)}
    one = feed(before, rows[23:], 9)[1]
    feed(before, rows[::-1][:200], 7)
    again = feed(before, rows[23:], 50)[1]
    assert [r.subspace.basis.tobytes() for r in one] == [r.subspace.basis.tobytes() for r in again]
    assert all(np.array_equal(snapshot[name], array) for name, array in held.items())
    assert before.t == 23


def test_the_start_is_random_and_a_function_of_its_bytes() -> None:
    algorithm, randomness = Oja(n_components=2), Randomness()
    first, second = algorithm.start(6, randomness), algorithm.start(6, randomness)
    assert not np.allclose(first.basis, second.basis)  # type: ignore[attr-defined]
    again = algorithm.start(6, randomness, start=first.source.start)
    assert np.array_equal(first.basis, again.basis)  # type: ignore[attr-defined]


def test_an_algorithm_is_a_value() -> None:
    algorithm = Oja(n_components=2, learning_rate=[1.0, 2.0])  # type: ignore[arg-type]
    assert algorithm == Oja(n_components=2, learning_rate=(1.0, 2.0))
    assert eval(repr(algorithm)) == algorithm
    assert len({algorithm, Oja(n_components=2, learning_rate=(1.0, 2.0)), Oja()}) == 2


def test_basis_is_orthonormal_and_eigenvalues_fall() -> None:
    rows = spiked(2000, 30, 4)
    for release in feed(started(Oja(n_components=4, release_every=400), 30), rows, 400)[1]:
        basis = release.subspace.basis
        assert np.abs(basis.T @ basis - np.eye(4)).max() < 1e-12
        assert (np.diff(release.eigenvalues) <= 0.0).all()  # type: ignore[arg-type]


def test_orthonormalise_ill_conditioned_columns() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(20, 3))
    matrix[:, 2] = matrix[:, 1] * 1e8 + matrix[:, 2]
    basis = orthonormalise(np.asfortranarray(matrix.copy()))
    assert np.abs(basis.T @ basis - np.eye(3)).max() < 1e-12
    assert np.abs(matrix - basis @ (basis.T @ matrix)).max() < 1e-6


def test_memory_is_dk() -> None:
    """d = 5000, k = 5: a d x d array would be 200 MB, 20 (d, k) arrays are 4 MB."""
    d = 5000
    rows = np.zeros((64, d))
    rows[np.arange(64), np.arange(64)] = 0.5
    feed(started(Oja(), d), rows, 64)  # imports on first use are not its memory
    tracemalloc.start()
    feed(started(Oja(n_components=5), d), rows, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * d * 5 * 8


def test_all_features_as_components() -> None:
    basis = last(Oja(n_components=4, release_every=200), spiked(200, 4, 2)).subspace.basis
    assert np.allclose(basis @ basis.T, np.eye(4))


@pytest.mark.parametrize("rate", ["fast", 0.0, -1.0, (1.0, -1.0), (1.0,), np.nan])
def test_bad_rates(rate: object) -> None:
    with pytest.raises(BadParameterError, match="learning_rate"):
        Oja(learning_rate=rate)  # type: ignore[arg-type]


def test_huge_rates_still_give_a_basis() -> None:
    basis = last(Oja(n_components=2, learning_rate=(1e307, 0.0)), spiked(64, 5, 2)).subspace.basis
    assert np.abs(basis.T @ basis - np.eye(2)).max() < 1e-12
