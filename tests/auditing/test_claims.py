"""Claims are computed a second time, and a wrong calibration is refuted by that only."""

import math

import numpy as np
import pytest
from dense_forms import strategy
from planted.bugs import const, put
from planted.edge_bugs import BUGS, CASES  # those at the edges of decisions too
from scipy import stats

import streampca as sp
from streampca.auditing import claims
from streampca.auditing.runs import fresh_tape, run
from streampca.linalg import centering
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import WindowDifference
from streampca.mechanisms import adaptive
from streampca.mechanisms.exact_subspace import TruncatedLaplace
from streampca.privacy import budget, gaussian
from streampca.processors.private_sketch import sketch_sensitivity


def recomputed(name):
    case = CASES[name]
    subject = case.make()
    tape = fresh_tape(1, name)
    run(case, subject, case.both_rows(subject)[1], case.feeds[0], tape, look=False)
    claim = case.guarantee(subject) if case.guarantee else subject.guarantee
    return claims.recomputed(subject, case.d, claim, tape.notes)


#: Cases in which no more than (epsilon, delta) against mu is computed: noise for a gap that shows, votes only.
ONLY_PROFILE = {"SubspacePerturbation", "edge-center"}
NAMES = [name for name in CASES if not name.startswith("life-")]


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
    c = strategy(GeometricBLT(20, 1.0), 20)
    np.testing.assert_allclose(claims.products(GeometricBLT(20, 1.0)), c.T @ c, atol=1e-9)


def test_sums_without_noise_cost_everything():
    tree = BinaryTree(8, 1.0)
    object.__setattr__(tree, "node_std", 0.0)
    assert claims.of_sums("sums", tree, 1.0, 1.0).found == math.inf


#: Planted bugs in a calibration, by name and case, and where they show.
WRONG = {
    ("sum of rows forgotten in the sensitivity", "PrivateFPL-centered"): "running sums",
    ("the count forgotten in the sensitivity", "PrivateFPL-centered"): "running sums",
    ("the count forgotten under replace", "PrivateFPL-centered-replace"): "running sums",
    ("rewards forgotten in the sensitivity", "PrivateFPL-rewards"): "running sums",
    ("column norms forgotten", "PrivateFPL"): "running sums",
    ("tree one level too shallow", "PrivateFPL-tree"): "running sums",
    ("mean not counted in the budget", "AdaptiveCovariance-centered"): "together",
    ("mean not counted in the budget", "AdaptiveLaplaceCovariance-centered-replace"): "together",
    ("mean of zero-out under replace", "AdaptiveCovariance-centered-replace"): "together",
    ("the count forgotten in the sensitivity", "AdaptiveLaplaceCovariance-centered"): "together",
    ("sensitivity halved", "PrivateOja-n_components_2-replace"): "a step",
    ("sum of rows not charged", "PrivateSketch-centered"): "running sketches",
    ("sum of rows not charged", "PrivateSketch-centered-replace"): "running sketches",
    ("sketches of zero-out under replace", "PrivateSketch-replace"): "running sketches",
    ("noise for one bin where two change", "DPPCA"): "vote that moves",
    ("threshold too low", "StabilityHistogram-moves"): "lone vote",
    ("budget not split over widths", "ApproximateSubspace"): "vote that moves",
    ("c halved", "MatrixLaplaceCovariance"): "matrix",
    ("as printed", "WishartCovariance"): "quadrature",
    ("mu of a budget 5 percent too large", "GaussianCovariance"): "delta of mu",
    ("bounds of all columns with the noise of one", "PrivateFPL-private-bounds-replace"): "private bounds",
}
#: The same for attributes that no bug replaces.
PATCHED = {
    "AdaptiveCovariance": (put(adaptive, "FIRST_SHARE", 0.36), "together"),
    "ExactSubspace": (const(TruncatedLaplace, "bound", lambda self: 1.5), "votes"),
    "SubspacePerturbation-replace": (
        const(sp.papers.SubspacePerturbation, "_gram_std", lambda self: self.budget.sensitivity() / self.mu),
        "gap and Gram"),
}  # fmt: skip


def refuted(case):
    return [one.what for one in recomputed(case) if one.refuted]


@pytest.mark.parametrize("wrong", WRONG, ids=" in ".join)
def test_a_wrong_calibration_is_refuted(wrong):
    (bug,) = (bug for bug in BUGS if (bug.name, bug.case) == wrong)
    with bug.planted():
        assert any(WRONG[wrong] in what for what in refuted(bug.case))


@pytest.mark.parametrize("case", PATCHED)
def test_a_wrong_constant_is_refuted(case, monkeypatch):
    patch, what = PATCHED[case]
    owner, name, change = patch
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    assert any(what in one for one in refuted(case))


def test_the_auditor_reports_the_witness(monkeypatch):
    monkeypatch.setattr(budget, "JOINT_FACTOR", 1.0)
    rows = sp.audit(CASES["PrivateFPL-centered"], mode="quick", seed=1).rows
    assert [(row.part, row.verdict) for row in rows] == [("claim", "refuted")]
    assert "running sums by dense matrices" in rows[0].witness


def test_the_constants_of_centering_by_search():
    assert claims.gram_move(5, "zero-out", center=True) == pytest.approx(centering.JOINT_FACTOR, rel=1e-12)
    assert claims.gram_move(5, "replace", center=True) == pytest.approx(1.125 * math.sqrt(2.0), rel=2e-6)
    assert claims.gram_move(1, "replace") == 1.0


@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_sensitivity_of_sketches_by_search(weight, adjacency):
    found = claims.sketch_move(5, 2, 0.4, weight, adjacency)
    assert found == pytest.approx(sketch_sensitivity(0.4, weight, adjacency), rel=1e-9)
