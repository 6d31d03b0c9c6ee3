"""Fleets: the sums and noise of one stream a tenant, whole commits, and the guarantee of all tenants together."""

import copy
import math
import os
import pickle
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from threading import Thread
from time import perf_counter, sleep

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import streampca as sp
from streampca import _native
from streampca.errors import (
    BadParameterError,
    BadRowError,
    HorizonReachedError,
    StoreLockedError,
    TenantRetiredError,
    UsageError,
)
from streampca.privacy import gaussian
from streampca.privacy.randomness import Draws
from streampca.stream import tenants

FPL = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=7, horizon=40)
VARIANTS = {
    f"{solver}-{'centered' if center else 'plain'}-{horizon}": replace(
        FPL, solver=solver, center=center, horizon=horizon
    )
    for solver in (sp.Exact(), sp.Tracking())
    for center in (True, False)
    for horizon in (40, None)
}
OJA = sp.PrivateOja(n_components=2, epsilon=1.0, horizon=100, batch_size=8)
OJAS = {
    "steps": OJA,
    "auto": replace(OJA, batch_size="auto", release_every=20),
    "seldom": replace(OJA, release_every=30),
}
OJAS["long"] = replace(OJA, batch_size=70, horizon=None, release_every=25)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 5))
ROWS[[7, 120], 2] = np.nan, np.inf
KEYS = [f"shop-{i % 9}" for i in range(300)]


def fleet(algorithm=FPL, **given):
    return sp.Fleet(algorithm, **{"features": 5, "row_norm": 1.0} | given)


def state(one):
    """Return all that a fleet keeps, as bytes."""
    kept = {name: value for name, value in one._now.items() if name != "commits"}
    return [(records.places, records.all[: len(records.places)].tobytes()) for records in one._levels], kept


def seen(steps):
    return {(step.key, step.t): step.release.to_json() for step in steps if step.release is not None}


def conforms(algorithm, tenants_, rows):
    """Assert that exact sums, rows of releases and standard deviations are those of one `Stream` a tenant."""
    data = np.random.default_rng(1).normal(size=(tenants_ * rows, 4))
    who = np.random.default_rng(2).permutation(np.repeat(np.arange(tenants_), rows))
    one = sp.Fleet(algorithm, features=4, row_norm=1.5)
    steps = []
    for start in range(0, len(who), 1000):
        steps += one.push_many(who[start : start + 1000], data[start : start + 1000])
    by_key = {}
    for step in steps:
        by_key.setdefault(step.key, []).append(step)
    for key in range(tenants_):
        stream = sp.Stream(algorithm, row_norm=1.5, regret=None)
        releases = stream.push_many(data[who == key]).releases
        high, low = stream.engine.processor.gram.high_low()
        records = one._tenants
        assert np.array_equal(records.all["sum"][records.places[key]], (high << 40) + low)
        assert [step.t for step in by_key[key]] == [release.t for release in releases]
        joint = [release.details.get("joint_noise_std", release.noise_std) for release in releases]
        assert [s.release.details.get("joint_noise_std", s.release.noise_std) for s in by_key[key]] == joint


@pytest.mark.parametrize("algorithm", VARIANTS.values(), ids=VARIANTS)
def test_sums_and_standard_deviations_are_those_of_one_stream_a_tenant(algorithm):
    conforms(algorithm, 30, 40)


@pytest.mark.long
@pytest.mark.parametrize("center", [True, False])
def test_a_thousand_tenants_conform(center):
    conforms(replace(FPL, horizon=300, center=center), 1000, 300)


