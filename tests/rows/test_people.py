"""Weights of rows by the budgets of their people, against dense strategies."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from dense_forms import strategy
from interrupts import within

from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import STEP
from streampca.linalg.svec import PRESENCE
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference
from streampca.privacy.unit import Person
from streampca.processors.private_fpl import RewardSum, reward_scale
from streampca.release.scoring import Scoring
from streampca.rows import people
from streampca.rows.people import NOBODY, Budgets, People, commonly_weighted

ENCODERS = {
    "blt": lambda horizon: GeometricBLT(horizon, 1.0), "tree": lambda horizon: BinaryTree(horizon, 1.0),
    "anytime": lambda horizon: AnytimeBLT(1.0), "restarted": lambda horizon: AnytimeBLT(1.0, restart_after=11),
    "stationary": lambda horizon: StationaryBLT(9, 1.0), "twin": lambda horizon: WindowDifference(9, 1.0),
    "forgetting": lambda horizon: ForgettingBLT(9, 1.0),
}  # fmt: skip
#: Encoders of which P is exact.
EXACT = ("blt", "tree")
REWARD = 0.5


def lattice(rows):
    return np.trunc(np.asarray(rows) / STEP) * STEP + 0.0


def admitted(rng, count, d, kind, *, centered, cells=False):
    """Rows of one person, who repeats one direction, or draws it, or has rows of both signs; some are short.

    With cells, some are missing of about half the rows.
    """
    direction = rng.standard_normal(d)
    rows = np.tile(direction, (count, 1)) if kind == "one direction" else rng.standard_normal((count, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if kind == "short":
        rows *= rng.uniform(0.05, 0.9, size=(count, 1))
    present = rng.random((count, d)) < rng.choice([0.6, 1.0], size=(count, 1)) if cells else np.ones((count, d))
    rows = lattice(rows) * present
    rows = np.hstack([rows, np.full((count, 1), CONSTANT)]) if centered else rows
    return np.hstack([rows, present]) if cells else rows


def moves(rows, inputs, n, *, reward, cells=False, sign=1.0):
    """Return what rows add to n inputs: matrices, rewards at their largest, and numbers of cells of centered rows."""
    d = rows.shape[1] // 2 + 1 if cells else rows.shape[1]
    sums = np.zeros((n, d * d + 1 + rows.shape[1] - d))
    for row, at in zip(rows, inputs, strict=True):
        y, present = row[:d], row[d:]
        parts = np.outer(y, y).ravel(), [reward * (y @ y)], present * math.sqrt(PRESENCE / max(1, present.size))
        sums[at - 1] += sign * np.concatenate(parts)
    return sums


def costs(rows, inputs, encoder, *, reward, cells=False):
    """Return ||C D||_F by the dense encoder, whose largest column has norm 1."""
    return float(np.linalg.norm(encoder @ moves(rows, inputs, encoder.shape[1], reward=reward, cells=cells)))


def dense(mechanism, n):
    """Return the encoder whose columns have norms of at most 1."""
    return strategy(mechanism, n)


def largest(*, centered, reward, cells=False):
    return math.hypot((1.0 + CONSTANT**2 if centered else 1.0) * math.hypot(1.0, reward), math.sqrt(PRESENCE) * cells)


def made(mechanism, unit, *, centered=False, reward=0.0, cells=False):
    norm = largest(centered=centered, reward=0.0, cells=cells)
    return Budgets(unit, b"key", norm, reward, mechanism.products, center=centered and cells, cells=cells)


def fed(budgets, rows, names, inputs, cuts=()):
    """Feed rows in pieces; return them as they count, and the people after them."""
    out, after = [], NOBODY
    for start, stop in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        part, after = budgets.weighted(after, rows[start:stop], names[start:stop], inputs[start:stop])
        out.append(part)
    return np.vstack(out), after


def spenders(name, horizon, rng, *, kind, budget, **form):
    """Return the share of the claim that one person takes who sends rows until her budget is spent."""
    mechanism, d = ENCODERS[name](horizon), int(rng.integers(1, 6))
    unit = Person(budget=budget, max_rows=10_000)
    count = int(4 * budget) + 60
    has_cells = form.get("cells", False)
    rows = admitted(rng, count, d, kind, centered=form["centered"], cells=has_cells)
    inputs = np.sort(rng.integers(1, horizon + 1, size=count)).tolist()
    out, after = fed(made(mechanism, unit, **form), rows, [b"she"] * count, inputs)
    true = costs(out, inputs, dense(mechanism, horizon), reward=form["reward"], cells=has_cells)
    assert not (np.abs(out) > np.abs(rows)).any()
    np.testing.assert_array_equal(out, lattice(out))
    return true / (budget * largest(**form)), after, (out, inputs, mechanism)


FORMS = {
    "plain": {"centered": False, "reward": 0.0}, "centered": {"centered": True, "reward": 0.0},
    "rewards": {"centered": False, "reward": REWARD}, "cells": {"centered": True, "reward": 0.0, "cells": True},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_person_never_costs_more_than_her_budget_and_can_spend_it(name, form):
    rng, reached = np.random.default_rng(len(name) + len(form)), []
    for horizon in (1, 2, 7, 64, 300):
        for kind in ("one direction", "any", "short"):
            for budget in (0.4, 1.0, 4.0) if horizon < 300 else (1.0,):
                share, after, _ = spenders(name, horizon, rng, kind=kind, budget=budget, **FORMS[form])
                assert share <= 1.0, (horizon, kind, budget)
                if after.spent and name in EXACT and horizon > 1:
                    reached.append(share)
                    # The room that counts as nothing is 1e-6 of the square, and P of a BLT has norms inflated by 1e-6.
                    assert share > 1.0 - 1e-5, (horizon, kind, budget)
    assert name not in EXACT or len(reached) > 8


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", EXACT)
def test_other_rows_of_a_person_cost_at_most_the_square_root_of_two(name, form):
    options, most = FORMS[form], largest(**FORMS[form])
    rng, worst = np.random.default_rng(5), 0.0
    for horizon in (2, 7, 64):
        for _ in range(12):
            both = [spenders(name, horizon, rng, kind="any", budget=1.0, **options)[2] for _ in range(2)]
            (one, first, mechanism), (two, second, _) = both
            if one.shape[1] != two.shape[1]:
                continue
            kept = {name: options.get(name, False) for name in ("reward", "cells")}
            difference = moves(one, first, horizon, **kept) + moves(two, second, horizon, sign=-1.0, **kept)
            cost = float(np.linalg.norm(dense(mechanism, horizon) @ difference))
            worst = max(worst, cost / most)
            assert cost <= math.sqrt(2.0) * most
    assert worst > 1.0  # more than the absence of either


@pytest.mark.parametrize("center", [False, True])
def test_rewards_as_they_are_summed_are_not_above_their_bounds(center):
    """Rows in the subspace that scores, or opposite to the mean, whose entries are rounded; 2**-30 was too small."""
    rng, largest = np.random.default_rng(0), 0.0
    budgets = Budgets(Person(), b"key", 1.0, REWARD, GeometricBLT(4, 1.0).products, center=center)
    for _ in range(1500):
        d = int(rng.integers(3, 60))
        k = int(rng.integers(1, d))
        basis = np.linalg.qr(rng.standard_normal((d, k)))[0]
        row = basis @ rng.standard_normal(k)
        mean, root = None, 1.0
        if center:
            mean = rng.standard_normal(d)
            mean -= basis @ (basis.T @ mean)
            mean /= np.linalg.norm(mean)
            row, root = -mean, math.sqrt(rng.uniform(0.01, 1.0))
        row = lattice(row * (root * rng.uniform(0.3, 1.0) / np.linalg.norm(row)))
        row = np.append(row, lattice(CONSTANT * root)) if center else row
        sums = RewardSum(0, Scoring.of(basis, mean), reward_scale(center=center, replace=False)).add(row[None])
        bound = float(budgets._largest_rewards(row[None])[0])
        assert abs(sums.total) * 2.0**-30 <= bound
        largest = max(largest, abs(sums.total) - (bound - row.size * people._REWARD_ERROR) * 2.0**30)
    assert center or largest > 1.0  # beyond the rounding of the reward alone


def worlds(seed):
    """Random rows of several people, some of nobody, some absent, with their inputs."""
    rng = np.random.default_rng(seed)
    count, d = int(rng.integers(20, 80)), int(rng.integers(1, 5))
    rows = np.vstack([admitted(rng, 1, d, rng.choice(["any", "short"]), centered=False) for _ in range(count)])
    who = rng.integers(0, 6, size=count)
    rows[rng.random(count) < 0.1] = 0.0
    names = [b"%d" % one for one in who]
    inputs = (np.arange(count) // int(rng.integers(1, 6)) + 1).tolist()
    return rng, rows, who, names, inputs


def outcome(rows, names, inputs, cuts=()):
    budgets = made(GeometricBLT(100, 1.0), Person(max_rows=5))
    out, after = fed(budgets, rows, names, inputs, cuts)
    budgets.enter(after)
    return out, after, budgets.states(), budgets


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1025), marks=pytest.mark.long)], ids=str)
def test_without_one_person_all_others_are_equal_to_the_bit(seeds):
    """Rows, Q, inputs and held rows; also in other pieces."""
    some_differ = False
    for seed in seeds:
        rng, rows, who, names, inputs = worlds(seed)
        out, after, states, budgets = outcome(rows, names, inputs)
        gone = int(rng.integers(0, 6))
        others = np.where((who == gone)[:, None], 0.0, rows)
        cuts = sorted(set(rng.integers(1, len(rows), size=4).tolist()))
        without, _, left, _ = outcome(others, names, inputs, cuts)
        np.testing.assert_array_equal(without, np.where((who == gone)[:, None], 0.0, out))
        her = budgets.id_of(b"%d" % gone)
        assert left == {one: state for one, state in states.items() if one != her}
        some_differ |= not np.array_equal(without, out)
        again, totals, same, _ = outcome(rows, names, inputs, cuts)
        np.testing.assert_array_equal(again, out)
        assert same == states
        assert totals[1:6] == after[1:6]
        assert totals.weight == pytest.approx(after.weight, rel=1e-12)
    assert some_differ


def test_totals_count_the_rows():
    rows = np.tile([[0.5, 0.0]], (100, 1))
    out, after, states, _ = outcome(rows, [b"a"] * 50 + [b"b"] * 50, [1] * 100)
    weights = (out**2).sum(axis=1) / 0.25
    assert (after.number, after.spent) == (2, 2)
    assert after.full + after.shrunk + after.refused == 100
    assert after.full == (weights == 1.0).sum()
    assert after.refused == (weights == 0.0).sum()
    assert after.weight == pytest.approx(weights.sum(), abs=1e-4)
    assert list(states.values()) == [people.SPENT] * 2


def test_rows_past_max_rows_do_not_count():
    rows = np.tile([[0.1, 0.0]], (20, 1))
    out, after, _, _ = outcome(rows, [b"a"] * 20, [1] * 20)
    assert out.any(axis=1).sum() == 5
    assert after.refused == 15


def test_zero_rows_cost_nothing_and_need_no_name():
    rows = np.zeros((3, 2))
    out, after = made(GeometricBLT(4, 1.0), Person()).weighted(NOBODY, rows, [None] * 3, [1, 2, 3])
    assert not out.any()
    assert after == People()


def test_the_weight_is_the_root_of_its_equation():
    """By bisection on the dense cost, before truncation."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        horizon, d = int(rng.integers(2, 30)), 3
        mechanism, unit = GeometricBLT(horizon, 1.0), Person(max_rows=1000)
        rows = admitted(rng, 12, d, "short", centered=False)
        inputs = np.sort(rng.integers(1, horizon + 1, size=12)).tolist()
        out, _ = fed(made(mechanism, unit), rows, [b"a"] * 12, inputs)
        encoder = dense(mechanism, horizon)
        for i in range(12):

            def cost(weight, i=i, out=out, rows=rows, inputs=inputs, encoder=encoder):
                now = np.vstack([out[:i], math.sqrt(weight) * rows[i : i + 1]])
                return costs(now, inputs[: i + 1], encoder, reward=0.0)

            if cost(0.0) > 1.0 - 1e-6:  # her budget is spent
                break
            low, high = 0.0, 1.0
            if cost(1.0) > 1.0:
                for _ in range(40):
                    middle = 0.5 * (low + high)
                    low, high = (middle, high) if cost(middle) <= 1.0 else (low, middle)
            else:
                low = 1.0
            found = float(out[i] @ out[i]) / float(rows[i] @ rows[i])
            assert found == pytest.approx(low, abs=2e-4)


