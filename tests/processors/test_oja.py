"""Oja, and Private Oja: accuracy, exact sensitivity, schedules, memory."""

import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from feeding import Overheard, feed
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.linalg.lattice import onto_ball
from streampca.processors.oja import EXACT_ROWS, GRID, orthonormalise
from streampca.processors.private_oja import PrivateOja, PrivateOjaProcessor, gradient_sensitivity
from streampca.views.card import card


def spiked(n: int, d: int, k: int, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, k)))[0]
    rows = (rng.normal(size=(n, k)) * np.sqrt(np.linspace(1.0, 0.5, k) / k)) @ directions.T
    return onto_ball(rows + noise * rng.normal(size=(n, d)) / np.sqrt(d))


def captured(basis: np.ndarray, rows: np.ndarray) -> float:
    gram = rows.T @ rows
    return float(np.trace(basis.T @ gram @ basis) / np.linalg.eigvalsh(gram)[-basis.shape[1] :].sum())


FIVE = PrivateOja(n_components=5, epsilon=1.0, delta=1e-6)


def make(d: int = 6, seed: int = 1, **kw: object) -> PrivateOjaProcessor:
    algorithm = PrivateOja(**{"n_components": 1, "epsilon": 1.0, "delta": 1e-6, **kw})  # type: ignore[arg-type]
    processor = algorithm.start(d, sp.Randomness.from_seed(seed))
    assert isinstance(processor, PrivateOjaProcessor)
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
    # Unit rows with the norm of the clip in the subspace, at the angle of the proof there and on two sides of it.
    for k, clip in ((1, 0.1), (1, 0.7), (2, 0.3), (2, 0.57), (2, 0.6), (2, 0.9)):
        cos, steep = min(1.0, (1.0 - clip**2) / (2.0 * clip**2)) if k > 1 else 1.0, math.sqrt(1.0 - clip**2)
        a, b = np.array([clip, 0, steep, 0]), np.array([clip * cos, clip * math.sqrt(1.0 - cos**2), -steep, 0])
        apart = np.linalg.norm(gradient(a, basis[:, :k], clip) - gradient(b, basis[:, :k], clip))
        assert apart == pytest.approx(gradient_sensitivity(k, clip, "replace"), rel=1e-12)


def test_the_default_clip_is_a_public_number_in_repr_card_and_state() -> None:
    asked = sp.PrivateOja(n_components=2, epsilon=1.0, horizon=40)
    stream = sp.Stream(asked, row_norm=1.0, features=[f"x{i}" for i in range(50)], seed=1)
    clip = 1.15 * math.sqrt(2 / 50)
    assert stream.algorithm == asked.resolved(50) == replace(asked, clip=clip)
    assert asked.resolved(2).clip == 1.0
    assert f"clip={clip!r}" in repr(stream.algorithm)
    same = sp.Stream(replace(asked, clip=clip), row_norm=1.0, seed=1)
    rows = spiked(40, 50, 2)
    release, other = (each.push_many(rows).releases[-1] for each in (stream, same))
    assert np.array_equal(release.subspace.basis, other.subspace.basis)
    assert release.details["gradient_clip"] == clip
    facts = {fact.label: fact.value for fact in card(release).facts}
    assert facts["Gradients clipped to"].startswith("0.23 row_norm**2")
    with_paper = sp.Stream(replace(asked, clip=1.0), row_norm=1.0, seed=1).push_many(rows).releases[-1]
    assert "Gradients clipped to" not in {fact.label for fact in card(with_paper).facts}


def test_an_unknown_number_of_features_leaves_the_clip_open(tmp_path: Path) -> None:
    stream = sp.Stream(FIVE, row_norm=1.0, store=sp.Store(tmp_path / "run"))
    assert stream.algorithm == FIVE
    stream.push_many(np.zeros((10, 80)))
    assert stream.algorithm.parameters()["clip"] == 1.15 * math.sqrt(5 / 80)
    stream.close()
    resumed = sp.Stream.resume(sp.Store(tmp_path / "run"))
    assert resumed.engine.now.processor.algorithm == resumed.algorithm == stream.algorithm  # type: ignore[union-attr]
    resumed.close()


