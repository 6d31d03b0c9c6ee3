import pickle
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import UsageError
from streampca.privacy.gaussian import mu_of
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.rows.admission import Admission
from streampca.rows.bounds import BINS, LEVELS, NO_VOTE, PrivateBounds, _occupied
from streampca.rows.people import NOBODY
from streampca.sklearn import PrivatePCA

D, WARMUP = 3, 40
fpl = partial(sp.PrivateFPL, n_components=1, epsilon=8.0, delta=1e-2, center=False, release_every=7)


def stream(**options: object) -> sp.Stream:
    given = {"seed": 0, "bounds": "private", "warmup": WARMUP} | options
    return sp.Stream(fpl(), **given)  # type: ignore[arg-type]


def some_rows(count: int = 70) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = np.column_stack([rng.uniform(33.0, 60.0, count), rng.normal(0.0, 0.1, count), -rng.uniform(3.0, 3.9, count)])
    rows[4], rows[50, 1] = np.nan, np.inf
    return rows


def outlet() -> object:
    source = NoiseSource(sp.Randomness.from_seed(0), "test")
    return Outlet(source, source.first)


def test_votes_are_the_sign_and_the_binary_exponent() -> None:
    bounds = PrivateBounds(mu=1.0, adjacency="zero-out")
    rows = np.array(
        [[1.0, -1.0, 0.0], [1.99, -2.0, 1e-300], [0.0, 0.0, -0.0], [5e-324, 1e308, -1e308], [0.5, 2.0, 4.0]]
    )
    one = LEVELS + 51
    expected = [
        [one, 2 * LEVELS - one, LEVELS], [one, 2 * LEVELS - one - 1, LEVELS], [NO_VOTE] * 3, [LEVELS, BINS - 1, 0],
        [one - 1, one + 1, one + 2],
    ]  # fmt: skip
    np.testing.assert_array_equal(bounds.votes(rows), expected)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_no_neighbor_moves_the_counts_further_than_the_noise_is_for(adjacency: str) -> None:
    bounds = PrivateBounds(mu=0.5, adjacency=adjacency)
    gate = Admission(bounds=bounds, n_features=D)
    rows = [np.array([1.0, 2.0, 3.0]), -np.ones(D), np.zeros(D), np.full(D, np.nan), np.array([0.0, 1e-300, 1e300])]

    def counts(row: np.ndarray) -> np.ndarray:
        admitted, marks = gate.block(row[None], 1)
        assert not admitted.any()
        bins = marks.votes[0].astype(int)  # type: ignore[index]
        return np.stack([np.bincount([b], minlength=256)[:BINS] for b in bins]).reshape(-1)

    others = rows if adjacency == "replace" else rows[2:4]
    moves = [np.linalg.norm(counts(row) - counts(other)) for row in rows for other in others]
    assert max(moves) == pytest.approx(bounds.std(D) * bounds.mu)


def test_ranges_are_found_column_by_column() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.uniform(33.0, 60.0, 4000), rng.normal(0.0, 0.1, 4000), np.zeros(4000), np.full(4000, -5.0)]
    )
    bounds = PrivateBounds(mu=mu_of(1.0, 1e-6), adjacency="zero-out")
    lower, upper = bounds.found(bounds.votes(rows), outlet())  # type: ignore[arg-type]
    assert (lower[0], upper[0]) == (32.0, 64.0)
    assert lower[1] in (-0.5, -0.25)
    assert upper[1] in (0.25, 0.5)
    assert (lower[2], upper[2]) == (-8.0, 64.0)  # zeros only: what all columns have together
    assert (lower[3], upper[3]) == (-8.0, -4.0)
    few = bounds.votes(rows[:10])
    assert [side.tolist() for side in bounds.found(few, outlet())] == [[-1.0] * 4, [1.0] * 4]  # type: ignore[arg-type]


def test_the_warm_up_is_chosen_from_public_numbers() -> None:
    for given, d, rows in (({}, 16, 960), ({"adjacency": "replace"}, 8, 960), ({"horizon": 1000}, 16, 250),
                           ({"warmup": 7}, 16, 7)):  # fmt: skip
        assert PrivateBounds(**{"mu": 0.25, "adjacency": "zero-out"} | given).rows(d) == rows  # type: ignore[arg-type]
    wanted = PrivateBounds(mu=0.25, adjacency="zero-out")
    assert wanted.warnings(4, 4 * wanted.rows(4)) == wanted.warnings(4, None) == []
    (told,) = wanted.warnings(4, 4 * wanted.rows(4) - 1)
    assert "Pass public bounds" in told


def seen(one: sp.Stream) -> tuple[object, ...]:
    release = one.release
    assert release is not None
    found = str(one.engine.now.admission.found)
    return one.t, release.gram.tobytes(), str(release.terms), one.admission, found, str(one.regret.now())


