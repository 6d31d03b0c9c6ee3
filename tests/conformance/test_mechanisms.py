"""Every mechanism: what its users and `Tumbling` rely on. New mechanisms join `CASES`."""

import math
from dataclasses import FrozenInstanceError, dataclass, fields, replace

import numpy as np
import pandas as pd
import pytest
from golden_cases import BUDGET, MECHANISMS, ball, plane

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, UsageError
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.base import Mechanism
from streampca.privacy import outlet
from streampca.privacy.gaussian import delta_at
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness, encoded


@dataclass(frozen=True)
class Case:
    mechanism: Mechanism
    rows: np.ndarray
    clips: bool
    certain: bool
    has_gram: bool

    def release(self, rows=None, randomness=None, **more):
        return self.mechanism.release(self.rows if rows is None else rows, randomness, **{"row_norm": 1.0, **more})

    def text(self, seed, rows=None):
        return self.release(rows, Randomness.from_seed(seed)).to_json()


MADE = {name: MECHANISMS[name] for name in MECHANISMS if "-center" not in name and "-discrete" not in name} | {
    "adaptive-few-rows": (lambda: sp.AdaptiveCovariance(**BUDGET, center=False), ball(300)),
    "exact-subspace-unknown": (lambda: sp.ExactSubspace(max_components=2, epsilon=1.0, delta=1e-6), plane(300)),
    "approximate-subspace-null": (lambda: sp.papers.ApproximateSubspace(**BUDGET), plane(50)),
}
#: They release a basis alone.
BASES = "subspace-perturbation", *(name for name in MADE if name.startswith(("exact", "approximate")))
CASES = {
    name: Case(made(), rows, name not in BASES[1:], name.startswith("exact") or "null" in name, name not in BASES)
    for name, (made, rows) in MADE.items()
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def cases_where(suits):
    return pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items() if suits(c)])


class Untouched(Randomness):
    def derived(self, *label):
        raise AssertionError(f"drew {label} before the input was checked")


@every_case
def test_is_a_frozen_dataclass_of_its_parameters(case):
    mechanism = case.mechanism
    given = {f.name: getattr(mechanism, f.name) for f in fields(mechanism) if f.init}
    assert type(mechanism)(**given) == mechanism
    assert all(f.kw_only for f in fields(mechanism))
    with pytest.raises(FrozenInstanceError):
        mechanism.epsilon = 2.0


@every_case
def test_the_guarantee_is_known_before_any_row_and_priced_as_stated(case):
    mechanism, claim = case.mechanism, case.mechanism.guarantee
    assert (claim.epsilon, claim.delta) == (mechanism.epsilon, getattr(mechanism, "delta", 0.0))
    assert (claim.adjacency, claim.scope, claim.unit) == (mechanism.adjacency, "one release of one data set", "one row")
    assert claim.theorem
    assert claim.citation
    if claim.mu is not None:
        assert delta_at(claim.mu, claim.epsilon) + claim.slack <= claim.delta * (1.0 + 1e-9)
        assert delta_at(claim.mu, claim.epsilon) + claim.slack >= claim.delta * (1.0 - 1e-6)


@every_case
def test_the_release_carries_the_claim_and_survives_json(case):
    n, d = case.rows.shape
    release = case.release(None, Randomness.from_seed(0), t=n + 5)
    assert release.t == n + 5
    assert release.n_features == d
    assert release.guarantee == case.mechanism.guarantee_for(case.rows.shape[1]).seeded()
    assert "seeded" not in case.release().guarantee.caveat
    basis = release.subspace.basis
    assert basis.shape == (d, release.n_components)
    np.testing.assert_allclose(basis.T @ basis, np.eye(release.n_components), atol=1e-12)
    again = sp.Release.from_json(release.to_json())
    np.testing.assert_array_equal(again.subspace.basis, basis)
    assert again.details == release.details
    assert again.guarantee == release.guarantee


@every_case
def test_same_seed_same_bits_in_any_memory_order(case):
    expected, untouched = case.text(7), case.rows.copy()
    assert case.text(7, np.asfortranarray(case.rows)) == case.text(7, case.rows.tolist()) == expected
    assert case.release(seed=7).to_json() == expected
    np.testing.assert_array_equal(case.rows, untouched)
    assert case.certain == (case.text(8) == expected)


def shared_part(first: sp.Release, other: sp.Release, rows: np.ndarray) -> float:
    noises = first.gram - rows.T @ rows, other.gram - rows.T @ rows
    return float(np.vdot(*noises) / np.linalg.norm(noises[0]) / np.linalg.norm(noises[1]))


def one_less(rows: np.ndarray) -> np.ndarray:
    other = rows.copy()
    other[0] = 0.0
    return other