@pytest.mark.parametrize("algorithm", VARIANTS.values(), ids=VARIANTS)
def test_rows_pushed_singly_in_batches_and_all_together_give_equal_bits(algorithm):
    total = {0: replace(algorithm, release_every=50, horizon=None)}
    for totals, norm, bounds in ((None, 1.0, None), (None, None, (-1.0, 1.5)), (total, 1.0, None)):
        whole, mixed = (fleet(algorithm, seed=3, totals=totals, row_norm=norm, bounds=bounds) for _ in range(2))
        expected = whole.push_many(KEYS, ROWS)
        steps = mixed.push_many(KEYS[:100], ROWS[:100])
        for key, row in zip(KEYS[100:200], ROWS[100:200], strict=True):
            steps.append(mixed.push(key, row))
        steps += mixed.push_many(KEYS[200:], ROWS[200:])
        tenants_ = [{s: v for s, v in seen(some).items() if s[0] != ()} for some in (steps, expected)]
        assert tenants_[0] == tenants_[1]
        for name in ("sum", "noise", "buffers", "packed", "link"):
            assert whole._tenants.all[name].tobytes() == mixed._tenants.all[name].tobytes()
        assert {key: whole[key].t for key in whole} == {key: mixed[key].t for key in mixed}
        if totals:
            assert whole.total().release.to_json() == mixed.total().release.to_json()
            single = fleet(algorithm, seed=3, totals=totals)  # whose tenants begin before and after the total
            for key, row in zip(KEYS, ROWS, strict=True):
                single.push(key, row)
            assert whole.total().release.to_json() == single.total().release.to_json()
            assert whole["shop-8"].release.to_json() == single["shop-8"].release.to_json()


@pytest.mark.parametrize("algorithm", VARIANTS.values(), ids=VARIANTS)
def test_kernels_and_numpy_give_equal_bits(algorithm, monkeypatch):
    found = []
    for kernels in (_native.compiled, None):
        monkeypatch.setattr(_native, "compiled", kernels)
        one = fleet(algorithm, seed=3)
        steps = one.push_many(KEYS[:200], ROWS[:200])
        steps += [one.push(key, row) for key, row in zip(KEYS[200:], ROWS[200:], strict=True)]
        records = one._tenants.all[: len(one)]
        found.append([(step.key, step.t, step.number) for step in steps])
        # Spans may differ by 1e-12.
        found[-1] += [np.array(records[name]).tobytes() for name in records.dtype.names if name != "span"]
    assert found[0] == found[1]


@pytest.mark.parametrize("algorithm", OJAS.values(), ids=OJAS)
def test_tenants_of_private_oja_have_the_releases_of_one_stream_a_tenant(algorithm, monkeypatch):
    # A step depends on the noise of those before: without noise, and from one start, all numbers must agree.
    normal = Draws.normal
    monkeypatch.setattr(Draws, "normal", lambda draws, count: 0.0 * normal(draws, count))
    data, who = RNG.normal(size=(600, 4)), np.repeat(np.arange(6), 100)
    one = sp.Fleet(algorithm, features=4, row_norm=1.5)
    order = np.random.default_rng(3).permutation(600)
    steps = [step for part in np.split(order, 12) for step in one.push_many(who[part], data[part])]
    for key in range(6):
        stream = sp.Stream(algorithm, row_norm=1.5, regret=None)
        stream.engine.start_id = one._engine.start_id
        releases = stream.push_many(data[order[who[order] == key]]).releases
        mine = [step.release for step in steps if step.key == key]
        assert len(mine) == len(releases) > 0
        for own, other in zip(mine, releases, strict=True):
            assert (own.t, own.details) == (other.t, other.details)
            assert own.subspace.basis.tobytes() == other.subspace.basis.tobytes()
            assert own.eigenvalues.tobytes() == other.eigenvalues.tobytes()
        assert one._tenants.first.std == stream.engine.processor.std
        place = one._tenants.places[key]
        assert (
            one._tenants.all["total"][place].T.tobytes()
            == np.ascontiguousarray(stream.engine.processor.total).tobytes()
        )


@pytest.mark.parametrize("algorithm", OJAS.values(), ids=OJAS)
def test_rows_of_private_oja_give_equal_bits_however_they_are_pushed(algorithm):
    whole, mixed = (fleet(algorithm, seed=3, totals={0: replace(algorithm, horizon=None)}) for _ in range(2))
    expected = seen(whole.push_many(KEYS, ROWS))
    steps = mixed.push_many(KEYS[:100], ROWS[:100])
    for key, row in zip(KEYS[100:200], ROWS[100:200], strict=True):
        before = mixed._now["releases"]
        steps += [mixed.push(key, row)]
        steps += [mixed.total()] if mixed._now["releases"] - before > (steps[-1].release is not None) else []
    steps += mixed.push_many(KEYS[200:], ROWS[200:])
    assert seen(steps) == expected
    for name in set(whole._tenants.dtype.names) - {"order"}:
        assert whole._tenants.all[name].tobytes() == mixed._tenants.all[name].tobytes()
    assert whole["shop-7"].bad_rows == 1


