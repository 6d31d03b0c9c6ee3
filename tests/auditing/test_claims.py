"""Claims are computed a second time, and a wrong calibration is refuted by that only."""

import math

import numpy as np
import pytest
from planted.edges import CASES
from scipy import stats

import streampca as sp
from streampca.auditing import claims
from streampca.auditing.runs import fresh_tape, run
from streampca.auditing.suite import audit
from streampca.linalg import centering
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import WindowDifference
from streampca.mechanisms import adaptive
from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import TruncatedLaplace
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.papers.wishart import WishartCovariance
from streampca.privacy import budget, gaussian
from streampca.processors import private_fpl, private_oja
from streampca.rows.bounds import PrivateBounds


def recomputed(name):
    case = CASES[name]
    subject = case.make()
    tape = fresh_tape(1, name)
    run(case, subject, case.both_rows(subject)[1], case.feeds[0], tape, look=False)
    claim = case.guarantee(subject) if case.guarantee else subject.guarantee
    return claims.recomputed(subject, case.d, claim, tape.notes)


#: Cases in which no more than (epsilon, delta) against mu is computed: noise for a gap that shows, votes only.
ONLY_PROFILE = {"SubspacePerturbation", "edge-center"}
NAMES = [name for name in CASES if name not in ("run-command", "csv", "bad-rows") and not name.startswith("life-")]


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_confirmed(name):
    found = recomputed(name)
    assert not [str(one) for one in found if one.refuted]
    assert max((abs(one.found / one.claimed - 1.0) for one in found if one.tight), default=0.0) < 5e-6
    assert len([one for one in found if not one.what.startswith("delta of mu")]) > 0 or name in ONLY_PROFILE


def test_quadrature_agrees_with_the_closed_form():
    for mu in (1e-3, 0.1, 1.0, 3.0, 8.0):
        for epsilon in (0.0, 0.1, 1.0, 10.0):
            exact = gaussian.delta_at(mu, epsilon)
            assert claims.profile(mu, epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-300)
    found = claims.hockey_stick(stats.norm(1.5).pdf, stats.norm.pdf, 1.0, (-12.0, 14.0))
    assert found == pytest.approx(gaussian.delta_at(1.5, 1.0), rel=1e-9)


def test_noise_as_it_runs_has_the_matrix_that_is_stated():
    for mechanism in (GeometricBLT(20, 1.0), BinaryTree(20, 2.0), WindowDifference(4, 1.0)):
        b, stated = claims.dense(mechanism), mechanism.reconstruction(20)
        np.testing.assert_allclose((b @ b.T)[:20, :20], stated @ stated.T, atol=1e-12)
    c = GeometricBLT(20, 1.0).strategy(20)
    np.testing.assert_allclose(claims.products(GeometricBLT(20, 1.0)), c.T @ c, atol=1e-9)


def test_sums_without_noise_cost_everything(monkeypatch):
    monkeypatch.setattr(BinaryTree, "node_std", property(lambda self: 0.0))
    assert claims.columns_norm(BinaryTree(8, 1.0))[0] == math.inf


@pytest.mark.parametrize("noise", ["blt", "tree"])
@pytest.mark.parametrize("every", [1, 4])
def test_users_of_several_rows_by_brute_force(noise, every):
    given = {"n_components": 1, "epsilon": 8.0, "delta": 1e-2, "noise": noise, "max_rows_per_user": 3}
    subject = sp.PrivateFPL(horizon=8 * every, release_every=every, **given)
    norm, rows = claims.columns_norm(subject.mechanism, 3, every)
    assert 0.8 * subject.budget.mu < norm <= subject.budget.mu
    assert rows.startswith("rows ")


