"""Completion of filled rows: joint sensitivity, factors and their inverse, and the law of the noise."""

import itertools
import math

import numpy as np
import pytest

import streampca as sp
from streampca.linalg.centering import CONSTANT, JOINT_FACTOR, centered, counted
from streampca.linalg.completion import LEAST_SHARE, CompletedNoise, completing, private_shares
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import PRESENCE, entry_weights, pack_entries, unpack_entries
from streampca.queries import completed
from streampca.release.release import before_centering
from streampca.rows.admission import Admission


def vector(rows: np.ndarray, d: int, center: bool) -> np.ndarray:
    """The released coordinates of one admitted row, before noise."""
    width = d + int(center)
    gram = GramSum(width, further=d).add(rows)
    return gram.packed() / entry_weights(width, d)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("d", [1, 2, 4, 9])
def test_joint_sensitivity(d: int, center: bool) -> None:
    """No pair of rows, with gaps anywhere, bad or absent, moves the coordinates by more; some move them that far."""
    algorithm = {
        adjacency: sp.PrivateFPL(n_components=1, epsilon=1.0, adjacency=adjacency, center=center, horizon=10)  # type: ignore[arg-type]
        .corrected(counting=True).unit_sensitivity for adjacency in ("zero-out", "replace")
    }  # fmt: skip
    base = JOINT_FACTOR if center else 1.0
    assert algorithm["zero-out"] == pytest.approx(math.sqrt(base**2 + 0.1))
    assert algorithm["replace"] == pytest.approx(math.sqrt(2 * base**2 + 0.1))
    rng = np.random.default_rng(d)
    for bounds, norm in (((-1.0, 1.0), 1.0), (None, 2.0)):
        admission = Admission(bounds=bounds, row_norm=norm, n_features=d, center=center, on_missing="cell")
        raw = rng.normal(size=(400, d)) * rng.choice([0.3, 3.0], (400, 1))
        raw[:50] = rng.choice([-9.0, 9.0], (50, d))
        raw[rng.random(raw.shape) < 0.3] = np.nan
        raw[50:60] = rng.choice([np.inf, np.nan], (10, d))
        raw[60 : 60 + 2 * d] = 9.0 * np.concatenate([np.eye(d), -np.eye(d)])
        admitted, _ = admission.block(raw, 1)
        assert (np.linalg.norm(admitted[:, :d], axis=1) <= 1.0).all()
        points = np.array([vector(row[None], d, center) for row in admitted])
        lengths = np.linalg.norm(points, axis=1)
        assert lengths.max() <= algorithm["zero-out"]
        assert lengths.max() > 0.999 * algorithm["zero-out"]  # at full rows on the sphere
        assert max(np.linalg.norm(points - point, axis=1).max() for point in points) <= algorithm["replace"]
        bad = ~np.isfinite(np.where(np.isnan(raw), 0.0, raw)).all(axis=1)
        assert not admitted[bad].any()  # absent rows have no cell either


def test_rows_with_gaps_do_not_depend_on_each_other() -> None:
    rng = np.random.default_rng(0)
    raw = np.where(rng.random((50, 3)) < 0.4, np.nan, rng.normal(size=(50, 3)))
    admission = Admission(bounds=(-2.0, 5.0), n_features=3, center=True, on_missing="cell")
    together = admission.block(raw, 1)[0]
    assert np.array_equal(together, np.concatenate([admission.row(row, 1)[0] for row in raw]))
    assert (together[:, :3][np.isnan(raw)] == 0.0).all()  # the middle of the bounds
    assert np.array_equal(together[:, 4:], np.isfinite(raw))


def test_the_sums_of_cells_are_exact_for_every_cut() -> None:
    rng = np.random.default_rng(1)
    rows = np.hstack([np.rint(rng.uniform(-0.3, 0.3, (30, 3)) * 2**20) / 2**20, rng.integers(0, 2, (30, 3))])
    whole = GramSum(3, further=3).add(rows)
    single = GramSum(3, further=3)
    for row in rows:
        single = single.add(row[None])
    assert np.array_equal(whole.parts, single.parts)
    assert np.array_equal(whole.parts[0, -3:], rows[:, 3:].sum(axis=0))
    assert np.array_equal(whole.matrix().parts, GramSum.of(np.ascontiguousarray(rows[:, :3])).parts)