def test_noise_of_tenants_of_private_oja_is_independent_and_of_the_stated_law():
    # Rows of zeros: the value of a first step is its noise along a unit column. Both tests are false with probability
    # 1e-6, and refute 0.8 of the noise, and one noise for two tenants.
    one = fleet(sp.PrivateOja(n_components=1, epsilon=1.0, horizon=2, batch_size=1))
    steps = one.push_many(list(range(1000)), np.zeros((1000, 5)))
    z = np.array([step.release.eigenvalues[0] for step in steps]) / one._tenants.first.std
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 1000)

    def holds(z):
        return low < (z**2).sum() < high and abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 4.9 / math.sqrt(500)

    assert holds(z)
    assert not holds(0.8 * z)
    assert not holds(np.repeat(z[::2], 2))


def test_a_fleet_of_private_oja():
    algorithm = sp.PrivateOja(n_components=2, epsilon=1.0, horizon=30, batch_size=10)
    one, two = (fleet(algorithm, on_exhausted=mode) for mode in ("raise", "drop"))
    assert one.guarantee.mu == algorithm.mu
    assert "parallel composition over tenants" in one.guarantee.theorem
    assert two.push_many(["a"] * 35, ROWS[:35])[-1].t == 30
    assert (two["a"].t, two["a"].dropped, two["a"].bad_rows) == (30, 5, 1)
    with pytest.raises(HorizonReachedError):
        one.push_many(["a"] * 31, ROWS[:31])
    one.push_many(["a", "b"] * 12, ROWS[:24])
    assert one["a"].release.terms.run is None  # its releases are not subtracted
    other, stayed = fleet(algorithm), one["a"].release.to_json()
    other.take(one.hand_over(["a"], other.address))
    assert other["a"].t == 12
    assert other["a"].release.to_json() == stayed
    assert [step.t for step in other.push_many(["a"] * 18, ROWS[24:42])] == [20, 30]
    with pytest.raises(BadParameterError):
        fleet(replace(algorithm, unit="who"))


def test_noise_of_tenants_is_independent_and_of_the_stated_law():
    # 2000 tenants of zero rows: released sums are noise. Each of the three tests is false with probability 1e-6. They
    # refute 0.8 of the noise, and one noise for two tenants.
    one = fleet(replace(FPL, center=False, release_every=1, horizon=2))
    steps = one.push_many(list(range(2000)) * 2, np.zeros((4000, 5)))
    z = np.array([[s.release.packed[0] / s.release.noise_std for s in steps if s.t == t] for t in (1, 2)])
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 2000)

    def holds(z):
        squares, beside = (z**2).sum(axis=1), np.corrcoef(z[0, ::2], z[0, 1::2])[0, 1]
        return bool((low < squares).all() and (squares < high).all() and abs(beside) < 4.9 / math.sqrt(1000))

    assert holds(z)
    assert not holds(0.8 * z)
    assert not holds(np.repeat(z[:, ::2], 2, axis=1))


def test_guarantee_is_that_of_one_tenant_whatever_their_number():
    one = fleet()
    assert (one.guarantee.epsilon, one.guarantee.mu) == (1.0, FPL.mu)
    one.push_many(KEYS, ROWS)
    step = one["shop-1"]
    assert one.guarantee == fleet().guarantee == step.guarantee == step.release.guarantee
    assert "the tenant of a row, and when it comes, are public" in one.guarantee.scope
    assert fleet(seed=1).guarantee.caveat


