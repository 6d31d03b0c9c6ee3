"""Users with several rows: the cap, and what the guarantee then says."""

from copy import deepcopy
from datetime import date
from decimal import Decimal
from functools import partial
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, HorizonReachedError, UsageError
from streampca.matrix_factorization.participation import user_factor

D, T, CAP = 3, 12, 2
USERS = ["ann", "bob", "ann", "ann", "cid", "bob", "bob", "ann", "dee", "cid", "cid", "dee"]
ROWS = np.random.default_rng(0).uniform(0.0, 0.5, size=(T, D))
LATE = np.array([USERS[:i].count(user) >= CAP for i, user in enumerate(USERS)])
ROW_BY_ROW = {"n_components": 1, "epsilon": 1.0, "center": False, "release_every": 1, "horizon": T}
fpl = partial(sp.PrivateFPL, **ROW_BY_ROW, max_rows_per_user=CAP)


def grams(steps):
    return [release.gram for release in steps.releases]


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0), (0.0, 3.0)])
def test_all_ways_to_feed_are_one_and_rows_past_the_cap_are_zero_rows(bounds):
    def made(**options):
        return sp.UserStream(fpl(), seed=1, bounds=bounds, row_norm=None if bounds else 1.0, **options)

    stream = made()
    whole = grams(stream.push_many(ROWS, users=USERS))
    assert stream.t == T
    if bounds is None:
        kept = np.where(LATE[:, None], 0.0, ROWS)
        assert np.allclose(stream.regret.exact_gram(), kept.T @ kept, atol=1e-4)
    one, split, named = made(), made(), made(user="who", features=list("abc"))
    assert same([one.push(row, user=user).release.gram for row, user in zip(ROWS, USERS, strict=True)], whole)
    parts = grams(split.push_many(ROWS[:5], users=USERS[:5])) + grams(split.push_many(ROWS[5:], users=USERS[5:]))
    assert same(parts, whole)
    records = [{"who": user, **dict(zip("abc", row, strict=True))} for row, user in zip(ROWS, USERS, strict=True)]
    assert same([step.release.gram for step in named.run(records)], whole)
    assert named.features == ("a", "b", "c")
    for rows in (records, pd.DataFrame(records)):
        assert same(grams(made(user="who", features=list("abc")).push_many(rows)), whole)


def test_the_guarantee_speaks_of_users_and_the_noise_pays_for_it():
    users, rows = fpl(), fpl(max_rows_per_user=None)
    assert users.guarantee.unit == "one user with up to 2 rows"
    assert users.guarantee.mu == rows.guarantee.mu
    factor = user_factor(rows.mechanism, CAP)
    assert 1.0 < factor < CAP
    assert users.noise_std(T) == pytest.approx(factor * rows.noise_std(T))
    with pytest.raises(UsageError, match="cannot compose"):
        users.guarantee.compose(rows.guarantee)

    for noise in ("tree", sp.Tree(discrete=True)):
        wide, narrow = (fpl(max_rows_per_user=cap, noise=noise) for cap in (5, None))
        assert 1.5 < wide.noise_std(T) / narrow.noise_std(T) < 5.0
        sp.UserStream(wide, row_norm=1.0, seed=1).push_many(ROWS, users=USERS)


def test_refused_rows_are_not_counted():
    stream = sp.UserStream(fpl(), row_norm=1.0, seed=1)
    stream.push(ROWS[0], user="ann")
    with pytest.raises(BadRowError):
        stream.push([0.0, 0.0], user="ann")
    with pytest.raises(BadRowError, match="identifies no user"):
        stream.push(ROWS[0])
    with pytest.raises(UsageError, match="3 users given for 2 rows"):
        stream.push_many(ROWS[:2], users=["ann"] * 3)
    with pytest.raises(HorizonReachedError):
        stream.push_many(ROWS, users=USERS)
    stream.push(ROWS[1], user="ann")
    stream.push(ROWS[2], user="ann")
    kept = ROWS[:2]
    assert np.allclose(stream.regret.exact_gram(), kept.T @ kept, atol=1e-4)


class Anonymous:
    """Equal to itself only."""


@pytest.mark.parametrize(
    "user",
    [
        np.nan, pd.NA, pd.NaT, Decimal("sNaN"), ("ann", np.nan), frozenset({np.nan}), Anonymous(), ("ann", Anonymous()),
        [1], ("ann", [1]), np.zeros(3),
    ],
)  # fmt: skip
def test_two_rows_of_what_names_nobody_would_count_as_two_users(user):
    stream = sp.UserStream(fpl(), row_norm=1.0, seed=1)
    for push in (lambda: stream.push(ROWS[0], user), lambda: stream.push_many(ROWS[:1], users=[user])):
        with pytest.raises(BadRowError, match=r"row 1: user=.* identifies no user") as told:
            push()
        assert len(str(told.value)) < 250
    assert stream.t == 0


@pytest.mark.parametrize("user", ["ann", b"ann", 7, 7.5, np.int64(7), ("ann", None), UUID(int=7), date(2026, 1, 1)])
def test_users_are_known_by_their_value(user):
    stream = sp.UserStream(fpl(), row_norm=1.0, seed=1)
    for row in ROWS[:4]:
        stream.push(row, deepcopy(user))
    kept = ROWS[:CAP]
    assert np.allclose(stream.regret.exact_gram(), kept.T @ kept, atol=1e-4)


def test_a_claim_about_users_needs_users():
    with pytest.raises(UsageError, match="Use UserStream"):
        sp.Stream(fpl(), row_norm=1.0)
    with pytest.raises(BadParameterError, match="max_rows_per_user="):
        sp.UserStream(fpl(max_rows_per_user=None), row_norm=1.0)
    with pytest.raises(UsageError, match="is not available for users"):
        sp.UserStream(fpl(), row_norm=1.0, store="here")
