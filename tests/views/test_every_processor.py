"""Every processor has its page."""

import json

import numpy as np
import pytest

import streampca as sp
from streampca.views.page import Page

BUDGET = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}
CASES = {
    "fpl": (lambda: sp.PrivateFPL(**BUDGET, release_every=10), {"values", "share", "angles"}),
    "fpl-replace": (lambda: sp.PrivateFPL(**BUDGET, adjacency="replace", release_every=10), {"values", "angles"}),
    "fpl-regret": (lambda: sp.PrivateFPL(**BUDGET, release_every=10, publish_regret=True), {"intervals", "values"}),
    "fpl-tracking": (lambda: sp.PrivateFPL(**BUDGET, release_every=10, solver="tracking"), {"values", "angles"}),
    "fpl-smoothed": (lambda: sp.PrivateFPL(**BUDGET, release_every=10, solver="smoothed"), {"values", "angles"}),
    "leader": (lambda: sp.papers.PerturbedLeader(**BUDGET, release_every=10), {"values", "angles"}),
    "window": (lambda: sp.SlidingWindowPCA(**BUDGET, window=50, release_every=10), {"values", "checkpoints"}),
    "smoothed": (lambda: sp.SlidingWindowPCA(**BUDGET, window=50, method="smoothed"), {"values", "angles"}),
    "forgetting": (lambda: sp.SlidingWindowPCA(**BUDGET, window=50, method="forgetting"), {"values", "angles"}),
    "oja": (lambda: sp.Oja(n_components=2, release_every=10), {"angles"}),
    "private-oja": (lambda: sp.PrivateOja(**BUDGET, batch_size=16), {"angles"}),
    "dp-pca": (lambda: sp.DPPCA(n_components=2, epsilon=50.0, delta=0.1, horizon=340, batch_size=56), set()),
    "tumbling": (lambda: sp.Tumbling(sp.GaussianCovariance(**BUDGET), release_every=40), {"values", "angles"}),
    "wishart": (lambda: sp.Tumbling(sp.papers.WishartCovariance(**BUDGET), release_every=40), {"values"}),
    "exact": (lambda: sp.Tumbling(sp.ExactSubspace(**BUDGET), release_every=40), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_shown(case):
    make, wanted = CASES[case]
    stream = sp.Stream(make(), regret=sp.RegretLog(every=20), seed=1)
    rows = np.random.default_rng(0).normal(size=(340, 6)) * np.array([0.6, 0.4, 0.1, 0.1, 0.1, 0.1])
    curator = Page(curator=True)
    curator.add([*stream.push_many(rows).releases, *stream.regret.history])
    curator.end()
    state = json.loads(json.dumps(curator.state(), allow_nan=False))
    assert {panel["name"] for panel in state["panels"]} >= wanted | {"regret", "captured"}
    assert state["guarantee"]
    if stream.release is not None:
        assert state["tables"]["releases"]["rows"][-1][0] == stream.release.t
    for panel in state["panels"]:
        columns = state["tables"][panel["table"]]["columns"]
        named = [column for column, _ in panel["series"]] + list((panel["band"] or [])[:2])
        assert set(named) <= set(columns)