def test_guarantee_of_units_in_several_tenants_and_of_totals():
    total = replace(FPL, epsilon=0.5)
    one = fleet(max_tenants_per_user=4, totals={"": total})
    assert one.guarantee.mu == pytest.approx(math.sqrt(4 * FPL.mu**2 + 16 * total.mu**2))
    assert one.guarantee.epsilon == pytest.approx(gaussian.epsilon_at(one.guarantee.mu, 1e-6))
    assert one.guarantee.unit == "one unit in up to 4 tenants, with one row of each"
    assert one.guarantee.contribution == "4 rows"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"algorithm": replace(FPL, noise="tree")}, "algorithm.noise"),
        ({"algorithm": replace(FPL, solver="smoothed")}, "algorithm.solver"),
        ({"algorithm": replace(FPL, publish_regret=True, center=False)}, "algorithm.publish_regret"),
        ({"algorithm": replace(FPL, unit="who")}, "algorithm.unit"),
        ({"bounds": "private", "row_norm": None}, "bounds"),
        ({"features": None}, "features"),
        ({"on_exhausted": "wait"}, "on_exhausted"),
        ({"max_tenants_per_user": 0}, "max_tenants_per_user"),
        ({"totals": {"": replace(FPL, center=False)}}, "totals"),
        ({"totals": {"": sp.Oja(n_components=1)}}, "totals"),
        ({"totals": {-1: FPL}}, "totals"),
        ({"totals": {0: FPL, "": FPL}}, "totals"),
        ({"totals": {"region": FPL}}, "totals"),
        ({"totals": FPL}, "totals"),
        ({"algorithm": replace(FPL, release_every="1d", horizon="9d")}, "algorithm.release_every"),
    ],
)
def test_what_a_fleet_refuses(given, parameter):
    with pytest.raises(BadParameterError) as error:
        fleet(**given)
    assert error.value.parameter == parameter


@pytest.mark.parametrize(
    "key",
    ["", b"", "x" * 256, b"x" * 256, "é" * 128, "\ud800", 2**63, 1.5, None, (), ("a",), [1], np.nan, True, Decimal(1)],
)
def test_keys_that_are_refused(key):
    one = fleet()
    one.push("a", ROWS[0])
    one.push(1, ROWS[0])
    before = state(one)
    for push in (lambda: one.push(key, ROWS[1]), lambda: one.push_many(["b", key], ROWS[:2])):
        with pytest.raises(BadParameterError, match="keys"):
            push()
    assert state(one) == before


def test_keys_that_are_accepted_and_their_collections():
    one = fleet()
    keys = ["a", b"a", 0, -(2**62), "é" * 127, np.int64(5)]
    one.push_many(keys[:5], ROWS[:5])
    one.push_many(np.array([5]), ROWS[:1])
    assert one.push(keys[5], ROWS[0]).t == one.push(np.str_("a"), ROWS[0]).t == one.push(5.0, ROWS[0]).t - 1 == 2
    pa = pytest.importorskip("pyarrow")
    one.push_many(pa.table({"key": [5]})["key"], ROWS[:1])
    assert (one[5].t, len(one)) == (4, 6)
    assert list(one) == [*keys[:5], 5]
    assert [key in one for key in ("a", b"a", 5, "b")] == [True, True, True, False]
    with pytest.raises(KeyError):
        one["b"]
    assert repr(one).endswith("6 tenants: (1, 1e-06)-DP for one row>")


@pytest.mark.parametrize("call", ["push_many", "hand_over"])
@pytest.mark.parametrize("keys", ["ab", b"ab", None, 1])
def test_one_key_is_no_sequence_of_keys(call, keys):
    one = fleet()
    one.push_many(["a", "b", 97, 98], ROWS[:4])
    before = state(one)
    with pytest.raises(BadParameterError, match=r"keys=.*: expected a sequence of keys"):
        getattr(one, call)(keys, ROWS[:2] if call == "push_many" else fleet().address)
    assert state(one) == before


@pytest.mark.parametrize("position", ["abc", 5, ("a",)])
def test_a_position_is_a_name_and_a_place(position):
    with pytest.raises(BadParameterError, match="position="):
        fleet().push_many(["a"], ROWS[:1], position=position)


def test_a_view_before_and_after_a_release():
    one = fleet()
    one.push("a", ROWS[0])
    view = one["a"]
    assert (view.t, view.release, view.number, view.bad_rows, view.dropped) == (1, None, None, 0, 0)
    assert np.array_equal(view.subspace.basis, np.eye(5, 2))
    step = one.push_many(["a"] * 8, ROWS[1:9])[0]
    view = one["a"]
    assert (view.t, view.bad_rows, view.number) == (9, 1, 1)
    assert view.release.to_json() == step.release.to_json()
    assert np.array_equal(view.subspace.basis, step.release.subspace.basis)


