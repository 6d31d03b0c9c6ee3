"""Predictions against actual runs: noise within 25 %, captured variance and regret close."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import UsageError
from streampca.mechanisms.base import Mechanism
from streampca.planning import Plan, Prediction, Question, plan as planned
from streampca.planning.curve import Curve
from streampca.planning.plan import _recommend
from streampca.planning.question import rows_in_full

SPECTRUM = np.array([0.35, 0.25, 0.1, 0.05, 0.05, 0.02, 0.02, 0.01])
ASKED: dict[str, Any] = {
    "n_rows": 3000, "n_features": 8, "n_components": 2, "epsilon": 1.0, "delta": 1e-5, "spectrum": SPECTRUM,
}  # fmt: skip
RUNS = 8


@cache
def _answer(asked: str) -> Plan:
    return planned(**eval(asked, {"array": np.array, "inf": np.inf, "nan": np.nan}))


def plan(**asked: Any) -> Plan:
    """Plan; what several tests ask is answered once."""
    return _answer(repr(asked))


def rows_of(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    return (rng.choice([-1.0, 1.0], (n, 8)) * np.sqrt(SPECTRUM)) @ rotation


def measured(prediction: Prediction, n: int, window: int | None = None) -> tuple[float, float, float]:
    errors, shares, regrets = [], [], []
    for run in range(RUNS):
        rows = rows_of(n, run)
        gram = rows[-(window or n) :].T @ rows[-(window or n) :]
        made = prediction.algorithm
        if isinstance(made, Mechanism):
            made = sp.processors.tumbling.Tumbling(made, release_every=window or n)
        stream = sp.Stream(made, row_norm=1.0, seed=run, regret=sp.RegretLog(every=n))
        stream.push_many(rows)
        assert stream.release is not None
        errors.append(np.linalg.norm(stream.release.gram - gram, 2) if stream.release.packed is not None else np.nan)
        best = np.linalg.eigvalsh(gram)[-2:].sum()
        shares.append(stream.engine.subspace().captured(gram) / best)
        regrets.append(stream.regret.now().average)
    return float(np.mean(errors)), float(np.mean(shares)), float(np.mean(regrets))


def by_label(found: Plan, serves: str) -> dict[str, Prediction]:
    return {p.label: p for p in found.predictions if p.serves == serves}


STREAMS, ONCE = (by_label(plan(**ASKED, release_every=25), serves) for serves in ("stream", "once"))
WINDOW = plan(**(ASKED | {"n_rows": 2500}), window=1000, release_every=25)
WINDOWS = by_label(WINDOW, "window")


#: Mean spectral norm of noise of sd 1, and candidates whose matrix differs from the exact one by more than noise.
NORM, BIASED = Curve(SPECTRUM, 2).norm, ("histogram", "forgetting")
CASES = [(p, 3000, None) for p in (*STREAMS.values(), *ONCE.values())] + [(p, 2500, 1000) for p in WINDOWS.values()]


@pytest.mark.parametrize(("prediction", "n", "window"), CASES, ids=lambda value: getattr(value, "label", None))
def test_runs_do_as_predicted(prediction: Prediction, n: int, window: int | None) -> None:
    error, share, regret = measured(prediction, n, window)
    if prediction.noise_std is not None and not prediction.label.endswith(BIASED):
        # The mean of 8 norms of GOE matrices of side 8 has an sd of 6 %, so 25 % is 4 of them.
        assert NORM * prediction.noise_std == pytest.approx(error, rel=0.25)
    if prediction.is_certain:
        assert prediction.captured == pytest.approx(share, abs=0.015)
    if prediction.regret_per_row is not None:
        assert prediction.regret_per_row == pytest.approx(regret, rel=0.35, abs=0.003)


def test_everything_that_applies_is_there() -> None:
    names = {p.name for p in STREAMS.values()} | {p.name for p in ONCE.values()}
    assert names == {
        "PrivateFPL", "PrivateOja", "GaussianCovariance", "MatrixLaplaceCovariance", "AdaptiveCovariance",
    }  # fmt: skip
    assert len(STREAMS) == 5
    assert set(WINDOWS) == {f"SlidingWindowPCA {method}" for method in ("ring", "histogram", "smoothed", "forgetting")}
    tumbling = {"Tumbling[GaussianCovariance]", "Tumbling[AdaptiveCovariance]"}
    assert tumbling <= {p.name for p in WINDOW.predictions}
    lots = plan(**(ASKED | {"n_rows": 100_000, "n_components": 1}))
    assert {p.name for p in lots.predictions if not p.is_certain} == {"DPPCA", "AdaptiveCovariance"}
    assert list(lots.to_frame()["captured"]).count("cannot tell") == 2
    lying = plan(**(ASKED | {"spectrum": [0.5, 0.4]}))
    assert any(p.name == "ExactSubspace" and p.captured == 1.0 for p in lying.predictions)


def test_the_recommended_one_runs_and_is_explained() -> None:
    found = plan(**ASKED)
    stream = sp.Stream(found.algorithm, row_norm=1.0, seed=0)
    stream.push_many(rows_of(100))
    assert found.best.name == "PrivateFPL"
    assert found.best.settings["noise"] == "blt"
    assert "least expected regret" in found.reason
    assert found.best.code.startswith("PrivateFPL(n_components=2, epsilon=1.0")
    assert isinstance(eval(f"sp.{found.best.code}"), sp.PrivateFPL)
    assert "use: PrivateFPL(" in str(found)
    assert "assumed: the given spectrum" in str(found)
    assert isinstance(plan(**ASKED, window=500).algorithm, sp.SlidingWindowPCA)
    assert isinstance(plan(**ASKED, release_every=3000).algorithm, Mechanism)


@pytest.mark.parametrize(("center", "every"), [(False, 25), (True, 25), (False, 3000)])
def test_people_count_with_the_guessed_share_of_their_weight(center: bool, every: int) -> None:
    asked = {**ASKED, "center": center, "release_every": every}
    found = plan(**asked, rows_per_person=10)
    algorithm = {p.label: p for p in found.predictions}["PrivateFPL blt"]
    assert algorithm.algorithm.unit == sp.Person()
    weights, shares = [], []
    for run in range(3):
        rows, names = rows_of(3000, run), np.random.default_rng(run).integers(300, size=3000).tolist()
        stream = sp.Stream(algorithm.algorithm, row_norm=1.0, features=8, seed=run, regret=None)
        stream.push_many(rows, person=names)
        weights.append(stream.admission.mean_weight)
        gram = rows.T @ rows
        shares.append(stream.engine.subspace().captured(gram) / np.linalg.eigvalsh(gram)[-2:].sum())
    assert 0.1 < found.question.weight < 0.5
    assert found.question.weight == pytest.approx(np.mean(weights), rel=0.25)
    assert algorithm.captured == pytest.approx(np.mean(shares), abs=0.03)
    assert algorithm.captured < {p.label: p for p in plan(**asked).predictions}["PrivateFPL blt"].captured - 1e-4


def test_short_rows_of_uneven_numbers_count_less_than_their_mean_would() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(sigma=0.7, size=200)
    names = rng.choice(200, size=3000, p=sizes / sizes.sum()).tolist()
    rows = rng.normal(size=(3000, 8)) * np.sqrt([1.0, 0.7, 0.5] + [0.1] * 5)
    rows *= 0.45 / np.linalg.norm(rows, axis=1, keepdims=True)
    spectrum = np.linalg.eigvalsh(rows.T @ rows / 3000)[::-1].tolist()
    asked = {**ASKED, "center": False, "spectrum": spectrum, "release_every": 25, "rows_per_person": 15.0}
    found = plan(**asked)
    algorithm = {p.label: p.algorithm for p in found.predictions}["PrivateFPL blt"]
    stream = sp.Stream(algorithm, row_norm=1.0, features=8, seed=0, regret=None)
    stream.push_many(rows, person=names)
    weight = stream.admission.mean_weight
    assert found.question.weight == pytest.approx(weight, rel=0.12)
    # The number of rows that her budget covers, over the mean number, is the wrong answer.
    full = rows_in_full(np.array(spectrum), 0.0, center=False, at_once=False)
    assert min(1.0, full / 15.0) > 1.25 * weight


def test_a_plan_for_people() -> None:
    found, rows = plan(**ASKED, rows_per_person=1), plan(**ASKED)
    # One row each counts in full.
    assert found.question.weight == 1.0
    captured = {p.label: p.captured for p in rows.predictions}
    for p in found.predictions:
        assert p.algorithm.guarantee.unit == "one person"
        assert p.name == "PrivateOja" or p.captured == captured[p.label]
    assert {p.name for p in found.predictions} == {"PrivateFPL", "PrivateOja", "GaussianCovariance"}
    assert found.best.code.endswith("unit=Person(column=None, budget=1.0, max_rows=64, period=None, name='person'))")
    short = ASKED | {"spectrum": "steep", "typical_norm": 0.5}
    assert "keep Person(budget=1), which is close" in found.advice[0]
    assert "budget=" not in found.advice[0].replace("budget=1)", "")
    assert "budget=0.5 has 2 times less noise" in plan(**short, rows_per_person=20).advice[0]
    weights = [plan(**ASKED | {"release_every": 3000}, rows_per_person=m).question.weight for m in (1, 2, 5, 20, 1000)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < 0.01
    wide = plan(n_rows=10**5, n_features=5000, n_components=2, epsilon=1.0, rows_per_person=3)
    assert "only PrivateOja protects people" in wide.reason
    windows = plan(**ASKED, window=1000, rows_per_person=3)
    assert {p.name for p in windows.predictions} == {"SlidingWindowPCA", "Tumbling[GaussianCovariance]"}


def test_waiting_and_noise_are_weighed() -> None:
    # With few rows, rare releases waste them; the chosen one is no worse than its neighbours.
    chosen = plan(**ASKED).best
    for every in (1, 10, 100, 1000):
        other = plan(**ASKED, release_every=every)
        assert chosen.regret_per_row is not None
        assert other.best.regret_per_row is not None
        assert chosen.regret_per_row <= other.best.regret_per_row * 1.001 + 0.003 * 0.6


@pytest.mark.ci
def test_without_a_guess_shares_are_intervals_over_spectra() -> None:
    asked = ASKED | {"n_rows": 1000, "release_every": 1000}
    del asked["spectrum"]
    found = plan(**asked)
    shares = {
        (guess, norm): {p.label: p.captured for p in plan(**asked, spectrum=guess, typical_norm=norm).predictions}
        for guess in ("flat", "decaying", "steep") for norm in (0.3, 0.6, 1.0)
    }  # fmt: skip
    for p in (p for p in found.predictions if p.is_certain):
        each = [one[p.label] for one in shares.values()]
        assert p.captured_interval == pytest.approx((min(each), max(each)), abs=0.04)
        assert p.captured == shares["decaying", 0.6][p.label]
    assert "assumed: nothing: flat/decaying/steep spectra of rows of norm 0.3/0.6/1" in str(found)
    wide, narrow = plan(**asked | {"release_every": 10}).best, plan(**asked | {"release_every": 10}, typical_norm=0.6)
    assert wide.captured_interval is not None
    assert (
        f"({wide.captured_interval[0]:.1%} to 100.0% by the spectrum)" in plan(**asked | {"release_every": 10}).reason
    )
    assert narrow.best.captured == pytest.approx(wide.captured, abs=1e-3)
    assert narrow.best.captured_interval[0] > wide.captured_interval[0]  # type: ignore[index]
    assert all(p.captured_interval is None for p in plan(**ASKED).predictions)


def test_what_cannot_center_is_scored_about_the_mean_with_it() -> None:
    # A mean of norm .8 takes one of two components, of which the second holds a third of the best variance.
    asked = ASKED | {"spectrum": [0.04, 0.02, 0.001], "typical_norm": 0.84, "release_every": 3000, "n_rows": 30_000}
    found = {p.label: p for p in plan(**asked).predictions}
    assert found["MatrixLaplaceCovariance"].captured == pytest.approx(2 / 3, abs=0.12)
    assert found["PrivateOja"].captured < 0.8
    assert found["GaussianCovariance"].captured > 0.99
    once = plan(**(asked | {"release_every": 30_000}))
    assert once.best.name == "GaussianCovariance"  # it loses less than .002
    rows = np.random.default_rng(0).choice([-1.0, 1.0], (30_000, 8)) * np.sqrt([0.04, 0.02, 0.001, 0, 0, 0, 0, 0])
    rows += 0.8 * np.sqrt(1 / 8)
    basis = sp.MatrixLaplaceCovariance(n_components=2, epsilon=1.0).release(rows, row_norm=1.0, seed=0).subspace.basis
    assert np.trace(basis.T @ np.cov(rows.T) @ basis) / 0.06 == pytest.approx(2 / 3, abs=0.12)
    # About 0, nothing is lost by not centering.
    pure = plan(**(asked | {"release_every": 30_000, "center": False})).best
    assert "delta" not in pure.settings


def test_a_window_that_noise_drowns_becomes_one_release_a_window() -> None:
    asked = ASKED | {"n_rows": 10_000, "n_features": 50, "center": False, "window": 400}
    drowned = plan(**asked)
    assert drowned.best.name == "Tumbling[AdaptiveCovariance]"
    names = {"Tumbling": sp.Tumbling, "AdaptiveCovariance": sp.AdaptiveCovariance}
    assert eval(drowned.best.code, names) == drowned.algorithm
    rows = np.random.default_rng(0).normal(size=(400, 50)) / 10.0
    assert len(sp.Stream(drowned.algorithm, row_norm=1.0).push_many(rows).releases) == 1
    assert "one release a window" in drowned.reason
    clear = plan(**(asked | {"n_features": 8, "window": 2000}))
    assert clear.best.settings["method"] == "smoothed"


def needed_by(found: Plan) -> int:
    return int(next(text for text in found.warnings if "needed" in text).split("about ")[1].split(" rows")[0])


def test_drowned_signals_are_told_with_the_rows_that_would_do() -> None:
    drowned = plan(**(ASKED | {"n_rows": 25}))
    needed = needed_by(drowned)
    assert "drowns" in "".join(drowned.warnings)
    assert "below the noise" in "".join(drowned.warnings)
    assert 300 < needed < 30_000
    enough = plan(**(ASKED | {"n_rows": needed}), release_every=max(1, needed // 1000))
    assert 0.988 < enough.best.captured < 0.995  # horizons are rounded up, so rows may be a few too many
    assert not any("drowns" in text for text in enough.warnings)
    flat = plan(n_rows=1000, n_features=8, n_components=2, epsilon=1.0, delta=1e-6, spectrum="flat")
    assert flat.best.captured == pytest.approx(1.0)  # any subspace is as good
    whole = plan(n_rows=1000, n_features=3, n_components=3, epsilon=1.0, delta=1e-6)
    assert not any("drowns" in text for text in whole.warnings)  # there is one subspace only
    windowed = plan(**ASKED, window=50)
    assert any("rows in the window" in text for text in windowed.warnings)


def test_thousands_of_features_are_sketched_up_to_64_releases() -> None:
    wide = {"n_rows": 20_000, "n_features": 3400, "n_components": 4, "spectrum": "steep"}
    found = plan(**(ASKED | wide))
    assert (found.best.name, found.best.releases) == ("PrivateSketch", 16)
    assert {p.name for p in found.predictions} == {"PrivateSketch", "PrivateOja"}
    assert "3400 features take about 1 GB" in found.reason
    once = plan(**(ASKED | wide), release_every=20_000)
    assert once.best.serves == "once"
    assert once.best.captured > found.best.captured > 0.8
    many = plan(**(ASKED | wide), release_every=20)
    assert many.best.captured == max(p.captured for p in many.predictions)
    with pytest.raises(UsageError, match="window=100: no algorithm for windows of 3400 features"):
        plan(**(ASKED | wide), window=100)


def test_a_single_release_is_told_how_many_rows_would_do() -> None:
    drowned = plan(**(ASKED | {"n_rows": 100}), release_every=100)
    needed = needed_by(drowned)
    enough = plan(**(ASKED | {"n_rows": needed}), release_every=needed)
    (captured,) = (p.captured for p in enough.predictions if p.name == "GaussianCovariance")
    assert captured == pytest.approx(0.99, abs=0.002)
    wide = {"n_features": 50, "n_components": 5, "spectrum": "decaying", "n_rows": 500}
    for center in (True, False):
        adaptive = plan(**(ASKED | wide), release_every=500, center=center)
        (gaussian,) = (p.captured for p in adaptive.predictions if p.name == "GaussianCovariance")
        assert adaptive.best.name == "AdaptiveCovariance"
        assert adaptive.best.captured == pytest.approx(1.0 - 0.5 * (1.0 - gaussian))
        assert f"cannot tell: between {gaussian:.2%}" in adaptive.reason
    clear = plan(**(ASKED | {"n_rows": 10**6}), release_every=10**6).best
    assert clear.captured > 0.998
    assert clear.is_certain


def test_advice_on_row_norm_delta_and_epsilon() -> None:
    for changes, advice in (
        (
            {"spectrum": "decaying", "row_norm": 10.0, "typical_norm": 1.0},
            "row_norm=1.5, 1.5 times it, would have 44.4 times less",
        ),
        ({"spectrum": "decaying", "row_norm": 1.0, "typical_norm": 5.0}, "scales almost every row down"),
        ({"spectrum": [0.05, 0.02]}, "tight"),
    ):
        assert advice in " ".join(plan(**(ASKED | changes)).advice)
    odd = " ".join(plan(**(ASKED | {"delta": 0.01, "epsilon": 20.0})).warnings)
    assert "delta=0.01 is too large" in odd
    assert "epsilon=20" in odd


@pytest.mark.parametrize(("window", "method"), [(1000, "ring"), (10**7, "histogram")])
def test_a_window_that_does_not_fit_the_memory_is_a_histogram(window: int, method: str) -> None:
    asked = {**ASKED, "n_rows": 10**8, "n_features": 50, "delta": 1e-9}
    del asked["spectrum"]
    settings = [{"method": method, "release_every": 10} for method in ("histogram", "ring")]
    candidates = [Prediction(None, each, "window", 0.9, 10) for each in settings]
    assert _recommend(candidates, Question(**asked, window=window))[0].settings["method"] == method


def test_noise_and_regret_are_in_units_of_row_norm_squared() -> None:
    one, three = (plan(**ASKED, row_norm=norm).best for norm in (1.0, 3.0))
    assert three.noise_std == pytest.approx(9.0 * one.noise_std)  # type: ignore[operator]
    assert three.regret_per_row == pytest.approx(9.0 * one.regret_per_row)  # type: ignore[operator]
    assert three.captured == one.captured


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_rows": 0}, "n_rows=0"),
        ({"n_components": 9}, "n_components=9 exceeds"),
        ({"epsilon": -1.0}, "epsilon=-1"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"window": 0}, "window=0"),
        ({"spectrum": "pink"}, "spectrum='pink'"),
        ({"spectrum": [0.9, 0.9]}, "not 1.8"),
        ({"spectrum": [-0.1]}, "not negative"),
        ({"spectrum": [0.0]}, "above 0"),
        ({"row_norm": 0.0}, "row_norm=0"),
        ({"typical_norm": -1.0}, "typical_norm=-1"),
    ],
)
def test_questions_outside_the_domain(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(**(ASKED | keywords))