def test_rows_of_a_user_within_one_input_are_counted(monkeypatch):
    honest = private_fpl.user_factor
    monkeypatch.setattr(private_fpl, "user_factor", lambda made, rows, every: honest(made, rows))
    given = {"n_components": 1, "epsilon": 8.0, "delta": 1e-2, "horizon": 12, "max_rows_per_user": 3}
    for noise in ("blt", "tree"):
        subject = sp.PrivateFPL(release_every=3, noise=noise, **given)
        found = [one for one in claims.recomputed(subject, 4, subject.guarantee, ()) if one.refuted]
        assert len(found) == 1
        assert found[0].found > 1.19 * found[0].claimed
        rows = [int(row) for row in found[0].what.split("rows ")[1].split(", ")]
        assert len({(row - 1) // 3 for row in rows}) == 1, found[0]


#: Name of a case, what is wrong, and where it shows.
WRONG = {
    "sum of rows forgotten": ("PrivateFPL-centered", (budget, "joint_factor", lambda **given: 1.0), "running sums"),
    "centered replace as zero-out": (
        "PrivateFPL-centered-replace", (budget, "joint_factor", lambda **given: math.hypot(1.0, 0.5)), "running sums"),
    "rewards forgotten": (
        "PrivateFPL-rewards", (private_fpl, "joint_sensitivity", lambda gram: gram), "running sums"),
    "columns of equal norm": (
        "PrivateFPL", (GeometricBLT, "_norms", lambda self, n: np.ones(len(n))), "running sums"),
    "a level too few": (
        "PrivateFPL-tree", (BinaryTree, "levels", property(lambda self: int(self.horizon).bit_length() - 1)),
        "running sums"),
    "half the sensitivity of gradients": (
        "PrivateOja-two", (private_oja, "gradient_sensitivity", lambda *given: 0.5), "a step"),
    "shares above 1": ("AdaptiveCovariance", (adaptive, "FIRST_SHARE", 0.36), "together"),
    "half the scale of a vote": (
        "DPPCA", (StabilityHistogram, "scale", property(lambda self: 1.0 / self.epsilon)), "vote that moves"),
    "threshold too low": (
        "StabilityHistogram-moves", (StabilityHistogram, "threshold", property(lambda self: 1.0)), "lone vote"),
    "budget not split over widths": (
        "ApproximateSubspace",
        (sp.papers.ApproximateSubspace, "histogram",
         property(lambda self: StabilityHistogram(self.epsilon, self.delta))),
        "vote that moves"),
    "matrix Laplace at half": (
        "MatrixLaplaceCovariance", (MatrixLaplaceCovariance, "scale", lambda self, d: 0.25), "matrix"),
    "Wishart as printed": ("WishartCovariance", (WishartCovariance, "scale", lambda self, d: 0.2), "quadrature"),
    "truncated too early": (
        "ExactSubspace", (TruncatedLaplace, "bound", property(lambda self: 1.5)), "votes"),
    "one share of mu for gap and matrix": (
        "SubspacePerturbation-replace", (sp.papers.SubspacePerturbation, "_mu2", property(lambda self: self.mu)),
        "gap and Gram"),
    "users counted as rows": ("PrivateFPL-users", (private_fpl, "user_factor", lambda *given: 1.0), "rows 1, 2"),
    "a mu too large": (
        "GaussianCovariance", (gaussian, "mu_of", lambda *given, of=gaussian.mu_of: 1.001 * of(*given)), "delta of mu"),
    "noise of one column for all": (
        "PrivateFPL-private-bounds-replace",
        (PrivateBounds, "std", lambda self, n_features: 1.0 / self.mu), "private bounds"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_calibration_is_refuted(wrong, monkeypatch):
    name, patch, what = WRONG[wrong]
    monkeypatch.setattr(*patch)
    found = recomputed(name)
    assert any(what in one.what for one in found if one.refuted), [str(one) for one in found]


def test_the_auditor_reports_the_witness(monkeypatch):
    monkeypatch.setattr(budget, "joint_factor", lambda **given: 1.0)
    rows = audit(CASES["PrivateFPL-centered"], mode="quick", seed=1).rows
    assert [(row.part, row.verdict) for row in rows] == [("claim", "refuted")]
    assert "running sums by dense matrices" in rows[0].witness


def test_the_constants_of_centering_by_search():
    c = centering.CONSTANT
    assert claims.gram_move(5, "zero-out", center=True) == pytest.approx(math.sqrt(1 + 2 * c * c), rel=1e-12)
    assert claims.gram_move(5, "replace", center=True) == pytest.approx(1.125 * math.sqrt(2.0), rel=2e-6)
    assert claims.gram_move(1, "replace") == 1.0