def test_releases_of_two_tenants_cannot_be_subtracted():
    one = fleet()
    steps = one.push_many(["a", "b"] * 14, np.repeat(ROWS[10:24], 2, axis=0))
    names = {step.key: {s.release.terms.run["name"] for s in steps if s.key == step.key} for step in steps}
    assert all(len(name) == 1 for name in names.values())
    assert names["a"] != names["b"]
    first, second = (step.release for step in steps if step.key == "a")
    other = next(step.release for step in steps if step.key == "b")
    assert first.terms.mark == second.terms.mark != other.terms.mark


def test_a_call_with_a_bad_shape_or_too_many_rows_absorbs_nothing():
    one = fleet()
    one.push_many(KEYS[:90], ROWS[:90])
    before = state(one)
    for keys, rows, error in [
        (["new", "shop-1"], [[1.0] * 5, [1.0] * 4], BadRowError),
        (["new"] * 2, ROWS[:3], BadParameterError),
        (["new", *["shop-1"] * 31], ROWS[:32], HorizonReachedError),
        (["new"] * 41, ROWS[:41], HorizonReachedError),
    ]:
        with pytest.raises(error):
            one.push_many(keys, rows)
        assert state(one) == before
    assert "new" not in one


def test_rows_after_the_horizon_are_counted_and_dropped():
    one, exact = fleet(on_exhausted="drop", seed=1), fleet(seed=1)
    steps = one.push_many(["a"] * 45 + ["b"], ROWS[:46])
    assert (one["a"].t, one["a"].dropped) == (40, 5)
    assert one.push("a", ROWS[0]).t == 40
    assert one.push_many(["a"] * 3, ROWS[:3]) == []
    assert one["a"].dropped == 9
    assert seen(steps) == seen(exact.push_many(["a"] * 40 + ["b"], np.vstack([ROWS[:40], ROWS[45:46]])))


def test_totals_have_the_sums_of_all_rows_and_noise_of_their_own():
    total = replace(FPL, release_every=50, horizon=300)
    one = fleet(totals={0: total, 1: replace(total, n_components=1)})
    keys = [("eu" if i % 3 else "us", key) for i, key in enumerate(KEYS)]
    steps = one.push_many(keys, ROWS)
    stream = sp.Stream(total, row_norm=1.0, regret=None)
    releases = stream.push_many(ROWS).releases
    high, low = stream.engine.processor.gram.high_low()
    assert np.array_equal(one._levels[1].all["sum"][0], (high << 40) + low)
    assert [s.t for s in steps if s.key == ()] == [r.t for r in releases]
    assert one.total().t == 300
    assert one.total("eu").t == 200
    assert one.total("eu").subspace.basis.shape == (5, 1)
    parts = sum(one._levels[2].all["sum"][place].astype(object) for place in one._levels[2].places.values())
    assert np.array_equal(parts, ((high << 40) + low).astype(object))
    assert one.total().bad_rows == 2
    for prefix, error in ((("eu", "x"), UsageError), (("xx",), KeyError)):
        with pytest.raises(error):
            one.total(*prefix)
    for key in (("eu",), ("eu", "a", "b"), "eu"):
        with pytest.raises(BadParameterError, match="a tuple of 2"):
            one.push(key, ROWS[0])


def test_retired_tenants_never_start_again():
    one = fleet()
    one.push_many(KEYS, ROWS)
    one.retire("shop-1", "shop-2", "shop-1")
    assert len(one) == 7
    assert "shop-1" not in one
    place = KEYS.index("shop-1")
    assert not one._tenants.all[place].tobytes().strip(b"\0")  # the record is erased
    before = state(one)
    for use in (
        lambda: one.push("shop-1", ROWS[0]),
        lambda: one.push_many(["shop-3", "shop-1"], ROWS[:2]),
        lambda: one.retire("shop-1"),
        lambda: one["shop-1"],
    ):
        with pytest.raises(TenantRetiredError):
            use()
    with pytest.raises(KeyError):
        one.retire("unknown")
    assert state(one) == before
    assert all(step.key not in ("shop-1", "shop-2") for step in one.releases())