@cases_where(lambda case: not case.certain)
@pytest.mark.parametrize("seeded", [True, False])
def test_no_two_releases_share_noise(case, seeded):
    # Shared noise cancels in the difference of two releases and lays the rows bare.
    mechanism, randomness = case.mechanism, Randomness.from_seed(1) if seeded else Randomness(bytes(32))
    first = mechanism.release(case.rows, randomness, row_norm=1.0)
    others = {
        "t": mechanism.release(case.rows, randomness, t=len(case.rows) + 1, row_norm=1.0),
        "rows": mechanism.release(one_less(case.rows), randomness, row_norm=1.0),
        "epsilon": replace(mechanism, epsilon=1.1).release(case.rows, randomness, row_norm=1.0),
    }
    if not seeded:  # a key reproduces nothing
        others["again"] = mechanism.release(case.rows, randomness, row_norm=1.0)
    for what, other in others.items():
        assert other.to_json() != first.to_json(), what
        if first.packed is not None:
            # Shared noise has 1; independent noise of 10 numbers has more than 0.99 with chance below 1e-8. Wishart
            # noise has a public mean that all draws share besides.
            assert shared_part(first, other, case.rows) < 0.99, what


@every_case
def test_the_noise_is_bound_to_all_it_hides(case, monkeypatch):
    # Also where the system gives equal bytes twice, as a cloned virtual machine does.
    monkeypatch.setattr(outlet.os, "urandom", bytes)
    hide, names = Outlet.hide, []

    def noted(self, kind, *exact):
        draws = hide(self, kind, *exact)
        names.append(draws.name)
        return draws

    def drawn(rows, mechanism=case.mechanism, t=10_000):
        names.clear()
        mechanism.release(rows, Randomness(bytes(32)), t=t, row_norm=1.0)
        assert names
        return set(names)

    monkeypatch.setattr(Outlet, "hide", noted)
    first = drawn(case.rows)
    assert first == drawn(case.rows)  # the test sees what is shared
    more = np.vstack([case.rows, np.zeros((1, case.rows.shape[1]))])
    constants = case.mechanism.constants(case.rows.shape[1])
    for rows in (one_less(case.rows), case.rows[::-1] if not case.clips else -0.5 * case.rows):
        assert not first & drawn(rows)
    if "gap_std" in case.release(seed=0).details:  # there the scale depends on the number of rows
        assert not first & drawn(more)
    assert not first & drawn(case.rows, t=10_001)
    for i, constant in enumerate(constants):
        if isinstance(constant, float):
            changed = (*constants[:i], np.nextafter(constant, 0.0), *constants[i + 1 :])
            with monkeypatch.context() as patch:
                patch.setattr(type(case.mechanism), "constants", lambda self, d, changed=changed: changed)
                assert not first & drawn(case.rows)
    link = NoiseSource.link
    monkeypatch.setattr(NoiseSource, "link", lambda self, chain, kind, fresh, tags: link(self, chain, kind, fresh, b""))
    assert drawn(case.rows) & drawn(one_less(case.rows))  # and this is what it would look like without the hash


@every_case
def test_it_serves_a_stream_and_a_replay_is_bit_identical(case):
    n, d = case.rows.shape
    rows, key = onto_ball(case.rows if case.clips else case.rows / 256.0), Randomness(bytes(32))
    algorithm = sp.Tumbling(case.mechanism, release_every=n)
    processor = algorithm.start(d, key)
    outlet = processor.outlet()
    _, release = processor.absorb(rows, outlet)
    assert release.terms is processor.terms
    assert (release.t, release.n_features, release.guarantee) == (n, d, algorithm.guarantee_for(d))
    again = algorithm.start(d, key, start=processor.source.start)
    assert again.absorb(rows, again.outlet(outlet.fresh))[1].to_json() == release.to_json()


@every_case
def test_constants_are_numbers_that_a_label_can_hold(case):
    constants = case.mechanism.constants(6)
    assert constants == case.mechanism.constants(6)
    assert encoded(*constants)
    assert any(isinstance(value, float) for value in constants)
    changed = replace(case.mechanism, epsilon=2.0)
    assert changed.constants(6) != constants


@cases_where(lambda case: case.clips)
def test_long_rows_are_clipped_one_by_one(case):
    long = 10.0 * case.rows
    long[0] *= 1e200
    assert case.text(2, long) == case.text(2, onto_ball(long))


@cases_where(lambda case: case.has_gram)
def test_released_numbers_lie_on_a_coarse_grid(case):
    release = case.release(None, Randomness.from_seed(3))
    entries = release.gram.ravel()
    step = 2.0**-40
    while (entries / (2.0 * step) == np.rint(entries / (2.0 * step))).all():
        step *= 2.0
    assert step >= 2.0**-20 * np.std(entries - (case.rows.T @ case.rows).ravel()) / 4.0


