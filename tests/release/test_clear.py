"""Components that stand out from the noise: error rates on rows without structure, power, and what is shown."""

import json
import re

import numpy as np
import pytest
from dense_forms import gram_release
from scipy.stats import binom

import streampca as sp
from streampca.errors import UsageError
from streampca.linalg.centering import centered, longer_matrix, with_constant
from streampca.linalg.svec import pack_entries, svec_size, unpack_entries, unsvec
from streampca.release.clear import NoiseLaw, leading
from streampca.release.terms import gram_fields
from streampca.views.card import card
from streampca.views.facts import Looks, Marks
from streampca.views.page import Page

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
GUARANTEE = sp.PrivateFPL(n_components=1, **BUDGET).guarantee
SIGMA = 1.125 / sp.Budget(**BUDGET).mu
LENGTHS, LONG = (20, 200, 2000, 20_000), (pytest.mark.ci, pytest.mark.long)
SHAPES = ((2, 1), (4, 2), (6, 2), (10, 3), (30, 3))


def most(draws: int, rate: float, alarm: float = 1e-4) -> int:
    """The largest plausible count at a rate; a correct program exceeds it with probability ``alarm``."""
    return int(binom.isf(alarm, draws, rate))


def noisy(gram, sigma, rng):
    d = len(gram)
    return gram + sigma * unsvec(rng.normal(size=svec_size(d)), d)


def a_release(rows, k, rng, *, n=None, sigma=SIGMA):
    """A centered release of rows that are present, of n rows in all."""
    longer = with_constant(rows)
    packed = pack_entries(noisy(longer.T @ longer, sigma, rng))
    terms = sp.Terms(GUARANTEE)
    return sp.Release(
        t=n or len(rows), n_components=k, terms=terms, **gram_fields(packed, sigma, terms, {}, n or len(rows))
    )


def test_the_matrix_longer_matrix_is_the_released_one():
    rng = np.random.default_rng(0)
    rows = with_constant(rng.normal(size=(300, 4)) / 4.0 + 0.3)
    packed = pack_entries(noisy(rows.T @ rows, 2.0, rng))
    about = centered(packed, 400, 2.0)
    again = longer_matrix(unpack_entries(about.packed, 4), about.sums, about.noisy_count, about.divisor, 2.0)
    np.testing.assert_allclose(again, unpack_entries(packed, 5), atol=1e-9)


@pytest.mark.parametrize("adaptive", [False, True])
def test_leading_components_are_those_of_least_eigenvalues_above_the_quantiles(adaptive):
    rng, law, seen = np.random.default_rng(1), NoiseLaw("gaussian", 1.0), set()
    for _ in range(60):
        matrix = noisy(np.diag(16.0 * rng.uniform(size=6) ** 2), 1.0, rng)
        for joint in (0, 1):
            d = 6 - joint
            basis = np.linalg.eigh(matrix[:d, :d])[1][:, ::-1][:, :4]
            found = 0
            for i in range(1, 5):
                axes = np.zeros((6, i + joint))
                axes[:d, :i] = basis[:, :i]
                axes[d:, i:] = 1.0
                level = law.quantile(6 if adaptive else d - i + 1, 6, 0.05)
                if np.linalg.eigvalsh(axes.T @ matrix @ axes)[0] <= level:
                    break
                found = i
            assert leading(matrix, basis, np.ones(4), law, 0.05, adaptive=adaptive) == found
            seen.add(found)
    assert len(seen) > 2
    assert leading(np.diag([9.0, 8.0]), np.eye(2), np.array([1.0, 0.4]), NoiseLaw("gaussian", 0.0), 0.05) == 1
    assert leading(np.diag([9.0, 0.0]), np.eye(2), np.ones(2), NoiseLaw("gaussian", 0.0), 0.05) == 1