def test_releases_since_a_number():
    one = fleet()
    steps = one.push_many(KEYS, ROWS)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    latest = list(one.releases())
    assert [step.number for step in latest] == sorted({step.key: step.number for step in steps}.values())
    assert [step.number for step in one.releases(since=latest[3].number)] == [step.number for step in latest[4:]]


def test_one_tenant_of_the_largest_number_of_rows():
    one = fleet(replace(FPL, horizon=None))
    one.push("a", ROWS[0])
    one._tenants.t[0] = tenants.MOST_ROWS - 1
    one._tenants.all["sum"][0] = (tenants.MOST_ROWS - 1) << 40
    one.push("a", np.eye(5)[0])
    assert one._tenants.all["sum"][0].max() <= 2**63 - 1
    with pytest.raises(HorizonReachedError):
        one.push("a", ROWS[0])


def test_the_number_of_tenants_has_a_bound(monkeypatch):
    assert tenants.MOST_TENANTS == 2**32 - 1
    monkeypatch.setattr(tenants, "MOST_TENANTS", 2)
    one = fleet()
    one.push_many(["a", "b"], ROWS[:2])
    before = state(one)
    with pytest.raises(UsageError, match="at most 2 tenants"):
        one.push_many(["a", "c"], ROWS[:2])
    assert state(one) == before


def test_threads_absorb_each_row_once():
    one = fleet(replace(FPL, horizon=None))
    threads = [
        Thread(target=lambda: [one.push(f"t{i % 5}", np.eye(5)[0]) for i in range(200)]),
        Thread(target=lambda: [one.push_many([f"t{i}" for i in range(5)], np.eye(5)) for _ in range(40)]),
        Thread(target=lambda: [one[key].release for _ in range(100) for key in one]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one[f"t{i}"].t for i in range(5)] == [80] * 5


def test_an_interrupt_leaves_whole_calls():
    one, pushed = fleet(replace(FPL, center=False, horizon=None, release_every=3)), 0

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    rows, began = np.tile(np.eye(5)[0], (3, 1)), perf_counter()
    for _ in range(20):
        fleet().push_many(["a", "b", "a"], rows)
    seconds = (perf_counter() - began) / 20  # more than one call: it creates a fleet, too
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for i in range(300):
            with suppress(Stop):
                signal.setitimer(signal.ITIMER_REAL, seconds * (i % 100 + 1) / 100)
                one.push_many(["a", "b", "a"], rows)
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                pushed += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert 0 < pushed < 300
    count = one["b"].t
    assert pushed <= count <= 300
    assert one["a"].t == 2 * count
    assert one._tenants.all["sum"][:2, 0].tolist() == [2 * count << 40, count << 40]
    assert one._now["releases"] == 2 * count // 3 + count // 3


def test_copies_and_forked_children_are_refused():
    one = fleet()
    one.push("a", ROWS[0])
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match="cannot be copied"):
            make(one)
    child = os.fork()
    if child == 0:
        try:
            one.push("a", ROWS[0])
        except StoreLockedError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert one.push("a", ROWS[0]).t == 2


def test_calls_inside_a_call_are_refused_and_change_nothing():
    problems = []

    def again():
        for call in (lambda: one.push("b", ROWS[1]), lambda: one.retire("a"), lambda: one["a"], one.close):
            with pytest.raises(sp.errors.StreamBusyError) as problem:
                call()
            problems.append(problem)

    class Row(list):
        def __iter__(self):
            again()
            return super().__iter__()

    class Account:
        def debit(self, guarantee, start):
            again()

    def rows():
        again()
        yield ROWS[0]

    one = fleet(account=Account())
    one.push("a", ROWS[0])
    one.push("a", Row(ROWS[0]))
    one.push_many(["a"], rows())
    assert len(problems) >= 12
    assert (len(one), one["a"].t) == (1, 3)