def test_one_run_however_rows_come_and_wherever_it_is_resumed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows, named = some_rows(), {"features": list("abc")}
    single, many = stream(**named), stream(**named)
    steps = [single.push(row) for row in rows]
    assert [step.t for step in steps if step.release is not None] == [42, 49, 56, 63, 70]  # none before the bounds
    assert {step.reward for step in steps[:WARMUP]} == {0.0}
    many.push_many(rows)
    expected = seen(single)
    assert seen(many) == expected
    for cut in (10, WARMUP, 55):
        other = stream(**named)
        other.push_many(rows[:cut])
        other = pickle.loads(pickle.dumps(other))
        other.push_many(rows[cut:])
        assert other.engine.now.admission.found is not None
        path = tmp_path / f"{cut}.db"
        with sp.Store(path, commit_every=3) as store:
            durable = stream(**named, store=store)
            durable.push_many(rows[: cut - 2])
            for row in rows[cut - 2 : cut]:
                durable.push(row)
        with sp.Store(path) as store:
            durable = sp.Stream.resume(store)
            durable.push_many(rows[cut:])
            assert seen(durable) == expected, cut
    report = single.admission
    assert report.zero_rows_by_reason == {"missing value": 1, "infinite value": 1}
    assert report.rows == 70
    later = rows[WARMUP:][np.isfinite(rows[WARMUP:]).all(axis=1)]
    lower, upper = single.engine.now.admission.found  # type: ignore[misc]
    outside = ((later < lower) | (later > upper)).mean(axis=0)
    np.testing.assert_allclose(list(report.share_clamped.values()), outside)
    # Rows of the warm-up are absent from the subspace, and variances on the card are per row after it.
    plain = Admission(bounds=(lower, upper), n_features=D).block(rows[WARMUP:], 1)[0]
    np.testing.assert_array_equal(single.regret.exact_gram(), plain.T @ plain)
    release = single.release
    assert release is not None
    assert release.explained_variance[0] == pytest.approx(release.estimates.variances[0] / (release.t - WARMUP))


WHOSE = [f"p{i % 30}" for i in range(70)]


def people_seen(one: sp.Stream) -> tuple[object, ...]:
    one.engine.budgets.enter(one.engine.now.people)  # type: ignore[union-attr]
    # A resumed run has another key, so that ids differ.
    return *seen(one), sorted(one.engine.budgets.states().values())  # type: ignore[union-attr]


def test_a_person_has_one_vote_and_then_no_row_that_counts(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rows, given = some_rows(), {"features": list("abc"), "seed": 0, "bounds": "private", "warmup": WARMUP}
    algorithm = fpl(unit=sp.Person(column="who"))

    def begun(**more: object) -> sp.Stream:
        return sp.Stream(algorithm, **given, **more)  # type: ignore[arg-type]

    single, many = begun(), begun()
    for row, name in zip(rows, WHOSE, strict=True):
        single.push(row, person=name)
    many.push_many(rows, person=WHOSE)
    expected = people_seen(many)
    assert people_seen(single) == expected
    # 30 people had a row in the warm-up, of whom p4 had a bad one and then a good one.
    assert (many.admission.people, many.admission.people_spent) == (30, 30)
    assert not many.regret.exact_gram().any()
    for cut in (10, WARMUP, 55):
        other = begun()
        other.push_many(rows[:cut], person=WHOSE[:cut])
        other = pickle.loads(pickle.dumps(other))
        other.push_many(rows[cut:], person=WHOSE[cut:])
        assert people_seen(other) == expected
        with sp.Store(tmp_path / f"{cut}.db", commit_every=3) as store:
            durable = begun(store=store)
            durable.push_many(rows[: cut - 2], person=WHOSE[: cut - 2])
            for i in range(cut - 2, cut):
                durable.push(rows[i], person=WHOSE[i])
        with sp.Store(tmp_path / f"{cut}.db") as store:
            durable = sp.Stream.resume(store)
            durable.push_many(rows[cut:], person=WHOSE[cut:])
            assert people_seen(durable) == expected, cut
    assert "every person has one vote" in many.guarantee.scope
    assert many.guarantee.theorem.endswith("disjoint people")


def test_votes_are_those_of_first_rows_and_other_people_count_later() -> None:
    rows = some_rows(60)
    whose = [*[f"p{i // 4}" for i in range(WARMUP)], *["p1", "new", "p2", "p3"] * 5]
    run = sp.Stream(fpl(unit=sp.Person(), epsilon=1e4), seed=0, bounds="private", warmup=WARMUP, features=3)
    with pytest.MonkeyPatch.context() as patch:
        found: list[np.ndarray] = []
        honest = PrivateBounds.found
        patch.setattr(PrivateBounds, "found", lambda self, bins, out: [found.append(bins), honest(self, bins, out)][1])
        run.push_many(rows, person=whose)
    (bins,) = found
    voted = (bins != NO_VOTE).any(axis=1)
    first = np.arange(WARMUP) % 4 == 0
    first[4:6] = False, True  # row 5 is bad, so that p1 votes by the next one
    np.testing.assert_array_equal(voted, first)
    budgets = fpl(unit=sp.Person(), epsilon=1e4).budgets(b"")
    after = Admission(bounds=run.engine.now.admission.found, n_features=D).block(rows[WARMUP:], 1)[0]
    assert budgets is not None
    numbers = [(WARMUP + i) // 7 + 1 for i in range(20)]
    after[np.array(whose[WARMUP:]) != "new"] = 0.0
    counts, _ = budgets.weighted(NOBODY, after, [b"new"] * 20, numbers)
    np.testing.assert_allclose(run.regret.exact_gram(), counts.T @ counts, atol=1e-12)


def test_a_table_of_people_may_have_private_bounds() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal((30.0, 5.0), (9.0, 1.0), size=(4000, 2)), columns=["a", "b"])
    frame["who"] = [f"p{i % 2000}" if i < 3000 else f"q{i}" for i in range(4000)]
    release = sp.pca(frame, 1, 8.0, bounds="private", columns=["a", "b"], unit="who", seed=1)
    assert release.guarantee.unit == "one person"
    assert release.features == ("a", "b")
    stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=8.0, horizon=4000, release_every=4000, unit="who"),
                       bounds="private", seed=1, features=["a", "b"])  # fmt: skip
    stream.push_many(frame)
    expected = stream.release
    assert expected is not None
    np.testing.assert_array_equal(release.packed, expected.packed)
    model = PrivatePCA(1, epsilon=8.0, bounds="private", unit=sp.Person(), random_state=1)
    model.fit(frame[["a", "b"]], person=frame["who"])
    assert model.guarantee_.unit == "one person"
    # Scikit-learn draws from the same seed, with a person that has no column.
    assert abs(float(model.components_[0] @ expected.components[0])) > 0.5