def test_truncation_that_enlarges_a_product_is_undone(monkeypatch):
    """Rows of entries with both signs, shrunk to a few steps of the lattice; without the loop some cost too much."""
    rng = np.random.default_rng(0)

    def worst():
        found = 0.0
        for _ in range(300):
            unit = Person(budget=1e-3, max_rows=1000)
            rows = lattice(rng.standard_normal((6, 3)) * 0.02)
            out, _ = fed(made(BinaryTree(1, 1.0), unit), rows, [b"a"] * 6, [1] * 6)
            found = max(found, float(np.linalg.norm(out.T @ out)) / 1e-3)
        return found

    assert worst() <= 1.0
    honest = people._shrunk
    monkeypatch.setattr(people, "_shrunk", lambda row, root, _=0: np.where(row, honest(row, root) + STEP, 0.0))
    assert worst() <= 1.0


@pytest.mark.parametrize("budget", [0.01, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("d", [1, 3, 40])
@pytest.mark.parametrize("cells", [False, True])
def test_rows_of_one_release_have_one_weight(cells, d, budget):
    rng = np.random.default_rng(d)
    rows = lattice(rng.standard_normal((60, d)) / (2.0 * math.sqrt(d)))
    present = (rng.random((60, d if cells else 0)) < 0.8).astype(float)
    rows = np.hstack([rows * present if cells else rows, present])
    names = [b"%d" % i for i in rng.integers(0, 5, size=60)]
    out, norms = commonly_weighted(rows, names, budget, d * cells), []
    for name in set(names):
        own = [i for i, one in enumerate(names) if one == name]
        norm, whole = (
            math.hypot(
                np.linalg.norm(some[own, :d].T @ some[own, :d]),
                math.sqrt(PRESENCE / d) * np.linalg.norm(some[own, d:].sum(axis=0)),
            )
            for some in (out, rows)
        )
        assert norm <= budget
        assert norm == pytest.approx(min(budget, whole), rel=1e-3)
        norms.append(norm)
        ratio = np.linalg.norm(out[own, :d]) / np.linalg.norm(rows[own, :d])
        np.testing.assert_allclose(out[own, :d], ratio * rows[own, :d], atol=4 * STEP)
        np.testing.assert_allclose(out[own, d:], ratio**2 * rows[own, d:], atol=1e-4)


def test_spent_people_are_a_set():
    rng = np.random.default_rng(1)
    spent, ids = people._Spent(), [rng.bytes(people.ID_BYTES) for _ in range(3000)]
    for one in ids:
        spent.add(one)
        spent.add(one)
    assert spent.count == 3000
    assert all(one in spent for one in ids)
    assert not any(rng.bytes(people.ID_BYTES) in spent for _ in range(1000))
    assert sorted(spent.ids()) == sorted(ids)
    assert 8 * len(spent._table) <= 60 * 3000


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_loses_no_spent_person():
    """At instructions of a call at which the set grows."""
    data = np.random.default_rng(7).bytes(44 * people.ID_BYTES)
    ids = [data[i : i + people.ID_BYTES] for i in range(0, len(data), people.ID_BYTES)]
    count, is_done = 0, False
    while not is_done:
        spent, count = people._Spent(), count + 5  # one instruction in five
        for one in ids[:-1]:
            spent.add(one)
        with suppress(KeyboardInterrupt):
            is_done = not within(lambda spent=spent: spent.add(ids[-1]), interrupt, count, "people.py", opcodes=True)
        assert all(one in spent for one in ids[:-1])
        spent.add(ids[-1])
        assert sorted(spent.ids()) == sorted(ids)
        assert len(spent._table) == 96 * 2
    assert count > 40


def test_an_interrupt_leaves_the_people_before_or_after():
    rows = lattice(np.tile([[0.7, 0.1]], (6, 1)))
    names = [b"a", b"b", b"a", b"c", b"a", b"b"]
    expected, _, states, _ = outcome(rows, names, [1, 2, 3, 4, 5, 6])
    for count in range(1, 3000, 97):
        budgets = made(GeometricBLT(100, 1.0), Person(max_rows=5))
        out, after = budgets.weighted(NOBODY, rows[:3], names[:3], [1, 2, 3])
        with suppress(KeyboardInterrupt):
            within(
                lambda b=budgets, a=after: b.weighted(a, rows[3:], names[3:], [4, 5, 6]), interrupt, count, opcodes=True
            )
        rest, last = budgets.weighted(after, rows[3:], names[3:], [4, 5, 6])
        np.testing.assert_array_equal(np.vstack([out, rest]), expected)
        budgets.enter(last)
        assert budgets.states() == states