def test_the_account_is_debited_once_before_the_first_row():
    debits = []

    class Account:
        def debit(self, guarantee, start):
            debits.append((guarantee, start))

    one = fleet(account=Account(), max_tenants_per_user=3)
    assert not debits
    one.push_many(KEYS, ROWS)
    one.push("new", ROWS[0])
    assert [guarantee for guarantee, _ in debits] == [one.guarantee]
    assert len(debits[0][1]) == 16

    class Empty:
        def debit(self, guarantee, start):
            raise sp.errors.BudgetExhaustedError("no budget")

    with pytest.raises(sp.errors.BudgetExhaustedError):
        fleet(account=Empty()).push("a", ROWS[0])


def test_a_source_that_breaks_costs_no_row_before(tmp_path):
    def broken():
        for i in range(40):
            yield {"shop": f"shop-{i % 9}", "x": ROWS[i, 0], "y": 0.0}
        raise OSError("the source broke")

    one = fleet(features=["x", "y"])
    with pytest.raises(OSError, match="broke"):
        list(one.run(broken(), key="shop"))
    assert sum(one[key].t for key in one) == 40


def test_a_table_without_the_column_of_keys(tmp_path):
    frame = pd.DataFrame(ROWS[:, :2], columns=["x", "y"])
    frame.to_parquet(tmp_path / "rows.parquet")
    for rows in (frame, frame.assign(city="here"), sp.sources.from_parquet(tmp_path / "rows.parquet")):
        with pytest.raises(sp.errors.SourceError, match="no column 'shop'"):
            next(fleet(features=["x", "y"]).run(rows, key="shop"))


def test_rows_that_come_slowly_do_not_wait_for_a_full_batch():
    taken = []

    def slowly():
        for i in range(10):
            sleep(0.06)
            taken.append(i)
            yield {"shop": "one", "x": ROWS[i, 0], "y": 0.0}

    assert [(step.t, len(taken)) for step in fleet(features=["x", "y"]).run(slowly(), key="shop")] == [(7, 7)]


def test_run_over_mappings_tables_and_a_file(tmp_path):
    names = [f"x{i}" for i in range(5)]
    frame = [{"shop": key, **dict(zip(names, row, strict=True))} for key, row in zip(KEYS, ROWS.tolist(), strict=True)]
    one, other = fleet(features=names, seed=1), fleet(features=names, seed=1)
    assert seen(one.run(iter(frame), key="shop")) == seen(other.push_many(KEYS, ROWS))
    tables = [pd.DataFrame(ROWS, columns=names).assign(shop=[i % 9 for i in range(300)]), tmp_path / "rows.csv"]
    tables[0].to_csv(tables[1], index=False)
    tables[1] = sp.sources.from_csv(tables[1], columns=names)
    for table in tables:
        third = fleet(features=names, seed=1)
        assert len(list(third.run(table, key="shop"))) == one._now["releases"]
        assert {f"shop-{key}": third[key].t for key in third} == {key: one[key].t for key in one}
        assert third.position is None
    with pytest.raises(UsageError, match="features: their names"):
        next(fleet(features=5).run(frame, key="shop"))
    with pytest.raises(UsageError, match="lacks features of this fleet: x4"):
        next(third.run(sp.sources.from_csv(tmp_path / "rows.csv", columns=names[:4]), key="shop"))


#: What stands in a column of keys and is none.
NOBODY = [
    None,
    math.nan,
    "",
    b"",
    "x" * 256,
    b"x" * 256,
    "\ud800",
    2**63,
    1.5,
    True,
    [1],
    ("shop-1",),
    {},
    pd.NaT,
    pd.NA,
]


def test_rows_of_nobody_do_not_end_a_run_and_enter_no_sum(tmp_path, caplog):
    names = [f"x{i}" for i in range(5)]
    keys = [*NOBODY, *KEYS]
    rows = np.vstack([np.full((len(NOBODY), 5), 0.3), ROWS])
    expected = fleet(features=names, seed=1)
    releases = seen(expected.push_many(KEYS, ROWS))
    mappings = [{"shop": key, **dict(zip(names, row, strict=True))} for key, row in zip(keys, rows, strict=True)]
    mappings += [dict(zip(names, row, strict=True)) for row in rows[:3]]  # without the name
    table = pd.DataFrame(rows, columns=names)
    table["shop"] = pd.Series(keys, dtype=object)
    for source in (iter(mappings), table):
        one = fleet(features=names, seed=1)
        caplog.clear()
        assert seen(one.run(source, key="shop")) == releases
        assert state(one) == state(expected)
        first, second = (record.getMessage() for record in caplog.records if record.name == "streampca.curator")
        count = len(NOBODY) + 3 * (source is not table)
        assert first.startswith(f"{count} of {count + 300} rows belong to no tenant")
        assert second.startswith("2 of 300 rows could not be used")