MECHANISM = sp.GaussianCovariance(n_components=1, epsilon=1e4, delta=1e-6, center=True)


@pytest.mark.parametrize(
    "algorithm", [fpl(epsilon=1e4, center=True, release_every=50), sp.Tumbling(MECHANISM, release_every=300)]
)
def test_rows_of_the_warm_up_do_not_draw_the_mean(algorithm: Any) -> None:
    rows = some_rows(400)[51:]
    one = sp.Stream(algorithm, seed=0, bounds="private", warmup=100)
    one.push_many(rows)
    release = one.release
    assert release is not None
    seen = Admission(bounds=one.engine.now.admission.found, n_features=D).block(rows[100:], 1)[0]
    used = seen[: release.t - 100]
    np.testing.assert_allclose(release.details["mean"], used.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(release.gram, np.cov(used.T, ddof=0) * len(used), atol=0.5)
    best = np.linalg.eigvalsh(np.cov(seen.T, ddof=0) * len(seen))
    mean = seen.mean(axis=0)
    assert one.regret.now().opt == pytest.approx(best[-1] + len(seen) * mean @ mean, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sp.Stream(fpl(unit=sp.Person(), adjacency="replace"), bounds="private"),
            r"bounds='private', unit=Person.*Use adjacency='zero-out'",
        ),
        (lambda: sp.Stream(fpl(), bounds="guess"), "bounds='guess': expected"),
        (lambda: sp.Stream(fpl(), bounds=(0, 1), warmup=3), "only valid with bounds='private'"),
        (lambda: sp.Stream(fpl(horizon=40), bounds="private", warmup=40), "expected fewer rows than horizon=40"),
        (lambda: sp.Stream(fpl(), bounds="private", warmup=0), "warmup=0"),
        (lambda: sp.Stream(sp.Oja(n_components=1), bounds="private"), "expected a guarantee"),
        (lambda: sp.Stream(fpl(), features=2, bounds="private").leaves(), "Push them as rows"),
    ],
)
def test_where_private_bounds_are_refused(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        make()


def test_a_tail_over_many_bins_is_taken_in() -> None:
    noisy = np.zeros(BINS)
    noisy[100], noisy[101:105], noisy[97:100] = 300.0, 18.0, 15.0
    found = np.flatnonzero(_occupied(noisy, 10.0, 1))
    assert (found[0], found[-1]) == (100, 103)  # 3 * 18 is over 3 * 10 * sqrt(3), 2 * 18 is not over 3 * 10 * sqrt(2)
    assert np.flatnonzero(_occupied(noisy[::-1].copy(), 10.0, 1))[0] == BINS - 1 - 103
    assert not _occupied(np.full(BINS, 19.0), 10.0, 1).any()


@pytest.mark.parametrize("center", [False, True])
def test_released_rewards_are_those_of_the_subspaces_that_were_released(center: bool) -> None:
    """A leader makes releases within the warm-up, too, which nobody sees: none of them is in play after it."""
    given = {"epsilon": 1e7, "delta": 1e-6, "horizon": 60, "release_every": 20, "publish_regret": True}
    run = sp.Stream(fpl(**given, center=center), bounds="private", warmup=25, seed=1)
    for step in run.push_many(np.random.default_rng(0).normal((0.0, 2.0, 4.0), (1.0, 1.0, 5.0), (60, 3))):
        if step.release is not None:
            rewards = step.release.details["rewards"]
    assert run.t == 60
    assert rewards["sum"] == pytest.approx(run.regret.now().reward, abs=5.0 * rewards["std"])