@every_case
def test_bad_rows_are_zero_rows_to_the_bit(case):
    zeroed, spoilt = case.rows.copy(), case.rows.astype(object)
    zeroed[3:7], spoilt[[3, 4, 5, 6], 1] = 0.0, [math.nan, math.inf, -math.inf, "three"]
    assert case.text(6, spoilt) == case.text(6, zeroed)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("discrete", [False, True])
def test_bad_rows_leave_the_sums_of_a_centered_release_as_they_are(adjacency, discrete, caplog):
    rows = np.random.default_rng(0).uniform(0.0, 100.0, size=(330, 4))
    mechanism = sp.GaussianCovariance(**BUDGET, adjacency=adjacency, discrete_noise=discrete)

    def released(rows):
        release = mechanism.release(rows, Randomness.from_seed(6), bounds=(0.0, 100.0), t=400)
        return release.details["sums"], release.details["noisy_count"]

    alone = released(rows)
    assert not caplog.records
    bad = np.full((70, rows.shape[1]), 50.0)  # the middle of the bounds but for one cell
    bad[:, 2] = np.resize([math.nan, math.inf], 70)
    assert released(np.concatenate([rows, bad])) == alone
    assert released(np.concatenate([bad[:1], rows, bad[1:]])) == alone
    (message, again) = [record.getMessage() for record in caplog.records]
    assert message == again
    assert message.startswith("70 of 400 rows could not be used and count for nothing (35 missing value, 35 infinite")
    # A row in the middle of the bounds is no bad row: it counts.
    assert released(np.concatenate([rows, np.full((70, rows.shape[1]), 50.0)])) != alone


def test_tables_are_released_cell_by_cell():
    mechanism, bounds = sp.GaussianCovariance(n_components=1, epsilon=1.0), {"age": (0, 100), "height": (1, 2)}
    good = [{"age": 20, "height": 1.6}, {"age": 35, "height": 1.8}, {"age": 50, "height": 1.7}] * 10
    rows = [*good, {"age": "-", "height": 1.5}, {"height": 1.5}]
    listed = mechanism.release(rows, seed=0, bounds=bounds)
    assert listed.features == ("age", "height")
    assert mechanism.release(pd.DataFrame(rows), seed=0, bounds=bounds).to_json() == listed.to_json()
    with pytest.raises(UsageError, match="Pass bounds by name, or a frame"):
        mechanism.release(rows, seed=0, row_norm=100.0)
    with pytest.raises(BadRowError, match="row 2: 1 values, expected 2"):
        mechanism.release([[1.0, 2.0], [1.0]], Untouched(), row_norm=3.0)


@every_case
def test_bad_input_is_refused_before_anything_is_drawn(case):
    for rows in (case.rows[0], case.rows[:0], case.rows[:, :0], case.rows[None]):
        with pytest.raises(BadParameterError, match="rows=<ndarray of shape"):
            case.release(rows, Untouched())
    for t in (len(case.rows) - 1, True, 1e9):
        with pytest.raises(BadParameterError, match=f"t={t}"):
            case.release(None, Untouched(), t=t)
    for randomness, seed, told in ((3, None, "randomness=3"), (Untouched(), 3, "seed=3"), (None, 0.5, r"seed=0\.5")):
        with pytest.raises(UsageError, match=told):
            case.release(None, randomness, seed=seed)


BAD_PARAMETERS = {
    "epsilon": (0.0, math.nan, math.inf, "1"), "delta": (0.0, 1.0, -1e-6), "adjacency": ("add-remove",),
    "n_components": (0, 1.5, True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "name", "value"),
    [
        pytest.param(case, name, bad, id=f"{of}-{name}-{bad}")
        for of, case in CASES.items()
        for name, values in BAD_PARAMETERS.items()
        for bad in values
        if name in {f.name for f in fields(case.mechanism)}
    ],
)
def test_bad_parameters_are_named(case, name, value):
    with pytest.raises(BadParameterError, match=name):
        replace(case.mechanism, **{name: value})


@every_case
def test_a_generous_budget_gives_an_accurate_subspace(case):
    generous = replace(case.mechanism, epsilon=500.0)
    release = generous.release(case.rows, Randomness.from_seed(4), row_norm=1.0)
    k = release.n_components
    best = np.linalg.eigvalsh(case.rows.T @ case.rows)[-k:].sum()
    assert release.subspace.captured(case.rows.T @ case.rows) > 0.999 * best


@every_case
def test_minus_zero_is_zero(case):
    rows = np.where(np.arange(case.rows.shape[1]) == 3, 0.0, case.rows)
    one, other = (case.release(given, seed=0) for given in (rows, np.where(rows == 0.0, -0.0, rows)))
    assert one.details == other.details
    np.testing.assert_array_equal(one.subspace.basis, other.subspace.basis)