def test_whole_numbers_stay_keys_beside_a_missing_one(tmp_path):
    names = [f"x{i}" for i in range(5)]
    whole = pd.DataFrame(ROWS, columns=names).assign(shop=np.arange(300) % 9)
    gap = whole.assign(shop=whole["shop"].where(whole.index != 4))  # pandas makes them floats
    assert gap["shop"].dtype == np.float64
    found = [fleet(features=names), fleet(features=names)]
    for one, table in zip(found, (whole, gap), strict=True):
        list(one.run(table, key="shop"))
    assert list(found[1]) == [0, 1, 2, 3, 5, 6, 7, 8, 4]
    assert found[1][4].t == found[0][4].t - 1


def test_keys_of_several_columns():
    names = [f"x{i}" for i in range(5)]
    one = fleet(features=names, totals={0: FPL, 1: replace(FPL, horizon=300)}, on_exhausted="drop")
    table = pd.DataFrame(ROWS, columns=names).assign(region="eu", shop=KEYS)
    table.loc[3, "region"] = None
    list(one.run(table, key=["region", "shop"]))
    assert one.total("eu").t == 299
    assert ("eu", "shop-1") in one
    for wrong in ("shop", ["region", "shop", "x0"]):
        with pytest.raises(BadParameterError, match="one column for each of the 2 parts"):
            next(one.run(table, key=wrong))
    with pytest.raises(UsageError, match="without names"):
        next(one.run([ROWS[0]], key=["region", "shop"]))


def test_late_rows_of_a_retired_tenant_end_a_run_only_if_they_are_not_dropped():
    names = [f"x{i}" for i in range(5)]
    table = pd.DataFrame(ROWS[:90], columns=names).assign(shop=KEYS[:90])
    for mode in ("raise", "drop"):
        one = fleet(features=names, on_exhausted=mode)
        one.push("shop-1", ROWS[0])
        one.retire("shop-1")
        if mode == "raise":
            with pytest.raises(TenantRetiredError):
                list(one.run(table, key="shop"))
            assert "shop-2" not in one
        else:
            list(one.run(table, key="shop"))
            assert len(one) == 8
            assert one["shop-2"].t == 10


def test_an_interrupt_while_records_grow_loses_no_record(monkeypatch):
    class Stop(BaseException):
        pass

    one = fleet()
    one.push_many(KEYS[:90], ROWS[:90])
    before, kept, grown = state(one), len(one._tenants.all), 0
    lines = []

    def trace(frame, event, _):
        if frame.f_code.co_name == "reserve":
            lines.append(frame.f_lineno)
            if event == "line" and len(lines) == stop:
                raise Stop
        return trace

    for stop in range(2, 14):  # noqa: B007 at each line of `reserve`
        lines.clear()
        sys.settrace(trace)
        try:
            with suppress(Stop):
                one.push_many([f"new-{i}" for i in range(100)], np.ones((100, 5)))
                grown += 1
        finally:
            sys.settrace(None)
        records = one._tenants
        if grown:
            break
        assert state(one) == before
        assert all(np.shares_memory(records.all, view) for view in (records.t, records.words, records.often))
    assert grown
    assert stop > 6
    assert len(one._tenants.all) > kept


def test_empty_lists_of_keys_change_nothing():
    one = fleet()
    one.push("a", ROWS[0])
    one.push(1, ROWS[0])
    before = state(one)
    one.retire()
    for keys, to in (([], fleet().address), (["a"], one.address)):
        with pytest.raises(UsageError, match="address of another fleet"):
            one.hand_over(keys, to)
    assert state(one) == before
    assert one.push("a", ROWS[0]).t == 2