@pytest.mark.parametrize(
    "mechanism",
    [
        sp.MatrixLaplaceCovariance(n_components=1, epsilon=1.0),
        sp.papers.LaplaceCovariance(n_components=1, epsilon=1.0),
        sp.papers.WishartCovariance(n_components=1, **BUDGET),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_laws_are_those_of_the_mechanisms(mechanism):
    d, draws = 4, 1000
    law = mechanism.noise_law(d)
    noise = [unsvec(mechanism.noise(d, _Normals(seed)), d) for seed in range(draws)]
    largest = np.array([np.linalg.eigvalsh(one)[-1] for one in noise])
    for tail in (0.05, 0.2):
        beyond = int((largest > law.quantile(1, d, tail)).sum())
        assert most(draws, 1.0 - tail, 1e-5) >= draws - beyond
        assert beyond <= most(draws, 1.1 * tail, 1e-5)  # a quantile of 4000 draws errs by up to a tenth of its tail
    off = np.array([one[0, 1] for one in noise])
    assert np.sqrt(2.0) * off.std() == pytest.approx(law.std(d), rel=0.15)
    rows = np.zeros((50, d))
    release = mechanism.release(rows, seed=1, row_norm=1.0)
    again = sp.Release.from_json(release.to_json())
    assert again.n_clear == release.n_clear == mechanism.release(rows, seed=1, row_norm=1.0).n_clear
    assert release.stands_out(1e-9) is None
    rows[:, 0] = 1.0
    assert mechanism.release(np.repeat(rows, 40, axis=0), seed=1, row_norm=1.0).n_clear == 1
    found = sum(mechanism.release(np.zeros((9, d)), seed=seed, row_norm=1.0).n_clear > 0 for seed in range(200))
    assert found <= most(200, 0.055)


class _Normals:
    """The draws of a mechanism's noise, from numpy."""

    def __init__(self, seed):
        self.source = np.random.default_rng(seed)

    def normal(self, size):
        return self.source.standard_normal(size)

    def laplace(self, size):
        return self.source.laplace(size=size)


@pytest.mark.parametrize("adaptive", [sp.AdaptiveCovariance, sp.AdaptiveLaplaceCovariance])
def test_adaptive_noise_is_stated_by_the_release(adaptive):
    mechanism = adaptive(
        n_components=1, center=False, **(BUDGET if adaptive is sp.AdaptiveCovariance else {"epsilon": 1.0})
    )
    found = [mechanism.release(np.zeros((2000, 3)), seed=seed, row_norm=1.0).n_clear for seed in range(100)]
    assert sum(found) <= most(100, 0.05)
    short = np.zeros((4000, 3))
    short[:, 0] = 0.1  # a sum of 40 against noise of norm 20, or of less than 10 once the radius is found
    assert mechanism.release(short, seed=1, row_norm=1.0).n_clear == 1


def test_what_cannot_tell_says_so():
    basis = sp.Release(t=9, n_components=1, guarantee=GUARANTEE, basis=np.eye(3, 1), eigenvalues=np.ones(1))
    unknown = gram_release(np.diag([9.0, 1.0]), t=9, n_components=1, guarantee=GUARANTEE)
    smoothed = unknown.replaced(packed_smoothed=unknown.packed.copy())
    for release, words in ((basis, "directions only"), (unknown, "is not tested"), (smoothed, "is not tested")):
        assert release.n_clear is None
        shown = card(release).text()
        assert words in shown
        assert not any(said in shown for said in ("share of", "variance per row", "±", "for one standard deviation"))
    assert basis.replaced(terms=sp.Terms(sp.Guarantee.none("test"))).n_clear == 1
    line = (
        sp.MatrixLaplaceCovariance(n_components=1, epsilon=1.0)
        .release(np.zeros((5, 2)), seed=0, row_norm=1.0)
        .to_json()
    )
    for law in ('["normal",1.0,0]', '["laplace",-1.0,0]', '["wishart",1.0,1e99]', "[1]"):
        with pytest.raises(UsageError, match="not a release"):
            sp.Release.from_json(re.sub(r'"noise":\s*\[[^]]*\]', f'"noise":{law}', line))


def check_silence(release: sp.Release, marks: Marks) -> None:
    """No digit of a share, a loading or a captured share is shown."""
    shown = card(release, marks=marks)
    for text in (shown.text(80), shown.html()):
        assert "No direction stands out" in text
        assert len(re.findall(r"\d\s*%", text)) == 1  # the error rate
        assert not re.search(r"[-+±]\s*\d*\.\d", text)


def sweep(shape, draws, rows, **options):
    """Return how often anything is marked, and a share is shown, over releases of rows without structure."""
    (d, k), marked, shares = shape, 0, 0
    for seed in range(draws):
        algorithm = sp.PrivateFPL(n_components=k, horizon=len(rows), release_every=len(rows), **BUDGET, **options)
        stream = sp.Stream(algorithm, seed=seed, row_norm=2.0, features=d, regret=None)
        release = stream.push_many(rows).releases[-1]
        marks = Marks.of(release)
        assert marks.clear == release.n_clear
        if marks.clear:
            marked += 1
            shares += "Their share" in card(release, marks=marks).text()
        elif seed < 100:
            check_silence(release, marks)
    return marked, shares


def test_zero_rows_have_no_components():
    """Stated rate .05; false alarm 1e-4. Twice the rate fails with probability .99."""
    marked, shares = sweep((4, 2), 150, np.zeros((40, 4)))
    assert marked <= most(150, 0.05)
    assert shares <= most(150, 0.01)


@pytest.mark.ci
@pytest.mark.parametrize(("value", "center"), [(0.0, False), (0.0, True), (np.nan, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_without_structure_have_no_components(shape, value, center):
    """Stated rate .05 and two standard errors, of 1000 draws with fixed seeds; shares in at most 2 %.

    About zero a bad row is a zero row, to the bit (`tests/conformance`).
    """
    marked, shares = sweep(shape, 1000, np.full((40, shape[0]), value), center=center)
    assert marked <= 65
    assert shares <= 20


@pytest.mark.ci
def test_over_a_run_no_noise_is_marked():
    """20 releases of zeros, 300 runs: stated rate .05 of runs, for all looks together."""
    marked = 0
    for seed in range(300):
        algorithm = sp.PrivateFPL(n_components=2, horizon=200, release_every=10, **BUDGET)
        stream, found = sp.Stream(algorithm, seed=seed, row_norm=1.0, regret=None), []
        looks, page = Looks(), Page()
        for release in stream.push_many(np.zeros((200, 6))).releases:
            looks.see(release)
            found.append(looks.marks.clear)
            page.add([release])
        looks.last(release)
        page.end()
        assert page.looks.marks == looks.marks
        any_marked = max(*found, looks.marks.clear) > 0
        marked += any_marked
        if not any_marked:
            state = json.loads(page.message())
            assert state["loadings"]["components"] == 0
            assert all(row["values"] == [] for row in state["loadings"]["rows"])
    assert marked <= 15


def test_looks_are_at_most_fifty_and_fixed_beforehand(monkeypatch):
    seen = []
    monkeypatch.setattr(Marks, "of", classmethod(lambda cls, release, run: seen.append(release.t) or cls(0, release.t)))
    looks = Looks()
    release = sp.Release(t=1, n_components=1, guarantee=GUARANTEE, basis=np.eye(3, 1))
    for t in range(1, 2001):
        looks.see(release.replaced(t=t))
        looks.see(release.replaced(t=t))  # the same release counts once
    assert seen[:8] == [1, 2, 3, 4, 6, 9, 13, 19]
    assert len(seen) < 25
    for t in range(2001, 2200):
        looks.last(release.replaced(t=t))
    assert len(seen) == 50


@pytest.mark.parametrize(
    ("d", "counts", "shares"),
    [(4, (300,), (0.3,)), *(pytest.param(d, LENGTHS, (0.0, 0.05, 0.3), marks=LONG) for d in (4, 10, 30))],
)
def test_low_rank_rows_with_bad_rows_have_no_further_components(d, counts, shares):
    """Stated rate .05 in each cell; false alarm of a cell 1e-5 (400 draws). Bad rows are absent."""
    rng, draws = np.random.default_rng(d), 400
    for rank in (0, 1, 2):
        for bad in shares:
            for n in counts:
                mean = rng.normal(size=d)
                mean *= 0.7 / np.linalg.norm(mean)
                axes = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :rank]
                rows = mean + 0.25 * rng.uniform(-1.0, 1.0, size=(n - int(bad * n), rank)) @ axes.T
                releases = [a_release(rows, min(d - 1, rank + 2), rng, n=n) for _ in range(draws)]
                wrong = sum(release.n_clear > rank for release in releases)
                assert wrong <= most(draws, 0.05, 1e-5), (rank, bad, n, wrong)
                if rank == 0 and bad == 0.3:  # the matrix about the mean has more noise than the raw one
                    quantile = NoiseLaw("gaussian", SIGMA).quantile(d, d, 0.05)
                    assert sum(release.eigenvalues[0] > quantile for release in releases) > most(draws, 0.05, 1e-5)


@pytest.mark.ci
def test_the_power_is_the_stated_one():
    """d = 6, n = 8000: sd .05 across a short mean, .85; sd .1 along a mean of .8, .18. Standard error .02."""
    rng, draws = np.random.default_rng(0), 400
    for sd, mean, across, power in ((0.05, 0.1, True, 0.85), (0.1, 0.8, False, 0.18)):
        rows = np.zeros((8000, 6))
        rows[:, 0] = mean
        rows[:, int(across)] += sd * rng.normal(size=8000)
        found = np.mean([a_release(rows, 1, rng).n_clear == 1 for _ in range(draws)])
        assert found == pytest.approx(power, abs=0.1), (sd, found)
