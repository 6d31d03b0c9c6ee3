"""One accountant: exact for Gaussian events, and in agreement with Google's dp-accounting."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.privacy import gaussian
from streampca.privacy.accounting import Event, epsilon_of, library_epsilon


def gauss(mu, **more):
    return Event("Gaussian", "zero-out", mu=mu, **more)


def claim(epsilon, delta=0.0):
    return Event("claim", "zero-out", epsilon=epsilon, delta=delta)


@pytest.mark.parametrize(("mu", "delta"), [(0.027545, 1e-6), (0.236704, 1e-9), (1.0, 1e-2), (2.45, 1e-6)])
def test_our_profile_and_the_library_agree_within_a_thousandth(mu, delta):
    ours = epsilon_of([gauss(mu)], delta)
    assert library_epsilon([gauss(mu)], delta) == pytest.approx(ours, rel=1e-3, abs=2e-4)
    assert library_epsilon([gauss(mu)], delta, interval=1e-4) == pytest.approx(ours, rel=1e-3, abs=1e-6)


@settings(max_examples=5, deadline=None)
@given(mus=st.lists(st.floats(0.05, 0.8), min_size=2, max_size=4), delta=st.sampled_from([1e-3, 1e-6]))
def test_compositions_agree_within_a_thousandth(mus, delta):
    events = [gauss(mu) for mu in mus]
    assert library_epsilon(events, delta) == pytest.approx(epsilon_of(events, delta), rel=1e-3)


def test_other_claims_compose_from_above():
    assert epsilon_of([claim(0.5)], 0.0) == 0.5
    assert epsilon_of([claim(0.5), claim(0.25)], 0.0) == pytest.approx(0.75)
    assert library_epsilon([claim(0.5)], 0.0) == pytest.approx(0.5)
    assert epsilon_of([claim(0.5)] * 2, 0.01) < 0.98  # less than their sum
    many = epsilon_of([claim(0.1)] * 100, 1e-6)
    assert 3.0 < many < 10.0  # advanced composition, exactly: well below the sum
    mixed = epsilon_of([gauss(0.236704), claim(0.5), claim(0.3, 1e-7)], 1e-6)
    assert max(1.0, 0.8) < mixed < 1.8
    assert epsilon_of([claim(1.0, 1e-5)], 1e-6) == math.inf


def test_slack_is_paid_from_delta():
    assert epsilon_of([gauss(0.2, slack=1e-7)], 1e-6) == gaussian.epsilon_at(0.2, 1e-6 - 1e-7)
    assert epsilon_of([gauss(0.2, slack=1e-6)], 1e-6) == math.inf
    assert library_epsilon([gauss(0.2, slack=1e-7)], 1e-6) == pytest.approx(
        epsilon_of([gauss(0.2, slack=1e-7)], 1e-6), rel=1e-3
    )


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 1.5])
def test_a_delta_outside_its_range_is_refused(delta):
    with pytest.raises(BadParameterError, match="delta="):
        epsilon_of([gauss(1.0)], delta)


def test_events_say_what_ran():
    fpl = sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=1, horizon=100, center=False)
    event = Event.of(fpl)
    assert (event.mu, event.adjacency, event.unit) == (fpl.guarantee.mu, "zero-out", "one row")
    assert "100 rows" in event.what
    assert epsilon_of([event], 1e-6) == pytest.approx(1.0)
    laplace = Event.of(sp.papers.LaplaceCovariance(n_components=1, epsilon=0.5))
    assert (laplace.mu, laplace.epsilon, laplace.delta) == (None, 0.5, 0.0)
    approximate = Event.of(sp.Guarantee(0.5, 1e-3, "replace", "scope", "theorem", "citation", unit="one user"))
    assert approximate == Event("theorem; scope", "replace", "one user", epsilon=0.5, delta=1e-3)
    slack = Event.of(sp.papers.SubspacePerturbation(n_components=1, epsilon=1.0, delta=1e-6).guarantee)
    assert slack.slack == pytest.approx(1e-7)


def test_what_has_no_guarantee_has_no_price():
    with pytest.raises(UsageError, match="no guarantee"):
        Event.of(sp.Guarantee.none("published rewards"))


def test_different_neighbours_do_not_add_up():
    with pytest.raises(UsageError, match="do not add up"):
        epsilon_of([gauss(0.1), Event("other", "replace", mu=0.1)], 1e-6)


def test_the_library_is_imported_only_when_needed():
    code = (
        "import sys, streampca; from streampca.privacy.accounting import Event, epsilon_of;"
        "epsilon_of([Event('x', 'zero-out', mu=0.2)] * 3, 1e-6);"
        "sys.exit('dp_accounting' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_library_epsilons_and_deltas_add_up(monkeypatch):
    events = [Event("gaussian", "zero-out", mu=0.1), *[Event("pure", "zero-out", epsilon=0.5)] * 4]
    tight = epsilon_of(events, 1e-6)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    assert epsilon_of(events, 1e-6) == pytest.approx(2.0 + epsilon_of(events[:1], 1e-6))
    assert epsilon_of(events, 1e-6) > tight