@pytest.mark.parametrize("center", [True, False])
def test_expected_sums_of_filled_rows_are_completed(center: bool) -> None:
    """Over all patterns of gaps of one row, weighted by their probabilities: exact."""
    row, present = np.array([0.5, -0.25, 0.125]), np.array([1.0, 0.5, 0.25])
    longer = np.append(row, CONSTANT) if center else row
    expected = np.zeros((len(longer),) * 2)
    for cells in itertools.product([0, 1], repeat=3):
        weight = np.prod(np.where(cells, present, 1.0 - present))
        filled = longer * np.append(cells, 1)[: len(longer)]
        expected += weight * np.outer(filled, filled)
    assert np.allclose(
        pack_entries(expected) * completing(present, center=center), pack_entries(np.outer(longer, longer))
    )


def test_private_shares_are_near_and_never_below_the_least() -> None:
    counts, rows, std = np.array([1000.0, 700.0, 10.0, 1020.0]), 1000.0, 0.5
    tau = std * math.sqrt(4 / PRESENCE) / rows
    shares = private_shares(counts, rows, std)
    assert shares[2] == LEAST_SHARE
    assert shares[3] <= 1.0
    assert abs(shares[1] - 0.7) <= 0.5 * tau
    assert private_shares(np.array([500.0]), 1000.0, 0.0)[0] == 0.5
    # Gaps that are all noise are mostly left alone.
    assert private_shares(np.array([1000.0 - 1000.0 * tau]), rows, std / 2)[0] > 1.0 - tau


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("private", [True, False])
def test_noise_of_a_completed_matrix(private: bool, center: bool) -> None:
    """4000 draws: each standard deviation within 6 %, of which chance exceeds 4 in 10**8 for one entry.

    Without the noise of the shares, or of mean and count, it is off by more than that.
    """
    rng = np.random.default_rng(2)
    d, n, sigma, runs = 4, 3000, 4.0, 4000
    present = np.linspace(0.4, 1.0, d)
    rows = rng.normal(size=(n, d)) * 0.2 + [0.3, -0.3, 0.5, 0.1]
    cells = rng.random(rows.shape) < present
    filled = np.hstack([np.where(cells, rows, 0.0), np.full((n, 1), CONSTANT)])
    raw, counts = pack_entries(filled.T @ filled), cells.sum(axis=0).astype(float)
    inner = np.flatnonzero(np.triu_indices(d + 1)[1] < d)
    found = []
    for _ in range(runs):
        noisy = raw + rng.normal(size=raw.size) * sigma * entry_weights(d + 1)
        count = counted(float(noisy[-1]), 1e9, sigma)[1] if center else float(n)
        shares = (counts + rng.normal(size=d) * sigma * math.sqrt(d / PRESENCE)) / count if private else present
        if center:
            found.append(centered(noisy * completing(shares, center=True), 1e9, sigma, present=shares).packed)
        else:
            found.append(noisy[inner] * completing(shares, center=False))
    gram = unpack_entries(np.mean(found, axis=0), d)
    shares = counts / n if private else present
    mean = filled[:, :d].mean(axis=0) / shares if center else np.zeros(d)
    noise = CompletedNoise(gram, mean, shares, float(n), sigma, private, center)
    vectors = np.linalg.eigh(gram)[1][:, ::-1]
    drawn = np.einsum("iv,nij,jw->nvw", vectors, [unpack_entries(one, d) for one in found], vectors)
    measured = drawn.std(axis=0) * np.where(np.eye(d), 1.0, math.sqrt(2.0))
    stated = noise.between(vectors)
    assert np.abs(stated / measured - 1.0).max() < 0.06
    for i, j in itertools.product(range(d), repeat=2):
        pair = np.outer(vectors[:, i], vectors[:, j])
        through = noise.through(0.5 * (pair + pair.T)) * (1.0 if i == j else math.sqrt(2.0))
        assert through == pytest.approx(stated[i, j])
    wrong = [noise._replace(present=np.ones(d))]
    wrong += [noise._replace(private=False)] * private + [noise._replace(center=False)] * center
    for one in wrong:
        assert np.abs(one.between(vectors) / measured - 1.0).max() > 0.06


def test_shares_of_one_change_no_release() -> None:
    rows = np.random.default_rng(3).normal(size=(20_000, 4)) * [0.4, 0.3, 0.2, 0.1] + 0.2
    plain = sp.pca(rows, 2, 1.0, bounds=(-1.0, 1.0), seed=1)
    public = completed(plain, 1.0)
    assert np.allclose(public.gram, plain.gram)
    assert np.allclose(public.mean, plain.mean)
    assert np.allclose(before_centering(public), before_centering(plain))
    # The law of a centered release has terms of second order, too.
    assert public.estimates.std == pytest.approx(plain.estimates.std, rel=1e-3)
    assert public.estimates.loading_std == pytest.approx(plain.estimates.loading_std, rel=1e-3)
    assert public.n_clear == plain.n_clear