@pytest.mark.parametrize("clip", [None, 0.3])
def test_what_is_hidden_is_the_exact_sum_of_clipped_gradients(clip: float | None) -> None:
    rows, processor = spiked(130, 6, 2), make(n_components=2, batch_size=130, clip=clip)
    first, _ = feed(processor, rows[:100], 7)
    outlet = Overheard(first)
    after, release = first.absorb(rows[100:], outlet)
    assert [kind for kind, _ in outlet.hidden] == ["gradient"]
    exact = outlet.hidden[0][1][0]
    expected = sum(gradient(row, processor.basis, clip or 1.15 * math.sqrt(2 / 6)) for row in rows)
    assert np.abs(exact - expected).max() < 4 * GRID
    assert np.array_equal(exact, np.rint(exact / GRID) * GRID)
    assert outlet.released[0][1] == processor.std
    assert release is not None
    assert after.chain == outlet.chain


def test_steps_are_never_longer_than_sums_are_exact() -> None:
    endless = PrivateOja(n_components=1, epsilon=1.0, delta=1e-6)
    assert [endless.step_end(t) - t for t in (0, 256, 1000, 10**9)] == [256, 256, 500, EXACT_ROWS]
    known = PrivateOja(n_components=1, epsilon=1.0, delta=1e-6, horizon=10**9)
    ends = [0]
    while ends[-1] < 10**9:
        ends.append(known.step_end(ends[-1]))
    assert ends[-1] == 10**9
    assert np.diff(ends).max() == EXACT_ROWS


def test_learns_the_subspace() -> None:
    rows = spiked(20_000, 50, 3)
    release = feed(make(50, n_components=3, horizon=20_000), rows, 20_000)[1][-1]
    assert captured(release.subspace.basis, rows) > 0.99
    basis = release.subspace.basis
    assert np.abs(basis.T @ basis - np.eye(3)).max() < 1e-12


def started(algorithm: sp.Oja, d: int, seed: int = 1) -> sp.Processor:
    return algorithm.start(d, sp.Randomness.from_seed(seed))


def last(algorithm: sp.Oja, rows: np.ndarray) -> sp.Release:
    return feed(started(algorithm, rows.shape[1]), rows, len(rows))[1][-1]


@pytest.mark.parametrize("d", [20, 100])
@pytest.mark.parametrize("rate", ["adaptive", (20.0, 20.0)])
def test_captures_what_exact_pca_does(d: int, rate: object) -> None:
    rows = spiked(20_000, d, 5)
    release = last(sp.Oja(n_components=5, learning_rate=rate), rows)  # type: ignore[arg-type]
    assert captured(release.subspace.basis, rows) >= 0.995
    assert not release.guarantee.is_private


def test_the_start_is_random_and_a_function_of_its_bytes() -> None:
    algorithm, randomness = sp.Oja(n_components=2), sp.Randomness()
    first, second = algorithm.start(6, randomness), algorithm.start(6, randomness)
    assert not np.allclose(first.basis, second.basis)  # type: ignore[attr-defined]
    again = algorithm.start(6, randomness, start=first.source.start)
    assert np.array_equal(first.basis, again.basis)  # type: ignore[attr-defined]


def test_orthonormalise_ill_conditioned_columns() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(20, 3))
    matrix[:, 2] = matrix[:, 1] * 1e8 + matrix[:, 2]
    basis = orthonormalise(np.asfortranarray(matrix.copy()))
    assert np.abs(basis.T @ basis - np.eye(3)).max() < 1e-12
    assert np.abs(matrix - basis @ (basis.T @ matrix)).max() < 1e-6


@pytest.mark.parametrize(("algorithm", "arrays"), [(sp.Oja(n_components=5), 100), (FIVE, 64 + 15 * 5)], ids=repr)
def test_memory_is_dk(algorithm: sp.Oja | PrivateOja, arrays: int) -> None:
    """d = 5000, k = 5: chunks of 64 rows and a dozen (d, k) arrays, where d x d would be 200 MB."""
    d = 5000
    rows = np.zeros((600, d))
    rows[np.arange(600), np.arange(600)] = 0.5
    first = replace(algorithm, batch_size=300, n_components=1)
    feed(first.start(d, sp.Randomness.from_seed(1)), rows)  # imports on first use are not its memory
    tracemalloc.start()
    feed(algorithm.start(d, sp.Randomness.from_seed(1)), rows[: 600 if algorithm is FIVE else 64], 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < arrays * d * 8
